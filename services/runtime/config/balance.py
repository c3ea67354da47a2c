"""Meaning of the settings that move running jobs of a batch department between its hosts; see `config.checks`.

Rules
  1. The band has two edges, and the lower one is below the upper one: else a move could be undone by the next.
  2. Who asks for it needs a hypervisor that can move a running VM: else each move would stop the job for as long as its memory
     takes to disk and back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from schemas.config import BatchPolicy
from services.runtime.config.form import Path_, Problem, shown

DAY_S = 86_400.0
MOVES_MAX = 1000
RATE_MAX = 1e6  # MiB/s: faster than any memory


def check(batch: BatchPolicy, path: Path_, label: str, able: Sequence[str]) -> Iterator[Problem]:
    balance = batch.balance

    def problem(key: str, right: str) -> Problem:
        return Problem(path=(*path, "balance", key), found=shown(getattr(balance, key)), right=right, label=label)

    def within(key: str, low: float, high: float, *, above: bool = False) -> Iterator[Problem]:
        value: float = getattr(balance, key)
        if math.isnan(value) or not low <= value <= high or (above and value == low):
            yield problem(key, f"should be {'more than' if above else 'at least'} {low:g} and at most {high:g}")

    yield from within("high", 0.0, 1.0, above=True)
    yield from within("low", 0.0, 1.0)
    yield from within("mb_per_s", 0.0, RATE_MAX, above=True)
    yield from within("cost_max_s", 0.0, DAY_S)
    yield from within("worth", 0.0, 1e6)
    yield from within("moves_max", 1, MOVES_MAX)
    if balance.low >= balance.high:
        yield problem("low", f"should be less than high ({balance.high:g})")
    if balance.enabled and "live_migration" not in able:
        yield problem("enabled", "should be false: the hypervisor of this cloud cannot move a VM while it runs")
