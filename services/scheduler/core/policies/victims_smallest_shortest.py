"""Victims, exactly as the paper has it: "from the beginning of job with minimum size and shortest running time".

Source: Phoenix Cloud paper, II-B.

Rules
  1. Jobs in the order of nodes, then running time, then number; taken greedily, whole, until enough hosts are empty.
  2. Nothing is added back: a job that turned out not to be needed, because a wider one came after it, ends all the same.
  3. Where jobs share a host, the host has the nodes of all of them, their running time, and the number of the first.

Who does not want rule 2 takes `smallest-shortest-spared`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from services.scheduler.core.policies.victims import Candidate, Choice, HostLoad, choose_by, oldest_first

MINIMAL: Final = False  # rule 2


def choose(hosts: Sequence[HostLoad], candidates: Mapping[str, Candidate], count: int) -> Choice:
    """`count` hosts (all, if there are no more) and the victims that it takes."""
    return choose_by(_price, hosts, candidates, count, spare=False)


def _price(lost: Sequence[Candidate], _useful: Callable[[], int]) -> tuple[float, ...]:
    return (
        sum(c.nodes for c in lost),  # 1. paper: minimum size
        sum(c.running_s for c in lost),  # 2. paper: shortest running time
        *min(oldest_first(c.unit) for c in lost),  # 3. the job's number
    )
