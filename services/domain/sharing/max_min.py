"""Dividing what is short: weighted max-min fairness in whole hosts.  One pure function, for all who divide.

Theory of operation
  Water is poured into vessels as wide as the weights, connected at the bottom: all stand at one level, but for those whose
  floor is above it and those that are full.  So none can have more without taking from one that has fewer per weight
  (max-min fairness: Bertsekas and Gallager, Data Networks, 1992, section 6.5; with floors and weights as in Hadoop's
  ComputeFairShares).  Hosts are whole: they are dealt one at a time, as seats are to parties by the divisor method of
  D'Hondt and Jefferson.  Methods of that kind, and no others, never take a seat from anybody because the house grew or a
  party did (Balinski and Young, Fair Representation, 1982).

Rules
  1. The k-th host of a part with weight w stands at level k/w.  The lowest level not yet dealt goes first: a fixed order,
     whatever there is to divide, so with more hosts none has fewer.
  2. At the same level: 1. the one that had that many before, 2. unique: the name.  What was divided so is divided so again.
  3. None has fewer than its floor, which is not part of what is divided, nor more than it can use.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from heapq import heapify, heapreplace
from typing import NamedTuple


class Part(NamedTuple):
    """One of those who share.  All but the weight are hosts; `had`: so far (rule 2).  With `least` ≥ `most` it has `least`."""

    name: str
    weight: float
    least: int
    most: int
    had: int = 0


def fill(parts: Sequence[Part], count: int) -> dict[str, int]:
    """Name -> hosts, when `count` hosts are divided beside the least of all."""
    given = {p.name: p.least for p in parts}
    open_ = [p for p in parts if p.least < p.most]
    if count <= 0:
        return given
    if sum(p.most - p.least for p in open_) <= count:
        return given | {p.name: p.most for p in open_}
    level = _level(open_, count)
    line = []
    for p in open_:  # whatever is a whole host below the level is dealt before what is at it: not one by one
        sure = max(p.least, min(p.most, int(level * p.weight) - 1))
        given[p.name], count = sure, count - (sure - p.least)
        if sure < p.most:
            line.append((*_turn(p, sure + 1), p))
    heapify(line)
    while count > 0:
        p = line[0][-1]
        given[p.name], count = given[p.name] + 1, count - 1
        after = given[p.name] + 1
        heapreplace(line, (*_turn(p, after), p) if after <= p.most else _END)
    return given


def fill_within(parts: Sequence[Part], count: int, allowed: Callable[[dict[str, int]], bool]) -> dict[str, int]:
    """As `fill`, where not everything that adds up is `allowed`: who can have no more does not hold up the others.

    `allowed`: of what is given; it must allow the least of all, and whatever is less than something that it allows.  Of flows
    from lenders to borrowers, the greatest that each can have beside the others: this is max-min fair (Megiddo 1974)."""
    parts = list(parts)
    while True:
        count = max(0, min(count, sum(max(0, p.most - p.least) for p in parts)))
        wished = fill(parts, count)
        if not count or allowed(wished):  # mostly
            return wished
        more = bisect_right(range(1, count), False, key=lambda n: not allowed(fill(parts, n)))
        given, after = fill(parts, more), fill(parts, more + 1)  # one host more, and that is one too many
        parts = [p._replace(most=given[p.name]) if after[p.name] > given[p.name] else p for p in parts]


_END = (float("inf"), True, "", Part("", 1.0, 0, 0))


def _turn(part: Part, k: int) -> tuple[float, bool, str]:
    """When its k-th host is dealt (rules 1 and 2)."""
    return k / part.weight, part.had < k, part.name


def _level(parts: Sequence[Part], count: int) -> float:
    """Where the water stands when `count` hosts, that could be cut, are poured; not all have room."""
    total = count + sum(p.least for p in parts)

    def poured(level: float) -> float:
        return sum(min(p.most, max(p.least, level * p.weight)) for p in parts)

    marks = sorted(
        {bound / p.weight for p in parts for bound in (p.least, p.most)}
    )  # between two of them it rises evenly
    low = marks[max(0, bisect_right(marks, False, key=lambda level: poured(level) > total) - 1)]
    width = sum(p.weight for p in parts if p.least / p.weight <= low < p.most / p.weight)
    return low + (total - poured(low)) / width if width else low
