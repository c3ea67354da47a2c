"""One job's story in a simulated run: submitted, waited because, placed, preempted, requeued, ended.

Theory of operation
  The run is made again, watched: facts that name the job are its story, and while it waits its department's own explanation
  (`services.scheduler.lookahead.why`) is asked when an instant is over.  So a story says what the core decided by, never what
  a reader thinks afterwards.

Rules
  1. Every event has two times: since the beginning of the experiment (as a date, if the log tells when its time 0 was), and
     since the submission.
  2. While it waits it is asked at the first instant, and then whenever its wait has grown by `SAMPLE_GROWTH`: the number of
     questions grows with the logarithm of the wait.  A line is printed when the leading reason changes, and the last one heard
     before the wait is over.
  3. Sentences are those of `phoenix why` (`domain.text`).  Memory that a log does not tell (the job is given its
     share of a host's) is left out: no job asked for it.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from phoenix.cli.units import count, span
from phoenix.simulate import layout
from phoenix.simulate.engine import Simulation
from phoenix.simulate.workload import JobRecord, Scenario, Work
from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal, Fact
from schemas.reasons import Reason
from services.domain import text as sentences
from services.domain.custody.meta import Meta
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.lookahead.why import why

SAMPLE_GROWTH: Final = 0.1  # rule 2
SAMPLE_MIN_S: Final = 1.0
HOSTS_NAMED: Final = 4
TOLD_MIN: Final = 40  # columns for sentences; in a narrower terminal they are not wrapped here
_DISPOSED: Final = {
    Disposal.REQUEUE: "it goes back into the queue and will run from the start",
    Disposal.KILL: "it is killed and will not run again",
    Disposal.SUSPEND: "it is suspended and will resume where it stopped",
    Disposal.MIGRATE: "it moves to another host and resumes there",
    Disposal.TIMEOUT: "that is its end",
    Disposal.CANCELLED: "that is its end",
    Disposal.FAILED: "that is its end",
}
_FROM_CHECKPOINT: Final = "it goes back into the queue and will run from its last checkpoint"
_TAKEN: Final = (because.Reclaimed, because.HostTaken, because.HostDrained)
_HISTORY: Final = (*_TAKEN, because.LostHost, because.EndedVm, because.BootTimeout)


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """`at_s`: since the beginning; `what`: a word for programs; `told`: the sentence; `reason`: as data, if there is one."""

    at_s: float
    what: str
    told: str
    reason: dict[str, Any] | None = None


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """`started_at`: when the experiment's time 0 was, in seconds since 1970; None: unknown."""

    job: int
    label: str
    department: str
    record: JobRecord
    events: tuple[Event, ...]
    started_at: float | None = None


class NoSuchJob(LookupError):
    """No job of the scenario has this number, or it comes too late; `str()` says what there is."""


def story(scenario: Scenario, job: int, started_at: float | None = None) -> Story:
    """Run the scenario and tell the job's life.  Raises NoSuchJob."""
    places = [(name, work) for name, given in sorted(scenario.jobs.items()) for work in given if work.number == job]
    if not places:
        numbers = sorted(work.number for given in scenario.jobs.values() for work in given)
        has = f"{len(numbers):,} jobs, {numbers[0]} to {numbers[-1]}" if numbers else "no jobs"
        raise NoSuchJob(f"there is no job {job}; the experiment has {has}")
    ((department, work),) = places
    if scenario.window_s is not None and work.submit_s > scenario.window_s:
        when = f"it is submitted at {work.submit_s:,.0f} s, and the window ends at {scenario.window_s:,.0f} s"
        raise NoSuchJob(f"job {job} is not simulated: {when}")
    simulation = _Watched(scenario, work, department)
    outcome = simulation.recorder.outcome(simulation.run())
    record = next(record for record in outcome.jobs if record.number == job)
    simulation.teller.over(outcome.window_s, record)
    return Story(
        job=job,
        label=scenario.label,
        department=department,
        record=record,
        events=tuple(simulation.teller.events),
        started_at=started_at,
    )


class _Watched(Simulation):
    """A simulation whose instants are looked at when they are over."""

    def __init__(self, scenario: Scenario, work: Work, dept: str) -> None:
        super().__init__(scenario)
        core = next(seat.core for seat in self.batch if seat.core.dept == dept)
        share_mb = layout.memory_share_mb(work.cores, scenario.host_cores, scenario.host_memory_mb)
        asked = work.memory_mb != share_mb  # rule 3
        self.teller = _Teller(str(work.number), core, self.recorder.wanted, self.recorder.serving, memory=asked)
        self.journal.readers.append(self.teller.hear)

    def _submit(self, now: float) -> None:
        super()._submit(now)
        record = self.recorder.jobs.get(self.teller.unit)
        if record is not None and record.end == "refused":
            self.teller.refused(record)

    def _instant(self, now: float) -> None:
        super()._instant(now)
        self.teller.rest(now)


class _Teller:
    def __init__(
        self, unit: str, core: BatchCore, wanted: dict[str, int], serving: dict[str, int], *, memory: bool
    ) -> None:
        self.unit, self.core, self.wanted, self.serving, self.memory = unit, core, wanted, serving, memory
        self.events: list[Event] = []
        self._since: float | None = None  # it waits since then; None: it does not
        self._ask_at = 0.0
        self._heard: tuple[float, Reason] | None = None  # the last reason, when it was not told
        self._told: str | None = None
        self._nodes = 0
        self._began_at: float | None = None
        self._safe_at: float | None = None  # of the attempt's last checkpoint
        self._has_safe = False  # an attempt has made one
        self._hears: dict[type, Callable[[Any, float], None]] = {
            f.JobSubmitted: self._submitted,
            f.UnitPlaced: self._placed,
            f.AttemptBegan: self._began,
            f.CheckpointReported: self._checkpointed,
            f.AttemptClosed: self._closed,
            f.AttemptReported: self._reported,
        }

    def hear(self, fact: Fact, meta: Meta) -> None:
        handler = self._hears.get(type(fact))
        if handler is None or meta.void is not None:
            return
        if (fact.job if isinstance(fact, f.JobSubmitted) else fact.unit) == self.unit:  # type: ignore[union-attr]
            handler(fact, meta.at)

    def _tell(self, at: float, what: str, told: str, reason: Reason | None = None) -> None:
        data = None if reason is None else msgspec.to_builtins(reason)
        self.events.append(Event(at_s=at, what=what, told=sentences.capital(told), reason=data))

    def _waits(self, at: float) -> None:
        self._since, self._ask_at, self._heard, self._told = at, at, None, None

    # ---------------------------------------------------------------------------------------------------------- waiting

    def rest(self, now: float) -> None:
        """Rule 2: an instant is over."""
        if self._since is None or now < self._ask_at:
            return
        self._ask_at = now + max(SAMPLE_MIN_S, SAMPLE_GROWTH * (now - self._since))
        reasons = [self._asked(reason) for reason in why(self.core, self.unit, now) if type(reason) not in _HISTORY]
        if not reasons:
            return
        if reasons[0].code == self._told:
            self._heard = (now, reasons[0])
            return
        self._last_heard()
        self._told = reasons[0].code
        self._tell(now, "waits", f"waits: {sentences.sentence(reasons[0])}", reasons[0])

    def _asked(self, reason: Reason) -> Reason:
        """The reason without memory that no job asked for (rule 3)."""
        if self.memory or not isinstance(reason, because.Needs):
            return reason
        return msgspec.structs.replace(reason, memory_mb=None)

    def _last_heard(self) -> None:
        if self._heard is not None:
            at, reason = self._heard
            self._tell(at, "waits", f"still waits: {sentences.sentence(reason)}", reason)
            self._heard = None

    # ----------------------------------------------------------------------------------------------------------- facts

    def refused(self, record: JobRecord) -> None:
        if not self.events:
            self._tell(
                record.submit_s, "refused", f"refused at the door: no {count(record.nodes, 'host')} could hold it"
            )

    def _submitted(self, fact: f.JobSubmitted, at: float) -> None:
        self._nodes = fact.nodes
        each = f"{count(fact.nodes, 'host')}, {count(fact.cores, 'core')}{' on each' if fact.nodes > 1 else ''}"
        self._tell(at, "submitted", f"submitted by {fact.user} to {fact.dept}: {each}")
        self._waits(at)

    def _placed(self, fact: f.UnitPlaced, at: float) -> None:
        self._last_heard()
        waited = span(at - self._since) if self._since is not None and at > self._since else ""
        self._since = None
        named = ", ".join(fact.hosts[:HOSTS_NAMED]) + (", …" if len(fact.hosts) > HOSTS_NAMED else "")
        because = f": {sentences.sentence(fact.reason)}" if fact.reason is not None else ""
        after = f" after {waited}" if waited else " at once"
        what = f"placed{after} on {count(len(fact.hosts), 'host')} ({named}), attempt {fact.attempt}{because}"
        self._tell(at, "placed", what, fact.reason)

    def _began(self, _fact: f.AttemptBegan, at: float) -> None:
        self._began_at, self._safe_at = at, None
        if at > self.events[-1].at_s:
            self._tell(at, "began", "its machines have booted, and it runs")

    def _checkpointed(self, _fact: f.CheckpointReported, at: float) -> None:
        """Not told: there may be hundreds; what they save is, when it counts."""
        self._safe_at, self._has_safe = at, True

    def _closed(self, fact: f.AttemptClosed, at: float) -> None:
        ran_s = 0.0 if self._began_at is None else at - self._began_at
        lost_s = ran_s if self._safe_at is None or fact.disposal is not Disposal.REQUEUE else at - self._safe_at
        self._began_at = None
        spent = f"it had run for {span(ran_s)} on {count(self._nodes, 'host')}"
        taken = type(fact.why) in _TAKEN
        words = f"preempted{self._for_whom()}" if taken else sentences.sentence(fact.why)
        lost = "" if fact.disposal in (Disposal.SUSPEND, Disposal.MIGRATE) else _node_hours(lost_s * self._nodes)
        done = (
            _FROM_CHECKPOINT
            if self._has_safe and fact.disposal is Disposal.REQUEUE
            else _DISPOSED.get(fact.disposal, str(fact.disposal.value))
        )
        what = "preempted" if taken else str(fact.disposal.value)
        self._tell(at, what, f"{words}; {spent}{lost}; {done}", fact.why)
        if fact.disposal in (Disposal.REQUEUE, Disposal.SUSPEND, Disposal.MIGRATE):
            self._waits(at)

    def _for_whom(self) -> str:
        """Which web departments want more than they have at this moment."""
        short = [
            f"{name} wants {count(wanted, 'instance')} and has {self.serving[name]}"
            for name, wanted in sorted(self.wanted.items())
            if wanted > self.serving[name]
        ]
        return f" for web demand ({'; '.join(short)})" if short else ""

    def _reported(self, fact: f.AttemptReported, at: float) -> None:
        ran_s = 0.0 if self._began_at is None else at - self._began_at
        self._tell(at, "completed" if fact.exit == 0 else "failed", f"completed after running for {span(ran_s)}")

    def over(self, window_s: float, record: JobRecord) -> None:
        """The window is over."""
        if record.end != "unfinished" or not self.events:
            return
        self._last_heard()
        state = "it still waits" if self._since is not None else "it still runs"
        self._tell(window_s, "unfinished", f"the window ends, and {state}: unfinished")


# -------------------------------------------------------------------------------------------------------------- rendering


def render(told: Story) -> str:
    """The story as lines: absolute time, time since submission, sentence; in a terminal wrapped beside the times."""
    record, start = told.record, told.events[0].at_s if told.events else 0.0
    lines = [f"job {told.job} of {told.department} in run {told.label or 'of the experiment'}: {record.end}"]
    whens = [_when(event.at_s, told.started_at) for event in told.events]
    width = max(map(len, whens), default=0)
    for event, when in zip(told.events, whens, strict=True):
        lines += _beside(f"  {when:>{width}}  {'+' + span(event.at_s - start):>8}  ", event.told)
    if record.end_s is not None and record.end == "completed":
        turnaround = record.end_s - record.submit_s
        times = f"; preempted {count(record.preempted, 'time')}" if record.preempted else ""
        lines.append(f"turnaround {span(turnaround)} for {span(record.run_s)} of work{times}")
    return "\n".join(lines)


def _beside(times: str, told: str) -> list[str]:
    """Only a terminal has a width; what goes elsewhere keeps a line an event."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    room = columns - len(times)
    if room < TOLD_MIN:
        return [times + told]
    first, *rest = textwrap.wrap(told, room, break_long_words=False, break_on_hyphens=False) or [""]
    return [times + first, *(" " * len(times) + line for line in rest)]


def _node_hours(node_s: float) -> str:
    """What is lost, if it is worth a word."""
    return f" (lost: {node_s / 3600:,.1f} node-hours)" if node_s >= 360 else ""


def _when(at_s: float, started_at: float | None) -> str:
    if started_at is None:
        return f"{at_s:,.0f} s"
    return datetime.fromtimestamp(started_at + at_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def as_data(told: Story) -> dict[str, Any]:
    """For a program."""
    start = told.events[0].at_s if told.events else 0.0
    events = [
        {"at_s": e.at_s, "since_submission_s": e.at_s - start, "what": e.what, "told": e.told, "reason": e.reason}
        for e in told.events
    ]
    return {
        "job": told.job,
        "run": told.label,
        "department": told.department,
        "started_at": told.started_at,
        "record": msgspec.to_builtins(told.record),
        "events": events,
    }
