"""Widest last: when hosts must go back, narrow jobs make room first.

Source: an example of docs/howto/plugins.md.

Rules
  1. Hosts are emptied in the order of what their jobs cost: the sum of the jobs' hosts, then how long they have run, then the
     job that was submitted last.
  2. Which hosts go, cordons, best-effort, jobs that share hosts, and sparing who need not end, is `choose_by`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from phoenix.plugin.policies import Candidate, Choice, HostLoad, choose_by, newest_first

API = 1  # the version of `phoenix.plugin` that this was written for


def choose(hosts: Sequence[HostLoad], candidates: Mapping[str, Candidate], count: int) -> Choice:
    """`count` hosts (all, if there are no more) and the victims that it takes."""
    return choose_by(_price, hosts, candidates, count, spare=True)


def _price(ending: Sequence[Candidate], _useful: Callable[[], int]) -> tuple[float, ...]:
    """Rule 1; unique for each single job, by its last part."""
    return (
        sum(one.nodes for one in ending),
        sum(one.running_s for one in ending),
        *min(newest_first(one.unit) for one in ending),
    )
