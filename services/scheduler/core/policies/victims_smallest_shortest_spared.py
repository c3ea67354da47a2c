"""Victims: the paper's "minimum size and shortest running time", but no job ends for nothing.  The default.

Sources: Phoenix Cloud paper, II-B; the sparing as in Kueue (pkg/scheduler/preemption: remove until it fits, then add back).

Rules
  1. Hosts are emptied from the smallest job on; of equal size the shortest running one; of equals the one submitted last.
  2. Then the victims that are not needed after all, because a wider one empties enough alone, are spared, the dearest first.
  3. Where jobs share a host, the host has the nodes of all of them, their running time, and the newest of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from services.scheduler.core.policies.victims import Candidate, Choice, HostLoad, choose_by, newest_first


def choose(hosts: Sequence[HostLoad], candidates: Mapping[str, Candidate], count: int) -> Choice:
    """`count` hosts (all, if there are no more) and the victims that it takes."""
    return choose_by(_price, hosts, candidates, count, spare=True)


def _price(lost: Sequence[Candidate], _useful: Callable[[], int]) -> tuple[float, ...]:
    return (
        sum(c.nodes for c in lost),  # 1. paper: minimum size
        sum(c.running_s for c in lost),  # 2. paper: shortest running time
        *min(newest_first(c.unit) for c in lost),  # 3. the job submitted last goes first
    )
