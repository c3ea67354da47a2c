"""The 107-job experiment of the Thiao thesis: whole-node jobs of one thread, and n virtual machines beside them on each host.

Source: I. Farfán Estrada, MSc thesis, CIC-IPN 2012, section 4.3.3.  This is the thesis's own design, in which a host runs more
jobs than it has cores and each gets its share; no part of the product decides here (that is `thiao_product`).

Rules
  1. Stated: 4 hosts of 8 cores; 107 jobs of one thread, 20 to 40 minutes each, all queued at once in random order.  A job takes
     a whole node, and a node is a host or one of its n VMs: so each host runs n + 1 jobs at once, the base (n = 0) one.
  2. Stated, two modes: `all`, the VMs are there before the jobs; `incremental`, each host gets one more VM every 4 minutes
     until it has n, the k-th one at 4k minutes.
  3. Measured there: a job in a VM takes 0.46 % longer; whoever wakes a VM waits 90 s for it, counted as the job's run time; a
     guest takes 5 % of a core for its services even if no job runs (text, section 3.3).
  4. Chosen: lengths are uniform in [20, 40] minutes, drawn by seed; the order is drawn anew for each run of a seed, as there.
  5. Processor sharing, exact: b jobs and v guests on c cores run at min(1, c / (b + 0.05 v)) of their speed.  All on a host run
     at one rate, so a host needs one clock of work done, on which each of its jobs has a fixed end.
  6. Cloning (off by default): the file server needs `clone_s` seconds for an image and copies all that are wanted at once, so
     the four VMs that are made at one moment are there four times as late.
  7. Not modelled: starts that fail (up to 15 jobs were queued again there), and that guests disturb each other by anything but
     the cores that they want.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final, Literal

import msgspec

from phoenix.simulate.variates import Variates

Mode = Literal["all", "incremental"]
MODES: Final[tuple[Mode, ...]] = ("all", "incremental")
HOSTS: Final = 4
HOST_CORES: Final = 8
JOBS: Final = 107
SHORTEST_S: Final = 20 * 60.0
LONGEST_S: Final = 40 * 60.0
STEP_S: Final = 4 * 60.0
_END: Final = 1e-6  # seconds of work: what is left of a job by rounding alone


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
    __slots__ = ("began_s", "end", "work_s")

    def __init__(self, work_s: float) -> None:
        self.work_s = work_s
        self.began_s = 0.0  # on the clock on the wall
        self.end = 0.0  # on the clock of its host


class _Host:
    """Rule 5: what runs here and how much work each of its jobs has got since the beginning."""

    def __init__(self) -> None:
        self.done_s = 0.0
        self.running: list[tuple[_Job, bool]] = []  # (job, in a VM)
        self.guests = 0

    def rate(self, costs: Costs) -> float:
        wanted = len(self.running) + costs.guest_cores * self.guests
        return min(1.0, HOST_CORES / wanted) if wanted else 1.0

    def next_end_s(self, costs: Costs) -> float:
        """Seconds from now."""
        if not self.running:
            return math.inf
        return max(0.0, min(job.end for job, _ in self.running) - self.done_s) / self.rate(costs)

    def finish(self) -> list[tuple[_Job, bool]]:
        over = [each for each in self.running if each[0].end <= self.done_s + _END]
        self.running = [each for each in self.running if each[0].end > self.done_s + _END]
        return over


class _Batch:
    """One batch from its first job to its last."""

    def __init__(self, works_s: list[float], vms: int, mode: Mode, costs: Costs) -> None:
        self.costs, self.now = costs, 0.0
        self.queue = deque(_Job(work_s) for work_s in works_s)
        self.jobs = len(self.queue)
        self.hosts = [_Host() for _ in range(HOSTS)]
        self.coming: deque[tuple[float, _Host, _Job]] = (
            deque()
        )  # (a VM is up then, on this host, this job waits for it)
        self.steps = deque(STEP_S * k for k in range(1, vms + 1) if mode == "incremental")
        self.runtimes_s: list[float] = []
        for host in self.hosts:
            self._start(host, virtual=False)
            for _ in range(vms if mode == "all" else 0):
                host.guests += 1
                self._start(host, virtual=True)

    def run(self) -> float:
        """Returns the makespan in seconds."""
        while len(self.runtimes_s) < self.jobs:
            self._pass(self._next_s())
            while self.steps and self.steps[0] <= self.now + _END:
                self.steps.popleft()
                self._wake()
            self._come_up()
            for host in self.hosts:
                for job, virtual in host.finish():
                    self.runtimes_s.append(self.now - job.began_s)
                    self._start(host, virtual=virtual)
        return self.now

    def _next_s(self) -> float:
        ends = [host.next_end_s(self.costs) for host in self.hosts]
        moments = [*(at for at, _, _ in list(self.coming)[:1]), *list(self.steps)[:1]]
        return min([*ends, *(max(0.0, at - self.now) for at in moments)])

    def _pass(self, seconds: float) -> None:
        for host in self.hosts:
            host.done_s += seconds * host.rate(self.costs)
        self.now += seconds

    def _start(self, host: _Host, *, virtual: bool) -> None:
        """A node of this host is free: the first in the queue has it."""
        if self.queue:
            job = self.queue.popleft()
            job.began_s = self.now
            self._run(host, job, virtual=virtual)

    def _run(self, host: _Host, job: _Job, *, virtual: bool) -> None:
        job.end = host.done_s + job.work_s * (1.0 + self.costs.overhead if virtual else 1.0)
        host.running.append((job, virtual))

    def _wake(self) -> None:
        """A VM more on each host, if a job waits for it: nobody wakes a node for nothing."""
        up_s = self.now + self.costs.boot_s + self.costs.clone_s * HOSTS
        for host in self.hosts[: len(self.queue)]:
            job = self.queue.popleft()
            job.began_s = self.now
            self.coming.append((up_s, host, job))

    def _come_up(self) -> None:
        while self.coming and self.coming[0][0] <= self.now + _END:
            _, host, job = self.coming.popleft()
            host.guests += 1
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
    """The batch of this seed with so many VMs on each host."""
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
