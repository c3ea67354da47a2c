"""How many instances a web department should have, and why: the rule's number within the bounds.  Pure functions of the state.

    a person's exact number                                       or else
    the rule's number → step limits → floors → flap budget        each may be left out
    → the maximum                                                 always

Rules
  1. How many instances the load wants is the rule's (`policies/scale_*`): by default `scale_target`; `scale_threshold` is the
     paper's (III-C).  No signal for `signal_timeout_s` though instances are in service: it wants as many as there are.  A claim
     of a balancer counts if it is more (`web.signals`).
  2. Limits: the rule's step is the smallest that `up_limits` or `down_limits` allow (`scale_steps`).
  3. Floors: the greatest of `instances_min`, the schedule's (`scale_schedule`), the forecast's (`scale_forecast`) and a
     person's minimum, at once: a floor is a promise, so no step limit delays it.
  4. Flap budget: the number falls only if it may turn (`scale_flaps`); else it is held.
  5. Never more than `instances_max`, and what the department's `maximum` of hosts can carry: nothing overrides that.
  6. `scale.requested`: a person's `exact` number overrides rules 1 to 4, a person's `minimum` is a floor, until its time has
     passed.
  7. The reason is that of the last rule that made the number another one; of equal floors the first of rule 3.
"""

from __future__ import annotations

from typing import NamedTuple

from schemas.config import Department, WebPolicy
from schemas.reasons import Code, Reason, because
from services.domain.core import NEVER
from services.domain.scaling import Limit
from services.scheduler.core.policies import known, scale_flaps, scale_forecast, scale_steps
from services.scheduler.core.policies.scale_schedule import Timetable
from services.scheduler.core.web import signals as web_signals
from services.scheduler.core.web.signals import remembered
from services.scheduler.core.web.state import State

Number = tuple[int, Reason]


class Bounds(NamedTuple):
    """What the policy's texts mean."""

    timetable: Timetable
    up: list[Limit]
    down: list[Limit]

    @classmethod
    def of(cls, policy: WebPolicy) -> Bounds:
        timetable = Timetable(policy.schedule, policy.schedule_zone)
        return cls(timetable, scale_steps.limits(policy.up_limits), scale_steps.limits(policy.down_limits))

    def wake_at(self, now: float, policy: WebPolicy) -> float:
        """When a floor may be another one."""
        return min(self.timetable.wake_at(now), scale_forecast.wake_at(now, policy))


def freed_at(state: State, policy: WebPolicy, bounds: Bounds, now: float) -> float:
    """When a step limit, or the flap budget, next allows more, if nothing happens."""
    budget = scale_flaps.free_at(state.course, policy.turns_per_hour_max, now)
    steps = scale_steps.next_free(state.changes, [*bounds.up, *bounds.down], now)
    return min(steps, budget) if budget > now else steps


class Situation(NamedTuple):
    """What a number is decided on.  `most`: rule 5; `usual`: whose word on the load goes without saying."""

    state: State
    policy: WebPolicy
    bounds: Bounds
    most: int
    now: float
    usual: tuple[str, ...] = ()


def most(department: Department, policy: WebPolicy, per_host: int) -> int:
    """Rule 5: instances that there may be."""
    if department.maximum is None:
        return policy.instances_max
    return min(policy.instances_max, department.maximum * per_host)


def desired(at: Situation) -> Number:
    """The number of instances that should be, and why."""
    state, most = at.state, at.most
    word = state.until is None or at.now < state.until
    if word and state.exact is not None:
        return min(state.exact, most), because(Code.SCALED_BY_PERSON, exact=state.exact, maximum=most)
    least, told = _floor(at, state.minimum if word else None)
    if state.target is None:
        return min(least, most), told
    wanted, reason = _stepped(at, state.target, _by_load(at, state.target))
    if wanted < least:
        wanted, reason = min(least, most), told
    wanted, reason = _held(at, state.target, wanted, reason)
    if wanted <= most:
        return wanted, reason
    by = whose(reason)
    return most, because(Code.AT_MAXIMUM, maximum=most, **by, **({"claimed": wanted} if "by" in by else {}))


def _by_load(at: Situation, current: int) -> Number:
    """Rule 1."""
    state, policy = at.state, at.policy
    claim = web_signals.claimed(state, policy, at.now)
    if web_signals.missing(state, policy, at.now):
        if claim is None or claim <= current:
            return current, because(Code.SIGNAL_MISSING, timeout_s=policy.signal_timeout_s, instances=state.serving)
        return claim, _claimed(state, claim)
    if claim is not None and not web_signals.load_known(state, at.now):
        return claim, _claimed(state, claim)
    wanted, reason = known.rule(policy.rule).wanted(remembered(state), state.serving, current, policy)
    if claim and claim >= wanted:
        load = {"load": wanted} if wanted < claim else {}
        return claim, _claimed(state, claim, **load)
    return wanted, _by_word(at, _in_requests(state, reason))


def _claimed(state: State, claim: int, **load: int) -> Reason:
    by = {"by": state.claim_by} if state.claim_by else {}
    return because(Code.CLAIMED, instances=claim, **by, **load)


def whose(reason: Reason) -> dict[str, str | int | float | list[str]]:
    """Who claims, or tells, what is bounded."""
    return {name: reason.params[name] for name in ("by", "load_by") if name in reason.params}


def _by_word(at: Situation, reason: Reason) -> Reason:
    """Whose word the load is that the rule has looked at, for as long as it says."""
    looked_s = max(float(str(reason.params.get(name, 0))) for name in ("window_s", "held_s"))
    by = web_signals.authors(at.state, looked_s, at.usual)
    return because(reason.code, **reason.params, load_by=by) if by else reason


def _in_requests(state: State, reason: Reason) -> Reason:
    """The rule speaks of utilisation; people who count requests are told them too."""
    if state.rate is None or state.per_instance is None:
        return reason
    told = {"requests_per_s": round(state.rate, 3), "requests_per_instance": state.per_instance}
    return because(reason.code, **reason.params, **told)


def _stepped(at: Situation, current: int, number: Number) -> Number:
    """Rule 2."""
    wanted, policy = number[0], at.policy
    limits, texts = (at.bounds.up, policy.up_limits) if wanted > current else (at.bounds.down, policy.down_limits)
    allowed = scale_steps.allowed(at.state.changes, current, wanted, limits, at.now)
    if allowed == wanted:
        return number
    told = {"wanted": wanted, "instances": current, "allowed": allowed}
    return allowed, because(Code.STEP_LIMIT, **told, limits=list(texts), **whose(number[1]))


def _floor(at: Situation, asked: int | None) -> Number:
    """Rule 3."""
    policy = at.policy
    least, told = policy.instances_min, because(Code.AT_MINIMUM, minimum=policy.instances_min)
    scheduled, until = at.bounds.timetable.floor(at.now)
    if scheduled > least:
        left = {} if until == NEVER else {"left_s": round(until - at.now, 3)}
        least, told = scheduled, because(Code.SCHEDULE, minimum=scheduled, **left)
    foreseen, days = scale_forecast.floor(at.state.past, at.now, policy)
    if foreseen > least:
        margin = policy.forecast_margin
        least, told = foreseen, because(Code.FORECAST, minimum=foreseen, days=days, margin=margin)
    if asked is not None and asked > least:
        least, told = asked, because(Code.SCALED_BY_PERSON, minimum=asked, maximum=at.most)
    return least, told


def _held(at: Situation, current: int, wanted: int, reason: Reason) -> Number:
    """Rule 4."""
    if wanted >= current:
        return wanted, reason
    budget, course = at.policy.turns_per_hour_max, at.state.course
    free_at = scale_flaps.free_at(course, budget, at.now)
    if free_at <= at.now:
        return wanted, reason
    turns, wait_s = len(scale_flaps.recent(course, at.now)), round(free_at - at.now, 3)
    return current, because(
        Code.FLAP_BUDGET, wanted=wanted, instances=current, turns=turns, budget=budget, wait_s=wait_s
    )
