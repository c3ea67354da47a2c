"""What is learned from what really happened: how long jobs run, how long things take, how much load there was.

Theory of operation
  Run times are not submitted; they show when a job ends by itself.  A job that was killed, ran into its time limit, was
  cancelled, or runs still has shown only that it runs longer than so: its run time is *unknown* beyond what was seen.  What is
  assumed of those is the caller's choice, and told.

Rules
  1. A run time belongs to the attempt that reported it, by how often the job had failed before (`retries`): the next attempt
     after a failure has another one.
  2. Attempts that were suspended and went on are one life: their times are added up.
  3. Load is what keeps instances busy: utilisation times the instances in service, averaged over the same span.  Beyond full
     use it shows only that there was more.
  4. Of units that were over before the period nothing is kept.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from phoenix.simulate.workload import Latencies
from schemas import facts as f
from schemas.facts import Disposal, Fact
from schemas.ids import is_instance, job_of
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta

SAMPLES_MAX: Final = 10_000  # of one latency, the newest: the median of more is the same
SPAN_KEPT_S: Final = 600.0  # of the instances in service: no observation spans more
Unknown = Literal["longest", "shortest"]


class Ran(msgspec.Struct, frozen=True):
    """One attempt that ended by itself."""

    run_s: float
    exit: int


class Lives:
    """A reader of what happened.  `attempts`: (unit, failures before) -> what it did; `seen_s`: of units that did not end by
    themselves, for how long they were seen to run."""

    def __init__(self, custody: Custody) -> None:
        self.custody = custody
        self.attempts: dict[tuple[str, int], Ran] = {}
        self.seen_s: dict[str, float] = {}
        self.timed_out: dict[str, None] = {}
        self.walltime_s: dict[str, float] = {}  # by job
        self.saved: dict[str, tuple[int, float]] = {}  # unit -> (checkpoints, work that the last one held)
        self._began: dict[str, float] = {}
        self._used_s: dict[str, float] = {}
        self._hears: dict[type, Callable[[Any, Meta], None]] = {
            f.JobSubmitted: self._submitted,
            f.LeaseExtended: self._extended,
            f.AttemptBegan: self._on_began,
            f.AttemptClosed: self._closed,
            f.AttemptReported: self._reported,
            f.CheckpointReported: self._checkpoint,
        }

    def hear(self, fact: Fact, meta: Meta) -> None:
        handler = self._hears.get(type(fact))
        if handler is not None and meta.void is None:
            handler(fact, meta)

    def forget_ended(self) -> None:
        """Rule 4, when the period begins."""
        units = self.custody.state.units
        over = [unit for unit in self._units() if unit not in units or units[unit].state == "final"]
        for unit in over:
            for known in (self.seen_s, self.timed_out, self.saved, self._began, self._used_s):
                known.pop(unit, None)
        gone = dict.fromkeys(over)
        self.attempts = {key: ran for key, ran in self.attempts.items() if key[0] not in gone}
        jobs = {job_of(name): None for name, unit in units.items() if unit.state != "final"}
        self.walltime_s = {job: limit for job, limit in self.walltime_s.items() if job in jobs}

    def _units(self) -> dict[str, None]:
        return dict.fromkeys([*self.seen_s, *self.timed_out, *self.saved, *(unit for unit, _ in self.attempts)])

    def end(self, until: float) -> None:
        """What still runs was seen to run so long."""
        for unit in list(self._began):
            self._see(unit, until)

    def length_s(self, unit: str, failures: int, unknown: Unknown) -> tuple[float, int, bool]:
        """(run time, exit code, known) of the attempt that begins after that many failures."""
        ran = self.attempts.get((unit, failures))
        if ran is not None:
            return ran.run_s, ran.exit, True
        limit_s = self.walltime_s.get(job_of(unit), 0.0)
        if unit in self.timed_out:
            return 2 * limit_s + 1.0, 0, True  # it was stopped at its limit, and will be again
        seen_s = self.seen_s.get(unit, 0.0)
        return (max(seen_s, limit_s) if unknown == "longest" else seen_s), 0, False

    def habit_s(self, unit: str) -> float:
        """After how much work the unit saves, on average; 0: it was never seen to."""
        count, work_s = self.saved.get(unit, (0, 0.0))
        return work_s / count if count else 0.0

    # --------------------------------------------------------------------------------------------------------- hearing

    def _submitted(self, fact: f.JobSubmitted, _meta: Meta) -> None:
        self.walltime_s[fact.job] = fact.walltime_s

    def _extended(self, fact: f.LeaseExtended, _meta: Meta) -> None:
        if fact.job in self.walltime_s:
            self.walltime_s[fact.job] = fact.walltime_s

    def _on_began(self, fact: f.AttemptBegan, meta: Meta) -> None:
        if not is_instance(fact.unit):
            self._began.setdefault(fact.unit, meta.at)

    def _see(self, unit: str, at: float) -> float:
        """Until `at` the open life of the unit has run so long."""
        ran_s = self._used_s.get(unit, 0.0) + at - self._began[unit]
        self.seen_s[unit] = max(ran_s, self.seen_s.get(unit, 0.0))
        return ran_s

    def _closed(self, fact: f.AttemptClosed, meta: Meta) -> None:
        if fact.disposal is Disposal.TIMEOUT:
            self.timed_out[fact.unit] = None
        goes_on = fact.disposal in (Disposal.SUSPEND, Disposal.MIGRATE)
        if fact.unit in self._began:
            ran_s = self._see(fact.unit, meta.at)
            del self._began[fact.unit]
            if goes_on:
                self._used_s[fact.unit] = ran_s
        if not goes_on:
            self._used_s.pop(fact.unit, None)

    def _reported(self, fact: f.AttemptReported, meta: Meta) -> None:
        unit = self.custody.state.units[fact.unit]
        went_on = fact.exit != 0 and unit.state != "final"
        began = self._began.pop(fact.unit, None)
        ran_s = self._used_s.pop(fact.unit, 0.0)
        ran_s = ran_s + meta.at - began if began is not None else self.seen_s.get(fact.unit, fact.seconds)
        self.attempts[fact.unit, unit.failures - went_on] = Ran(ran_s, fact.exit)

    def _checkpoint(self, fact: f.CheckpointReported, meta: Meta) -> None:
        if fact.unit in self._began:
            count, _ = self.saved.get(fact.unit, (0, 0.0))
            work_s = self._used_s.get(fact.unit, 0.0) + meta.at - self._began[fact.unit]
            self.saved[fact.unit] = (count + 1, work_s)


class Paces:
    """How long things took, of what happened in the period: medians."""

    def __init__(self, custody: Custody) -> None:
        self.custody = custody
        self._drained: dict[str, float] = {}  # host -> since when it drains
        self._leaving: dict[str, float] = {}  # instance -> since when it drains
        self.samples: dict[str, deque[float]] = {
            name: deque(maxlen=SAMPLES_MAX) for name in ("boot_s", "end_s", "drain_s", "resume_s")
        }

    def hear(self, fact: Fact, meta: Meta) -> None:
        if meta.void is not None:
            return
        if isinstance(fact, f.AttemptBegan):
            unit = self.custody.state.units[fact.unit]
            if unit.placed_at is not None:
                self.samples["resume_s" if unit.resumes else "boot_s"].append(meta.at - unit.placed_at)
        elif isinstance(fact, f.HostReleased | f.HostSeized):
            self._drained[fact.host] = meta.at
        elif isinstance(fact, f.HostCleared):
            self._took("end_s", self._drained.pop(fact.host, None), meta.at)
        elif isinstance(fact, f.InstanceDraining):
            self._leaving[fact.unit] = meta.at
        elif isinstance(fact, f.AttemptClosed):
            self._took("drain_s", self._leaving.pop(fact.unit, None), meta.at)

    def _took(self, name: str, since: float | None, at: float) -> None:
        if since is not None:
            self.samples[name].append(at - since)

    def forget(self) -> None:
        """Only what happens from now on counts."""
        for samples in self.samples.values():
            samples.clear()

    def medians(self) -> Latencies:
        return Latencies(**{name: statistics.median(found) for name, found in self.samples.items() if found})


class Serving:
    """How many instances of each department were in service, of late."""

    def __init__(self) -> None:
        self._levels: dict[str, list[tuple[float, int]]] = {}

    def note(self, dept: str, count: int, at: float) -> None:
        levels = self._levels.setdefault(dept, [(0.0, 0)])
        if levels[-1][1] != count:
            levels.append((at, count))
            while len(levels) > 2 and levels[1][0] < at - SPAN_KEPT_S:
                del levels[0]

    def mean(self, dept: str, start: float, end: float) -> float:
        """Over [start, end); of a moment, the number then."""
        levels = self._levels.get(dept, [(0.0, 0)])
        if end <= start:
            return float(levels[-1][1])
        untils = [*(at for at, _ in levels[1:]), end]
        spans = [
            (min(until, end) - max(at, start)) * count
            for (at, count), until in zip(levels, untils, strict=True)
            if until > start and at < end
        ]
        return sum(spans) / (end - start)
