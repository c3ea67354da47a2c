"""The times of leases that the batch core needs under every order.

Rules
  1. The core is woken when a slot begins, when one has passed, and `lead_s` before one begins, to ask for its hosts.
  2. From then on until the slot has passed its lease is demand: the hosts that it needs, beside those that production and other
     leases have.  Best-effort is not counted: it can be preempted.
  3. An attempt must be ended this long before its room is needed: as long as its machines take to be suspended, one after the
     other; where they are not suspended, the time that a VM may take to end (`kill_s`, or the job's own grace if that is
     longer); and `margin_s` in both cases.  One that has not begun would only be ended now, but suspended once it has: the
     longer of the two, since it may begin meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from schemas.config import Leases
from services.domain import grace
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.state import Unit
from services.scheduler.core.batch.jobs import Jobs
from services.scheduler.core.policies.preemption_costs import suspend_s
from services.scheduler.core.state.capacities import Capacities
from services.scheduler.core.state.shape import Booking, Shape


def next_moment(bookings: Iterable[Booking], settings: Leases, decided_at: float) -> float:
    """Rule 1."""
    times = (at for b in bookings for at in (b.start_at - settings.lead_s, b.start_at, b.ends_at))
    return min((at for at in times if at > decided_at), default=NEVER)


def hosts_wanted(
    jobs: Jobs, open_units: Mapping[str, tuple[str, ...]], capacities: Capacities, settings: Leases, now: float
) -> int:
    """Rule 2: hosts for the slots that are near and for what does not make way for them; 0 if none is near."""
    bookings = jobs.queue.bookings.values()
    near = _for_slots(bookings, capacities, settings, now) if bookings else 0
    if not near:
        return 0
    kept = {host: None for unit, hosts in open_units.items() if not jobs.job(unit).best_effort for host in hosts}
    return min(near + len(kept), len(capacities.of_host))


def _for_slots(bookings: Iterable[Booking], capacities: Capacities, settings: Leases, now: float) -> int:
    near: dict[Shape, int] = {}
    for booking in bookings:
        if booking.start_at - settings.lead_s <= now < booking.ends_at:
            near[booking.shape] = near.get(booking.shape, 0) + 1
    found = 0
    for shape, leases in near.items():
        ranks = capacities.ranks(shape)
        if ranks:
            needed = max(shape.nodes, -(-leases * shape.nodes // ranks))
            found += min(needed, capacities.able(shape))
    return found


def clearing_s(custody: Custody, unit: Unit, settings: Leases, *, saved: bool, saves_later: bool) -> float:
    """Rule 3.  `saved`: it would be suspended now; `saves_later`: it would be once it has begun."""
    config = custody.state.config
    kill_s = config.policy.kill_s if config is not None else 0.0
    kill_s = kill_s if unit.grace_s is None else max(kill_s, grace.of_unit(custody, unit))
    saving_s = suspend_s(unit.nodes, unit.size.memory_mb, settings) if saved or saves_later else kill_s
    return settings.margin_s + (saving_s if saved else max(kill_s, saving_s))
