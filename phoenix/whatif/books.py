"""What is written down of a period: the simulator's recorder, for facts that began before it and jobs without a layout.

Rules
  1. Jobs that were over before the period are not in it; those that waited or ran are, with their times of before it.
  2. Arrays count by element.  A job that was refused by the new configuration counts once.
  3. A job that failed and has retries left has not ended.
  4. Times of an outcome count from the period's beginning: what was before has a negative time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

import msgspec

from phoenix.simulate.recorder import Recorder
from phoenix.simulate.workload import JobRecord, Outcome, Scenario, WebRecord
from schemas import facts as f
from schemas.ids import element_id
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta


class Books(Recorder):
    def __init__(self, custody: Custody, scenario: Scenario) -> None:
        super().__init__(custody, scenario)
        self.refusals: dict[str, int] = {}  # why -> jobs
        self.host_cores = 1
        self._hears |= {
            f.JobSubmitted: self._on_submitted,
            **dict.fromkeys(get_args(f.Cancelled), self._on_cancelled),
            f.DepartmentClosed: self._on_gone,
            f.ConfigAdopted: self._on_config,
            f.HostDescribed: self._on_host,
        }

    # ----------------------------------------------------------------------------------------------------------- hearing

    def _on_config(self, fact: f.ConfigAdopted, _meta: Meta) -> None:
        for department in fact.config.departments:
            self._held.setdefault(department.name, 0)
            if department.kind == "batch":
                self._running.setdefault(department.name, 0)
                self._noted.setdefault(department.name, 0)
            else:
                self.wanted.setdefault(department.name, 0)
                self.serving.setdefault(department.name, 0)
                self.web.setdefault(department.name, WebRecord(department=department.name))

    def _on_host(self, fact: f.HostDescribed, _meta: Meta) -> None:
        self.host_cores = max(self.host_cores, fact.cores)

    def _on_submitted(self, fact: f.JobSubmitted, meta: Meta) -> None:
        for unit in [element_id(fact.job, index) for index in fact.array] or [fact.job]:
            self.jobs[unit] = _record(fact, meta.at)
        self._running.setdefault(fact.dept, 0)
        self._noted.setdefault(fact.dept, 0)

    def refuse(self, fact: f.JobSubmitted, why: str, at: float) -> None:
        record = self.jobs[fact.job] = _record(fact, at)
        record.end = "refused"
        self.refused += 1
        self.refusals[why] = self.refusals.get(why, 0) + 1

    def _on_cancelled(self, _fact: f.Cancelled, meta: Meta) -> None:
        self._gone(self.custody.changed, meta.at)

    def _on_gone(self, fact: f.DepartmentClosed, meta: Meta) -> None:
        self._gone([unit for unit, job in self.jobs.items() if job.department == fact.dept], meta.at)

    def _gone(self, units: Iterable[str], at: float) -> None:
        """Those that are final without an attempt that was closed."""
        for unit in units:
            known, record = self.custody.state.units.get(unit), self.jobs.get(unit)
            if record is not None and record.end_s is None and known is not None and known.state == "final":
                self._ran(record, self._began.pop(unit, None), at)
                record.end, record.end_s = "cancelled", at

    def _on_reported(self, fact: f.AttemptReported, meta: Meta) -> None:
        super()._on_reported(fact, meta)
        if self.custody.state.units[fact.unit].state != "final":  # rule 3
            record = self.jobs[fact.unit]
            record.end, record.end_s = "unfinished", None

    def _on_checkpoint(self, fact: f.CheckpointReported, meta: Meta) -> None:
        if fact.unit in self.jobs and fact.unit in self._began:  # else it came late: of no use here
            super()._on_checkpoint(fact, meta)

    def _on_demand(self, fact: f.DemandChanged, _meta: Meta) -> None:
        if fact.dept in self.wanted:
            self.wanted[fact.dept] = fact.instances or 0

    def _on_scale(self, fact: f.ScaleRequested, _meta: Meta) -> None:
        """A person's word: what is wanted then is the scheduler's to say."""

    # -------------------------------------------------------------------------------------------------------- the period

    def forget_ended(self) -> None:
        """Rule 1."""
        self.jobs = {unit: record for unit, record in self.jobs.items() if record.end_s is None}

    def begin(self, since: float) -> None:
        self.forget_ended()
        self.refused, self.refusals = 0, {}
        self.held, self.running = [], []
        for record in self.web.values():
            record.levels.clear()
            record.load.clear()
        self._held = dict.fromkeys(self._held, -1)
        self._noted = dict.fromkeys(self._noted, -1)
        self.note(since)

    def outcome_of(self, label: str, since: float, until: float, hosts: int) -> Outcome:
        """Rule 4."""
        self.note(until)
        found = self.outcome(until)
        for job in found.jobs:
            job.submit_s -= since
            for name in ("start_s", "last_start_s", "end_s"):
                at = getattr(job, name)
                if at is not None:
                    setattr(job, name, at - since)
        for record in found.web:
            record.levels = [(at - since, wanted, serving) for at, wanted, serving in record.levels]
            record.load = [(at - since, load) for at, load in record.load]
        return msgspec.structs.replace(
            found,
            label=label,
            hosts=hosts,
            host_cores=self.host_cores,
            window_s=until - since,
            held=[(at - since, name, count) for at, name, count in found.held],
            running=[(at - since, name, count) for at, name, count in found.running],
        )


def _record(fact: f.JobSubmitted, at: float) -> JobRecord:
    return JobRecord(
        number=int(fact.job),
        department=fact.dept,
        user=fact.user,
        submit_s=at,
        run_s=0.0,
        nodes=fact.nodes,
        cores=1 << 16 if fact.exclusive else fact.cores,
    )
