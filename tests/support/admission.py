"""A small world for admission's core: custody and core folded together, facts written by name of their writer."""

from __future__ import annotations

from typing import Any

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchPolicy, CloudConfig, Department, Limits, User, WebPolicy
from schemas.facts import Fact
from schemas.requests import JobSubmit
from services.admission.commands import compose
from services.admission.commands.compose import Caller
from services.admission.core.admission import AdmissionCore
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.meta import Meta, Void
from services.domain.custody.rules import RULES

ANN = Caller("ann", "hpc", "user")
BOB = Caller("bob", "hpc", "user")
MIA = Caller("mia", "hpc", "manager")
LEO = Caller("leo", "bio", "user")
WIM = Caller("wim", "web", "manager")
WAL = Caller("wal", "web", "user")
ROOT = Caller("root", "operators", "operator")
CALLERS = (ANN, BOB, MIA, LEO, WIM, WAL, ROOT)


def cloud(*without: str, **limits: int) -> CloudConfig:
    departments = (
        Department(name="hpc", kind="batch", batch=BatchPolicy(walltime_default_s=600.0, walltime_max_s=7200.0)),
        Department(name="bio", kind="batch", batch=BatchPolicy(), maximum=1),
        Department(name="web", kind="web", web=WebPolicy(instances_max=10)),
    )
    return CloudConfig(
        name="test",
        departments=tuple(d for d in departments if d.name not in without),
        users=tuple(User(name=c.user, department=c.department, role=c.role) for c in CALLERS),
        limits=Limits(**limits),
    )


class Fold:
    """Custody and admission's core, fed in order."""

    def __init__(self) -> None:
        self.custody = Custody()
        self.core = AdmissionCore(self.custody)
        self.history: list[tuple[str, Fact]] = []

    def put(self, *facts: Fact, writer: str = "admission") -> Void | None:
        """Fold facts; returns why the last one is void."""
        void = None
        for fact in facts:
            self.history.append((writer, fact))
            position = len(self.history)
            void = fold_fact(self.custody, fact, position, 0, writer, float(position))
            meta = Meta(position=position, index=0, writer=writer, at=float(position), void=void)
            self.core.apply(fact, meta)
            assert self.core.check() == []
        return void

    def adopt(self, config: CloudConfig) -> None:
        self.put(f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=config), writer="provisioner")

    def host(self, name: str, cores: int, memory_mb: int, dept: str = "hpc") -> None:
        self.put(f.HostDescribed(host=name, one_id=1, cores=cores, memory_mb=memory_mb), writer="executor")
        self.put(f.HostCleared(host=name), writer="executor")
        self.put(f.HostGranted(host=name, dept=dept), writer="provisioner")

    def submit(self, caller: Caller = ANN, dept: str = "", **asked: Any) -> str:
        """A job, journaled; returns its id."""
        request = JobSubmit(**{"script": "true", **asked})
        fact = compose.submit(self.core, caller, dept or caller.department, request, "job/x", "digest", ())
        assert self.put(fact) is None
        return fact.job

    def place(self, unit: str, *hosts: str, attempt: int = 1, dept: str = "hpc", cores: int = 1) -> Void | None:
        fact = f.UnitPlaced(unit=unit, attempt=attempt, hosts=hosts, cores=cores, memory_mb=1)
        return self.put(fact, writer=f"scheduler.{dept}")

    def close(self, unit: str, disposal: f.Disposal, attempt: int = 1, dept: str = "hpc") -> Void | None:
        why = because.Reclaimed()
        fact = f.AttemptClosed(unit=unit, attempt=attempt, disposal=disposal, why=why)
        return self.put(fact, writer=f"scheduler.{dept}")


def fold(**limits: int) -> Fold:
    """Two hosts of hpc (8 and 4 cores), one of web; configuration adopted."""
    world = Fold()
    world.adopt(cloud(**limits))
    world.host("h1", 8, 16_000)
    world.host("h2", 4, 32_000)
    world.host("w1", 2, 4000, "web")
    return world
