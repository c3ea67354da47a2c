"""A batch department in some situation, made by facts: hosts of several sizes, what runs on them, and who waits.

`cases` draws situations; `Department` folds one into custody and the production batch core, as a service would.
"""

from __future__ import annotations

import itertools
from typing import Any, Final, NamedTuple

import msgspec
from hypothesis import strategies as st

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchLimits, BatchPolicy, CloudConfig
from schemas.config import Department as Configured
from schemas.dimensions import words
from schemas.facts import Fact
from schemas.ids import element_id
from schemas.size import FIELDS, Size
from services.domain.capabilities import ALL
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.meta import Meta
from services.domain.custody.rules import RULES
from services.scheduler.core.batch.check import views
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.batch.view import STARTS_MAX
from services.scheduler.core.policies.order import Situation, Start

DEPT: Final = "hpc"
NOW: Final = 1_000_000.0  # UTC seconds at which a situation is looked at
BIG_MB: Final = 8192
SHORT_S: Final = 600.0
SERVICES: Final = {"a": 2.0, "b": 1.0}


class HostCase(NamedTuple):
    size: Size
    cordoned: bool


class JobCase(NamedTuple):
    """`elements`: 0 for a job without array; `running`: how many of its units run if there is room; `began`: their guests have
    called; `age_s`: since it was submitted, in seconds."""

    nodes: int = 1
    size: Size = Size(1, 256)
    exclusive: bool = False
    walltime_s: float = SHORT_S
    priority: int = 0
    elements: int = 0
    throttle: int = 0
    running: int = 0
    began: bool = False
    age_s: float = 0.0
    user: str = "ann"
    service: str = "a"
    best_effort: bool = False


class Case(NamedTuple):
    """`running_max`: of each user's jobs, at once; None: no limit."""

    hosts: tuple[HostCase, ...]
    jobs: tuple[JobCase, ...]
    running_max: int | None = None


def _some(what: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[list[Any]]:
    """Mostly some, now and then none."""
    return st.one_of(*[st.lists(what, min_size=least, max_size=most) for least in (0, 1, 2, 3)])


def _sizes(cores: st.SearchStrategy[int], memory_mb: st.SearchStrategy[int]) -> st.SearchStrategy[Size]:
    """Sizes with nothing of the other dimensions: a field that is left out would be drawn."""
    numbers = {field: st.just(0) for field in FIELDS} | {"cores": cores, "memory_mb": memory_mb}
    return st.builds(Size, **numbers)


@st.composite
def _drawn(draw: st.DrawFn, best_effort: bool) -> Case:
    """Two shapes at most: what matters happens among units of the same shape, and between two.  Small jobs and large hosts are
    drawn more often: where nothing fits there is little to see."""
    few = st.sampled_from((1, 1, 1, 2, 1, 3))
    ranks = _sizes(few, st.sampled_from((256, 256, 512, 2048)))
    shapes = draw(st.lists(st.tuples(few, ranks, st.sampled_from((False, False, True))), min_size=1, max_size=2))
    offers = _sizes(st.sampled_from((4, 8, 4, 1)), st.sampled_from((BIG_MB, BIG_MB, 512)))
    hosts = st.builds(HostCase, offers, st.sampled_from((False, False, False, True)))
    job = st.builds(
        lambda shape, rest: JobCase(*shape, **rest),
        st.sampled_from(shapes),
        st.fixed_dictionaries(
            {
                "walltime_s": st.sampled_from((SHORT_S, 60.0, 3600.0)),
                "priority": st.integers(-1, 1),
                "elements": st.sampled_from((0, 3, 0, 4)),
                "throttle": st.sampled_from((1, 0, 2)),
                "running": st.sampled_from((0, 1, 0, 2)),
                "began": st.booleans(),
                "age_s": st.sampled_from((0.0, 30.0, 900.0, 5000.0)),
                "user": st.sampled_from(("ann", "bob")),
                "service": st.sampled_from(tuple(SERVICES)),
                "best_effort": st.booleans() if best_effort else st.just(False),
            }
        ),
    )
    found = tuple(draw(_some(hosts, 4))), tuple(draw(_some(job, 6)))
    return Case(*found, draw(st.sampled_from((None, None, 1, 2))))


def cases(policy: BatchPolicy) -> st.SearchStrategy[Case]:
    """Situations of a department with this policy.  Best-effort is drawn only where services share it."""
    return _drawn(bool(policy.services))


def story(case: Case) -> str:
    """The situation in lines, for a person."""
    lines = [
        f"  host h{n}: {words(host.size)}{', cordoned' if host.cordoned else ''}"
        for n, host in enumerate(case.hosts, start=1)
    ]
    plain = JobCase()._asdict()
    for n, job in enumerate(case.jobs, start=1):
        said = {key: value for key, value in job._asdict().items() if value != plain[key]}
        more = "".join(f", {key} {value}" for key, value in said.items() if key not in ("nodes", "size"))
        lines.append(f"  job {n}: {job.nodes} x {words(job.size)}{more}")
    if case.running_max is not None:
        lines.append(f"  each user: at most {case.running_max} running jobs")
    return "\n".join(["in this situation:", *(lines or ["  no hosts, no jobs"])])


class Department:
    """The situation of `case`, as the core of a department with `policy` sees it."""

    def __init__(self, case: Case, policy: BatchPolicy) -> None:
        self.custody = Custody()
        self.core = BatchCore(self.custody, DEPT)
        self._positions = itertools.count(1)
        self._vms = itertools.count(1)
        if case.running_max is not None:
            policy = msgspec.structs.replace(policy, limits=BatchLimits(jobs_running_max=case.running_max))
        config = CloudConfig(
            name="check", departments=(Configured(name=DEPT, kind="batch", batch=policy),), capabilities=ALL
        )
        self.write("provisioner", f.ConfigAdopted(cloud="c", custody_rules=RULES, config=config), at=0.0)
        self._hosts(case.hosts)
        for number, job in enumerate(case.jobs, start=1):
            self._job(str(number), job)
        for number, job in enumerate(case.jobs, start=1):
            self._runs(str(number), job)
        for number, host in enumerate(case.hosts, start=1):
            if host.cordoned:
                self.write("admission", f.HostCordoned(host=f"h{number}", reason="repair", user="root"))

    def write(self, writer: str, fact: Fact, at: float = NOW) -> None:
        """One envelope of one fact; it must hold."""
        position = next(self._positions)
        void = fold_fact(self.custody, fact, position, 0, writer, at)
        assert void is None, f"{fact} is void: {void}"
        broken = tuple(self.custody.newly_broken)
        self.core.apply(
            fact,
            Meta(
                position=position,
                index=0,
                writer=writer,
                at=at,
                void=None,
                broken=broken,
                unsaved=tuple(self.custody.newly_unsaved),
            ),
        )

    def _hosts(self, hosts: tuple[HostCase, ...]) -> None:
        self.write("provisioner", f.QuotaChanged(dept=DEPT, hosts=len(hosts), by=NOW), at=0.0)
        for number, host in enumerate(hosts, start=1):
            name = f"h{number}"
            described = f.HostDescribed(host=name, one_id=number, **host.size.fields())
            self.write("executor", described, at=0.0)
            self.write("executor", f.HostCleared(host=name), at=0.0)
            self.write("provisioner", f.HostGranted(host=name, dept=DEPT), at=0.0)

    def _job(self, number: str, job: JobCase) -> None:
        submitted = f.JobSubmitted(
            job=number,
            dept=DEPT,
            user=job.user,
            name="job",
            payload="p",
            nodes=job.nodes,
            **job.size.fields(),
            exclusive=job.exclusive,
            walltime_s=job.walltime_s,
            priority=job.priority,
            array=tuple(range(job.elements)),
            throttle=job.throttle if job.elements else 0,
            service=job.service,
            best_effort=job.best_effort,
        )
        self.write("admission", submitted, at=NOW - job.age_s)

    def _runs(self, number: str, job: JobCase) -> None:
        """As many units as it says, as far as there is room and its throttle lets them."""
        units = [element_id(number, index) for index in range(job.elements)] or [number]
        most = job.throttle if job.elements and job.throttle else len(units)
        for unit in units[: min(job.running, most)]:
            shape = self.core.view.jobs.job(unit).shape
            hosts = self.core.view.room.pick(shape)
            if hosts is None:
                return
            self.place(unit, hosts)
            if job.began:
                self.begin(unit)

    def place(self, unit: str, hosts: tuple[str, ...], at: float = NOW) -> None:
        shape, attempt = self.core.view.jobs.job(unit).shape, self.custody.state.units[unit].attempt + 1
        placed = f.UnitPlaced(
            unit=unit,
            attempt=attempt,
            hosts=hosts,
            **shape.size.fields(),
            exclusive=shape.exclusive,
        )
        self.write(f"scheduler.{DEPT}", placed, at=at)

    def begin(self, unit: str, at: float = NOW) -> None:
        known = self.custody.state.units[unit]
        for rank, host in enumerate(known.hosts):
            vm = next(self._vms)
            self.write("executor", f.VmAllocated(unit=unit, attempt=known.attempt, rank=rank, vm=vm, host=host), at=at)
            self.write("executor", f.VmStarted(unit=unit, attempt=known.attempt, rank=rank), at=at)
        self.write("admission", f.AttemptBegan(unit=unit, attempt=known.attempt), at=at)

    def start(self, start: Start) -> None:
        """What the core would write for it: victims are suspended and end, then the unit is placed."""
        for unit in start.victims:
            self.suspend(unit)
        self.place(start.unit, start.hosts)

    def suspend(self, unit: str) -> None:
        known = self.custody.state.units[unit]
        disposal = f.Disposal.SUSPEND if known.began_at is not None else f.Disposal.REQUEUE
        why = because.Preempted()
        self.write(f"scheduler.{DEPT}", f.AttemptClosed(unit=unit, attempt=known.attempt, disposal=disposal, why=why))

    def situation(self, now: float = NOW, most: int = STARTS_MAX) -> Situation:
        room = self.core.view.room.rested(self.custody, now)
        self.core.view.jobs.ranked(now, room)
        return self.core.view.situation(now, room)._replace(most=most)

    def cut(self, starts: list[Start]) -> list[Start]:
        """Those of them that limits let the core write at once."""
        budgets = self.core.view.jobs.queue.budgets
        return starts if budgets is None else budgets.cut(starts, self.core.view.jobs.owner, self.core.view.jobs.shape)

    def again(self) -> Department:
        """The same department after a restart from a snapshot."""
        twin = object.__new__(Department)
        twin.custody = Custody()
        twin.core = BatchCore(twin.custody, DEPT)
        twin.custody.load(self.custody.dump())
        twin.core.load(self.core.dump())
        twin._positions, twin._vms = itertools.count(10_000), itertools.count(10_000)
        return twin

    def picture(self) -> str:
        """Everything that an order can reach, as text.  Lanes by length are worked out when they are asked for: no change."""
        self.core.view.foresee()
        seen = {name: view for name, view in views(self.core.view).items() if name != "lengths"}
        flags = (self.core.view.jobs.queue.grew, self.core.view.room.grew)
        return repr((seen, flags, self.custody.dump(), self.core.dump()))
