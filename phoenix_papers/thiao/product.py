"""The same 107 jobs under the product's rule: CPU overcommit where a host really uses less than 60 %, memory a hard limit.

Theory of operation
  What decides is production: the batch core places (order `first-fit`, best fit on hosts), and
  `services.executor.core.overcommit` says how many cores a host offers.  What is modelled is the outside: guests that come
  up after 90 s, jobs that share real cores exactly (`sharing`), and OpenNebula's samples of what a host uses.  A
  department holds all four hosts; no other department wants them, so there is no provisioner.

Rules
  1. Hosts, lengths, order, boot, guests and the 0.46 % are those of the thesis (`rules`).  A host has 32 GiB, as there.
  2. Chosen, two ways in which jobs ask for more than they use.  `whole-node`: all eight cores and 1 GiB, and one core is used.
     `partial`: two cores, of which 10 to 60 % are used, and 1, 2, 4 or 8 GiB; both drawn by seed.
  3. Each host is sampled every 120 s, OpenNebula's default; what it offers changes then, as `host.described`.
  4. Checked all the while: no fact is void, and what is placed on a host never asks for more memory than there is.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from phoenix.plugin.simulation import BatchPolicy, CloudConfig, Department, Meta, Variates
from phoenix.plugin.simulation import facts as f
from phoenix.simulate.journal import Journal
from phoenix_papers.thiao import rules
from phoenix_papers.thiao.rules import HOST_CORES, HOSTS, Costs
from phoenix_papers.thiao.sharing import Shared
from services.domain.custody.rules import RULES
from services.executor.core.overcommit import Overcommit, cores_offered
from services.scheduler.core.batch.core import BatchCore

Ask = Literal["whole-node", "partial"]
DEPT: Final = "hpc"
WRITER: Final = f"scheduler.{DEPT}"
HOST_MB: Final = 32 * 1024
SAMPLE_S: Final = 120.0
WALLTIME_S: Final = 86_400.0  # longer than any job here, however slow
RATIOS: Final[dict[Ask, tuple[float, ...]]] = {
    "whole-node": (1.0, 2.0, 4.0, 6.0, 8.0),
    "partial": (1.0, 1.5, 2.0, 3.0, 4.0),
}
_NOW: Final = 1e-6  # seconds: moments that differ by rounding alone are one


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One batch.  `ratio`: cores offered for each real one, below the threshold; `makespan_to_none`: to that of ratio 1 and the
    same seed; `stretch`: mean of a job's run time to what it would take alone, boots not counted; `used`: mean share of real
    cores in use over the makespan; `memory_most_mb`: the most that was placed on a host at once."""

    ask: Ask
    ratio: float
    seed: int
    makespan_s: float
    makespan_to_none: float
    stretch: float
    used: float
    memory_most_mb: int


class Wish(NamedTuple):
    """A job: what it asks for, and what it uses."""

    work_s: float
    cores: int
    memory_mb: int
    uses: float  # cores


def wishes(ask: Ask, seed: int) -> list[Wish]:
    """The seed's 107 jobs in the order of their submission; the same for every ratio."""
    works = rules.shuffled(rules.works_s(seed), seed, "product")
    if ask == "whole-node":
        return [Wish(work_s, HOST_CORES, 1024, 1.0) for work_s in works]
    chance = Variates(seed, "thiao/partial").uniform
    return [Wish(work_s, 2, 1024 << math.floor(4 * chance()), round(2 * (0.1 + 0.5 * chance()), 3)) for work_s in works]


class _Site:
    def __init__(self, jobs: Sequence[Wish], rule: Overcommit, costs: Costs) -> None:
        self.jobs = {str(number): job for number, job in enumerate(jobs, start=1)}
        self.rule, self.costs, self.now = rule, costs, 0.0
        self.journal = Journal()
        self.core = BatchCore(self.journal.custody, DEPT)
        self.journal.readers = [self.core.apply, self._hear]
        self.hosts: dict[str, Shared[str]] = {f"h{n}": Shared(HOST_CORES) for n in range(1, HOSTS + 1)}
        self.offered = dict.fromkeys(self.hosts, 0)
        self.booting: list[tuple[float, int, str]] = []  # (its guest calls then, job, host)
        self.began_s: dict[str, float] = {}
        self.stretches: list[float] = []
        self.core_s = 0.0
        self.memory_most_mb = 0

    # ------------------------------------------------------------------------------------------------------ the outside

    def run(self) -> float:
        """Returns the makespan in seconds."""
        self._begin()
        sample_s = 0.0
        while len(self.stretches) < len(self.jobs):
            if self.now >= sample_s - _NOW:
                self._sample()
                sample_s += SAMPLE_S
            self._settle()
            due = [sample_s, *(each[0] for each in self.booting[:1]), self.core.wake_at()]
            step = min([max(0.0, at - self.now) for at in due] + [host.next_end_s() for host in self.hosts.values()])
            self._pass(step)
        return self.now

    def _begin(self) -> None:
        department = Department(
            name=DEPT, kind="batch", batch=BatchPolicy(requeue_place="end", walltime_max_s=WALLTIME_S)
        )
        config = CloudConfig(name="thiao", departments=(department,))
        self._say("provisioner", [f.ConfigAdopted(cloud="simulation", custody_rules=RULES, config=config)])
        self._sample()
        self._say("executor", [f.HostCleared(host=name) for name in self.hosts])
        quota = f.QuotaChanged(dept=DEPT, hosts=HOSTS, by=0.0)
        self._say("provisioner", [quota, *(f.HostGranted(host=name, dept=DEPT) for name in self.hosts)])
        self._say("admission", [_submission(name, job) for name, job in self.jobs.items()])

    def _sample(self) -> None:
        """Rule 3."""
        found: list[f.Fact] = []
        for number, (name, host) in enumerate(self.hosts.items(), start=1):
            offers = cores_offered(HOST_CORES, host.used / HOST_CORES, self.offered[name], self.rule)
            if offers != self.offered[name]:
                self.offered[name] = offers
                found.append(f.HostDescribed(host=name, one_id=number, cores=offers, memory_mb=HOST_MB))
        self._say("executor", found)

    def _settle(self) -> None:
        facts = self.core.decide(self.now)
        while facts:
            self._say(WRITER, facts)
            facts = self.core.decide(self.now)

    def _say(self, writer: str, facts: Sequence[f.Fact]) -> None:
        if facts:
            self.journal.append(writer, facts, self.now)
        if self.journal.void:
            raise AssertionError(f"at {self.now} s a fact of {writer} was void")

    def _hear(self, fact: f.Fact, _meta: Meta) -> None:
        if isinstance(fact, f.UnitPlaced):
            (host,) = fact.hosts
            self.hosts[host].besides += self.costs.guest_cores
            heapq.heappush(self.booting, (self.now + self.costs.boot_s, int(fact.unit), host))
            placed_mb = self.journal.custody.state.hosts[host].used.memory_mb
            self.memory_most_mb = max(self.memory_most_mb, placed_mb)

    def _pass(self, seconds: float) -> None:
        """Time goes by until the next moment; what happens then."""
        for host in self.hosts.values():
            self.core_s += seconds * host.used
            host.pass_s(seconds)
        self.now += seconds
        while self.booting and self.booting[0][0] <= self.now + _NOW:
            _, number, name = heapq.heappop(self.booting)
            job = self.jobs[str(number)]
            self.began_s[str(number)] = self.now
            self.hosts[name].start(str(number), job.work_s * (1.0 + self.costs.overhead), job.uses)
            self._say("admission", [f.AttemptBegan(unit=str(number), attempt=1)])
        for host in self.hosts.values():
            for unit in host.finish():
                host.besides = max(0.0, host.besides - self.costs.guest_cores)
                alone_s = self.jobs[unit].work_s * (1.0 + self.costs.overhead)
                self.stretches.append((self.now - self.began_s[unit]) / alone_s)
                self._say("admission", [f.AttemptReported(unit=unit, attempt=1, exit=0)])


def _submission(name: str, job: Wish) -> f.JobSubmitted:
    return f.JobSubmitted(
        job=name,
        dept=DEPT,
        user="thiao",
        name=name,
        payload="",
        cores=job.cores,
        memory_mb=job.memory_mb,
        walltime_s=WALLTIME_S,
    )


def simulated(ask: Ask, seed: int, ratios: Sequence[float] | None = None, costs: Costs = rules.MEASURED) -> list[Run]:
    """The seed's jobs under each ratio; the first one is 1, no overcommit."""
    found: list[Run] = []
    for ratio in ratios or RATIOS[ask]:
        site = _Site(wishes(ask, seed), Overcommit(ratio=ratio), costs)
        makespan_s = site.run()
        found.append(
            Run(
                ask=ask,
                ratio=ratio,
                seed=seed,
                makespan_s=round(makespan_s, 3),
                makespan_to_none=makespan_s / found[0].makespan_s if found else 1.0,
                stretch=math.fsum(site.stretches) / len(site.stretches),
                used=site.core_s / (makespan_s * HOSTS * HOST_CORES),
                memory_most_mb=site.memory_most_mb,
            )
        )
    return found
