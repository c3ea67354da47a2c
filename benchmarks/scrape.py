"""What a scrape of the monitor costs: its size and time with 1,000 hosts, 10,000 jobs and eight departments.

    python -m benchmarks.scrape [--hosts 1000] [--jobs 10000] [--runs 21]

The read model is folded from facts: six batch and two web departments, all hosts in use, three quarters of the jobs waiting for
three reasons.  The first scrape renders every job; the next, if nothing has happened, only reads; one after 1,500 facts (100 a
second between two scrapes) looks at what they changed.  Over HTTP: on the loopback, from the listener that every service has.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import itertools
import statistics
import time

import aiohttp
from prometheus_client import CollectorRegistry, generate_latest

from benchmarks.cloud import table
from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchPolicy, CloudConfig, Department, WebPolicy
from schemas.envelope import Envelope, encode
from schemas.subjects import journal
from services.domain.custody.rules import RULES
from services.monitor.core.monitor import MonitorCore
from services.monitor.metrics.collect import ReadModel
from services.monitor.views.views import Views
from services.runtime.http.guard import Guard
from services.runtime.journal.fold import Fold, Stored
from services.runtime.log import get_log
from services.runtime.metrics import MetricsListener

BATCH, WEB = [f"b{n}" for n in range(6)], ["shop", "site"]
CORES = 8
FACTS = 1500  # between two scrapes


class Cloud:
    """A monitor's fold; each fact a millisecond after the last, from ten minutes ago on."""

    def __init__(self, hosts: int, jobs: int) -> None:
        self.fold = Fold(None, MonitorCore)
        self.positions = itertools.count(1)
        self.began = time.time() - 600
        departments = [Department(name=name, kind="batch", batch=BatchPolicy()) for name in BATCH]
        departments += [Department(name=name, kind="web", web=WebPolicy()) for name in WEB]
        config = CloudConfig(name="bench", departments=tuple(departments))
        self.write("provisioner", f.ConfigAdopted(cloud="bench", custody_rules=RULES, config=config))
        self.holder: dict[str, str] = {}
        self._hosts(hosts)
        self.running: list[tuple[str, str, int]] = []  # unit, department, attempt
        self._jobs(jobs)
        self._instances()

    @property
    def core(self) -> MonitorCore:
        assert isinstance(self.fold.core, MonitorCore)
        return self.fold.core

    def write(self, writer: str, *facts: f.Fact) -> None:
        position = next(self.positions)
        at = self.began + position / 1000
        data = encode(Envelope(id=f"e{position}", writer=writer, epoch=1, at=at, facts=facts))
        self.fold.feed(Stored(position, journal(writer), data, at))

    def _hosts(self, count: int) -> None:
        for number, dept in zip(range(count), itertools.cycle([*BATCH, *WEB]), strict=False):
            name = f"h{number}"
            self.write("executor", f.HostDescribed(host=name, one_id=number, cores=CORES, memory_mb=65_536))
            self.write("executor", f.HostCleared(host=name))
            self.write("provisioner", f.HostGranted(host=name, dept=dept))
            self.holder[name] = dept

    def _jobs(self, count: int) -> None:
        room = {dept: [n for n, d in self.holder.items() if d == dept for _ in range(CORES)] for dept in BATCH}
        after = (f.Dependency(job="1", condition="afterok"),)
        for number in range(1, count + 1):
            dept, unit = BATCH[number % len(BATCH)], str(number)
            waits = after if number % 4 == 3 and number > 1 else ()
            job = f.JobSubmitted(
                job=unit, dept=dept, user=f"u{number % 50}", name="n", payload="p", walltime_s=60.0, after=waits
            )
            self.write("admission", job)
            if number % 4 == 2:
                self.write("admission", f.JobHeld(job=unit, user="a"))
            elif number % 4 == 0 and room[dept]:
                self._place(unit, dept, 1, room[dept].pop())

    def _place(self, unit: str, dept: str, attempt: int, host: str) -> None:
        self.write(f"scheduler.{dept}", f.UnitPlaced(unit=unit, attempt=attempt, hosts=(host,), cores=1, memory_mb=64))
        self.write("admission", f.AttemptBegan(unit=unit, attempt=attempt, addresses=(None,)))
        self.running.append((unit, dept, attempt))

    def _instances(self) -> None:
        for dept in WEB:
            hosts = [name for name, holder in self.holder.items() if holder == dept]
            self.write(f"scheduler.{dept}", f.DemandChanged(dept=dept, hosts=len(hosts), instances=len(hosts)))
            for number, host in enumerate(hosts, 1):
                self._place(f"{dept}.{number}", dept, 1, host)
        self.running = [one for one in self.running if one[1] in BATCH]

    def happen(self) -> None:
        """Jobs give their place up and have it again."""
        for _ in range(FACTS // 3):
            unit, dept, attempt = self.running.pop(0)
            host = self.fold.custody.state.units[unit].hosts[0]
            why = because.Reclaimed()
            closed = f.AttemptClosed(unit=unit, attempt=attempt, disposal=f.Disposal.REQUEUE, why=why)
            self.write(f"scheduler.{dept}", closed)
            self._place(unit, dept, attempt + 1, host)


async def scraped(url: str, session: aiohttp.ClientSession) -> tuple[bytes, float]:
    began = time.perf_counter()
    async with session.get(url) as answer:
        body = await answer.read()
    return body, (time.perf_counter() - began) * 1000


def made(registry: CollectorRegistry) -> float:
    began = time.perf_counter()
    generate_latest(registry)
    return (time.perf_counter() - began) * 1000


async def measure(cloud: Cloud, runs: int) -> None:
    registry = CollectorRegistry()
    registry.register(ReadModel(cloud.core, Views(cloud.core)))
    rows: list[list[object]] = [["what", "median ms", "longest ms"]]
    first = made(registry)
    rows.append(["the first, which renders every job", first, first])
    quiet = [made(registry) for _ in range(runs)]
    rows.append(["again, nothing has happened", statistics.median(quiet), max(quiet)])
    busy = []
    for _ in range(runs):
        cloud.happen()
        busy.append(made(registry))
    rows.append([f"after {FACTS} facts", statistics.median(busy), max(busy)])
    listener = MetricsListener(registry, dict, Guard(get_log(service="benchmark")))
    port = await listener.start("127.0.0.1", 0)
    async with aiohttp.ClientSession() as session:
        found = [await scraped(f"http://127.0.0.1:{port}/metrics", session) for _ in range(runs)]
    await listener.stop()
    times = [each for _, each in found]
    rows.append(["over HTTP", statistics.median(times), max(times)])
    table(rows)
    body = found[-1][0]
    samples = sum(1 for line in body.splitlines() if not line.startswith(b"#"))
    print(f"\n{samples} samples, {len(body) / 1024:.1f} KiB, {len(gzip.compress(body)) / 1024:.1f} KiB compressed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=21)
    asked = parser.parse_args()
    cloud = Cloud(asked.hosts, asked.jobs)
    assert cloud.fold.voided == {}, cloud.fold.voided
    asyncio.run(measure(cloud, asked.runs))


if __name__ == "__main__":
    main()
