"""Why an instance of a web department started, drains or was closed, and how far a release is."""

from __future__ import annotations

from typing import Any, TypeAlias

from schemas.causes import Cause
from schemas.reasons.base import AnyReason, fields
from schemas.units import count
from schemas.words import are, counted, known, names, part_of, program_ended, span


def _not_healthy(boot_timeout_s: float | None, answer: str) -> str:
    within = "in time" if boot_timeout_s is None else f"within {span(boot_timeout_s)}"
    return f"was not healthy {within}: {answer}" if answer else "did not come up in time"


def _was_not_ready(unreachable_s: float | None, answer: str) -> str:
    for_s = "" if unreachable_s is None else f" for {span(unreachable_s)}"
    return f"was not ready{for_s}{f': {answer}' if answer else ''}"


def _department(instance: str) -> str:
    return instance.rpartition(".")[0] or "DEPARTMENT"


class Failure(AnyReason, frozen=True, kw_only=True):
    """How an instance failed.  `cause`: code of the reason for which it was closed; `exit`: exit code of its program;
    `answer`: last answer of its health check; `limit`: `start` if its VM had not started, else `boot`."""

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

    def how(self) -> str:
        """What became of it: what follows its name."""
        told = {
            "vm_ended": "ended by itself",
            "program_ended": program_ended(self.exit, self.signal, self.oom, self.said),
            "boot_timeout": _not_healthy(self.boot_timeout_s, self.answer),
            "not_ready": _was_not_ready(self.unreachable_s, self.answer),
            "unreachable": "was not reached by its load balancer",
        }
        return told.get(self.cause, known(self.cause))

    def logs(self) -> str:
        return f"`phoenix logs {self.unit}` shows what it wrote"


def failure(unit: str, why: AnyReason | None) -> dict[str, Any]:
    """The fields of `Failure` of an instance that was closed for `why`."""
    told = {} if why is None else {**fields(why), "cause": why.code}
    return {**told, "unit": unit}


class Rolling(Failure, frozen=True, kw_only=True, tag="rolling"):
    """A rolling update replaces instances: why one starts or drains; or how far the update is.  `instances`: instances of the
    new release; `others`: instances of other releases; `failures`: instances of the new release that have failed; `fresh`:
    instances that have not served for long enough to count."""

    COLUMN = "rolling update"
    SENTENCE = "another release is deployed, and it is replaced by an instance of that one"

    release: int | None = None
    instances: int | None = None
    others: int | None = None
    failures: int | None = None
    fresh: int | None = None
    min_ready_s: float | None = None

    def sentence(self) -> str:
        if self.others is None:
            return super().sentence() if self.release is None else f"release {self.release} is rolled out"
        last = f", the last one: {self.unit} {self.how()}" if self.unit else ""
        paused = f"; {count(self.failures, 'failure')} until now{last}" if self.failures else ""
        has = "has" if self.fresh == 1 else "have"
        fresh = (
            f"; {count(self.fresh, 'instance')} {has} served for less than {span(self.min_ready_s)}"
            if self.fresh
            else ""
        )
        of_it = f"{counted(self.instances, 'instance')} of it, {count(self.others, 'other')}"
        return f"release {known(self.release)} takes the others' places: {of_it}{paused}{fresh}"

    def remedy(self) -> str:
        """Of one that is on its way, and whose instances fail."""
        if self.others is None or not self.unit:
            return self.REMEDY
        return f"{self.logs()}; deploy one that runs, or go back: phoenix deploy {_department(self.unit)} --undo"


class Replacement(AnyReason, frozen=True, kw_only=True, tag="replacement"):
    """It replaces an instance that was lost; or the next one starts later, since several failed.  `failures`: instances in a
    row that failed; `wait_s`: seconds until the next one starts."""

    COLUMN = "replacement"
    SENTENCE = "it replaces an instance that was lost"

    instances: int | None = None
    failures: int | None = None
    wait_s: float | None = None

    def sentence(self) -> str:
        if self.wait_s is None:
            return self.SENTENCE
        failed = counted(self.failures, "instance")
        return f"{failed} failed one after another: the next one starts in {span(self.wait_s)}"


class LastFailed(Failure, frozen=True, kw_only=True, tag="last_failed"):
    """How the last instance that failed did so."""

    COLUMN = "failed"
    SENTENCE = "an instance has failed"

    def sentence(self) -> str:
        return f"the last instance that failed, {self.unit}, {self.how()}" if self.unit else super().sentence()


class Draining(AnyReason, frozen=True, kw_only=True, tag="draining"):
    """Instances that are not needed any more get no new session.  `instances`: instances that drain; `left_s`: seconds until
    the last one stops."""

    COLUMN = "draining"
    SENTENCE = "it is not needed any more, and gets no new session"

    instances: int | None = None
    left_s: float | None = None

    def sentence(self) -> str:
        if self.left_s is None:
            return super().sentence()
        drain, stop = ("drains", "it stops") if self.instances == 1 else ("drain", "they stop")
        ends = f"{stop} when the open ones have ended, in {span(self.left_s)} at the latest"
        return f"{counted(self.instances, 'instance')} {drain}: no new session goes there, and {ends}"


class Drained(AnyReason, frozen=True, kw_only=True, tag="drained"):
    """It was not needed any more, and its last session has ended.  `release`: the release that replaces it; null: none."""

    COLUMN = "drained"
    SENTENCE = "it was not needed any more, and its last session has ended"

    release: int | None = None

    def sentence(self) -> str:
        rolled = f"release {self.release} is rolled out, and its last session has ended"
        return super().sentence() if self.release is None else rolled


class DrainTimeout(AnyReason, frozen=True, kw_only=True, tag="drain_timeout"):
    """It was not needed any more, and sessions were still open when its time to drain was over.  `release`: the release that
    replaces it; null: none."""

    COLUMN = "drain timeout"
    SENTENCE = "it was not needed any more; sessions were still open when its time to drain was over"

    release: int | None = None

    def sentence(self) -> str:
        rolled = f"release {self.release} is rolled out; sessions were still open when its time to drain was over"
        return super().sentence() if self.release is None else rolled


class NotReady(AnyReason, frozen=True, kw_only=True, tag="not_ready"):
    """The health check of an instance has failed for too long; or how many instances of a department are not ready.
    `instances`: instances that serve; `not_ready`: instances that are not ready; `units`: names of some instances that are
    not ready; `answers`: last answers of health checks; `for_s`: how long the first one has not been ready, in seconds; `by`:
    load balancers of which one alone reports it."""

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

    def sentence(self) -> str:
        if self.target is None:
            silent = self.unreachable_s is None
            return super().sentence() if silent else f"it {_was_not_ready(self.unreachable_s, self.answer)}"
        serve = "serves" if self.instances == 1 else "serve"
        answers = (
            f"{self.not_ready or 0} {are(self.not_ready)} not ready: {'; '.join(self.answers)}, for {span(self.for_s)}"
        )
        told = f"{self.instances or 0} of {count(self.target, 'instance')} {serve}; {answers}"
        if self.by:
            alone = f"{names(self.by)} alone says so, and by their guests' word all are ready"
            return f"{told}; {alone}: it may be the load balancer's own network, so they are kept"
        return told if self.unreachable_s else f"{told}; none is replaced for it (unreachable_s = 0)"

    def remedy(self) -> str:
        if self.target is None:
            return self.REMEDY
        if self.by:
            return "look whether the load balancer reaches their addresses (phoenix instances)"
        logs = f"`phoenix logs {self.units[0] if self.units else 'INSTANCE'}` shows what its program says"
        return f"{logs}; who is not ready for {span(self.unreachable_s)} is replaced"


class Unreachable(AnyReason, frozen=True, kw_only=True, tag="unreachable"):
    """The load balancer has not reached it for too long; in old journals."""

    COLUMN = "unreachable"
    SENTENCE = "the load balancer has not reached it for too long"
    CAUSE = Cause.NOT_READY

    unreachable_s: float | None = None

    def sentence(self) -> str:
        if self.unreachable_s is None:
            return super().sentence()
        return f"the load balancer has not reached it for {self.unreachable_s:g} s"


class ProgramEnded(AnyReason, frozen=True, kw_only=True, tag="program_ended"):
    """The program of an instance ended by itself.  `exit`: its exit code."""

    COLUMN = "program ended"
    SENTENCE = "its program ended by itself"
    CAUSE = Cause.PROGRAM_ENDED

    exit: int | None = None
    signal: int | None = None
    oom: bool = False
    said: str = ""

    def sentence(self) -> str:
        if self.exit is None and self.signal is None and not self.oom:
            return super().sentence()
        return f"its program {program_ended(self.exit, self.signal, self.oom, self.said)}"


class ReleaseDeployed(AnyReason, frozen=True, kw_only=True, tag="release_deployed"):
    """A person has deployed the release, or the configuration has changed.  `user`: who deployed it; `configuration`: the
    configuration."""

    COLUMN = "release deployed"
    SENTENCE = "a person has deployed it"

    release: int | None = None
    user: str = ""

    def sentence(self) -> str:
        if self.release is None:
            return super().sentence()
        if self.user == "configuration":
            return f"the configuration says otherwise what release {self.release} runs"
        return f"{self.user or 'a user'} has asked for release {self.release}"


class ReleaseComplete(AnyReason, frozen=True, kw_only=True, tag="release_complete"):
    """All instances run the release.  `instances`: instances that run it."""

    COLUMN = "release complete"
    SENTENCE = "all instances run it"

    release: int | None = None
    instances: int | None = None

    def sentence(self) -> str:
        if self.instances is None:
            return super().sentence()
        return f"no instance runs another one: {count(self.instances, 'instance')} of release {known(self.release)}"


class RollStuck(AnyReason, frozen=True, kw_only=True, tag="roll_stuck"):
    """A rolling update waits for a host.  `hosts`: hosts that the department holds; `max_unavailable`: instances that may be
    missing in this update; `helps`: the `max_unavailable` with which it would continue; `maximum`: hosts that the department
    may have, if it has them; `surge`: `idle` if only idle hosts may be used; else empty."""

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

    def sentence(self) -> str:
        if self.hosts is None:
            return super().sentence()
        none = ', and no other one is idle (surge = "idle")' if self.surge else ", and none is free for it"
        most = none if self.maximum is None else ", as many as it may have"
        held = f"{known(self.department)} holds {count(self.hosts, 'host')}{most}"
        leave = f"; with max_unavailable {known(self.max_unavailable)} no other instance may leave first"
        host = "an idle host" if self.surge else "a host"
        first = "" if self.helps is None else leave
        return f"release {known(self.release)} waits for {host} for its next instance: {held}{first}"

    def remedy(self) -> str:
        if self.hosts is None:
            return self.REMEDY
        host = "free a host" if self.maximum is None else "raise the maximum of the department"
        if self.surge:
            host = "wait: it continues by itself as soon as a host is idle that no guarantee keeps"
        if self.helps is None:
            return host
        deploy = f"`phoenix deploy {known(self.department)} --max-unavailable {self.helps}`"
        return f"{deploy} continues on the hosts that it has; or {host}"


class ReleaseFailed(Failure, frozen=True, kw_only=True, tag="release_failed"):
    """Too few instances of the release came into service.  `failures`: instances of it that failed; `back_to`: the release
    that is wanted again; null: none."""

    COLUMN = "release failed"
    SENTENCE = "none of its instances stayed in service"
    REMEDY = "look at phoenix logs INSTANCE, and deploy one that runs"

    release: int | None = None
    failures: int | None = None
    back_to: int | None = None

    def sentence(self) -> str:
        if self.failures is None:
            return super().sentence()
        last = f": the last instance, {self.unit}, {self.how()}" if self.unit else ""
        then = "nothing more is started" if self.back_to is None else f"release {self.back_to} is wanted again"
        return f"release {known(self.release)} was given up after {count(self.failures, 'failure')}{last}; {then}"

    def remedy(self) -> str:
        if not self.unit:
            return self.REMEDY
        again = f"; to try the same again: phoenix scale {_department(self.unit)} N" if self.back_to is None else ""
        return f"{self.logs()}; deploy one that runs{again}"


class ReleaseErrors(AnyReason, frozen=True, kw_only=True, tag="release_errors"):
    """The release answers more requests with 5xx than the one before.  `old_answered`: requests that the release before
    answered; `old_errors`: requests that the release before answered with 5xx; `back_to`: the release that is wanted
    again."""

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

    def sentence(self) -> str:
        """That it is worse than the one before."""
        if self.old_answered is None:
            return super().sentence()
        before = f"release {known(self.back_to)} answered {part_of(self.old_errors, self.old_answered)} so"
        answered = f"{part_of(self.errors, self.answered)} with 5xx or not at all within {span(self.over_s)}"
        return f"release {known(self.release)} answered {answered}; {before}: it is wanted again"


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
