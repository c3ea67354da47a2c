"""The book of a batch department, told of one fact after the other by hand."""

from __future__ import annotations

from typing import Any

from schemas import facts as f
from schemas import reasons as because
from schemas.size import Size
from services.domain.custody.custody import Custody
from services.domain.custody.state import Unit
from services.scheduler.core.batch.jobs import Jobs
from services.scheduler.core.batch.state import Again, State
from tests.support.world import batch, cloud

AT = 10_000.0


class Desk:
    """A book, and custody that is fed by hand."""

    def __init__(self, **policy: Any) -> None:
        self.custody = Custody()
        self.custody.state.at = AT
        self.custody.state.config = cloud(batch("hpc", **policy))
        self.jobs = Jobs(self.custody, "hpc", State())
        self.state = self.jobs.state

    def submit(self, name: str, **fields: Any) -> str:
        given: dict[str, Any] = {"user": "ann", "name": "job", "payload": "p", "walltime_s": 100.0, "cores": 2}
        fact = f.JobSubmitted(job=name, dept="hpc", **(given | fields))
        for unit in [f"{name}_{index}" for index in fact.array] or [name]:
            self.custody.state.units[unit] = Unit(
                id=unit, dept="hpc", nodes=fact.nodes, size=Size(memory_mb=fact.memory_mb)
            )
        self.jobs.submitted(fact)
        return name

    def unit(self, name: str) -> Unit:
        return self.custody.state.units[name]

    def place(self, name: str, *hosts: str) -> None:
        one = self.unit(name)
        one.state, one.attempt, one.hosts, one.suspended = "open", one.attempt + 1, hosts or ("a",), False
        one.size = one.size._replace(cores=self.jobs.job(name).size.cores)
        one.placed_at, one.began_at, one.ended_at = self.custody.state.at, None, None
        self.jobs.refresh(name)
        self.jobs.placed(name)

    def begin(self, name: str) -> None:
        self.unit(name).began_at = self.custody.state.at
        self.jobs.began(name)

    def close(self, name: str, code: because.Kind | None = None, *, final: str = "", suspended: bool = False) -> None:
        one = self.unit(name)
        one.state, one.final, one.suspended = ("final", final, False) if final else ("pending", None, suspended)
        one.ended_at = self.custody.state.at
        hosts, one.hosts = one.hosts, ()
        closed = None
        if code:
            closed = f.AttemptClosed(unit=name, attempt=1, disposal=f.Disposal.REQUEUE, why=code())
        self.jobs.over(name, closed, hosts)

    def ran(self, name: str, seconds: float, code: because.Kind | None = None, **how: Any) -> None:
        """It is placed, begins, runs so long, and is closed."""
        self.place(name)
        self.begin(name)
        self.custody.state.at += seconds
        self.close(name, code, **how)

    def waiting(self) -> list[str]:
        return [place.unit for place in self.jobs.queue.in_order()]

    def again(self, name: str = "1") -> Again:
        return self.state.again[name]


def desk(*names: str, **policy: Any) -> Desk:
    found = Desk(**policy)
    for name in names:
        found.submit(name)
    return found
