"""Why a lease with a time slot waits: read from the core's state, changing nothing (`lookahead.why`).

Rules
  1. Before its slot: when that begins and ends; as things are, on how many hosts, and who makes way for it.  Where the order is
     another one by now, that its time is not kept.
  2. In its slot: by how much it is late, before what keeps it from starting.
  3. After its slot: that it has passed.  Nothing helps it any more.
"""

from __future__ import annotations

from schemas.reasons import Code, Reason, because
from services.scheduler.core.state.shape import Booking
from services.scheduler.lookahead.snapshot import Snapshot


def why_slot(snapshot: Snapshot, booking: Booking) -> Reason:
    """The first reason of a lease that waits for its slot, or in it."""
    core, now = snapshot.core, snapshot.now
    times = {"starts_at": booking.start_at, "ends_at": booking.ends_at}
    if now >= booking.ends_at:
        return because(Code.LEASE_OVER, **times)
    if now >= booking.start_at:
        return because(Code.LEASE_LATE, late_s=round(now - booking.start_at, 3), ends_at=booking.ends_at)
    in_s = round(booking.start_at - now, 3)
    if not core.view.order.keeps_slots:
        return because(Code.LEASE_STARTS_AT, in_s=in_s, **times, order=str(core.view.policy.order))
    slot = snapshot.last.find(booking.unit)
    hosts = {} if slot is None else {"hosts": len(slot.hosts), "nodes": booking.shape.nodes}
    way = {"victims": list(slot.victims)} if slot is not None and slot.victims else {}
    return because(Code.LEASE_STARTS_AT, in_s=in_s, **times, **hosts, **way)
