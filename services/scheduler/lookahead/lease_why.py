"""Why a lease with a time slot waits: read from the core's state, changing nothing (`lookahead.why`).

Rules
  1. Before its slot: when that begins and ends; as things are, on how many hosts, and who makes way for it.  Where the order is
     another one by now, that its time is not kept.
  2. In its slot: by how much it is late, before what keeps it from starting.
  3. After its slot: that it has passed.  Nothing helps it any more.
"""

from __future__ import annotations

import msgspec

from schemas import reasons as because
from schemas.reasons import Reason
from services.scheduler.core.state.shape import Booking
from services.scheduler.lookahead.snapshot import Snapshot


def why_slot(snapshot: Snapshot, booking: Booking) -> Reason:
    """The first reason of a lease that waits for its slot, or in it."""
    core, now = snapshot.core, snapshot.now
    starts_at, ends_at = booking.start_at, booking.ends_at
    if now >= booking.ends_at:
        return because.LeaseOver(starts_at=starts_at, ends_at=ends_at)
    if now >= booking.start_at:
        return because.LeaseLate(late_s=round(now - booking.start_at, 3), ends_at=booking.ends_at)
    in_s = round(booking.start_at - now, 3)
    if not core.view.order.keeps_slots:
        return because.LeaseStartsAt(in_s=in_s, starts_at=starts_at, ends_at=ends_at, order=str(core.view.policy.order))
    snapshot.last.work_out(booking.unit)
    slot = snapshot.last.reserved(booking.unit)
    told = because.LeaseStartsAt(in_s=in_s, starts_at=starts_at, ends_at=ends_at)
    if slot is None:
        return told
    victims = list(slot.victims)
    return msgspec.structs.replace(told, hosts=len(slot.hosts), nodes=booking.shape.nodes, victims=victims)
