"""Why an instance of a web department started, drains or was closed, and how far a release is."""

from __future__ import annotations

from typing import Any, TypeAlias

from schemas.causes import Cause
from schemas.reasons.base import AnyReason, fields


class Failure(AnyReason, frozen=True, kw_only=True):
    """What became of an instance that failed: `unit`, for `cause` (the code of its closing) with its numbers."""

    unit: str = ""
    cause: str = ""
    exit: int | None = None
    signal: int | None = None
    oom: bool = False
    said: str = ""
    answer: str = ""
    limit: str = ""
    boot_timeout_s: float | None = None
    unreachable_s: float | None = None


def failure(unit: str, why: AnyReason | None) -> dict[str, Any]:
    """The fields of `Failure` of an instance that was closed for `why`."""
    told = {} if why is None else {**fields(why), "cause": why.code}
    return {**told, "unit": unit}


class Rolling(Failure, frozen=True, kw_only=True, tag="rolling"):
    """A rolling update: why an instance drains or starts; or how far the update is, and how the last instance failed."""

    COLUMN = "rolling update"
    SENTENCE = "another release is deployed, and it is replaced by an instance of that one"

    release: int | None = None
    instances: int | None = None
    others: int | None = None
    failures: int | None = None
    fresh: int | None = None
    min_ready_s: float | None = None


class Replacement(AnyReason, frozen=True, kw_only=True, tag="replacement"):
    """It replaces an instance that was lost; or the next one starts in `wait_s`, after `failures` in a row."""

    COLUMN = "replacement"
    SENTENCE = "it replaces an instance that was lost"

    instances: int | None = None
    failures: int | None = None
    wait_s: float | None = None


class LastFailed(Failure, frozen=True, kw_only=True, tag="last_failed"):
    """How the last instance failed that did."""

    COLUMN = "failed"
    SENTENCE = "an instance has failed"


class Draining(AnyReason, frozen=True, kw_only=True, tag="draining"):
    COLUMN = "draining"
    SENTENCE = "it is not needed any more, and gets no new session"

    instances: int | None = None
    left_s: float | None = None


class Drained(AnyReason, frozen=True, kw_only=True, tag="drained"):
    """Its last session has ended; `release`: the one that is rolled out, if it drained for that."""

    COLUMN = "drained"
    SENTENCE = "it was not needed any more, and its last session has ended"

    release: int | None = None


class DrainTimeout(AnyReason, frozen=True, kw_only=True, tag="drain_timeout"):
    """Sessions were still open after `drain_s`."""

    COLUMN = "drain timeout"
    SENTENCE = "it was not needed any more; sessions were still open when its time to drain was over"

    release: int | None = None


class NotReady(AnyReason, frozen=True, kw_only=True, tag="not_ready"):
    """Its health check has failed for `unreachable_s`; or, of a department, how many are not ready, since when, and `by` whose
    word alone."""

    COLUMN = "not ready"
    SENTENCE = "its health check has failed for too long"
    CAUSE = Cause.NOT_READY

    unreachable_s: float | None = None
    answer: str = ""
    instances: int | None = None
    target: int | None = None
    not_ready: int | None = None
    units: list[str] = []
    answers: list[str] = []
    for_s: float | None = None
    by: list[str] = []


class Unreachable(AnyReason, frozen=True, kw_only=True, tag="unreachable"):
    """`not_ready`, in old journals."""

    COLUMN = "unreachable"
    SENTENCE = "the load balancer has not reached it for too long"
    CAUSE = Cause.NOT_READY

    unreachable_s: float | None = None


class ProgramEnded(AnyReason, frozen=True, kw_only=True, tag="program_ended"):
    """An instance's program ended by itself, as its guest has said."""

    COLUMN = "program ended"
    SENTENCE = "its program ended by itself"
    CAUSE = Cause.PROGRAM_ENDED

    exit: int | None = None
    signal: int | None = None
    oom: bool = False
    said: str = ""


class ReleaseDeployed(AnyReason, frozen=True, kw_only=True, tag="release_deployed"):
    """A person asked for it, or the configuration (`user`)."""

    COLUMN = "release deployed"
    SENTENCE = "a person has deployed it"

    release: int | None = None
    user: str = ""


class ReleaseComplete(AnyReason, frozen=True, kw_only=True, tag="release_complete"):
    COLUMN = "release complete"
    SENTENCE = "all instances run it"

    release: int | None = None
    instances: int | None = None


class RollStuck(AnyReason, frozen=True, kw_only=True, tag="roll_stuck"):
    """A rolling update waits for a host, and nothing else would help it on."""

    COLUMN = "update waits"
    SENTENCE = "the rolling update waits for a host"
    REMEDY = "free a host, or deploy with a higher --max-unavailable"

    department: str = ""
    release: int | None = None
    hosts: int | None = None
    max_unavailable: int | None = None
    helps: int | None = None
    maximum: int | None = None
    surge: str = ""


class ReleaseFailed(Failure, frozen=True, kw_only=True, tag="release_failed"):
    """None of its instances came into service; `back_to`: the release that is wanted again, if there is one."""

    COLUMN = "release failed"
    SENTENCE = "none of its instances stayed in service"
    REMEDY = "look at phoenix logs INSTANCE, and deploy one that runs"

    release: int | None = None
    failures: int | None = None
    back_to: int | None = None


class ReleaseErrors(AnyReason, frozen=True, kw_only=True, tag="release_errors"):
    """Its instances answer more requests with 5xx than those of the one before."""

    COLUMN = "release errors"
    SENTENCE = "it answers more requests with 5xx than the one before"
    REMEDY = "look at phoenix logs INSTANCE, and deploy one that answers"

    release: int | None = None
    answered: int | None = None
    errors: int | None = None
    over_s: float | None = None
    old_answered: int | None = None
    old_errors: int | None = None
    back_to: int | None = None


InstanceReason: TypeAlias = (
    Rolling
    | Replacement
    | LastFailed
    | Draining
    | Drained
    | DrainTimeout
    | NotReady
    | Unreachable
    | ProgramEnded
    | ReleaseDeployed
    | ReleaseComplete
    | RollStuck
    | ReleaseFailed
    | ReleaseErrors
)
