"""Leases with a time slot in a department whose order keeps no room for them.

Admission accepts such leases only where the order is `leases`; they can still be there after the configuration was changed.

Rules
  1. A lease starts no sooner than its slot begins, and not after it has passed.
  2. From then on it goes before all units in the queue, if there is room; nothing is preempted or reserved for it.
"""

from __future__ import annotations

from schemas import reasons as because
from schemas.times import nearest
from services.domain.core import NEVER
from services.scheduler.core.policies.order import Plan, Situation, Start


def plan(situation: Situation) -> Plan:
    """Leases to start now, in the order of their starts; due is the next start of a slot."""
    now, found = situation.now, list[Start]()
    later = [booking.start_at for booking in situation.queue.bookings.values() if booking.start_at > now]
    due = [b for b in situation.queue.bookings.values() if b.start_at <= now < b.ends_at]
    room = situation.room.copy() if due else situation.room
    for booking in sorted(due)[: situation.most]:
        hosts = room.take(booking.shape)
        if hosts is not None:
            reason = because.LeaseStarts(ends_at=nearest(booking.ends_at))
            found.append(Start(booking.unit, booking.shape, hosts, reason))
    return Plan(found, due=min(later, default=NEVER))
