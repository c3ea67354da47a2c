"""Victims: the job that has waited least goes first, so that no job waits long twice.

Source: M. A. Salehi et al., Software: Practice and Experience 2013, 4.3.1 (costs as in order `leases`).  There victims make way
for a lease; here also where hosts must be given back.

Rules
  1. A host costs the sum of what the jobs on it cost: for how long each had waited when it began.
  2. Of equals the one with the job submitted last goes first.
  3. A victim that is not needed after all is spared, the dearest first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from phoenix.plugin.policies import Candidate, Choice, HostLoad, choose_by, newest_first

API: Final = 1
COSTS: Final = True


def choose(hosts: Sequence[HostLoad], candidates: Mapping[str, Candidate], count: int) -> Choice:
    """`count` hosts (all, if there are no more) and the victims that it takes."""
    return choose_by(_price, hosts, candidates, count, spare=True)


def _price(lost: Sequence[Candidate], _useful: Callable[[], int]) -> tuple[float, ...]:
    return (
        sum(c.waited_s for c in lost),  # 1. seconds waited
        *min(newest_first(c.unit) for c in lost),  # 2. the job submitted last goes first
    )
