"""Why a web department has its number of instances, and what needs attention."""

from __future__ import annotations

from typing import TypeAlias

from schemas.causes import Basis
from schemas.reasons.base import AnyReason, fields
from schemas.signal_drops import REMEDIES, WHY, Drop
from schemas.units import count
from schemas.words import are, by_word, claims, counted, general, known, names, part_of, percent, span, with_details


class ByWord(AnyReason, frozen=True, kw_only=True):
    """A reason that follows from reported load.  `load_by`: users who reported the load, if others usually do."""

    load_by: list[str] = []

    def sentence(self) -> str:
        return by_word(self.said(), self.load_by)

    def said(self) -> str:
        """The sentence without that."""
        details = fields(self)
        details.pop("load_by", None)
        return with_details(self.SENTENCE, details)


class Utilisation(ByWord, frozen=True, kw_only=True):
    """The load that the scaling rule saw.  `instances`: instances that served; `utilisation`: their mean utilisation, 1: all
    their cores were busy; `window_s`: time over which it holds, in seconds; `requests_per_s`: requests per second that
    arrive; `left_s`: seconds until the number may change.

    Of the rule `threshold`: `threshold`: utilisation at which an instance is added; `open_s`: length of the window that is
    not full yet, in seconds.

    Of the rule `target-tracking`: `wanted`: instances that keep the target; `target`: the utilisation to keep; `asked`:
    instances that the load asks for now; `held`: instances that are held although the load asks for another number; `held_s`:
    the window that holds them, in seconds; `against`: observations in that window that asked for as many or more, if fewer
    are asked for now, and the other way round."""

    instances: int | None = None
    utilisation: float | None = None
    window_s: float | None = None
    threshold: float | None = None
    wanted: int | None = None
    target: float | None = None
    held: int | None = None
    asked: int | None = None
    held_s: float | None = None
    against: int | None = None
    left_s: float | None = None
    open_s: float | None = None
    requests_per_s: float | None = None
    requests_per_instance: float | None = None

    def said(self) -> str:
        if self.utilisation is None:
            return super().said() if self.requests_per_s is None and self.open_s is None else self._asked()
        requests = f"{general(self.requests_per_s)} requests/s, {general(self.requests_per_instance)} for each"
        asked = "" if self.requests_per_s is None else f" ({requests})"
        measured = f"utilisation was {percent(self.utilisation)}{asked}"
        with_n = f"with {counted(self.instances, 'instance')}"
        if self.target is not None:
            return f"{measured} {with_n}{self._tracked(self.target)}"
        over = "" if self.window_s is None else f" over {self.window_s:g} s"
        mark = "" if self.threshold is None else f"; {self.mark(self.threshold)}"
        return f"{measured}{over} {with_n}{mark}"

    def mark(self, threshold: float) -> str:
        """Of rule threshold."""
        return f"the threshold is {percent(threshold)}"

    def _tracked(self, target: float) -> str:
        """Of rule target-tracking: how many keep the target."""
        if self.wanted is None:
            return f"; the target is {percent(target)}{self._held()}"
        if self.wanted > (self.instances or 0) or not self.window_s:
            return f": {self.wanted} keep it at the target of {percent(target)}"
        return f": for {span(self.window_s)} at most {self.wanted} were needed for the target of {percent(target)}"

    def _held(self) -> str:
        """If a window holds the number."""
        if self.held is None:
            return ""
        window, fewer = span(self.held_s), (self.asked or 0) < self.held
        why = f"{'as many' if fewer else 'no more'} were wanted within the last {window}"
        if not self.against:
            why = f"the load has not been observed for {window} yet"
        left = f"{'fewer' if fewer else 'more'} in {span(self.left_s or 0)} at the earliest"
        return f"; now it asks for {known(self.asked)}, but it stays at {self.held}: {why}; {left}"

    def _asked(self) -> str:
        """Before there is a mean that could decide."""
        if not self.instances:
            return "no instance is in service yet"
        full = "the window is not full yet"
        if self.open_s is not None:
            left = "when that is full" if self.left_s is None else f"in {span(self.left_s)}"
            begins = "the window restarts when the number in service changes or signals resume"
            full = f"the load of {span(self.open_s)} decides, {left} at the earliest ({begins})"
        if self.requests_per_s is None:
            return f"the number of instances is held; {full}"
        rate = f"{self.requests_per_s:g} requests/s arrive, {general(self.requests_per_instance)} are for each of"
        return f"{rate} {count(self.instances, 'instance')}; {full}"


class UtilisationHigh(Utilisation, frozen=True, kw_only=True, tag="utilisation_high"):
    """Utilisation was above the threshold over the whole window."""

    COLUMN = "load high"
    SENTENCE = "utilisation was above the threshold over the whole window"


class UtilisationLow(Utilisation, frozen=True, kw_only=True, tag="utilisation_low"):
    """One instance fewer would still be below the threshold."""

    COLUMN = "load low"
    SENTENCE = "one instance fewer would still be below the threshold"

    def mark(self, threshold: float) -> str:
        """It is where one instance fewer would be at the threshold: that of n - 1 in n."""
        n = self.instances or 0
        if n < 2:
            return super().mark(threshold)
        fewer = f"one fewer is enough, at less than the threshold of {percent(threshold * n / (n - 1))}"
        return f"below {percent(threshold)} {fewer}"


class UtilisationSteady(Utilisation, frozen=True, kw_only=True, tag="utilisation_steady"):
    """The load asks for no other number of instances."""

    COLUMN = "load steady"
    SENTENCE = "the load asks for no other number"


class Claimed(AnyReason, frozen=True, kw_only=True, tag="claimed"):
    """A signal claims this number of instances.  `instances`: instances that are claimed; `load`: instances that the load
    alone asks for."""

    COLUMN = "claimed"
    SENTENCE = "a signal claims this number"

    instances: int | None = None
    by: str = ""
    load: int | None = None

    def sentence(self) -> str:
        load = "" if self.load is None else f"; the load alone asks for {self.load}"
        return super().sentence() if self.instances is None else f"{claims(self.instances, self.by)}{load}"


class ScaledByPerson(AnyReason, frozen=True, kw_only=True, tag="scaled_by_person"):
    """A person set the number of instances.  `exact`: exactly this number of instances; `minimum`: at least this number of
    instances."""

    COLUMN = "scaled by hand"
    SENTENCE = "a person set the number of instances"
    BASIS = Basis.PERSON
    REMEDY = "phoenix scale DEPARTMENT --auto"

    instances: int | None = None
    exact: int | None = None
    minimum: int | None = None
    maximum: int | None = None

    def sentence(self) -> str:
        if self.minimum is not None:
            return f"{self.SENTENCE}: at least {self.minimum}, at most {known(self.maximum)}"
        number = self.instances if self.exact is None else self.exact
        return super().sentence() if number is None else f"{self.SENTENCE} to {number}"


class AtMinimum(AnyReason, frozen=True, kw_only=True, tag="at_minimum"):
    """The department is at its minimum of instances."""

    COLUMN = "at minimum"
    SENTENCE = "the department is at its minimum"

    minimum: int | None = None

    def sentence(self) -> str:
        if self.minimum is None:
            return super().sentence()
        return f"{self.SENTENCE} of {count(self.minimum, 'instance')}"


class AtMaximum(ByWord, frozen=True, kw_only=True, tag="at_maximum"):
    """The department is at its maximum of instances.  `claimed`: instances that a user claims."""

    COLUMN = "at maximum"
    SENTENCE = "the department is at its maximum"
    REMEDY = "raise the maximum in the configuration"

    maximum: int | None = None
    by: str = ""
    claimed: int | None = None

    def said(self) -> str:
        if self.maximum is None:
            return super().said()
        by = f"; {self.by} claims {self.claimed}" if self.by and self.claimed is not None else ""
        return f"{self.SENTENCE} of {count(self.maximum, 'instance')}{by}"


class Schedule(AnyReason, frozen=True, kw_only=True, tag="schedule"):
    """The schedule sets a minimum for this hour.  `left_s`: how long it still holds, in seconds."""

    COLUMN = "scheduled"
    SENTENCE = "the schedule sets a minimum for this hour"
    REMEDY = "the department's schedule, in the configuration"

    minimum: int | None = None
    left_s: float | None = None

    def sentence(self) -> str:
        if self.minimum is None:
            return super().sentence()
        left = f" for another {span(self.left_s)}" if self.left_s and self.left_s >= 1 else ""
        return f"the schedule asks for at least {count(self.minimum, 'instance')}{left}"


class Forecast(AnyReason, frozen=True, kw_only=True, tag="forecast"):
    """The load of the last days at this time sets a minimum.  `days`: number of days whose load counts; `margin`: part that
    is added to their mean load, from 0 to 1."""

    COLUMN = "foreseen"
    SENTENCE = "this many were needed at this time on previous days"

    minimum: int | None = None
    days: int | None = None
    margin: float | None = None

    def sentence(self) -> str:
        if self.minimum is None:
            return super().sentence()
        load = f"the mean load at this time of {counted(self.days, 'day')} before, and {percent(self.margin or 0)}"
        return f"at least {count(self.minimum, 'instance')}: {load}"


class StepLimit(ByWord, frozen=True, kw_only=True, tag="step_limit"):
    """The load asks for a larger step than the limits allow.  `wanted`: instances that are asked for; `instances`: instances
    now; `allowed`: instances to which the step goes; `limits`: the limits that hold, as the configuration has them."""

    COLUMN = "step limit"
    SENTENCE = "the load asks for more or fewer than a step may be"
    REMEDY = "the limits in the configuration"

    wanted: int | None = None
    instances: int | None = None
    allowed: int | None = None
    limits: list[str] = []
    by: str = ""

    def said(self) -> str:
        if self.allowed is None:
            return super().said()
        asks = f"a claim of {self.by} asks for" if self.by else "the load asks for"
        step = f"a step goes to {self.allowed}: {names(self.limits)}"
        return f"{asks} {known(self.wanted)} instead of {known(self.instances)}, {step}"


class FlapBudget(AnyReason, frozen=True, kw_only=True, tag="flap_budget"):
    """The number has changed its direction too often: the higher one stays.  `wanted`: instances that the load asks for;
    `instances`: the higher number; `turns`: changes of direction in the last hour; `budget`: changes that are allowed;
    `wait_s`: seconds until the number may fall."""

    COLUMN = "flap budget"
    SENTENCE = "the number has changed its direction too often, so the higher one stays"

    wanted: int | None = None
    instances: int | None = None
    turns: int | None = None
    budget: int | None = None
    wait_s: float | None = None

    def sentence(self) -> str:
        if self.budget is None:
            return super().sentence()
        turned = f"the number turned {counted(self.turns, 'time')} in the last hour"
        left = f"{self.budget} are allowed, with the way up again"
        held = f"it stays at {known(self.instances)} for another {span(self.wait_s)}"
        return f"the load asks for {known(self.wanted)}; {turned} ({left}): {held}"


class RoomBeside(AnyReason, frozen=True, kw_only=True, tag="room_beside"):
    """The number of instances stays, but other hosts are needed for them.  `surge`: instances that a rolling update adds;
    `not_ready`: instances that are replaced because they are not ready; `unreachable`: in old journals, 1 if an instance is
    replaced because it is not ready; `draining`: instances that drain; `cordoned`: names of cordoned hosts that are still in
    use; `small`: hosts that are too small for an instance; `freed`: names of hosts whose instances have ended."""

    COLUMN = "room beside"
    SENTENCE = "the instances need these hosts, and nothing else does"
    BASIS = Basis.HOSTS

    release: int | None = None
    surge: int | None = None
    not_ready: int | None = None
    unreachable: int | None = None
    draining: int | None = None
    cordoned: list[str] = []
    small: int | None = None
    freed: list[str] = []

    def sentence(self) -> str:
        """Why the hosts are others though the instances are as many."""
        found = []
        if self.surge:
            found.append(
                f"release {known(self.release)} is rolled out with {count(self.surge, 'instance')} more (max_surge)"
            )
        some = self.not_ready or (1 if self.unreachable else 0)  # the second one in old journals
        if some:
            come = "comes" if some == 1 else "come"
            found.append(f"{count(some, 'successor')} {come} for instances that are not ready")
        if self.draining:
            found.append(f"{count(self.draining, 'instance')} still {'drains' if self.draining == 1 else 'drain'}")
        if self.cordoned:
            found.append(f"{names(self.cordoned)} {are(len(self.cordoned))} cordoned and still in use")
        if self.small:
            found.append(f"{count(self.small, 'host')} {are(self.small)} too small for an instance")
        if self.freed:
            found.append(f"what {names(self.freed)} carried has ended")
        return "; ".join(found) or super().sentence()


class ScaleUp(ByWord, frozen=True, kw_only=True, tag="scale_up"):
    """The load asks for more instances."""

    COLUMN = "scale up"
    SENTENCE = "the load asks for more instances"

    instances: int | None = None
    by: str = ""

    def said(self) -> str:
        if self.instances is None:
            return super().said()
        asked = f"the load asks for {count(self.instances, 'instance')}"
        return claims(self.instances, self.by) if self.by else asked


class ScaleDown(ByWord, frozen=True, kw_only=True, tag="scale_down"):
    """The load needs fewer instances."""

    COLUMN = "scale down"
    SENTENCE = "the load needs one instance fewer"

    instances: int | None = None
    by: str = ""

    def said(self) -> str:
        if self.instances is None:
            return super().said()
        asked = f"the load asks for {count(self.instances, 'instance')}"
        return claims(self.instances, self.by) if self.by else asked


class SignalMissing(AnyReason, frozen=True, kw_only=True, tag="signal_missing"):
    """No signal has reported the load for a while: the number of instances is held.  `timeout_s`: after this many seconds
    without a signal it is held; `silent_s`: seconds since the last signal; `signal`: name of the last signal; `source`:
    source of the last signal."""

    COLUMN = "no signal"
    SENTENCE = "no load signal has arrived for a while, so the number of instances is held"
    BASIS = Basis.SILENCE
    REMEDY = "look at the load balancer; by hand: phoenix scale DEPARTMENT N"

    timeout_s: float | None = None
    instances: int | None = None
    silent_s: float | None = None
    signal: str = ""
    source: str = ""

    def sentence(self) -> str:
        none = "no load signal has arrived for"
        if self.silent_s is None:
            silent = f"{none} {general(self.timeout_s)} s: their number is held"
            return super().sentence() if self.timeout_s is None else silent
        last = (
            f"; the last one was {self.signal}" + (f" of {self.source}" if self.source else "") if self.signal else ""
        )
        after = f"the number of instances is held after {general(self.timeout_s)} s"
        held = "their number is held" if self.timeout_s is None else after
        return f"{none} {span(self.silent_s)}{last}: {held}"


class SignalsDropped(AnyReason, frozen=True, kw_only=True, tag="signals_dropped"):
    """Signals do not count.  `signal`: name of the signal; `why`: why they do not count, as a code; `count`: how many signals
    were dropped; `off_s`: seconds by which the publisher's clock is ahead, negative if it is behind; `note`: what exactly is
    wrong."""

    COLUMN = "signals dropped"
    SENTENCE = "signals that arrive do not count"
    REMEDY = "publish what docs/reference/signals.md asks for"

    signal: str = ""
    why: str = ""
    count: int | None = None
    user: str = ""
    source: str = ""
    off_s: float | None = None
    note: str = ""

    def sentence(self) -> str:
        """`12 cpu signals of haproxy-1 were dropped: its clock is 3600.0 s behind`."""
        if not self.why:
            return super().sentence()
        whose = f" of {self.source}" if self.source else ""
        whose += f" (user {self.user})" if self.source and self.user else f" of user {self.user}" if self.user else ""
        note = f" ({self.note})" if self.note else ""
        clock = f"its clock is {abs(self.off_s or 0):.1f} s {'behind' if (self.off_s or 0) < 0 else 'ahead'}"
        return f"{known(self.count)} {self.signal} signals{whose} were dropped: {WHY.get(self.why, clock)}{note}"

    def remedy(self) -> str:
        """Where there is more to say than that signals should be as docs/reference/signals.md asks for."""
        if self.why == Drop.NOT_ALLOWED and self.signal == "claim":
            return "claim as a manager of the department, or raise its claim_max_user"
        return REMEDIES.get(self.why, self.REMEDY)


class RequestsQueued(AnyReason, frozen=True, kw_only=True, tag="requests_queued"):
    """Requests wait at the load balancer, and the scaling rule does not see why.  `requests`: requests that wait; `waited_s`:
    how long requests have waited, in seconds."""

    COLUMN = "requests wait"
    SENTENCE = "requests wait at the load balancer, and the scaling rule does not measure what for"
    REMEDY = (
        "set requests_per_instance: how many requests/s one instance is to serve; or, if instances are idle, "
        "connections_per_instance (docs/reference/web.md)"
    )

    requests: int | None = None
    waited_s: float | None = None
    instances: int | None = None
    utilisation: float | None = None
    requests_per_instance: float | None = None

    def sentence(self) -> str:
        if self.requests is None:
            return super().sentence()
        waited = "" if self.waited_s is None else f", for {span(self.waited_s)}"
        seen = [] if self.utilisation is None else [f"{percent(self.utilisation)} CPU"]
        if self.requests_per_instance is not None:
            seen.append(f"{self.requests_per_instance:g} requests/s as what an instance serves")
        sees = f"; the rule sees {' and '.join(seen)} only" if seen else ""
        of = "" if self.instances is None else f" with {count(self.instances, 'instance')}"
        wait = "waits" if self.requests == 1 else "wait"
        return f"{count(self.requests, 'request')} {wait} at the load balancer{waited}{of}{sees}"


class RequestsRefused(AnyReason, frozen=True, kw_only=True, tag="requests_refused"):
    """The load balancer turns requests away, since no instance has room.  `rate`: requests per second that are turned away;
    `for_s`: how long requests have been turned away, in seconds; `most`: instances that the department may have."""

    COLUMN = "requests refused"
    SENTENCE = "the load balancer turns requests away, since no instance has room for them"
    REMEDY = (
        "raise instances_max, if there are hosts; or let one instance take more at a time: connections_per_instance "
        "(docs/reference/web.md)"
    )

    rate: float | None = None
    for_s: float | None = None
    instances: int | None = None
    most: int | None = None

    def sentence(self) -> str:
        if self.rate is None:
            return super().sentence()
        waited = "" if self.for_s is None else f", for {span(self.for_s)}"
        of = "" if self.most is None else f", with {self.instances or 0} of at most {count(self.most, 'instance')}"
        away = f"{self.rate:g} requests/s are turned away by the load balancer{waited}"
        return f"{away}: no instance has room for them{of}"


class RequestsFail(AnyReason, frozen=True, kw_only=True, tag="requests_fail"):
    """Many requests are answered with 5xx."""

    COLUMN = "requests fail"
    SENTENCE = "many requests are answered with 5xx"
    REMEDY = "look at phoenix logs INSTANCE"

    release: int | None = None
    answered: int | None = None
    errors: int | None = None
    over_s: float | None = None

    def sentence(self) -> str:
        if self.errors is None:
            return super().sentence()
        answered = f"{part_of(self.errors, self.answered)} with 5xx or not at all"
        return f"release {known(self.release)} answered {answered} in the last {span(self.over_s)}"


WebReason: TypeAlias = (
    UtilisationHigh
    | UtilisationLow
    | UtilisationSteady
    | Claimed
    | ScaledByPerson
    | AtMinimum
    | AtMaximum
    | Schedule
    | Forecast
    | StepLimit
    | FlapBudget
    | RoomBeside
    | ScaleUp
    | ScaleDown
    | SignalMissing
    | SignalsDropped
    | RequestsQueued
    | RequestsRefused
    | RequestsFail
)
