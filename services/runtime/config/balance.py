"""Meaning of the settings that move running jobs of a batch department between its hosts; see `config.checks`.

Rules
  1. The band has two edges, and the lower one is below the upper one: else a move could be undone by the next.
  2. The option needs a hypervisor that can move a running VM: else each move would stop the job for as long as its memory
     takes to disk and back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schemas.config import BatchPolicy
from services.runtime.config.form import Path_, Problem, shown


def check(batch: BatchPolicy, path: Path_, label: str, able: Sequence[str]) -> Iterator[Problem]:
    balance = batch.balance

    def problem(key: str, right: str) -> Problem:
        return Problem(path=(*path, "balance", key), found=shown(getattr(balance, key)), right=right, label=label)

    if balance.low >= balance.high:
        yield problem("low", f"should be less than high ({balance.high:g})")
    if balance.enabled and "live_migration" not in able:
        yield problem("enabled", "should be false: the hypervisor of this cloud cannot move a VM while it runs")
