"""Where the victims of a notice go that wish to migrate: to hosts of the department that stay, if there is room right now.

Theory of operation
  A move is two facts of one envelope, before the release of the host that is left: `attempt.closed` (migrate) and
  `unit.placed` on the new hosts.  The executor then moves the VM, live or cold, by the deadline of saving
  (`domain.saving`).  This module says who finds room and where; it reads the room and changes nothing.

Rules
  1. Ranks on hosts that stay keep them; each other rank gets a host that stays and that the unit is not on.
  2. All ranks find room or the unit does not move: a gang is never split into those that go and those that wait.
  3. Room is what is free now, beside everything that lives.  Nothing waits for what other victims leave: a move has a deadline.
  4. Of hosts with room those without a VM that is on its way out (or parked) come first, since such a VM is still there for a
     while; then best fit as everywhere (`room`, rule 2).
  5. Who is held is not placed, so it is not moved either: it is suspended, and waits for its release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from services.domain.custody.custody import Custody
from services.domain.custody.state import Unit
from services.scheduler.core.state.room import Free, Room
from services.scheduler.core.state.shape import Shape


class _Offer(NamedTuple):
    """A host that stays.  Natural order: rule 4; the name is unique."""

    unsettled: bool
    free: Free
    host: str


def moves(
    custody: Custody,
    room: Room,
    wishing: Iterable[str],
    going: Iterable[str],
    shape_of: Callable[[str], Shape] | None = None,
) -> dict[str, tuple[str, ...]]:
    """Who of `wishing` moves, in this order of preference, and to which hosts, rank by rank.  `going`: hosts given back;
    `shape_of`: what a unit needs beside its size (its constraint)."""
    leave = dict.fromkeys(going)
    left: dict[str, Free] | None = None  # what each host that stays offers; made once somebody asks
    found: dict[str, tuple[str, ...]] = {}
    for name in wishing:
        unit = custody.state.units[name]
        if unit.held or unit.cancelled:
            continue
        if left is None:
            left = {host: free for host, free in room.free.items() if host not in leave}
        shape = shape_of(name) if shape_of is not None else _shape(unit)
        hosts = _hosts(custody, unit, shape, left, leave)
        if hosts is None:
            continue
        found[name] = hosts
        for rank, host in enumerate(hosts):
            if host != unit.hosts[rank]:
                _take(left, host, shape)
    return found


def _hosts(
    custody: Custody, unit: Unit, shape: Shape, left: dict[str, Free], leave: dict[str, None]
) -> tuple[str, ...] | None:
    """Rules 1, 2 and 4."""
    short = sum(host in leave for host in unit.hosts)
    offers = [
        _Offer(not _settled(custody, host), free, host)
        for host, free in left.items()
        if free.fits(shape) and host not in unit.hosts
    ]
    if len(offers) < short:
        return None
    chosen = iter(sorted(offers))
    return tuple(next(chosen).host if host in leave else host for host in unit.hosts)


def _settled(custody: Custody, host: str) -> bool:
    """True if every VM on the host is that of a live attempt."""
    vms = (custody.state.vms[key] for key in custody.state.hosts[host].vms)
    return all(custody.live(vm.unit, vm.attempt) for vm in vms)


def _shape(unit: Unit) -> Shape:
    return Shape(unit.nodes, unit.cores, unit.memory_mb, unit.exclusive)


def _take(left: dict[str, Free], host: str, shape: Shape) -> None:
    free = left.pop(host)
    if not shape.exclusive:
        left[host] = Free(False, free.cores - shape.cores, free.memory_mb - shape.memory_mb, free.serves)
