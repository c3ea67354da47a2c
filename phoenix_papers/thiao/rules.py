"""The 107-job experiment of the Thiao thesis: whole-node jobs of one thread, and n virtual machines beside them on each host.

Source: I. Farfán Estrada, MSc thesis, CIC-IPN 2012, section 4.3.3.  This is the thesis's own design, in which a host runs more
jobs than it has cores and each gets its share; no part of the product decides here (that is `thiao_product`).

Rules
  1. Stated: 4 hosts of 8 cores; 107 jobs of one thread, 20 to 40 minutes each, all queued at once in random order.  A job takes
     a whole node, and a node is a host or one of its n VMs: so each host runs n + 1 jobs at once, the base (n = 0) one.
  2. Stated, two modes: `all`, the VMs are there before the jobs; `incremental`, each host gets one more VM every 4 minutes
     until it has n, the k-th one at 4k minutes.
  3. Measured there: a job in a VM takes 0.46 % longer; one that wakes a VM waits 90 s for it, counted as the job's run time; a
     guest takes 5 % of a core for its services even if no job runs (text, section 3.3).
  4. Chosen: lengths are uniform in [20, 40] minutes, drawn by seed; the order is drawn again for each run of a seed, as there.
  5. b jobs and v guests on c cores run at min(1, c / (b + 0.05 v)) of their speed (`simulate.sharing`).
  6. Cloning (off by default): the file server needs `clone_s` seconds for an image and copies all that are wanted at once, so
     the four VMs that are made at one moment are there four times as late.
  7. Not modelled: starts that fail (up to 15 jobs were queued again there), and that guests disturb each other by anything but
     the cores that they want.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final, Literal, TypeAlias

import msgspec

from phoenix.plugin.simulation import Variates
from phoenix_papers.thiao.sharing import Shared

Mode = Literal["all", "incremental"]
MODES: Final[tuple[Mode, ...]] = ("all", "incremental")
HOSTS: Final = 4
HOST_CORES: Final = 8
JOBS: Final = 107
SHORTEST_S: Final = 20 * 60.0
LONGEST_S: Final = 40 * 60.0
STEP_S: Final = 4 * 60.0
_NOW: Final = 1e-6  # seconds: moments that differ by rounding alone are one


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """Rules 3 and 6.  All 0: what slots, cores and the tail of the queue alone make of it."""

    overhead: float = 0.0046
    boot_s: float = 90.0
    guest_cores: float = 0.05
    clone_s: float = 0.0


MEASURED: Final = Costs()
IDEAL: Final = Costs(overhead=0.0, boot_s=0.0, guest_cores=0.0)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of jobs.  `ratio_to_base`: its makespan to that of the same jobs with 0 VMs; `mean_runtime_s`: of a job by its
    clock, with the boot that it waited for."""

    vms_per_host: int
    mode: Mode
    seed: int
    makespan_s: float
    ratio_to_base: float
    mean_runtime_s: float


class _Job:
    __slots__ = ("began_s", "work_s")

    def __init__(self, work_s: float) -> None:
        self.work_s = work_s
        self.began_s = 0.0


_Host: TypeAlias = Shared[tuple[_Job, bool]]  # a job, and whether it is in a VM


class _Batch:
    """One batch from its first job to its last."""

    def __init__(self, works_s: list[float], vms: int, mode: Mode, costs: Costs) -> None:
        self.costs, self.now = costs, 0.0
        self.queue = deque(_Job(work_s) for work_s in works_s)
        self.jobs = len(self.queue)
        self.hosts = [_Host(HOST_CORES) for _ in range(HOSTS)]
        self.coming: deque[tuple[float, _Host, _Job]] = deque()  # when a VM is up, where, and who waits for it
        self.steps = deque(STEP_S * k for k in range(1, vms + 1) if mode == "incremental")
        self.runtimes_s: list[float] = []
        for host in self.hosts:
            self._start(host, virtual=False)
            for _ in range(vms if mode == "all" else 0):
                host.besides += costs.guest_cores
                self._start(host, virtual=True)

    def run(self) -> float:
        """Returns the makespan in seconds."""
        while len(self.runtimes_s) < self.jobs:
            self._pass(self._next_s())
            while self.steps and self.steps[0] <= self.now + _NOW:
                self.steps.popleft()
                self._wake()
            self._come_up()
            for host in self.hosts:
                for job, virtual in host.finish():
                    self.runtimes_s.append(self.now - job.began_s)
                    self._start(host, virtual=virtual)
        return self.now

    def _next_s(self) -> float:
        ends = [host.next_end_s() for host in self.hosts]
        moments = [*(at for at, _, _ in list(self.coming)[:1]), *list(self.steps)[:1]]
        return min([*ends, *(max(0.0, at - self.now) for at in moments)])

    def _pass(self, seconds: float) -> None:
        for host in self.hosts:
            host.pass_s(seconds)
        self.now += seconds

    def _start(self, host: _Host, *, virtual: bool) -> None:
        """A node of this host is free: the first in the queue has it."""
        if self.queue:
            job = self.queue.popleft()
            job.began_s = self.now
            self._run(host, job, virtual=virtual)

    def _run(self, host: _Host, job: _Job, *, virtual: bool) -> None:
        host.start((job, virtual), job.work_s * (1.0 + self.costs.overhead if virtual else 1.0))

    def _wake(self) -> None:
        """A VM more on each host, if a job waits for it: no node is woken for nothing."""
        up_s = self.now + self.costs.boot_s + self.costs.clone_s * HOSTS
        for host in self.hosts[: len(self.queue)]:
            job = self.queue.popleft()
            job.began_s = self.now
            self.coming.append((up_s, host, job))

    def _come_up(self) -> None:
        while self.coming and self.coming[0][0] <= self.now + _NOW:
            _, host, job = self.coming.popleft()
            host.besides += self.costs.guest_cores
            self._run(host, job, virtual=True)


def works_s(seed: int) -> list[float]:
    """How long each of the 107 jobs takes on a core of its own."""
    chance = Variates(seed, "thiao/lengths").uniform
    return [round(SHORTEST_S + (LONGEST_S - SHORTEST_S) * chance(), 3) for _ in range(JOBS)]


def shuffled(works: list[float], seed: int, name: str) -> list[float]:
    """Fisher and Yates, by `Variates` alone."""
    chance, found = Variates(seed, f"thiao/{name}").uniform, list(works)
    for last in range(len(found) - 1, 0, -1):
        other = math.floor(chance() * (last + 1))
        found[last], found[other] = found[other], found[last]
    return found


def simulated(vms: int, mode: Mode, seed: int, costs: Costs = MEASURED) -> Run:
    """The batch of this seed with that many VMs on each host."""
    works = works_s(seed)
    base = _Batch(shuffled(works, seed, "base"), 0, "all", costs).run()
    batch = _Batch(shuffled(works, seed, f"{mode}/{vms}" if vms else "base"), vms, mode, costs)
    makespan_s = batch.run()
    return Run(
        vms_per_host=vms,
        mode=mode,
        seed=seed,
        makespan_s=round(makespan_s, 3),
        ratio_to_base=makespan_s / base,
        mean_runtime_s=round(math.fsum(batch.runtimes_s) / len(batch.runtimes_s), 3),
    )
