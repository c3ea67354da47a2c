"""Victims: who started last goes first, whatever its size.

Source: R. Chakode, thesis, Univ. Grenoble 2012, Algorithm 2 (who makes way: the newest first), here for any victim.

Rules
  1. A host is as dear as the oldest job that emptying it would end; of equals the next oldest counts, and so on.  So an old job
     goes only when nothing younger would do, and of two hosts with the same jobs on them the one with fewer.
  2. A job whose guests have not all called has run for no time.  Of equals the one submitted last goes first.
  3. A victim that is not needed after all is spared, the oldest first.

Long work is not begun again; a young wide job may end for one host, where another order would end an old narrow one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from services.scheduler.core.policies.victims import Candidate, Choice, HostLoad, choose_by, newest_first


def choose(hosts: Sequence[HostLoad], candidates: Mapping[str, Candidate], count: int) -> Choice:
    """`count` hosts (all, if there are no more) and the victims that it takes."""
    return choose_by(_price, hosts, candidates, count, spare=True)


def _price(lost: Sequence[Candidate], _useful: Callable[[], int]) -> tuple[float, ...]:
    """Ages, oldest first; natural order compares the oldest, then the next, then who has fewer."""
    ages = sorted(((c.running_s, *newest_first(c.unit)) for c in lost), reverse=True)
    return tuple(part for age in ages for part in age)
