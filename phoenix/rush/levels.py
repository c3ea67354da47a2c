"""Levels over time from a recording: what the load needs, what was wanted, what served, who held the hosts.

A level is rows (seconds since the load began, value), each until the next; all are cut to the time of the load.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from phoenix.rush import setting
from phoenix.rush.recording import Recording
from phoenix.rush.site import BATCH, WEB

Rows: TypeAlias = list[tuple[float, float]]
OTHER: Final = "(on their way)"


def needed(recording: Recording) -> Rows:
    """Instances that the load keeps busy."""
    return setting.busy(recording.curve, recording.capacity)


def ideal(recording: Recording) -> Rows:
    """Instances that would be busy to the target at most, were the load known."""
    return [(at, float(count)) for at, count in setting.ideal(recording.curve, recording.capacity, recording.setting)]


def serving(recording: Recording) -> Rows:
    """Instances that the load balancer sends to."""
    return _cut(recording, ((one.at, float(len(one.addresses))) for one in recording.seen))


def wanted(recording: Recording) -> Rows:
    """Instances that the department wants: its rule's word, or a person's."""
    facts = ((one["at"], one["fact"]) for one in recording.events if one["kind"] == "demand.changed")
    return _cut(recording, ((at, float(fact["instances"])) for at, fact in facts if fact["dept"] == WEB))


def holders(recording: Recording) -> dict[str, Rows]:
    """Hosts by holder; those without one are between two holders."""
    names = (WEB, BATCH, OTHER)
    return {name: _cut(recording, ((at, _count(owners, name)) for at, owners in recording.timeline)) for name in names}


def _count(owners: dict[str, int], name: str) -> float:
    if name != OTHER:
        return float(owners.get(name, 0))
    return float(sum(count for owner, count in owners.items() if owner not in (WEB, BATCH)))


def _cut(recording: Recording, rows: Iterable[tuple[float, float]]) -> Rows:
    """In seconds of the load, from 0 to its end; what held before counts from 0."""
    shifted = [(at - recording.began_at, value) for at, value in rows]
    before = [value for at, value in shifted if at <= 0]
    kept = [(at, value) for at, value in shifted if 0 < at < recording.curve.end_s]
    return [(0.0, before[-1] if before else 0.0), *kept]


def at(rows: Sequence[tuple[float, float]], moment: float) -> float:
    """The level at a moment."""
    found = [value for since, value in rows if since <= moment]
    return found[-1] if found else 0.0


def merged(*levels: Rows, until: float) -> list[tuple[float, float, tuple[float, ...]]]:
    """(from, until, their values) for each time in which none of them changes."""
    edges = sorted({0.0, until, *(since for rows in levels for since, _ in rows if 0 < since < until)})
    places, found = [0] * len(levels), []
    for since, to in pairwise(edges):
        for number, rows in enumerate(levels):
            while places[number] + 1 < len(rows) and rows[places[number] + 1][0] <= since:
                places[number] += 1
        found.append((since, to, tuple(rows[place][1] for rows, place in zip(levels, places, strict=True))))
    return found
