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
    """Requests that a release's instances answered, and how many of them with 5xx, or by breaking the connection."""

    release: Count
    answered: Count
    errors: Count


class LoadObserved(PlainFact, frozen=True, kw_only=True, tag="load.observed"):
    """Signals, condensed to at most one of these a second: means of `samples` over [start, end); levels, if start = end.

    `utilisation`: of the instances in service (None: not reported).  `requests_per_s`: of the whole department, of which an
    instance is to serve `requests_per_instance` (None: the configuration's).  `load_by`: the users whose word these are, at
    most `AUTHORS_MAX`: without it they would be others.  `claim`: instances that `claim_by` wants, by its own word.
    `quiet`: the instances in service with the fewest open sessions, the fewest first, at most `QUIET_MAX`.  `answers`: what
    instances answered in the `answers_s` before the fact, by release; only while a release is watched, or if some of it
    were errors."""

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
    """No new session goes to this instance: it stops when its open ones have ended (`instance.reported`), at `until` at the
    latest.  Its attempt is live until it is closed."""

    unit: UnitId
    attempt: AttemptNumber
    until: Seconds
    reason: Reason
    release: Count | None = None  # that takes its place, if it is for that; written with the reason

    def __post_init__(self) -> None:
        if self.release is None and isinstance(self.reason, Rolling):
            msgspec.structs.force_setattr(self, "release", self.reason.release or 0)


class InstanceReported(CustodyFact, frozen=True, kw_only=True, tag="instance.reported"):
    """A word on an instance, of a load balancer (`user`) or of its guest (`by`).  `drained`: it drains, and no session is open
    there.  `unready`: its health check fails, and `why` is the last answer; `ready`: it passes again; before its `began` a
    guest says so of a start that takes long.  `ended`, by its guest: its program has ended by itself, with exit code `exit` or
    by `signal`, or killed because its memory was full (`oom`); `said`: the last lines that it wrote.
    In old journals also `unreachable` (the check has failed for the department's `unreachable_s`) and `reachable`."""

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
    """A manager's word: instances of `dept` are to run `content`, as release number `release` of the department (they grow).
    At most `max_unavailable` fewer than are wanted serve meanwhile, at most `max_surge` more run; one that has served for less
    than `min_ready_s` does not count as serving (null: the department's)."""

    dept: DepartmentName
    release: Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
    user: str
    content: Release
    max_unavailable: Count = 0
    max_surge: Count = 1
    min_ready_s: MinReady | None = None
    request: str = ""


class ReleaseChanged(CustodyFact, frozen=True, kw_only=True, tag="release.changed"):
    """Level: how far the department's release is.  `rolling`: instances are replaced by ones of it; `complete`: all run it;
    `rolled_back`: it did not come up, and release `back_to` is wanted again; `stopped`: it did not come up, and there is
    none to go back to: nothing more is started until a person says something."""

    dept: DepartmentName
    release: Count
    state: Literal["rolling", "complete", "rolled_back", "stopped"]
    reason: Reason
    back_to: Count = 0
