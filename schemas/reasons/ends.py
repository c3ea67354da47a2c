"""Why an attempt of a job was closed, and what became of a job."""

from __future__ import annotations

from typing import TypeAlias

from schemas.causes import Cause
from schemas.reasons.base import AnyReason


class Interrupted(AnyReason, frozen=True, kw_only=True):
    """By which an attempt ends without its own doing.  Of the closing: `asked` and `instead` if it could not be disposed of as
    the job wishes, `requeues` of `requeues_max` if that has happened too often.  Told later of the unit that waits again: how
    often it was `preempted` and has `failed`, and what of its work is safe."""

    asked: str = ""
    instead: str = ""
    requeues: int | None = None
    requeues_max: int | None = None
    unit: str = ""
    preempted: int | None = None
    failed: int | None = None
    saved_s: float | None = None
    checkpoint_ago_s: float | None = None
    checkpoint_attempt: int | None = None
    safe_s: float | None = None
    percent: float | None = None
    vm: str = ""
    refused: str = ""
    refused_why: str = ""
    began: bool | None = None


class Reclaimed(Interrupted, frozen=True, kw_only=True, tag="reclaimed"):
    """A victim: its host had to be returned."""

    COLUMN = "reclaimed"
    SENTENCE = "its host had to be returned"
    CAUSE = Cause.RECLAIMED

    host: str = ""
    hosts: int | None = None
    running_s: float | None = None
    victims: str = ""
    lost_s: float | None = None


class Preempted(Interrupted, frozen=True, kw_only=True, tag="preempted"):
    """Best-effort: production, or a lease's time slot, needed its room."""

    COLUMN = "preempted"
    SENTENCE = "it is best-effort, and its room was needed"
    CAUSE = Cause.PREEMPTED

    job: str = ""


class HostTaken(Interrupted, frozen=True, kw_only=True, tag="host_taken"):
    """Its host was seized."""

    COLUMN = "host taken"
    SENTENCE = "its host was seized because the department had not given it back in time"
    CAUSE = Cause.SEIZED


class HostDrained(Interrupted, frozen=True, kw_only=True, tag="host_drained"):
    """A person drained its host, and the deadline has passed."""

    COLUMN = "host drained"
    SENTENCE = "a person drained its host, and the deadline has passed"
    CAUSE = Cause.DRAINED

    host: str = ""


class LostHost(Interrupted, frozen=True, kw_only=True, tag="host_lost"):
    COLUMN = "host lost"
    SENTENCE = "its host was lost"
    CAUSE = Cause.HOST_LOST


class EndedVm(Interrupted, frozen=True, kw_only=True, tag="vm_ended"):
    """Its VM ended without a report."""

    COLUMN = "VM ended"
    SENTENCE = "its VM ended without a report"
    CAUSE = Cause.VM_ENDED


class NotSaved(Interrupted, frozen=True, kw_only=True, tag="not_saved"):
    """What it had saved, or a part of it, was lost before it could go on."""

    COLUMN = "not saved"
    SENTENCE = "what it had saved, or a part of it, was lost before it could go on"
    CAUSE = Cause.NOT_SAVED


class BootTimeout(Interrupted, frozen=True, kw_only=True, tag="boot_timeout"):
    """It did not come up in time; `limit`: "start" if its VMs had not all started, else "boot"; `answer`: of an instance, what
    its health check said last."""

    COLUMN = "boot timeout"
    SENTENCE = "its machines did not start in time"
    CAUSE = Cause.BOOT_TIMEOUT

    limit: str = ""
    boot_timeout_s: float | None = None
    answer: str = ""

    @property
    def ended_by(self) -> Cause:
        return Cause.START_TIMEOUT if self.limit == "start" else Cause.BOOT_TIMEOUT


class Walltime(AnyReason, frozen=True, kw_only=True, tag="walltime"):
    COLUMN = "time limit"
    SENTENCE = "it ran into its time limit"
    REMEDY = "submit it again with a longer --time"

    walltime_s: float | None = None


class LeaseEnded(AnyReason, frozen=True, kw_only=True, tag="lease_ended"):
    """Its time is over, as agreed."""

    COLUMN = "time over"
    SENTENCE = "its time was over, as agreed"

    walltime_s: float | None = None


class Cancelled(AnyReason, frozen=True, kw_only=True, tag="cancelled"):
    COLUMN = "cancelled"
    SENTENCE = "it was cancelled"


class Finished(AnyReason, frozen=True, kw_only=True, tag="finished"):
    """How a unit ended, or of an array how many elements ended how."""

    COLUMN = "finished"
    SENTENCE = "it is finished"

    unit: str = ""
    end: str = ""
    ended_at: str | float | None = None
    counts: list[str] = []
    exit: int | None = None


EndReason: TypeAlias = (
    Reclaimed
    | Preempted
    | HostTaken
    | HostDrained
    | LostHost
    | EndedVm
    | NotSaved
    | BootTimeout
    | Walltime
    | LeaseEnded
    | Cancelled
    | Finished
)
