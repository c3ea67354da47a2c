"""Is the batch core what its state says?  For tests, and for a service that checks itself.

Rules
  1. Every view is that of a core that has just loaded the same state.
  2. What a stage remembers is what one of that core would find (`check` of each stage).
  3. It rests only if that core, asked now or any time until it is woken, would have nothing to say either.
  4. No job is remembered longer than one of its units is not final.
"""

from __future__ import annotations

from services.scheduler.core.batch.view import View
from services.scheduler.core.state.queue import Lane
from services.scheduler.core.state.shape import Place


def remembered(view: View) -> list[str]:
    """What the state holds for no job, or holds inconsistently (rule 4)."""
    state, jobs = view.state, view.jobs
    found = [
        f"{name} has {job.left} units left of {len(job.array) or 1}"
        for name, job in state.jobs.items()
        if not 0 < job.left <= (len(job.array) or 1)
    ]
    found += [f"{name} is remembered as requeued and is no job's" for name in state.again if not jobs.has(name)]
    found += [f"{name} has a checkpoint and is no job's" for name in state.checkpoints if not jobs.has(name)]
    found += [
        f"{name} has saved {c.saved_s} s of {c.base_s} s"
        for name, c in state.checkpoints.items()
        if c.saved_s < c.base_s
    ]
    units = view.custody.state.units
    return found + [
        f"{u}'s machine is remembered and gone" for u in state.warm if u not in units or not units[u].vms_open
    ]


def differences(view: View, fresh: View) -> list[str]:
    """Rule 1."""
    if view.foresaw:
        fresh.foresee()
    at = view.custody.state.at
    queue, lanes = view.jobs.ranked(at), fresh.jobs.ranked(at).lanes
    for key in [key for key, lane in queue.lanes.items() if lane.lengths and key in lanes]:
        fresh.jobs.queue.by_length(lanes[key])
    mine, theirs = views(view), views(fresh)
    return [
        f"view {name} differs from custody: {mine[name]} is not {theirs[name]}"
        for name in mine
        if mine[name] != theirs[name]
    ]


def views(view: View) -> dict[str, object]:
    """Everything that is derived, by name."""
    queue, room = view.jobs.ranked(view.custody.state.at), view.room
    return {
        "queue": {key: lane.places for key, lane in queue.lanes.items()},
        "lengths": {key: _rows(lane) for key, lane in queue.lanes.items() if lane.lengths},
        "places": {name: place for name, (_, place) in queue.where.items()},
        "bookings": queue.bookings,
        "throttled": queue.running,
        "room": (room.free, room.classes, room.order, room.resting, room.busy, room.cordoned),
        "capacities": (view.capacities.of_host, view.capacities.counts),
        "open": view.open,
        "cancelling": view.cancelling,
        "best-effort": view.best_effort,
        "dependents": view.jobs.dependents,
        "waiting": view.jobs.launches.waiting,
        "failing": view.jobs.launches.failing,
        "started": view.limits.started,
        "next limit": view.limits.next_due(),
        "suspended": queue.suspended,
        "budgets": queue.budgets.used if queue.budgets is not None else None,
        "forecast": view.foresee().views() if view.foresaw else None,
        "settings": (view.policy, view.active),
    }


def _rows(lane: Lane) -> dict[float, list[Place]]:
    """Units by how long they may run."""
    return {} if lane.lengths is None else {length_s: row.places for length_s, row in lane.lengths.places.items()}
