"""Why an attempt of a job was closed, and what became of a job."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

from schemas.causes import Cause
from schemas.reasons.base import AnyReason
from schemas.times import TimeText
from schemas.units import count
from schemas.words import by_code, did_not_start, known, names, refused_a_vm, saved_work, span


class Interrupted(AnyReason, frozen=True, kw_only=True):
    """An attempt ended from outside.

    Of the end: `asked`: how the job wanted to be disposed of, if that was impossible; `instead`: how it was disposed of
    instead; `requeues`: times that the job was requeued, if these were too many; `requeues_max`: times that its department
    allows.

    Of a unit that waits again: `preempted`: times that it was preempted; `failed`: times that it failed from outside;
    `saved_s`: run time that its suspended VM has saved, in seconds; `began`: whether the attempt had begun."""

    asked: str = ""
    instead: str = ""
    requeues: int | None = None
    requeues_max: int | None = None
    AGAIN: ClassVar[str] = ""  # the sentence after `last because`

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

    def sentence(self) -> str:
        return self.again(self.AGAIN) or super().sentence()

    def again(self, words: str) -> str:
        """Of a unit that waits again: how often its attempts ended without its doing, and why the last one did; else empty."""
        if self.preempted is None:
            return ""
        ended = (("preempted", self.preempted), ("failed to run", self.failed or 0))
        times = [f"{what} {'once' if number == 1 else f'{number} times'}" for what, number in ended if number]
        resumes = f"; {span(self.saved_s)} of its work is saved, and it resumes from there" if self.saved_s else ""
        safe = saved_work(self.safe_s, self.percent, self.checkpoint_ago_s)
        told = f"it was {' and '.join(times)}, last because {words}{resumes}{safe}".replace("was failed", "failed")
        return f"{told}{self.refusal()}"

    def refusal(self) -> str:
        return f"; {refused_a_vm(self.refused, self.refused_why)}" if self.refused_why else ""

    def held_for_it(self) -> str:
        if self.failed is None:
            return ""
        return f"; {count(self.failed, 'start')} in a row failed on hosts where other jobs start, so it is held"


class Reclaimed(Interrupted, frozen=True, kw_only=True, tag="reclaimed"):
    """Its host had to be returned.  `hosts`: number of hosts that its department had to return; `running_s`: how long it had
    run, in seconds; `victims`: the order of victims that chose it; `lost_s`: run time that is lost, in seconds."""

    COLUMN = "reclaimed"
    SENTENCE = "its host had to be returned"
    AGAIN = "its host had to be returned"
    CAUSE = Cause.RECLAIMED

    host: str = ""
    hosts: int | None = None
    running_s: float | None = None
    victims: str = ""
    lost_s: float | None = None

    def sentence(self) -> str:
        """How many of the department's hosts go back in all, and who chose it."""
        if self.hosts is None:
            return super().sentence()
        chosen = f", and its order of victims ({self.victims}) chose this job" if self.victims else ""
        lost = f", of which {span(self.lost_s)} are lost" if self.lost_s is not None else ""
        ran = f"; it had run for {span(self.running_s)}{lost}" if self.running_s is not None else ""
        asked = f"; {self.asked} was requested, {known(self.instead)} was done" if self.asked else ""
        most = f"{known(self.requeues_max)} are allowed"
        again = "" if self.requeues is None else f"; it had been requeued {self.requeues} times, and {most}"
        return f"the department had to return {count(self.hosts, 'host')}{chosen}{ran}{asked}{again}"


class Preempted(Interrupted, frozen=True, kw_only=True, tag="preempted"):
    """It was best-effort, and another job or a lease needed its room.  `job`: the job that needed it."""

    COLUMN = "preempted"
    SENTENCE = "it is best-effort, and its room was needed"
    AGAIN = "its room was needed"
    CAUSE = Cause.PREEMPTED

    job: str = ""

    def sentence(self) -> str:
        found = self.again(self.AGAIN)
        return (
            f"it is best-effort, and job {self.job} needed its room" if self.job and not found else super().sentence()
        )


class HostTaken(Interrupted, frozen=True, kw_only=True, tag="host_taken"):
    """Its host was seized."""

    COLUMN = "host taken"
    SENTENCE = "its host was seized because the department had not given it back in time"
    AGAIN = "its host was seized"
    CAUSE = Cause.SEIZED


class HostDrained(Interrupted, frozen=True, kw_only=True, tag="host_drained"):
    """A person drained its host, and the deadline has passed."""

    COLUMN = "host drained"
    SENTENCE = "a person drained its host, and the deadline has passed"
    AGAIN = "its host was drained by a person, and the deadline had passed"
    CAUSE = Cause.DRAINED

    host: str = ""

    def sentence(self) -> str:
        """Of a unit that waits again, or of what ends or is given back now."""
        return f"a person drained {self.host}, and the deadline has passed" if self.host else super().sentence()


class LostHost(Interrupted, frozen=True, kw_only=True, tag="host_lost"):
    """Its host was lost."""

    COLUMN = "host lost"
    SENTENCE = "its host was lost"
    AGAIN = "its host was lost"
    CAUSE = Cause.HOST_LOST


class EndedVm(Interrupted, frozen=True, kw_only=True, tag="vm_ended"):
    """Its VM ended without a report."""

    COLUMN = "VM ended"
    SENTENCE = "its VM ended without a report"
    CAUSE = Cause.VM_ENDED

    def column(self) -> str:
        return self.COLUMN if self.began is None else "start failed"

    def sentence(self) -> str:
        words = f"{self.SENTENCE} ({self.vm})" if self.vm else self.SENTENCE
        if self.began is not None and self.vm:
            words = did_not_start(self.vm, self.refused, self.refused_why)
        return self.again(words) or f"{words}{self.held_for_it()}"


class NotSaved(Interrupted, frozen=True, kw_only=True, tag="not_saved"):
    """Work that it had saved was lost before it could resume."""

    COLUMN = "not saved"
    SENTENCE = "work that it had saved was lost before it could resume"
    AGAIN = "what it had saved was lost"
    CAUSE = Cause.NOT_SAVED


class BootTimeout(Interrupted, frozen=True, kw_only=True, tag="boot_timeout"):
    """It did not start in time.  `limit`: `start` if its VMs had not all started, else `boot`; `answer`: of an instance, the
    last answer of its health check."""

    COLUMN = "boot timeout"
    SENTENCE = "its VMs did not start in time"
    AGAIN = "its VMs did not start in time"
    CAUSE = Cause.BOOT_TIMEOUT

    limit: str = ""
    boot_timeout_s: float | None = None
    answer: str = ""

    @property
    def ended_by(self) -> Cause:
        return Cause.START_TIMEOUT if self.limit == "start" else Cause.BOOT_TIMEOUT

    def sentence(self) -> str:
        told = self.again(self.AGAIN)
        if told or self.boot_timeout_s is None:
            return told or super().sentence()
        if self.answer:  # of an instance
            return f"it was not healthy within {span(self.boot_timeout_s)}: {self.answer}"
        return f"its VMs did not start within {self.boot_timeout_s:g} s{self.refusal()}{self.held_for_it()}"


class Walltime(AnyReason, frozen=True, kw_only=True, tag="walltime"):
    """It reached its time limit."""

    COLUMN = "time limit"
    SENTENCE = "it reached its time limit"
    REMEDY = "submit it again with a longer --time"

    walltime_s: float | None = None

    def sentence(self) -> str:
        return self.SENTENCE if self.walltime_s is None else f"{self.SENTENCE} of {span(self.walltime_s)}"


class LeaseEnded(AnyReason, frozen=True, kw_only=True, tag="lease_ended"):
    """The lease is over, as agreed."""

    COLUMN = "time over"
    SENTENCE = "its time was over, as agreed"

    walltime_s: float | None = None

    def sentence(self) -> str:
        return self.SENTENCE if self.walltime_s is None else f"its time of {span(self.walltime_s)} was over, as agreed"


class Cancelled(AnyReason, frozen=True, kw_only=True, tag="cancelled"):
    """It was cancelled."""

    COLUMN = "cancelled"
    SENTENCE = "it was cancelled"


class Finished(AnyReason, frozen=True, kw_only=True, tag="finished"):
    """A unit has ended; or how many elements of an array ended in which way.  `end`: how the unit ended; `ended_at`: when it
    ended; `counts`: of an array, texts such as `3 completed`; `exit`: its exit code; `signal`:
    number of the signal that ended its last attempt; `seconds`: how long its last attempt ran; `attempt`: number of its last
    attempt, if there were several."""

    COLUMN = "finished"
    SENTENCE = "it is finished"

    unit: str = ""
    end: str = ""
    ended_at: TimeText | None = None
    counts: list[str] = []
    exit: int | None = None
    signal: int | None = None
    seconds: float | None = None
    attempt: int | None = None

    def sentence(self) -> str:
        since = "" if self.ended_at is None else f", at {self.ended_at}"
        if self.counts:
            return f"it is finished: {names(self.counts)}{since}"
        if self.end == "ended_early":
            return f"it has completed, ended early{self._ran()}: its script exited with 0 on SIGTERM{since}"
        how = f"{self.end}{by_code(self.exit, self.signal)}{self._ran()}"
        return f"it is finished: {how}{since}" if self.end else super().sentence()

    def _ran(self) -> str:
        again = f" in attempt {self.attempt}" if self.attempt is not None else ""
        return "" if self.seconds is None else f" after {span(self.seconds)}{again}"


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
