"""Facts of web departments: their load, how instances end without hurting anybody, and what they run (`schemas.facts` has
the rules)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from schemas.facts_base import AttemptNumber, Count, CustodyFact, DepartmentName, PlainFact, Seconds, UnitId
from schemas.reasons import Reason, Rolling
from schemas.releases import MinReady, Release

SAID_MAX: Final = 400  # the last three lines of a traceback; more is what logs are for
QUIET_MAX: Final = 20  # instances of one step down that are chosen by their sessions
AUTHORS_MAX: Final = 8  # users of one department's load balancers
RELEASES_MAX: Final = 8  # of which instances answer at one time: each deploy during a roll-out adds one


class Answers(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that a release's instances answered.  `answered`: requests that its instances answered; `errors`: requests
    that they answered with 5xx, or by breaking the connection."""

    release: Count
    answered: Count
    errors: Count


class LoadObserved(PlainFact, frozen=True, kw_only=True, tag="load.observed"):
    """Signals, condensed to at most one of these a second: means over the time from `start` to `end`; levels, if these are
    equal.

    `start`: start of the observation, UTC seconds; `end`: its end, UTC seconds; `utilisation`: mean of the instances in
    service, 1: all their cores were busy; null: not reported; `samples`: number of signals in it; `requests_per_s`: requests
    per second of the whole department; null: not reported; `requests_per_instance`: requests per second that an instance is
    to serve; null: as configured; `load_by`: users whose signals these are,  if others usually report;
    `claim`: instances that a ready claim asks for; `claim_by`: the user who claims them; `quiet`: the instances in service
    with the fewest open sessions, the fewest first; `answers`: answers of instances in the last
    `answers_s`, by release; only while a release is watched, or if some of them were errors; `answers_s`: the time over which
    `answers` were counted, in seconds."""

    dept: DepartmentName
    start: Seconds
    end: Seconds
    utilisation: Annotated[float, msgspec.Meta(ge=0, le=1e6)] | None = None
    samples: Count
    requests_per_s: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = None
    requests_per_instance: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    load_by: Annotated[tuple[str, ...], msgspec.Meta(max_length=AUTHORS_MAX)] = ()
    claim: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None = None
    claim_by: str = ""
    quiet: Annotated[tuple[UnitId, ...], msgspec.Meta(max_length=QUIET_MAX)] = ()
    answers: Annotated[tuple[Answers, ...], msgspec.Meta(max_length=RELEASES_MAX)] = ()
    answers_s: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0.0


class InstanceDraining(CustodyFact, frozen=True, kw_only=True, tag="instance.draining"):
    """No new session goes to this instance: it stops when its open ones have ended (`instance.reported`).  Its attempt is
    live until it is closed.  `until`: when it stops at the latest, UTC seconds."""

    unit: UnitId
    attempt: AttemptNumber
    until: Seconds
    reason: Reason
    release: Count | None = None  # the release whose instance replaces it; null: it is not replaced

    def __post_init__(self) -> None:
        if self.release is None and isinstance(self.reason, Rolling):
            msgspec.structs.force_setattr(self, "release", self.reason.release or 0)


class InstanceReported(CustodyFact, frozen=True, kw_only=True, tag="instance.reported"):
    """A load balancer or a guest reports on an instance.  In old journals also that its load balancer has not reached it for
    the department's `unreachable_s`, or reaches it again.

    `state`: `drained`: it drains, and no session is open there; `unready`: its health check fails, or, before it has begun,
    it takes long to start; `ready`: the check passes again; `ended`: its program has ended by itself; `user`: the load
    balancer's user; empty: its guest reports; `by`: whether a load balancer or the guest reports; `why`: of `unready`, the
    last answer of the health check; `exit`: of `ended`, the exit code; `signal`: of `ended`, number of the signal that ended
    it; `oom`: of `ended`, whether it was killed because its memory was full; `said`: of `ended`, the last lines that it
    wrote."""

    unit: UnitId
    attempt: AttemptNumber
    state: Literal["drained", "unready", "ready", "ended", "unreachable", "reachable"]
    user: str = ""
    by: Literal["balancer", "guest"] = "balancer"
    why: Annotated[str, msgspec.Meta(max_length=200)] = ""
    exit: Annotated[int, msgspec.Meta(ge=0, le=255)] | None = None
    signal: Annotated[int, msgspec.Meta(ge=1, le=128)] | None = None
    oom: bool = False
    said: Annotated[str, msgspec.Meta(max_length=SAID_MAX)] = ""


class ReleaseRequested(CustodyFact, frozen=True, kw_only=True, tag="release.requested"):
    """A manager deploys a release.  `release`: its number in the department; they grow; `content`: what its instances run;
    `max_unavailable`: how many fewer than are wanted may serve meanwhile; `max_surge`: how many more than are wanted may run
    meanwhile; `min_ready_s`: an instance counts as serving after this many seconds; null: the department's."""

    dept: DepartmentName
    release: Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
    user: str
    content: Release
    max_unavailable: Count = 0
    max_surge: Count = 1
    min_ready_s: MinReady | None = None
    request: str = ""


class ReleaseChanged(CustodyFact, frozen=True, kw_only=True, tag="release.changed"):
    """Level: how far the department's release is.  `state`: `rolling`: instances are replaced by ones of it; `complete`: all
    run it; `rolled_back`: it did not come up, and release `back_to` is wanted again; `stopped`: it did not come up, there is
    none to go back to, and nothing more is started until a person acts; `back_to`: release that is wanted again; 0: none."""

    dept: DepartmentName
    release: Count
    state: Literal["rolling", "complete", "rolled_back", "stopped"]
    reason: Reason
    back_to: Count = 0
