"""How instances of a web department end: which attempts are closed now, and which drain first.

Rules
  1. An instance in service that is to go drains first (`instance.draining`): balancers send it no new session.  It is closed
     when one of them has said that no session is open there, or at `until`, `drain_s` after.  One that is not in service is
     closed at once; any, if `drain_s` is 0 or the department is not configured.
  2. Draining is for ever: load that comes back starts a new instance, and what drains takes room meanwhile.
  3. A broken instance is closed, and one whose program has ended by its guest's word, or that has not come up in time.
"""

from __future__ import annotations

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal
from schemas.ids import sort_key
from schemas.reasons import Reason
from services.domain import readiness
from services.domain.custody.broken import why_broken
from services.domain.custody.state import Broken, Unit
from services.scheduler.core.web.scene import Scene


def close(unit: Unit, disposal: Disposal, why: Reason) -> f.AttemptClosed:
    return f.AttemptClosed(unit=unit.id, attempt=unit.attempt, disposal=disposal, why=why)


def closings(at: Scene) -> list[f.AttemptClosed]:
    """Of instances that are broken or cancelled, whose program has ended, that did not come up, or have drained."""
    broken, state = at.custody.index.broken.get(at.dept), at.state
    found: dict[str, f.AttemptClosed] = {}
    for name in sorted(broken or (), key=sort_key):
        unit = at.unit(name)
        assert unit.broken is not None
        failed = unit.broken in (Broken.VM_ENDED, Broken.HOST_LOST)
        why = why_ended(state.ended[name]) if failed and name in state.ended else why_broken(unit.broken)
        found[name] = close(unit, Disposal.FAILED if failed else Disposal.STOPPED, why)
    for name in sorted(state.ended, key=sort_key):  # rule 3
        if name not in found:
            found[name] = close(at.unit(name), Disposal.FAILED, why_ended(state.ended[name]))
    for limit in at.limits.overdue(at.now):
        if limit.unit not in found:
            words = state.unready.get(limit.unit)
            answer = readiness.answer(words) if words else ""
            why = because.BootTimeout(limit=limit.kind, boot_timeout_s=at.policy.boot_timeout_s, answer=answer)
            found[limit.unit] = close(at.unit(limit.unit), Disposal.FAILED, why)
    return [*found.values(), *(fact for fact in _drained(at) if fact.unit not in found)]


def why_ended(said: f.InstanceReported) -> Reason:
    """How a program has ended, by its guest's word."""
    return because.ProgramEnded(exit=said.exit, signal=said.signal, oom=said.oom, said=said.said)


def _drained(at: Scene) -> list[f.AttemptClosed]:
    """Rule 1."""
    found = []
    for name in sorted(at.held.draining, key=sort_key):
        unit = at.unit(name)
        assert unit.drains_until is not None
        followed = at.state.followed.get(name)
        if name in at.state.drained:
            found.append(close(unit, Disposal.STOPPED, because.Drained(release=followed)))
        elif unit.drains_until <= at.now:
            found.append(close(unit, Disposal.STOPPED, because.DrainTimeout(release=followed)))
    return found


def drains(at: Scene, unit: Unit) -> bool:
    """Rule 1: of an active instance that is to go, whether it drains first."""
    return unit.began_at is not None and at.drain_s > 0


def ends(at: Scene, units: list[Unit], why: Reason) -> list[f.Fact]:
    """Of active instances that are not needed."""
    until = at.now + at.drain_s
    return [drain(unit, until, why) if drains(at, unit) else close(unit, Disposal.STOPPED, why) for unit in units]


def drain(unit: Unit, until: float, why: Reason) -> f.InstanceDraining:
    return f.InstanceDraining(unit=unit.id, attempt=unit.attempt, until=until, reason=why)


def moments(at: Scene) -> list[float]:
    """When what drains has no more time.  On notice too: what is left drains, until then."""
    return [at.unit(name).drains_until or 0.0 for name in at.held.draining]
