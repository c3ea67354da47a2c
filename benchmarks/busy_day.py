"""The journal of a busy cloud, made up: 1,000 hosts, 10,000 jobs that are not over, web load, hosts that move.

Facts only, in the order in which services would write them; none is void.  The same sizes give the same journal.

    begin    configuration, hosts, who holds them, jobs that wait and run, web instances
    go_on    jobs end, others start and come; each second one `load.observed`, each other second a host moves to web, or back
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchPolicy, CloudConfig, Department, User, WebPolicy
from schemas.facts_base import Disposal
from services.domain.custody.rules import RULES

Decision = tuple[str, tuple[f.Fact, ...]]  # writer, facts of one envelope
CORES: Final = 4
BATCH: Final = 50  # facts of an envelope at the beginning
USERS: Final = 50
PER_S: Final = 100  # decisions between two observations of load

CLOUD: Final = CloudConfig(
    name="busy",
    departments=(
        Department(name="hpc", kind="batch", batch=BatchPolicy()),
        Department(name="web", kind="web", web=WebPolicy()),
    ),
    users=(
        *(User(name=f"u{n}", department="hpc") for n in range(USERS)),
        User(name="wendy", department="web"),
        User(name="oscar", department="operators", role="operator"),
    ),
)


class BusyDay:
    """`jobs`: not over at any time, as many of them running as the hosts of hpc have cores."""

    def __init__(self, hosts: int, jobs: int, web: int) -> None:
        least = CORES * (hosts - web)
        if jobs < least:
            raise SystemExit(f"{jobs} jobs are too few: {hosts} hosts, {web} of them of web, run {least}")
        self.hosts = [f"h{n:04d}" for n in range(hosts)]
        self.jobs, self.web_hosts = jobs, web
        self.waiting: deque[str] = deque()
        self.running: deque[tuple[str, str]] = deque()  # job, host: the oldest first
        self.instances: deque[tuple[str, str]] = deque()
        self._numbers = {"job": 0, "vm": 0, "web": 0}

    def _next(self, of: str) -> int:
        self._numbers[of] += 1
        return self._numbers[of]

    # ------------------------------------------------------------------------------------------------------------ begin

    def begin(self) -> Iterator[Decision]:
        yield "provisioner", (f.ConfigAdopted(cloud="busy", custody_rules=RULES, config=CLOUD),)
        described: list[f.Fact] = []
        for n, host in enumerate(self.hosts):
            described += [f.HostDescribed(host=host, one_id=n, cores=CORES, memory_mb=8192), f.HostCleared(host=host)]
        yield from _cut("executor", described)
        yield from _cut("provisioner", [f.HostGranted(host=h, dept=self._of(n)) for n, h in enumerate(self.hosts)])
        yield from _cut("admission", [self._submitted() for _ in range(self.jobs)])
        for host in self.hosts[self.web_hosts :]:
            for _ in range(CORES):
                yield from self._start(self.waiting.popleft(), host)
        for host in self.hosts[: self.web_hosts]:
            yield from self._serve(host)
        yield from self._load(self.web_hosts)

    def _of(self, number: int) -> str:
        return "web" if number < self.web_hosts else "hpc"

    def _submitted(self) -> f.JobSubmitted:
        number = self._next("job")
        self.waiting.append(str(number))
        user = f"u{number % USERS}"
        return f.JobSubmitted(
            job=str(number), dept="hpc", user=user, name=f"step-{number % 7}", payload="p" * 64, walltime_s=600.0
        )

    # ------------------------------------------------------------------------------------------------------------ go on

    def go_on(self) -> Iterator[Decision]:
        """Without end: one decision after another."""
        count = 0
        turns = self._turns()
        while True:
            count += 1
            if count % PER_S == 0:
                yield from self._load(len(self.instances))
            else:
                yield next(turns)

    def _turns(self) -> Iterator[Decision]:
        lent = False
        while True:
            for _ in range(2 * PER_S // 7):  # about two seconds of jobs, seven decisions each
                yield from self._next_job()
            yield from self._back() if lent else self._lend()
            lent = not lent

    def _next_job(self) -> Iterator[Decision]:
        """The oldest that runs ends, the next one that waits has its place, another one comes."""
        job, host = self.running.popleft()
        done = f.AttemptReported(unit=job, attempt=1, exit=int(int(job) % 20 == 0), seconds=60.0, cpu_seconds=55.0)
        yield "admission", (done,)
        yield "executor", (f.VmEnded(unit=job, attempt=1, rank=0, why="done"),)
        yield from self._start(self.waiting.popleft(), host)
        yield "admission", (self._submitted(),)

    def _start(self, job: str, host: str) -> Iterator[Decision]:
        why = because.FirstFit()
        yield (
            "scheduler.hpc",
            (f.UnitPlaced(unit=job, attempt=1, hosts=(host,), cores=1, memory_mb=256, reason=why),),
        )
        yield from self._booted(job, host)
        self.running.append((job, host))

    def _booted(self, unit: str, host: str, address: str | None = None) -> Iterator[Decision]:
        yield "executor", (f.VmAllocated(unit=unit, attempt=1, rank=0, vm=self._next("vm"), host=host),)
        yield "executor", (f.VmStarted(unit=unit, attempt=1, rank=0),)
        yield "admission", (f.AttemptBegan(unit=unit, attempt=1, addresses=(address,)),)

    def _serve(self, host: str) -> Iterator[Decision]:
        unit = f"web.{self._next('web')}"
        placed = f.UnitPlaced(unit=unit, attempt=1, hosts=(host,), cores=1, memory_mb=256)
        yield "scheduler.web", (placed,)
        yield from self._booted(unit, host, f"10.0.0.1:{20_000 + self._numbers['web'] % 20_000}")
        self.instances.append((unit, host))

    def _load(self, instances: int) -> Iterator[Decision]:
        at = float(self._numbers["vm"])
        seen = f.LoadObserved(
            dept="web",
            start=at,
            end=at + 1,
            utilisation=0.7 + (at % 10) / 100,
            samples=4,
            requests_per_s=40.0 * instances,
        )
        yield "scheduler.web", (seen,)

    def _lend(self) -> Iterator[Decision]:
        """Web wants a host more: the jobs of one make room, and wait again."""
        host = self.running[0][1]
        wanted = len(self.instances) + 1
        yield "scheduler.web", (f.DemandChanged(dept="web", hosts=wanted, instances=wanted),)
        notice = f.QuotaChanged(dept="hpc", hosts=len(self.hosts) - wanted, by=1.0, reason=because.WebDemand())
        yield "provisioner", (notice, f.QuotaChanged(dept="web", hosts=wanted, by=1.0))
        victims = [job for job, place in self.running if place == host]
        why = because.WebDemand()
        closed = [f.AttemptClosed(unit=job, attempt=1, disposal=Disposal.KILL, why=why) for job in victims]
        yield "scheduler.hpc", (*closed, f.HostReleased(host=host, reason=why))
        self.running = deque(x for x in self.running if x[1] != host)
        yield "executor", tuple(f.VmEnded(unit=job, attempt=1, rank=0, why="terminated") for job in victims)
        yield "executor", (f.HostCleared(host=host),)
        yield "provisioner", (f.HostGranted(host=host, dept="web", reason=why),)
        yield from self._serve(host)
        yield "admission", tuple(self._submitted() for _ in victims)

    def _back(self) -> Iterator[Decision]:
        """Web needs a host less: its instance stops, and jobs have the host again."""
        unit, host = self.instances.pop()
        wanted = len(self.instances)
        yield "scheduler.web", (f.DemandChanged(dept="web", hosts=wanted, instances=wanted),)
        closed = f.AttemptClosed(unit=unit, attempt=1, disposal=Disposal.STOPPED, why=because.WebDemand())
        yield "scheduler.web", (closed, f.HostReleased(host=host))
        yield "executor", (f.VmEnded(unit=unit, attempt=1, rank=0, why="terminated"),)
        yield "executor", (f.HostCleared(host=host),)
        yield "provisioner", (f.HostGranted(host=host, dept="hpc"),)
        for _ in range(CORES):
            yield from self._start(self.waiting.popleft(), host)
            yield "admission", (self._submitted(),)


def _cut(writer: str, facts: list[f.Fact] | list[f.HostGranted] | list[f.JobSubmitted]) -> Iterator[Decision]:
    for begin in range(0, len(facts), BATCH):
        yield writer, tuple(facts[begin : begin + BATCH])
