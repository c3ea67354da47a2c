"""Hosts that a web department must give back though instances are on them: on notice, and at a drained host's deadline.

Rules
  1. Notice (held above quota): the instances on the hosts that go drain at once, until shortly before the notice is due at
     the latest (`room_s`); what drains there already has no longer.  A host goes back when its last instance has ended, or
     then, with all that is left on it closed.  The seizure at `by` should not come first.
  2. A drained host goes back at its deadline, with all that is left on it closed, whether successors serve or not.
"""

from __future__ import annotations

from typing import Final

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal
from schemas.reasons import Reason
from services.domain.custody.custody import Custody
from services.domain.custody.state import Quota, Unit
from services.scheduler.core.web import hosts as web_hosts
from services.scheduler.core.web import termination
from services.scheduler.core.web.hosts import Picture
from services.scheduler.core.web.scene import Scene

# A release is in the journal and folded by the provisioner in a tenth of it.  Where clocks differ by more, the host may be
# seized first: its instances have drained as long, and end with the same grace.
ROOM_MAX_S: Final = 0.1


def give_back(at: Scene, seen: Picture, count: int) -> list[f.Fact]:
    """Rule 1.  All closings of a host stand before its release, so that an envelope that is cut short is a valid answer."""
    held, quota = at.custody.held(at.dept), at.custody.quota(at.dept)
    gone, told = (
        because.Reclaimed(hosts=count),
        because.Notice(department=at.dept, held=held, quota=quota.hosts),
    )
    found: list[f.Fact] = []
    for index, name in enumerate(web_hosts.on_notice(seen, count)):
        due, live = _due_at(quota, held, index, room_s(at.custody)), seen.live_on(name)
        if due <= at.now:
            found += [termination.close(unit, Disposal.STOPPED, gone) for unit in live]
            found.append(f.HostReleased(host=name, reason=told))
            continue
        found += _hurried(at, live, due, gone)
        if not any(_stays(at, unit) for unit in live):
            found.append(f.HostReleased(host=name, reason=told))
    return found


def _stays(at: Scene, unit: Unit) -> bool:
    return unit.drains_until is not None or termination.drains(at, unit)


def _hurried(at: Scene, live: list[Unit], due: float, why: Reason) -> list[f.Fact]:
    """The live instances of a host that goes at `due`."""
    until = min(due, at.now + at.drain_s)
    found: list[f.Fact] = []
    for unit in live:
        if not _stays(at, unit):
            found.append(termination.close(unit, Disposal.STOPPED, why))
        elif unit.drains_until is None or unit.drains_until > due:
            found.append(termination.drain(unit, until, why))
    return found


def room_s(custody: Custody) -> float:
    """So long before it is due a notice is answered."""
    config = custody.state.config
    return min(ROOM_MAX_S, config.policy.notice_s / 3) if config is not None else ROOM_MAX_S


def _due_at(quota: Quota, held: int, index: int, ahead_s: float) -> float:
    """When the host that goes as number `index` (from 0) must be released; 0.0 if no notice has a deadline for it."""
    return min((by - ahead_s for level, by in quota.lowerings if held - level > index), default=0.0)


def give_up(at: Scene, seen: Picture) -> list[f.Fact]:
    """Rule 2."""
    found: list[f.Fact] = []
    for name in sorted(name for name in at.held.drained if at.held.host(name).drain_due(at.now)):
        why = because.HostDrained(host=name)
        found += [termination.close(unit, Disposal.STOPPED, why) for unit in seen.live_on(name)]
        found.append(f.HostReleased(host=name, reason=why))
    return found


def moments(at: Scene) -> list[float]:
    """When a drained host goes back."""
    return [at.held.host(name).drain_until or 0.0 for name in at.held.drained]
