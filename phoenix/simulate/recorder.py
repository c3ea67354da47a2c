"""What is written down of a run: a fold of the facts into the records of `workload.Outcome`.

Rules
  1. A job's life is recorded from facts alone: submitted, began, closed, reported.  Nothing is read from a core.
  2. What ran in an attempt that has to be run again, or that never counts, is lost: node-seconds since it began.
     A suspended attempt loses nothing until its job is ended, or starts over after all; one that has made a checkpoint loses
     what came after it, and all of it if its job is ended.
  3. Levels (hosts held, instances wanted and in service) are noted once an instant, when all cores have said what there is to
     say: what changes back within an instant has not changed.  An instance that drains is not in service any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from phoenix.simulate.workload import End, JobRecord, Outcome, Scenario, WebRecord, Work
from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal, Fact
from schemas.ids import is_instance
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta

_ENDS: Final[dict[Disposal, End]] = {
    Disposal.KILL: "killed",
    Disposal.TIMEOUT: "timeout",
    Disposal.CANCELLED: "cancelled",
    Disposal.FAILED: "failed",
    Disposal.STOPPED: "stopped",
}
_PREEMPTING: Final = (because.Reclaimed, because.HostTaken, because.HostDrained)


class Recorder:
    def __init__(self, custody: Custody, scenario: Scenario) -> None:
        self.custody, self.scenario = custody, scenario
        self.jobs: dict[str, JobRecord] = {}
        self.refused = 0
        self.last_s = 0.0  # when the last thing happened to a job or an instance
        self.wanted = dict.fromkeys(scenario.web, 0)
        self.serving = dict.fromkeys(scenario.web, 0)
        self.web = {name: WebRecord(department=name, load=list(given.load)) for name, given in scenario.web.items()}
        self.held: list[tuple[float, str, int]] = []
        self._held = {department.name: 0 for department in scenario.config.departments}
        self.running: list[tuple[float, str, int]] = []
        self._running = dict.fromkeys(scenario.jobs, 0)
        self._noted = dict(self._running)
        self._saved: dict[str, float] = {}  # job -> node-seconds of its suspended attempts
        self._safe: dict[str, float] = {}  # job -> node-seconds of its present life that a checkpoint holds
        self._earlier: dict[str, float] = {}  # job -> the same of lives before
        self._cost = {
            str(work.number): work.checkpoint_cost_s * work.nodes
            for works in scenario.jobs.values()
            for work in works
            if work.checkpoint_s > 0
        }
        self._began: dict[str, float] = {}  # open attempts that have begun
        self._hears: dict[type, Callable[[Any, Meta], None]] = {
            f.AttemptBegan: self._on_began,
            f.AttemptClosed: self._on_closed,
            f.AttemptReported: self._on_reported,
            f.CheckpointReported: self._on_checkpoint,
            f.DemandChanged: self._on_demand,
            f.InstanceDraining: self._on_draining,
            f.ScaleRequested: self._on_scale,
        }

    def hear(self, fact: Fact, meta: Meta) -> None:
        handler = self._hears.get(type(fact))
        if handler is not None and meta.void is None:
            handler(fact, meta)
            self.last_s = meta.at

    def submitted(self, department: str, work: Work, *, refused: bool) -> None:
        record = JobRecord(
            number=work.number,
            department=department,
            user=work.user,
            submit_s=work.submit_s,
            run_s=work.run_s,
            nodes=work.nodes,
            cores=self.scenario.host_cores if work.exclusive else work.cores,
        )
        if refused:
            record.end = "refused"
            self.refused += 1
        self.jobs[str(work.number)] = record
        self.last_s = work.submit_s

    def _on_began(self, fact: f.AttemptBegan, meta: Meta) -> None:
        if is_instance(fact.unit):
            self._serve(fact.unit, 1)
            self._began[fact.unit] = meta.at
            return
        record = self.jobs[fact.unit]
        self._began[fact.unit] = record.last_start_s = meta.at
        self._running[record.department] += record.nodes
        if record.start_s is None:
            record.start_s = meta.at

    def _on_draining(self, fact: f.InstanceDraining, _meta: Meta) -> None:
        """From now on it has no part in the load."""
        if self._began.pop(fact.unit, None) is not None:
            self._serve(fact.unit, -1)

    def _serve(self, instance: str, by: int) -> None:
        dept = instance.rpartition(".")[0]
        if dept in self.serving:
            self.serving[dept] += by

    def _ran(self, record: JobRecord, began: float | None, until: float) -> float:
        """Node-seconds of the attempt that ends; added to what ran in all."""
        if began is None:
            return 0.0
        self._running[record.department] -= record.nodes
        ran = (until - began) * record.nodes
        record.ran_node_s += ran
        return ran

    def _on_closed(self, fact: f.AttemptClosed, meta: Meta) -> None:
        began = self._began.pop(fact.unit, None)
        if is_instance(fact.unit):
            if began is not None:
                self._serve(fact.unit, -1)
            return
        record = self.jobs[fact.unit]
        ran = self._ran(record, began, meta.at)
        if fact.disposal in (Disposal.SUSPEND, Disposal.MIGRATE):
            self._saved[fact.unit] = self._saved.get(fact.unit, 0.0) + ran
        else:
            self._lose(fact, record, ran + self._saved.pop(fact.unit, 0.0))
        if type(fact.why) in _PREEMPTING:
            record.preempted += 1
        end = _ENDS.get(fact.disposal)
        if end is not None:
            record.end, record.end_s = end, meta.at

    def _lose(self, fact: f.AttemptClosed, record: JobRecord, life: float) -> None:
        """A life is over after that many node-seconds (rule 2)."""
        safe, earlier = self._safe.pop(fact.unit, 0.0), self._earlier.pop(fact.unit, 0.0)
        if fact.disposal is Disposal.REQUEUE:
            record.lost_node_s += life - safe
            if safe or earlier:
                self._earlier[fact.unit] = safe + earlier
        else:
            record.lost_node_s += life + earlier
            record.checkpoint_node_s = 0.0

    def _on_checkpoint(self, fact: f.CheckpointReported, meta: Meta) -> None:
        record = self.jobs[fact.unit]
        record.checkpoints += 1
        record.checkpoint_node_s += self._cost.get(fact.unit, 0.0)
        self._safe[fact.unit] = self._saved.get(fact.unit, 0.0) + (meta.at - self._began[fact.unit]) * record.nodes

    def _on_reported(self, fact: f.AttemptReported, meta: Meta) -> None:
        record = self.jobs[fact.unit]
        ran = self._ran(record, self._began.pop(fact.unit, None), meta.at)
        if fact.exit:
            record.lost_node_s += ran
        record.end, record.end_s = ("completed" if fact.exit == 0 else "failed"), meta.at

    def _on_demand(self, fact: f.DemandChanged, _meta: Meta) -> None:
        given = self.scenario.web.get(fact.dept)
        if given is not None and not given.demand:
            self.wanted[fact.dept] = fact.instances or 0

    def _on_scale(self, fact: f.ScaleRequested, _meta: Meta) -> None:
        if fact.dept in self.wanted:
            self.wanted[fact.dept] = fact.exact or 0

    def note(self, now: float) -> None:
        """Rule 3: the instant is over."""
        held = self.custody.index.held
        for name, before in self._held.items():
            count = len(held[name]) if name in held else 0
            if count != before:
                self._held[name] = count
                self.held.append((now, name, count))
        for name, nodes in self._running.items():
            if nodes != self._noted[name]:
                self._noted[name] = nodes
                self.running.append((now, name, nodes))
        for name, record in self.web.items():
            level = (self.wanted[name], self.serving[name])
            if not record.levels or record.levels[-1][1:] != level:
                record.levels.append((now, *level))

    def outcome(self, window_s: float) -> Outcome:
        """What is known at the end of the window; attempts that still run have run until then."""
        for unit, began in self._began.items():
            if not is_instance(unit):
                self._ran(self.jobs[unit], began, window_s)
        return Outcome(
            label=self.scenario.label,
            hosts=self.scenario.hosts,
            host_cores=self.scenario.host_cores,
            window_s=window_s,
            jobs=list(self.jobs.values()),
            web=list(self.web.values()),
            held=self.held,
            running=self.running,
            refused=self.refused,
        )
