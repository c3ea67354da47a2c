"""How instances of a web department end: which attempts are closed now, which drain, and what answers a notice.  Pure functions
of the folded state.

Rules
  1. An instance in service that is to go drains first (`instance.draining`): balancers send it no new session.  It is closed
     when one of them has said that no session is open there, or at `until`, `drain_s` after.  One that is not in service is
     closed at once; any, if `drain_s` is 0 or the department is not configured.
  2. Draining is for ever: load that comes back starts a new instance, and what drains takes room meanwhile.
  3. A broken instance is closed, and one that has not come up in time.
  4. Notice (held above quota): the instances on the hosts that go drain at once, until shortly before the notice is due at
     the latest (`room_s`); what drains there already has no longer.  A host goes back when its last instance has ended, or
     then, with all that is left on it closed.  The seizure at `by` should not come first.
  5. An instance that the balancer does not reach is replaced, the longest first and one at a time: it may be the balancer's
     network that is broken, and not all its instances.  Its successor comes first (`spare`).  It is closed when one more than
     wanted is in service, and one of them has been for `unreachable_s` and is reached; else after `boot_timeout_s`, if none is
     missing, or nobody has a place: so one goes in that time however many are not reached.  None does in a department that
     has stopped: nobody would come after it.
  6. A drained host goes back at its deadline, with all that is left on it closed, whether successors serve or not.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from schemas import facts as f
from schemas.broken import why_broken
from schemas.config import WebPolicy
from schemas.custody import Custody
from schemas.custody_state import Broken, Quota, Unit
from schemas.facts import Disposal
from schemas.ids import sort_key
from schemas.reasons import Code, Reason, because
from services.runtime.core import NEVER
from services.scheduler.derived.limits import Limits
from services.scheduler.web import hosts as web_hosts
from services.scheduler.web.holdings import Holdings
from services.scheduler.web.hosts import Picture
from services.scheduler.web.state import State

# A release is in the journal and folded by the provisioner in a tenth of it.  Where clocks differ by more, the host may be
# seized first: its instances have drained as long, and end with the same grace.
ROOM_MAX_S: Final = 0.1


class Scene(NamedTuple):
    """What is decided on.  `drain_s`: 0 where nobody waits for sessions."""

    custody: Custody
    dept: str
    policy: WebPolicy
    drain_s: float
    state: State
    held: Holdings
    limits: Limits
    now: float

    def unit(self, name: str) -> Unit:
        return self.custody.state.units[name]


def close(unit: Unit, disposal: Disposal, why: Reason) -> f.AttemptClosed:
    return f.AttemptClosed(unit=unit.id, attempt=unit.attempt, disposal=disposal, why=why)


# --------------------------------------------------------------------------------------------------------------- closings


def closings(at: Scene, target: int) -> list[f.AttemptClosed]:
    """Of instances that are broken or cancelled, did not come up, have drained, or are not reached."""
    broken = at.custody.index.broken.get(at.dept)
    if not (broken or at.held.draining or at.state.unreachable) and at.limits.next_due() > at.now:
        return []
    found: dict[str, f.AttemptClosed] = {}
    for name in sorted(broken or (), key=sort_key):
        unit = at.unit(name)
        assert unit.broken is not None
        failed = unit.broken in (Broken.VM_ENDED, Broken.HOST_LOST)
        found[name] = close(unit, Disposal.FAILED if failed else Disposal.STOPPED, why_broken(unit.broken))
    for limit in at.limits.overdue(at.now):
        if limit.unit not in found:
            why = because(Code.BOOT_TIMEOUT, limit=limit.kind, boot_timeout_s=at.policy.boot_timeout_s)
            found[limit.unit] = close(at.unit(limit.unit), Disposal.FAILED, why)
    gone = _replaced(at, target)
    return [*found.values(), *_drained(at), *([gone] if gone is not None else [])]


def _drained(at: Scene) -> list[f.AttemptClosed]:
    """Rule 1."""
    found = []
    for name in sorted(at.held.draining, key=sort_key):
        unit = at.unit(name)
        assert unit.drains_until is not None
        followed = at.state.followed.get(name)
        told: dict[str, str | int | float | list[str]] = {} if followed is None else {"release": followed}
        if name in at.state.drained:
            found.append(close(unit, Disposal.STOPPED, because(Code.DRAINED, **told)))
        elif unit.drains_until <= at.now:
            found.append(close(unit, Disposal.STOPPED, because(Code.DRAIN_TIMEOUT, **told)))
    return found


# ---------------------------------------------------------------------------------------------------------------- draining


def drains(at: Scene, unit: Unit) -> bool:
    """Rule 1: of an active instance that is to go, whether it drains first."""
    return unit.began_at is not None and at.drain_s > 0


def ends(at: Scene, units: list[Unit], why: Reason) -> list[f.Fact]:
    """Of active instances that are not needed."""
    until = at.now + at.drain_s
    return [_drain(unit, until, why) if drains(at, unit) else close(unit, Disposal.STOPPED, why) for unit in units]


def _drain(unit: Unit, until: float, why: Reason) -> f.InstanceDraining:
    return f.InstanceDraining(unit=unit.id, attempt=unit.attempt, until=until, reason=why)


# ------------------------------------------------------------------------------------------------------------------ notice


def give_back(at: Scene, seen: Picture, count: int) -> list[f.Fact]:
    """Rule 4.  All closings of a host stand before its release, so that an envelope that is cut short is a valid answer."""
    held, quota = at.custody.held(at.dept), at.custody.quota(at.dept)
    gone, told = (
        because(Code.RECLAIMED, hosts=count),
        because(Code.NOTICE, department=at.dept, held=held, quota=quota.hosts),
    )
    found: list[f.Fact] = []
    for index, name in enumerate(web_hosts.on_notice(seen, count)):
        due, live = _due_at(quota, held, index, room_s(at.custody)), seen.live_on(name)
        if due <= at.now:
            found += [close(unit, Disposal.STOPPED, gone) for unit in live]
            found.append(f.HostReleased(host=name, reason=told))
            continue
        found += _hurried(at, live, due, gone)
        if not any(_stays(at, unit) for unit in live):
            found.append(f.HostReleased(host=name, reason=told))
    return found


def _stays(at: Scene, unit: Unit) -> bool:
    return unit.drains_until is not None or drains(at, unit)


def _hurried(at: Scene, live: list[Unit], due: float, why: Reason) -> list[f.Fact]:
    """The live instances of a host that goes at `due`."""
    until = min(due, at.now + at.drain_s)
    found: list[f.Fact] = []
    for unit in live:
        if not _stays(at, unit):
            found.append(close(unit, Disposal.STOPPED, why))
        elif unit.drains_until is None or unit.drains_until > due:
            found.append(_drain(unit, until, why))
    return found


def room_s(custody: Custody) -> float:
    """So long before it is due a notice is answered."""
    config = custody.state.config
    return min(ROOM_MAX_S, config.policy.notice_s / 3) if config is not None else ROOM_MAX_S


def _due_at(quota: Quota, held: int, index: int, ahead_s: float) -> float:
    """When the host that goes as number `index` (from 0) must be released; 0.0 if no notice has a deadline for it."""
    return min((by - ahead_s for level, by in quota.lowerings if held - level > index), default=0.0)


# -------------------------------------------------------------------------------------------------------------- drained hosts


def give_up(at: Scene, seen: Picture) -> list[f.Fact]:
    """Rule 6."""
    found: list[f.Fact] = []
    for name in sorted(name for name in at.held.drained if at.held.host(name).drain_due(at.now)):
        why = because(Code.HOST_DRAINED, host=name)
        found += [close(unit, Disposal.STOPPED, why) for unit in seen.live_on(name)]
        found.append(f.HostReleased(host=name, reason=why))
    return found


# ------------------------------------------------------------------------------------------------------------- unreachable


def unreachable(at: Scene) -> list[str]:
    """Active instances that the balancer does not reach, the longest first."""
    if not at.state.unreachable or not at.policy.unreachable_s:
        return []
    return [name for name in at.state.unreachable if name in at.held.active]


def spare(at: Scene, target: int, most: int) -> int:
    """Rule 5: instances beyond `target` that are wanted for now; there may be `most`."""
    return 1 if 0 < target < most and unreachable(at) else 0


def _replaced(at: Scene, target: int) -> f.AttemptClosed | None:
    """Rule 5: who is closed now."""
    names = unreachable(at)
    if not names or not target or at.state.roll.stage == "stopped" or _some_are_coming(at, target):
        return None
    proven = at.held.serving > target and at.now >= _proven_at(at)
    if not proven and at.now < _patience_ends(at, names[0]):
        return None
    return close(at.unit(names[0]), Disposal.FAILED, because(Code.UNREACHABLE, unreachable_s=at.policy.unreachable_s))


def _some_are_coming(at: Scene, target: int) -> bool:
    """Some are missing, and are on their way or have a place to come to."""
    return at.held.serving < target and bool(at.held.starting or web_hosts.places(at.held, 1, at.now))


def _proven_at(at: Scene) -> float:
    """When the first of those that the balancer reaches will have served long enough to be believed."""
    serving = (name for name in at.held.active if name not in at.held.starting and name not in at.state.unreachable)
    first = min((at.unit(name).began_at or 0.0 for name in serving), default=NEVER)
    return first + at.policy.unreachable_s


def _patience_ends(at: Scene, name: str) -> float:
    return max(at.state.unreachable[name], at.state.replaced_at) + at.policy.boot_timeout_s


# ----------------------------------------------------------------------------------------------------------------- wake-up


def wake_at(at: Scene) -> float:
    """When next after `now` somebody may have to go, if nothing happens.  On notice too: what is left drains, until then."""
    times = [at.unit(name).drains_until or 0.0 for name in at.held.draining]
    times += [at.held.host(name).drain_until or 0.0 for name in at.held.drained]
    names = unreachable(at)
    if names:
        times += [_proven_at(at), _patience_ends(at, names[0])]
    return min((time for time in times if time > at.now), default=NEVER)
