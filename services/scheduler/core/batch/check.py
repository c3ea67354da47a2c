"""Is the batch core what its state says?  For tests, and for a service that checks itself.

Rules
  1. Every view is that of a core that has just loaded the same state.
  2. It rests only if that core, asked now or any time until it is woken, would have nothing to say either.
  3. No job is remembered longer than one of its units is not final.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.domain.core import last_moment
from services.scheduler.core.state.queue import Lane
from services.scheduler.core.state.shape import Place

if TYPE_CHECKING:
    from services.scheduler.core.batch.core import BatchCore


def check(core: BatchCore, fresh: BatchCore, later: BatchCore) -> list[str]:
    """What is wrong with `core`.  `fresh`, `later`: cores of the same state that have never rested, nor given up a pass as
    fruitless."""
    state = core.state
    found = [
        f"{name} has {job.left} units left of {len(job.array) or 1}"
        for name, job in state.jobs.items()
        if not 0 < job.left <= (len(job.array) or 1)
    ]
    found += [f"{name} is remembered as requeued and is no job's" for name in state.again if not core.book.has(name)]
    found += [f"{name} has a checkpoint and is no job's" for name in state.checkpoints if not core.book.has(name)]
    found += [
        f"{name} has saved {c.saved_s} s of {c.base_s} s"
        for name, c in state.checkpoints.items()
        if c.saved_s < c.base_s
    ]
    units = core.custody.state.units
    found += [f"{u}'s machine is remembered and gone" for u in state.warm if u not in units or not units[u].vms_open]
    if core.foresaw:
        fresh.foresee()
    for one in (core, fresh):
        one.look(max(core.decided_at, core.custody.state.at))
    queue, lanes = core.book.ranked(core.custody.state.at), fresh.book.ranked(core.custody.state.at).lanes
    for key in [key for key, lane in queue.lanes.items() if lane.lengths and key in lanes]:
        fresh.book.queue.by_length(lanes[key])
    mine, theirs = views(core), views(fresh)
    found += _rests_wrongly(core, fresh, later)
    return found + [
        f"view {name} differs from custody: {mine[name]} is not {theirs[name]}"
        for name in mine
        if mine[name] != theirs[name]
    ]


def _rests_wrongly(core: BatchCore, fresh: BatchCore, later: BatchCore) -> list[str]:
    """Rule 2, now and at the last moment."""
    if not core.rests_until_woken():
        return []
    now = max(core.decided_at, core.custody.state.at)
    then = last_moment(now, core.wake_at())
    found = [f"it rests though it has to say {fact}" for fact in fresh.decide(now)]
    return found or [f"it rests beyond {then} though it has to say {fact}" for fact in later.decide(then)]


def views(core: BatchCore) -> dict[str, object]:
    """Everything that the core derives, by name."""
    queue, room = core.book.ranked(core.custody.state.at), core.room
    return {
        "queue": {key: lane.places for key, lane in queue.lanes.items()},
        "lengths": {key: _rows(lane) for key, lane in queue.lanes.items() if lane.lengths},
        "places": {name: place for name, (_, place) in queue.where.items()},
        "bookings": queue.bookings,
        "throttled": queue.running,
        "room": (room.free, room.classes, room.order, room.resting, room.busy, room.cordoned),
        "capacities": (core.capacities.of_host, core.capacities.counts),
        "open": core.open,
        "cancelling": core.cancelling,
        "best-effort": core.best_effort,
        "dependents": core.book.dependents,
        "waiting": core.book.launches.waiting,
        "failing": core.book.launches.failing,
        "started": core.limits.started,
        "next limit": core.limits.next_due(),
        "suspended": queue.suspended,
        "budgets": queue.budgets.used if queue.budgets is not None else None,
        "forecast": core.foresee().views() if core.foresaw else None,
    }


def _rows(lane: Lane) -> dict[float, list[Place]]:
    """Units by how long they may run."""
    return {} if lane.lengths is None else {length_s: row.places for length_s, row in lane.lengths.places.items()}
