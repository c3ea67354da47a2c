"""What the web core remembers beside custody."""

from __future__ import annotations

import msgspec

from schemas.facts import InstanceReported
from schemas.reasons import Reason
from services.domain.readiness import Readiness
from services.scheduler.core.policies.scale import Track
from services.scheduler.core.policies.scale_flaps import Course
from services.scheduler.core.policies.scale_forecast import Bucket
from services.scheduler.core.policies.scale_steps import Change
from services.scheduler.core.state.load import Sample
from services.scheduler.core.web.answers import Record
from services.scheduler.core.web.release import Roll


class State(msgspec.Struct, kw_only=True):
    target: int | None = None  # instances, as the last own demand.changed said
    missing: bool = False  # … and whether it said signal_missing
    if_idle: int = 0  # … and how many hosts more it wanted if they are idle
    by_person: bool = False  # that number is a person's: placements and closings until the next one say so
    serving: int = 0  # instances in service
    since: float = 0.0  # when their number last changed
    serves_at: float = 0.0  # when an instance came into service after there was none
    heard_at: float = 0.0  # end of the last load.observed with load or a claim
    load_at: float = 0.0  # … with load
    load_by: dict[str, float] = {}  # who reported the load -> end of the last such observation
    claim: int | None = None  # what it claimed, and …
    claim_by: str = ""  # … who claims that
    rate: float | None = None  # requests/s, if they were its load, and …
    per_instance: float | None = None  # … how many an instance is to serve
    samples: list[Sample] = []  # what the scaling rule remembers, and …
    track: Track = Track()
    past: list[Bucket] = []  # the load of the last days (`scale_forecast`)
    changes: list[Change] = []  # of `target`, in the last half hour (`scale_steps`)
    course: Course = Course()  # its turns in the last hour (`scale_flaps`)
    minimum: int | None = None  # a person's word (`web.autoscaler`, rule 3)
    exact: int | None = None
    until: float | None = None
    roll: Roll = Roll()  # what instances run, and how far that is
    complete_at: float = 0.0  # when a release was complete last
    answers: Record = {}  # of the watched release, and of the one before (`web.answers`), as of …
    answers_at: float = 0.0  # … the last observation that had any; 0: of this roll-out none has
    failures: int = 0  # in a row
    taken: dict[
        str, float
    ] = {}  # hosts on which VMs ended just now without their guests' report -> when the first one did
    together: dict[str, None] = {}  # broken instances that are of such a failure that has been counted
    paused: bool = False  # starts are, in the whole cloud: what does not start then is the site's fault
    to_replace: int = 0  # failed instances whose successor is not placed yet
    retry_at: float = 0.0
    quiet: tuple[str, ...] = ()  # instances with the fewest sessions, the fewest first, as of …
    quiet_at: float = 0.0
    drained: dict[str, None] = {}  # live instances that drain and have no session any more
    followed: dict[
        str, int
    ] = {}  # live instances that drain for a rolling update -> the release that takes their place
    unready: Readiness = {}  # live instances that are reported as not ready
    ready_at: dict[str, float] = {}  # live instances that were not ready and are again -> since when
    ended: dict[str, InstanceReported] = {}  # instances whose program has ended, until their attempt is closed
    replaced_at: float = 0.0  # when one that was not ready was closed last
    failed: str = ""  # the instance that failed last …
    failed_why: Reason | None = None  # … and why
