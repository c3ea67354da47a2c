"""How instances of a web department end: which attempts are closed now, which drain, and what answers a notice.  Pure functions
of the folded state.

Rules
  1. An instance in service that is to go drains first (`instance.draining`): balancers send it no new session.  It is closed
     when one of them has said that no session is open there, or at `until`, `drain_s` after.  One that is not in service is
     closed at once; any, if `drain_s` is 0 or the department is not configured.
  2. Draining is for ever: load that comes back starts a new instance, and what drains takes room meanwhile.
  3. A broken instance is closed, and one whose program has ended by its guest's word, or that has not come up in time.
  4. Notice (held above quota): the instances on the hosts that go drain at once, until shortly before the notice is due at
     the latest (`room_s`); what drains there already has no longer.  A host goes back when its last instance has ended, or
     then, with all that is left on it closed.  The seizure at `by` should not come first.
  5. An instance that is not ready for `unreachable_s`, by its guest's word or a balancer's, is *overdue*: it is replaced, the
     longest first, as fast as the terms of a rolling update allow and no faster.
     - Up to `max_surge` successors come first (`spare`); as many as are there beyond the wanted ones, and ready, so many
       overdue ones are closed.  Up to `max_unavailable` go before that, less those that are missing or not overdue yet.  If
       that is 0 and no successor can come, one goes: at once where there may be no more instances, else after
       `boot_timeout_s`.
     - It must help: while nobody in service is ready and has been for `min_ready_s`, the program, or what it depends on, is
       ill, and those that have served before stay; they may recover by themselves.  Successors that were never ready so long
       go first then, and the next ones wait longer and longer (`web.core`, F2).
     - If nobody is ready by the balancers' word alone, while the guests say that they are, it may be the balancers' network:
       one successor comes, and if it is not reached either, nobody is closed.  Where none can come, one is closed after
       `boot_timeout_s`, and the next ones after twice as long, and so on.
     None is replaced in a department that has stopped: nobody would come after it.
  6. A drained host goes back at its deadline, with all that is left on it closed, whether successors serve or not.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from schemas import facts as f
from schemas.config import WebPolicy
from schemas.facts import Disposal
from schemas.ids import sort_key
from schemas.reasons import Code, Reason, because
from services.domain import readiness
from services.domain.core import NEVER
from services.domain.custody.broken import why_broken
from services.domain.custody.custody import Custody
from services.domain.custody.state import Broken, Quota, Unit
from services.scheduler.core.state.limits import Limits
from services.scheduler.core.web import hosts as web_hosts
from services.scheduler.core.web.hosts import Picture
from services.scheduler.core.web.inventory import Inventory
from services.scheduler.core.web.release import Terms
from services.scheduler.core.web.state import State

# A release is in the journal and folded by the provisioner in a tenth of it.  Where clocks differ by more, the host may be
# seized first: its instances have drained as long, and end with the same grace.
ROOM_MAX_S: Final = 0.1
WORDS_S: Final = (
    3.0  # guests and balancers ask and speak once a second: those that recover together have said so by then
)
DOUBLINGS_MAX: Final = 5  # of a boot_timeout_s of a minute: half an hour


class Scene(NamedTuple):
    """What is decided on.  `drain_s`: 0 where nobody waits for sessions."""

    custody: Custody
    dept: str
    policy: WebPolicy
    drain_s: float
    state: State
    held: Inventory
    limits: Limits
    terms: Terms
    now: float

    def unit(self, name: str) -> Unit:
        return self.custody.state.units[name]


def close(unit: Unit, disposal: Disposal, why: Reason) -> f.AttemptClosed:
    return f.AttemptClosed(unit=unit.id, attempt=unit.attempt, disposal=disposal, why=why)


# --------------------------------------------------------------------------------------------------------------- closings


def closings(at: Scene, target: int, most: int) -> list[f.AttemptClosed]:
    """Of instances that are broken or cancelled, whose program has ended, that did not come up, have drained, or are not ready;
    there may be `most`."""
    broken, state = at.custody.index.broken.get(at.dept), at.state
    if not (broken or at.held.draining or state.unready or state.ended) and at.limits.next_due() > at.now:
        return []
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
            told = {"answer": readiness.answer(words)} if words else {}
            why = because(Code.BOOT_TIMEOUT, limit=limit.kind, boot_timeout_s=at.policy.boot_timeout_s, **told)
            found[limit.unit] = close(at.unit(limit.unit), Disposal.FAILED, why)
    rest = (*_drained(at), *_replaced(at, target, most))
    return [*found.values(), *(fact for fact in rest if fact.unit not in found)]


def why_ended(said: f.InstanceReported) -> Reason:
    """How a program has ended, by its guest's word."""
    told: dict[str, str | int] = {}
    if said.exit is not None:
        told["exit"] = said.exit
    if said.signal is not None:
        told["signal"] = said.signal
    if said.oom:
        told["oom"] = 1
    if said.said:
        told["said"] = said.said
    return because(Code.PROGRAM_ENDED, **told)


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


# -------------------------------------------------------------------------------------------------------------- not ready


def not_ready(at: Scene) -> list[str]:
    """Active instances in service of which somebody says that they are not ready, the longest first."""
    found = (name for name in at.state.unready if name in at.held.active and name not in at.held.starting)
    return sorted(found, key=lambda name: (readiness.since(at.state.unready[name]), sort_key(name)))


def overdue(at: Scene) -> list[str]:
    """Rule 5: those of them who are to be replaced."""
    patience_s = at.policy.unreachable_s
    if not patience_s:
        return []
    return [name for name in not_ready(at) if readiness.since(at.state.unready[name]) + patience_s <= at.now]


def spare(at: Scene, target: int, most: int) -> int:
    """Rule 5: instances beyond `target` that are wanted for now; there may be `most`."""
    return max(0, min(len(overdue(at)), at.terms.max_surge, most - target)) if target else 0


def is_balancers_word(at: Scene) -> bool:
    """Rule 5: nobody is ready by the balancers' word, and no guest says so."""
    names = not_ready(at)
    alone = not any(readiness.GUEST in at.state.unready[name] for name in names)
    return bool(names) and len(names) == at.held.serving and alone


def _replaced(at: Scene, target: int, most: int) -> list[f.AttemptClosed]:
    """Rule 5: who is closed now."""
    names = overdue(at)
    if not names or not target or at.state.roll.stage == "stopped":
        return []
    fresh = len(not_ready(at)) - len(names)
    serving, is_proven = at.held.serving - fresh, _is_proven(at)
    if not is_proven:
        if len(not_ready(at)) < at.held.serving:
            return []  # somebody is ready, and has still to prove that it stays so
        if is_balancers_word(at):
            return [_gone(at, name) for name in names[:1] if _is_due(at, names[0], target, most)]
        names = [name for name in reversed(names) if not _has_served(at, name)] or names
    extra = max(0, serving - target) if is_proven or not _has_served(at, names[0]) else 0
    early = max(0, at.terms.max_unavailable - max(0, target - serving)) if at.now >= at.state.retry_at else 0
    early = early or int(not at.terms.max_unavailable and _is_due(at, overdue(at)[0], target, most))
    return [_gone(at, name) for name in names[: extra + early]]


def _gone(at: Scene, name: str) -> f.AttemptClosed:
    told = because(
        Code.NOT_READY, unreachable_s=at.policy.unreachable_s, answer=readiness.answer(at.state.unready[name])
    )
    return close(at.unit(name), Disposal.FAILED, told)


def _served_since(at: Scene, name: str) -> float:
    return max(at.unit(name).began_at or 0.0, at.state.ready_at.get(name, 0.0))


def proven_s(at: Scene) -> float:
    """For so long an instance is ready before it is believed to be well."""
    return max(at.terms.min_ready_s, WORDS_S)


def _has_served(at: Scene, name: str) -> bool:
    """It was ready for so long that it is believed to be well, or to have been."""
    words = at.state.unready.get(name)
    until = readiness.since(words) if words else at.now
    return until >= _served_since(at, name) + proven_s(at)


def _is_proven(at: Scene) -> bool:
    """Somebody is ready, and has been for long enough: it is not that all fall ill which are started."""
    held, unready = at.held, at.state.unready
    return any(name not in held.starting and name not in unready and _has_served(at, name) for name in held.active)


def _is_due(at: Scene, name: str, target: int, most: int) -> bool:
    """Rule 5: without a successor's being there first."""
    if at.now < at.state.retry_at:
        return False
    if at.held.serving < target and (at.held.starting or web_hosts.places(at.held, 1, at.now)):
        return False  # some are missing, and are on their way or have a place to come to
    if at.held.serving > target:
        return False  # its successor is there, and is not ready either
    return at.now >= _due_at_last(at, name, target, most)


def _due_at_last(at: Scene, name: str, target: int, most: int) -> float:
    """When its place is its successor's, if none can come before."""
    due = readiness.since(at.state.unready[name]) + at.policy.unreachable_s
    if is_balancers_word(at):
        wait_s = at.policy.boot_timeout_s * 2.0 ** min(at.state.failures, DOUBLINGS_MAX)
        return max(due, at.state.replaced_at) + wait_s
    return due if most <= target <= at.held.serving else max(due, at.state.replaced_at) + at.policy.boot_timeout_s


# ----------------------------------------------------------------------------------------------------------------- wake-up


def wake_at(at: Scene, target: int, most: int) -> float:
    """When next after `now` somebody may have to go, if nothing happens.  On notice too: what is left drains, until then."""
    times = [at.unit(name).drains_until or 0.0 for name in at.held.draining]
    times += [at.held.host(name).drain_until or 0.0 for name in at.held.drained]
    times += _of_not_ready(at, target, most)
    return min((time for time in times if time > at.now), default=NEVER)


def _of_not_ready(at: Scene, target: int, most: int) -> list[float]:
    """Rule 5: when somebody is overdue, has proven to be well, or may go without a successor."""
    names = not_ready(at) if at.policy.unreachable_s else []
    if not names:
        return []
    first = names[0]
    times = [readiness.since(at.state.unready[name]) + at.policy.unreachable_s for name in names]
    ready = (name for name in at.held.active if name not in at.held.starting and name not in at.state.unready)
    times += [_served_since(at, name) + proven_s(at) for name in ready]
    return [*times, at.state.retry_at, _due_at_last(at, first, target, most)]
