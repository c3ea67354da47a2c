"""How long one decision of the batch core takes, for every order and every order of victims, and how that grows with the queue.

    python -m benchmarks.decisions [--hosts 1000] [--queue 100 1000 10000] [--orders easy fcfs] [--repeats 9] [--json]

A thousand hosts of 8 cores, full of running jobs; jobs that wait after the model of Lublin and Feitelson, of a hundred users of
whom few have most jobs, with limits in quarters of an hour.  Measured is what a core does in production: it folds one fact, and
decides.  Medians of several repeats, in seconds
of CPU; each is another fact, so nothing is remembered from one to the next.

Cases
  nothing     a job is submitted; nothing has room
  one freed   a running attempt has ended: its cores are free, and somebody starts there
  held back   a host is empty, and nobody may start there: the first one that waits needs all hosts, and everybody behind it
              would stay longer than it waits (of `svmsched`: every service has its share).  Left out where the order
              starts somebody all the same
  moment      the first decision after a new period, of the order whose priorities change with time; in the same three cases
  victims     a notice of 10 and of 100 of the hosts: who ends

GROWTH is the factor for ten times the queue.  Numbers are of this machine and what else runs on it; ratios travel better.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from benchmarks.cloud import table
from phoenix.policies import names
from phoenix.simulate import lublin
from phoenix.simulate.journal import Journal
from phoenix.simulate.variates import Variates
from phoenix.simulate.workload import LogJob
from schemas import facts as f
from schemas.config import BatchPolicy, CloudConfig, Department
from services.domain.custody.rules import RULES
from services.runtime.log import get_log
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.policies.registry import VICTIMS
from services.scheduler.edge import plugins

DEPT: Final = "hpc"
START: Final = 1_000_000.0
CORES: Final = 8
MEMORY_MB: Final = 32_768
USERS: Final = 100
SERVICES: Final = ("one", "three", "two")
QUARTER_S: Final = 900.0
DAY_S: Final = 86400.0
WALLTIME_MAX_S: Final = 7 * DAY_S
RUNNING_S: Final = 1.5 * DAY_S  # limit of what runs: twelve hours are left of it when the queue is there
WAITING_MIN_S: Final = 0.5 * DAY_S + 3600.0  # limit of what waits: nobody would be gone by then
QUEUES: Final = (100, 1000, 10_000)
NOTICES: Final = (10, 100)
NOTICE_S: Final = 0.3  # as by default; with more, jobs would be left time to end
GOAL_MS: Final = 10.0
IDLE: Final = ("nothing", "held back", "moment, nothing", "moment, held back")  # nobody starts: the goal is for these
Prepare = Callable[["Bench"], None]


class Bench:
    """One department that holds all hosts, and its core."""

    def __init__(self, hosts: int, policy: BatchPolicy) -> None:
        self.hosts, self.policy = hosts, policy
        self.journal = Journal()
        self.custody = self.journal.custody
        self.core = BatchCore(self.custody, DEPT)
        self.journal.readers = [self.core.apply]
        self.now = START
        self.jobs = 0
        self.chance = Variates(1, "decisions").uniform
        self.adopt(policy)
        names = [f"h{n:05}" for n in range(1, hosts + 1)]
        described = [f.HostDescribed(host=n, one_id=i, cores=CORES, memory_mb=MEMORY_MB) for i, n in enumerate(names)]
        self.write("executor", described)
        self.write("executor", [f.HostCleared(host=name) for name in names])
        self.write("provisioner", [f.QuotaChanged(dept=DEPT, hosts=hosts, by=self.now)])
        self.write("provisioner", [f.HostGranted(host=name, dept=DEPT) for name in names])

    def write(self, writer: str, facts: Sequence[f.Fact]) -> None:
        self.journal.append(writer, facts, self.now)
        assert not self.journal.void

    def adopt(self, policy: BatchPolicy) -> None:
        self.policy = policy
        config = CloudConfig(name="bench", departments=(Department(name=DEPT, kind="batch", batch=policy),))
        plugins.load_named(config)
        self.write("provisioner", [f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=config)])

    def submit(self, **fields: Any) -> f.JobSubmitted:
        """A job; its user is one of a hundred, the first ones more often."""
        self.jobs += 1
        number = int(USERS * self.chance() ** 2)
        service = SERVICES[number % len(SERVICES)] if self.policy.services else ""
        given: dict[str, Any] = {"user": f"u{number:02}", "walltime_s": 3600.0, "service": service} | fields
        return f.JobSubmitted(job=str(self.jobs), dept=DEPT, name="job", payload="p", **given)

    def settle(self) -> None:
        """Decide until there is nothing to say; what is placed begins at once."""
        while facts := self.core.decide(self.now):
            self.write(f"scheduler.{DEPT}", facts)
            placed = [fact for fact in facts if isinstance(fact, f.UnitPlaced)]
            self.write("admission", [f.AttemptBegan(unit=p.unit, attempt=p.attempt) for p in placed])

    def fill(self) -> None:
        """No core is left: wide jobs and narrow ones, as the model makes them, then jobs of one core.  Whatever the order, the
        same ones run."""
        policy = self.policy
        self.adopt(msgspec.structs.replace(policy, order="first-fit"))
        self.write("admission", [self._like(job, RUNNING_S) for job in _model(self.hosts, self.hosts)])
        self.settle()
        self.write(
            "admission", [f.JobCancelled(job=unit, user="root") for unit in list(self.core.view.jobs.queue.where)]
        )
        free = sum(free.size.cores for free in self.core.view.room.free.values())
        for service in SERVICES if self.policy.services else ("",):
            fields = {"cores": 1, "memory_mb": 1, "service": service, "walltime_s": RUNNING_S}
            self.write("admission", [self.submit(**fields) for _ in range(free)])
        self.settle()
        self.write(
            "admission", [f.JobCancelled(job=unit, user="root") for unit in list(self.core.view.jobs.queue.where)]
        )
        self.adopt(policy)
        self.settle()

    def _like(self, job: LogJob, limit_s: float | None = None) -> f.JobSubmitted:
        nodes = -(-job.processors // CORES)
        cores, asked_s = -(-job.processors // nodes), QUARTER_S * math.ceil((job.requested_s or job.run_s) / QUARTER_S)
        memory_mb = cores * (1024, 2048, 4096)[int(3 * self.chance())]
        limit_s = limit_s or min(WALLTIME_MAX_S, WAITING_MIN_S + asked_s)
        return self.submit(nodes=nodes, cores=cores, memory_mb=memory_mb, walltime_s=limit_s)

    def wait(self, jobs: int) -> None:
        """So many jobs wait, submitted over the last day."""
        for job in _model(jobs, self.hosts):
            self.now += DAY_S / jobs
            self.write("admission", [self._like(job)])
        self.settle()

    # ----------------------------------------------------------------------------------------------------------- facts

    def one_more(self) -> None:
        self.now += 0.001
        self.write("admission", [self.submit(nodes=1, cores=1, memory_mb=1024, walltime_s=WAITING_MIN_S)])

    def one_ended(self) -> None:
        """One of the narrowest attempts reports."""
        self.now += 0.001
        name = min(self.core.view.open, key=lambda unit: (len(self.core.view.open[unit]), int(unit)))
        attempt = self.custody.state.units[name].attempt
        self.write("admission", [f.AttemptReported(unit=name, attempt=attempt, exit=0)])

    def one_may_start(self) -> None:
        """The same, and the first ones that wait need no more than that."""
        fields = {"nodes": 1, "cores": 1, "memory_mb": 1, "priority": 1000, "walltime_s": WAITING_MIN_S}
        services = SERVICES if self.policy.services else ("",)
        self.write("admission", [self.submit(**fields | {"service": service}) for service in services])
        self.one_ended()

    def empty_one(self) -> None:
        """All attempts on a host report; the first host that no wide one is on."""
        units, hosts = self.custody.state.units, self.custody.state.hosts.values()
        host = next(host for host in hosts if all(len(units[unit].hosts) == 1 for unit in host.units))
        attempts = [f.AttemptReported(unit=unit, attempt=units[unit].attempt, exit=0) for unit in host.units]
        self.write("admission", attempts)

    def next_period(self) -> None:
        self.now += self.policy.multi_factor.period_s


def _model(jobs: int, hosts: int) -> list[LogJob]:
    return lublin.generate(jobs, hosts * CORES // 4, seed=1, load=0.7)


def policy_of(order: str) -> BatchPolicy:
    services = dict.fromkeys(SERVICES, 1.0) if order == "svmsched" else {}
    return BatchPolicy(order=order, services=services, walltime_max_s=WALLTIME_MAX_S)


# --------------------------------------------------------------------------------------------------------------- measuring


def timed(bench: Bench, prepare: Prepare, repeats: int) -> tuple[float, int]:
    """Median milliseconds of a decision after `prepare`, and the starts of the last one.  What it says is folded: the next
    repeat goes on from there."""
    found, starts = [], 0
    for _ in range(repeats):
        prepare(bench)
        gc.collect()
        gc.disable()
        began = time.process_time()
        facts = bench.core.decide(bench.now)
        found.append(1000 * (time.process_time() - began))
        gc.enable()
        starts = sum(isinstance(fact, f.UnitPlaced) for fact in facts)
        bench.write(f"scheduler.{DEPT}", facts)
        bench.settle()
    return statistics.median(found), starts


def cases(order: str, hosts: int, queue: int, repeats: int) -> dict[str, float | None]:
    """Milliseconds of each case; None: the case cannot be had with this order."""
    bench, other = (_waiting(order, hosts, queue) for _ in range(2))
    found: dict[str, float | None] = {}
    moves = order == "multi-factor"

    def both(bench: Bench, name: str, prepare: Prepare, *, starts: bool) -> None:
        for case, then in ((name, prepare), *(((f"moment, {name}", _and_period(prepare)),) if moves else ())):
            took_ms, started = timed(bench, then, repeats)
            found[case] = took_ms if bool(started) is starts else None

    both(bench, "nothing", Bench.one_more, starts=False)
    both(bench, "one freed", Bench.one_may_start, starts=True)
    if _hold_back(other):
        both(other, "held back", Bench.one_more, starts=False)
    return found


def _waiting(order: str, hosts: int, queue: int) -> Bench:
    bench = Bench(hosts, policy_of(order))
    bench.fill()
    bench.wait(queue)
    return bench


def _and_period(prepare: Prepare) -> Prepare:
    def both(bench: Bench) -> None:
        bench.next_period()
        prepare(bench)

    return both


def _hold_back(bench: Bench) -> bool:
    """A host empties, and the first one that waits needs all of them.  False if somebody starts there all the same."""
    if bench.policy.services:
        bench.adopt(
            msgspec.structs.replace(bench.policy, short_s=0.0, services={"nobody": 1e9} | bench.policy.services)
        )
    else:
        wide = bench.submit(
            nodes=bench.hosts, cores=1, exclusive=True, priority=1_000_000, walltime_s=60.0, user="root"
        )
        bench.write("admission", [wide])
    bench.settle()
    bench.empty_one()
    bench.settle()
    return any(bench.core.view.room.fits(key.shape) for key in bench.core.view.jobs.queue.lanes)


def victims(name: str, hosts: int, repeats: int) -> dict[int, float]:
    """Notice -> milliseconds.  Nothing of what is decided is folded: each repeat is the same question anew."""
    bench = Bench(hosts, BatchPolicy(victims=name, walltime_max_s=WALLTIME_MAX_S))
    bench.fill()
    found = {}
    for count in NOTICES:
        bench.write("provisioner", [f.QuotaChanged(dept=DEPT, hosts=hosts - count, by=bench.now + NOTICE_S)])
        took = []
        for _ in range(repeats):
            gc.collect()
            began = time.process_time()
            bench.core.decide(bench.now)
            took.append(1000 * (time.process_time() - began))
        found[count] = statistics.median(took)
    return found


# ----------------------------------------------------------------------------------------------------------------- telling


def rows_of(measured: dict[str, dict[int, dict[str, float | None]]], queues: Sequence[int]) -> list[list[object]]:
    head: list[object] = ["order", "case", *(f"{queue:,} ms" for queue in queues), *["growth"] * (len(queues) - 1)]
    rows = [head]
    for order, by_queue in measured.items():
        for case in by_queue[queues[0]]:
            times = [by_queue[queue].get(case) for queue in queues]
            growth = [f"x{b / a:.1f}" if a and b is not None else "-" for a, b in pairwise(times)]
            rows.append([order, case, *("-" if each is None else f"{each:.3f}" for each in times), *growth])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--queue", type=int, nargs="+", default=list(QUEUES))
    parser.add_argument("--orders", nargs="+", default=names("order"))
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    plugins.load_all(get_log(service="benchmark"))
    measured = {o: {q: cases(o, given.hosts, q, given.repeats) for q in given.queue} for o in given.orders}
    chosen = {v: victims(v, given.hosts, given.repeats) for v in VICTIMS}
    if given.json:
        print(json.dumps({"hosts": given.hosts, "orders": measured, "victims": chosen}))
        return
    table(rows_of(measured, given.queue))
    print()
    head: list[object] = ["victims", *(f"{n} of {given.hosts:,} hosts ms" for n in NOTICES)]
    table([head, *([name, *(f"{took[n]:.2f}" for n in NOTICES)] for name, took in chosen.items())])
    print()
    idle = [(o, case, by[max(given.queue)].get(case) or 0.0) for o, by in measured.items() for case in IDLE]
    slow = "; ".join(f"{o}, {case}" for o, case, took in idle if took > GOAL_MS and o != "conservative")
    verdict = f"over {GOAL_MS:g} ms: {slow}" if slow else f"all under {GOAL_MS:g} ms"
    print(f"nobody starts, {max(given.queue):,} wait, without conservative: {verdict}")


if __name__ == "__main__":
    main()
