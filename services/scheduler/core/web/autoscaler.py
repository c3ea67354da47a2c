"""How many instances a web department should have, and why: the rule's number within the floors and bounds of its policy.

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
  8. What the policy does not name is not among `floors`, `bounds` and `moments`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from schemas import reasons as because
from schemas.causes import Basis
from schemas.config import Department, WebPolicy
from schemas.reasons import Reason
from services.domain.core import NEVER
from services.scheduler.core.policies import registry, scale_flaps, scale_forecast, scale_steps
from services.scheduler.core.policies.scale_schedule import Timetable
from services.scheduler.core.web import signals as web_signals
from services.scheduler.core.web.signals import remembered
from services.scheduler.core.web.state import State


class Number(NamedTuple):
    """How many, and why.  `basis`: what the number goes by; `by`: who claims it; `load_by`: who reported the load, if others
    usually do."""

    instances: int
    reason: Reason
    basis: Basis = Basis.LOAD
    by: str = ""
    load_by: Sequence[str] = ()

    def said_by(self) -> dict[str, Any]:
        """The fields of a reason that bounds the number, or follows from it."""
        return {"by": self.by, "load_by": list(self.load_by)}


class Situation(NamedTuple):
    """What a bound is asked about.  `current`: instances that are wanted until now; `floor`: rule 3."""

    state: State
    current: int
    floor: Number
    most: int
    now: float


Floor: TypeAlias = Callable[[State, float], Number]  # at least this many at that time, and why
Bound: TypeAlias = Callable[[Situation, Number], Number]  # the number as it has it
Moment: TypeAlias = Callable[[State, float], float]  # when next after that time a floor or a bound may be another one


def most(department: Department, policy: WebPolicy, per_host: int) -> int:
    """Rule 5: instances that there may be."""
    if department.maximum is None:
        return policy.instances_max
    return min(policy.instances_max, department.maximum * per_host)


class Autoscaler:
    """Of a policy.  `usual`: users that reasons do not name as reporters of the load."""

    def __init__(self, policy: WebPolicy, usual: tuple[str, ...] = ()) -> None:
        self.policy, self.usual = policy, usual
        self.rule = registry.RULES.get(policy.rule)  # None: it is not here, and `registry.rule` stops the decision
        self.floors: list[Floor] = [self._minimum]
        self.bounds: list[Bound] = [self._raised]
        self.moments: list[Moment] = []
        if policy.schedule:
            self.timetable = Timetable(policy.schedule, policy.schedule_zone)
            self.floors.append(self._scheduled)
            self.moments.append(lambda _state, now: self.timetable.wake_at(now))
        if policy.forecast_days:
            self.floors.append(self._foreseen)
            self.moments.append(lambda _state, now: scale_forecast.wake_at(now, policy))
        if policy.up_limits or policy.down_limits:
            self.up, self.down = scale_steps.limits(policy.up_limits), scale_steps.limits(policy.down_limits)
            self.bounds.insert(0, self._stepped)
            self.moments.append(lambda state, now: scale_steps.next_free(state.changes, [*self.up, *self.down], now))
        if policy.turns_per_hour_max:
            self.bounds.append(self._held)
            self.moments.append(lambda state, now: scale_flaps.free_at(state.course, policy.turns_per_hour_max, now))

    def desired(self, state: State, most: int, now: float) -> Number:
        """The number of instances that should be, and why.  `most`: rule 5."""
        word = state.until is None or now < state.until
        if word and state.exact is not None:
            reason = because.ScaledByPerson(exact=state.exact, maximum=most)
            return Number(min(state.exact, most), reason, Basis.PERSON)
        floor = self._floor(state, state.minimum if word else None, most, now)
        if state.target is None:
            return floor._replace(instances=min(floor.instances, most))
        number, at = self._by_load(state, state.target, now), Situation(state, state.target, floor, most, now)
        for bound in self.bounds:
            number = bound(at, number)
        if number.instances <= most:
            return number
        claimed = number.instances if number.by else None
        return self._bound(number, most, because.AtMaximum(maximum=most, **number.said_by(), claimed=claimed))

    def _bound(self, number: Number, instances: int, why: Reason) -> Number:
        return Number(instances, why, by=number.by, load_by=number.load_by)

    def wake_at(self, state: State, now: float) -> float:
        """When a floor may be another one, or a bound next allows more, if nothing happens."""
        return min((at for moment in self.moments if (at := moment(state, now)) > now), default=NEVER)

    # ------------------------------------------------------------------------------------------------------- the load

    def _by_load(self, state: State, current: int, now: float) -> Number:
        """Rule 1."""
        policy = self.policy
        claim = web_signals.claimed(state, policy, now)
        if web_signals.missing(state, policy, now):
            if claim is None or claim <= current:
                reason = because.SignalMissing(timeout_s=policy.signal_timeout_s, instances=state.serving)
                return Number(current, reason, Basis.SILENCE)
            return _claimed(state, claim)
        if claim is not None and not web_signals.load_known(state, now):
            return _claimed(state, claim)
        rule = self.rule or registry.rule(policy.rule)
        wanted, why = rule.wanted(remembered(state), state.serving, current, policy)
        if claim and claim >= wanted:
            return _claimed(state, claim, wanted if wanted < claim else None)
        if rule.looks_back_s is None:
            return Number(wanted, why)
        load_by = web_signals.authors(state, rule.looks_back_s(policy), self.usual)
        return Number(wanted, msgspec.structs.replace(why, load_by=load_by, **_in_requests(state)), load_by=load_by)

    # --------------------------------------------------------------------------------------------------------- floors

    def _floor(self, state: State, asked: int | None, most: int, now: float) -> Number:
        """Rule 3."""
        found = self.floors[0](state, now)
        for floor in self.floors[1:]:
            number = floor(state, now)
            found = number if number.instances > found.instances else found
        if asked is not None and asked > found.instances:
            return Number(asked, because.ScaledByPerson(minimum=asked, maximum=most), Basis.PERSON)
        return found

    def _minimum(self, _state: State, _now: float) -> Number:
        return Number(self.policy.instances_min, because.AtMinimum(minimum=self.policy.instances_min))

    def _scheduled(self, _state: State, now: float) -> Number:
        least, until = self.timetable.floor(now)
        left_s = None if until == NEVER else round(until - now, 3)
        return Number(least, because.Schedule(minimum=least, left_s=left_s))

    def _foreseen(self, state: State, now: float) -> Number:
        least, days = scale_forecast.floor(state.past, now, self.policy)
        return Number(least, because.Forecast(minimum=least, days=days, margin=self.policy.forecast_margin))

    # --------------------------------------------------------------------------------------------------------- bounds

    def _raised(self, at: Situation, number: Number) -> Number:
        """Rule 3."""
        floor = at.floor
        raised = number.instances < floor.instances
        return floor._replace(instances=min(floor.instances, at.most)) if raised else number

    def _stepped(self, at: Situation, number: Number) -> Number:
        """Rule 2."""
        wanted, policy, rises = number.instances, self.policy, number.instances > at.current
        limits, texts = (self.up, policy.up_limits) if rises else (self.down, policy.down_limits)
        allowed = scale_steps.allowed(at.state.changes, at.current, wanted, limits, at.now)
        if allowed == wanted:
            return number
        told: dict[str, Any] = {"wanted": wanted, "instances": at.current, "allowed": allowed}
        return self._bound(number, allowed, because.StepLimit(**told, limits=list(texts), **number.said_by()))

    def _held(self, at: Situation, number: Number) -> Number:
        """Rule 4."""
        wanted, budget, course = number.instances, self.policy.turns_per_hour_max, at.state.course
        if wanted >= at.current:
            return number
        free_at = scale_flaps.free_at(course, budget, at.now)
        if free_at <= at.now:
            return number
        turns, wait_s = len(scale_flaps.recent(course, at.now)), round(free_at - at.now, 3)
        told = {"wanted": wanted, "instances": at.current, "turns": turns}
        return Number(at.current, because.FlapBudget(**told, budget=budget, wait_s=wait_s))


def _claimed(state: State, claim: int, load: int | None = None) -> Number:
    return Number(claim, because.Claimed(instances=claim, by=state.claim_by, load=load), by=state.claim_by)


def _in_requests(state: State) -> dict[str, float]:
    """The rule goes by utilisation; people who count requests see these too."""
    if state.rate is None or state.per_instance is None:
        return {}
    return {"requests_per_s": round(state.rate, 3), "requests_per_instance": state.per_instance}
