"""Why a web department has so many instances, and what somebody should look at."""

from __future__ import annotations

from typing import TypeAlias

from schemas.causes import Basis
from schemas.reasons.base import AnyReason


class Utilisation(AnyReason, frozen=True, kw_only=True):
    """What the scaling rule saw: the load over `window_s`, of `instances`.  Rule threshold: its `threshold`.  Rule
    target-tracking: `wanted` keep it at the `target`; `held` though the load asks for `asked`.  `open_s`: the window that is
    not full yet.  `load_by`: whose word the load is, if others are usual."""

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
    load_by: list[str] = []


class UtilisationHigh(Utilisation, frozen=True, kw_only=True, tag="utilisation_high"):
    COLUMN = "load high"
    SENTENCE = "utilisation was above the threshold over the whole window"


class UtilisationLow(Utilisation, frozen=True, kw_only=True, tag="utilisation_low"):
    COLUMN = "load low"
    SENTENCE = "one instance fewer would still be below the threshold"


class UtilisationSteady(Utilisation, frozen=True, kw_only=True, tag="utilisation_steady"):
    COLUMN = "load steady"
    SENTENCE = "the load asks for no other number"


class Claimed(AnyReason, frozen=True, kw_only=True, tag="claimed"):
    """A load balancer asks for so many, by its own word."""

    COLUMN = "claimed"
    SENTENCE = "a signal claims so many"

    instances: int | None = None
    by: str = ""
    load: int | None = None


class ScaledByPerson(AnyReason, frozen=True, kw_only=True, tag="scaled_by_person"):
    COLUMN = "scaled by hand"
    SENTENCE = "a person set the number of instances"
    BASIS = Basis.PERSON
    REMEDY = "phoenix scale DEPARTMENT --auto"

    instances: int | None = None
    exact: int | None = None
    minimum: int | None = None
    maximum: int | None = None


class AtMinimum(AnyReason, frozen=True, kw_only=True, tag="at_minimum"):
    COLUMN = "at minimum"
    SENTENCE = "the department is at its minimum"

    minimum: int | None = None


class AtMaximum(AnyReason, frozen=True, kw_only=True, tag="at_maximum"):
    """`by` claims `claimed`; `load_by`: whose word the load is, if others are usual."""

    COLUMN = "at maximum"
    SENTENCE = "the department is at its maximum"
    REMEDY = "raise the maximum in the configuration"

    maximum: int | None = None
    by: str = ""
    claimed: int | None = None
    load_by: list[str] = []


class Schedule(AnyReason, frozen=True, kw_only=True, tag="schedule"):
    """A floor by the clock."""

    COLUMN = "scheduled"
    SENTENCE = "the schedule asks for so many at this hour"
    REMEDY = "the department's schedule, in the configuration"

    minimum: int | None = None
    left_s: float | None = None


class Forecast(AnyReason, frozen=True, kw_only=True, tag="forecast"):
    """A floor from the last days."""

    COLUMN = "foreseen"
    SENTENCE = "at this time of the last days so many were needed"

    minimum: int | None = None
    days: int | None = None
    margin: float | None = None


class StepLimit(AnyReason, frozen=True, kw_only=True, tag="step_limit"):
    """The load asks for more, or fewer, than a step may be."""

    COLUMN = "step limit"
    SENTENCE = "the load asks for more or fewer than a step may be"
    REMEDY = "the limits in the configuration"

    wanted: int | None = None
    instances: int | None = None
    allowed: int | None = None
    limits: list[str] = []
    by: str = ""
    load_by: list[str] = []


class FlapBudget(AnyReason, frozen=True, kw_only=True, tag="flap_budget"):
    """The load asks for fewer, and the number has turned too often: the higher one is held."""

    COLUMN = "flap budget"
    SENTENCE = "the number has changed its direction too often, so the higher one is held"

    wanted: int | None = None
    instances: int | None = None
    turns: int | None = None
    budget: int | None = None
    wait_s: float | None = None


class RoomBeside(AnyReason, frozen=True, kw_only=True, tag="room_beside"):
    """Instances as many as before: what needs hosts beside them, or needs none any more."""

    COLUMN = "room beside"
    SENTENCE = "so many hosts carry them, and nothing needs room beside them"
    BASIS = Basis.HOSTS

    release: int | None = None
    surge: int | None = None
    not_ready: int | None = None
    unreachable: int | None = None
    draining: int | None = None
    cordoned: list[str] = []
    small: int | None = None
    freed: list[str] = []


class ScaleUp(AnyReason, frozen=True, kw_only=True, tag="scale_up"):
    COLUMN = "scale up"
    SENTENCE = "the load asks for more instances"

    instances: int | None = None
    by: str = ""
    load_by: list[str] = []


class ScaleDown(AnyReason, frozen=True, kw_only=True, tag="scale_down"):
    COLUMN = "scale down"
    SENTENCE = "the load needs one instance fewer"

    instances: int | None = None
    by: str = ""
    load_by: list[str] = []


class SignalMissing(AnyReason, frozen=True, kw_only=True, tag="signal_missing"):
    """Since when nobody has said how busy the instances are, and who said what last."""

    COLUMN = "no signal"
    SENTENCE = "nobody has said for a while how busy the instances are, so their number is held"
    BASIS = Basis.SILENCE
    REMEDY = "look at the load balancer; by hand: phoenix scale DEPARTMENT N"

    timeout_s: float | None = None
    instances: int | None = None
    silent_s: float | None = None
    signal: str = ""
    source: str = ""


class SignalsDropped(AnyReason, frozen=True, kw_only=True, tag="signals_dropped"):
    """Whose signals do not count, and why (`domain.signal_drops`): a wrong clock, say."""

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


class RequestsQueued(AnyReason, frozen=True, kw_only=True, tag="requests_queued"):
    """They wait at the load balancer, for what the rule does not see."""

    COLUMN = "requests wait"
    SENTENCE = "requests wait at the load balancer, and the rule does not see for what"
    REMEDY = (
        "set requests_per_instance: how many requests/s one instance is to serve; or, if instances are idle, "
        "connections_per_instance (docs/reference/web.md)"
    )

    requests: int | None = None
    waited_s: float | None = None
    instances: int | None = None
    utilisation: float | None = None
    requests_per_instance: float | None = None


class RequestsRefused(AnyReason, frozen=True, kw_only=True, tag="requests_refused"):
    """The load balancer turns them away, since no instance has room."""

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


class RequestsFail(AnyReason, frozen=True, kw_only=True, tag="requests_fail"):
    """Many are answered with 5xx."""

    COLUMN = "requests fail"
    SENTENCE = "many requests are answered with 5xx"
    REMEDY = "look at phoenix logs INSTANCE"

    release: int | None = None
    answered: int | None = None
    errors: int | None = None
    over_s: float | None = None


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
