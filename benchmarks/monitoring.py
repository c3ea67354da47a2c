"""What watching costs: CPU share, memory and lag of the monitor at 1,000 hosts, 10,000 jobs and 100 decisions a second.

    python -m benchmarks.monitoring [--hosts 1000] [--jobs 10000] [--rate 100] [--seconds 60]
    python -m benchmarks.monitoring --profile 25       the monitor under cProfile: where its time goes, the first 25

A real nats-server with the permissions of a cloud, the monitor as its own process, and a journal of believable decisions
(`benchmarks.busy_day`) written at the rate by one connection a writer.  The phases follow each other on one monitor: nobody
looks; Prometheus scrapes every 10 s; and besides, pages are open (`/v1/stream`).  CPU share is of one core, user and system,
from /proc; lag is from the broker's acknowledgement until `/metrics` or the page's stream is as far.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
from nats.js import JetStreamContext

from benchmarks.busy_day import CLOUD, BusyDay, Decision
from benchmarks.cloud import cpu_seconds, memory_mb, percentile, table
from schemas.envelope import Envelope, encode
from schemas.subjects import journal
from services.runtime.broker import credentials
from services.runtime.broker.streams import ensure_streams
from services.runtime.config.tables import Config, Http, Metrics
from services.runtime.config.text import dump_toml
from tests.integration.nats_process import NatsProcess
from tests.support.ports import free_port

WEB_HOSTS: Final = 100
SCRAPE_S: Final = 10.0
PAGES: Final = 3
READY_S: Final = 120.0
IDLE_SHARE: Final = 0.04
LINE_MAX: Final = 8 << 20  # of an event: the picture of 2,000 hosts has a megabyte
ASK_S: Final = 0.5  # between two looks at how far the monitor is
WRITERS: Final = ("provisioner", "executor", "admission", "scheduler.hpc", "scheduler.web")


class Bench(NatsProcess):
    """A broker, and a monitor beside it."""

    def __init__(self, directory: Path, profile: bool) -> None:
        super().__init__(directory)
        self.config = _configured(self.config)
        self.profile = profile
        self.written = 0  # position of the last message
        self.took: list[float] = []  # how long an append took
        self._js: dict[str, JetStreamContext] = {}
        self._numbers = itertools.count(1)
        self.monitor: subprocess.Popen[bytes]

    async def open(self) -> None:
        await self.start()
        admin, _ = await self.connect("service-admin")
        await ensure_streams(admin.jetstream(timeout=10), self.config)
        for writer in WRITERS:
            nc, _ = await self.connect(f"service-{writer}")
            self._js[writer] = nc.jetstream(timeout=10)

    async def append(self, decision: Decision) -> None:
        writer, facts = decision
        name = f"e{next(self._numbers)}"
        envelope = Envelope(id=name, writer=writer, epoch=1, at=time.time(), facts=facts)
        began = time.perf_counter()
        ack = await self._js[writer].publish(journal(writer), encode(envelope), headers={"Nats-Msg-Id": name})
        self.took.append(time.perf_counter() - began)
        self.written = ack.seq

    def watch(self) -> None:
        """Start the monitor."""
        file = self.directory / "phoenix.toml"
        file.write_text(dump_toml(self.config))
        words = ["-m", "services.monitor", "--config", str(file)]
        if self.profile:
            words = ["-m", "cProfile", "-o", str(self.directory / "profile"), *words]
        with (self.directory / "monitor.log").open("wb") as log:
            self.monitor = subprocess.Popen([sys.executable, *words], stdout=log, stderr=log)

    async def close(self) -> None:
        if hasattr(self, "monitor"):
            self.monitor.terminate()
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self.monitor.wait, 20)
            if self.monitor.poll() is None:
                self.monitor.kill()
        await self.stop()


def _configured(config: Config) -> Config:
    listen = f"127.0.0.1:{free_port()}"
    return msgspec.structs.replace(
        config,
        cloud=CLOUD,
        http=Http(listen=f"127.0.0.1:{free_port()}", url="http://127.0.0.1:1"),
        monitor=msgspec.structs.replace(config.monitor, listen=listen, url=f"http://{listen}"),
        metrics=Metrics(port_first=free_port(), ports={}),
    )


class Watchers:
    """Who looks at the monitor, and what they saw."""

    def __init__(self, bench: Bench, session: aiohttp.ClientSession) -> None:
        self.bench, self.session, self.url = bench, session, bench.config.monitor.url
        self.scrapes: list[tuple[float, int]] = []
        self.lags: list[float] = []
        self.frames = self.frame_bytes = 0
        self.frame_lags: list[float] = []

    async def position(self) -> int:
        async with self.session.get(f"{self.url}/healthz") as answer:
            return int((await answer.json())["position"])

    async def far(self, position: int) -> None:
        while True:
            if await self.position() >= position:
                return
            await asyncio.sleep(0.002)

    async def lag(self) -> None:
        while True:
            await asyncio.sleep(ASK_S)
            began, position = time.perf_counter(), self.bench.written
            await self.far(position)
            self.lags.append(time.perf_counter() - began)

    async def scrape(self) -> None:
        while True:
            began = time.perf_counter()
            async with self.session.get(f"{self.url}/metrics") as answer:
                size = len(await answer.read())
            self.scrapes.append((time.perf_counter() - began, size))
            await asyncio.sleep(SCRAPE_S)

    async def page(self) -> None:
        token = credentials.token_file(self.bench.config, "oscar").read_text().strip()
        headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
        async with self.session.get(f"{self.url}/v1/stream", headers=headers, read_bufsize=LINE_MAX) as answer:
            answer.raise_for_status()
            async for line in answer.content:
                self.frame_bytes += len(line)
                if line.startswith(b"id:"):
                    self.frames += 1
                    self.frame_lags.append(max(0, self.bench.written - int(line[3:])))


async def play(bench: Bench, decisions: Iterator[Decision], rate: float, seconds: float) -> None:
    """Write at the rate; what is late is written at once."""
    began = time.monotonic()
    for number in range(int(rate * seconds)):
        left = began + number / rate - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)
        await bench.append(next(decisions))


async def phase(
    bench: Bench, who: Watchers, decisions: Iterator[Decision], args: argparse.Namespace, pages: int, scrapes: bool
) -> list[object]:
    """A row of the table."""
    for seen in (who.scrapes, who.lags, who.frame_lags):
        seen.clear()
    who.frames = who.frame_bytes = 0
    watching = [asyncio.create_task(who.lag())]
    watching += [asyncio.create_task(who.scrape())] if scrapes else []
    watching += [asyncio.create_task(who.page()) for _ in range(pages)]
    await asyncio.sleep(1 if pages else 0)  # the first picture is not what is measured
    cpu, began = cpu_seconds(bench.monitor.pid), time.monotonic()
    try:
        await play(bench, decisions, args.rate, args.seconds)
        taken = time.monotonic() - began
        share = (cpu_seconds(bench.monitor.pid) - cpu) / taken
        for task in watching:
            if task.done():
                task.result()
    finally:
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
    return [
        f"{'scrapes, ' if scrapes else ''}{pages} pages" if scrapes or pages else "nobody looks",
        f"{args.rate * args.seconds / taken:.0f}",
        f"{share * 100:.1f} %",
        f"{memory_mb(bench.monitor.pid):.0f}",
        f"{percentile(who.lags, 0.5) * 1000:.1f}",
        f"{percentile(who.lags, 0.99) * 1000:.1f}",
        f"{who.frames / taken / pages:.1f}" if pages else "-",
        f"{who.frame_bytes / taken / pages / 1024:.0f}" if pages else "-",
    ]


async def measure(args: argparse.Namespace, directory: Path) -> None:
    bench = Bench(directory, args.profile > 0)
    try:
        await bench.open()
        day = BusyDay(args.hosts, args.jobs, min(WEB_HOSTS, args.hosts // 4))
        for decision in day.begin():
            await bench.append(decision)
        began = time.monotonic()
        bench.watch()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_connect=5)) as session:
            who = Watchers(bench, session)
            await answers(who)
            print(f"{bench.written} envelopes folded, reads served: {time.monotonic() - began:.1f} s after its start")
            await settled(bench.monitor.pid)
            await phases(bench, who, day.go_on(), args)
    finally:
        await bench.close()


async def phases(bench: Bench, who: Watchers, decisions: Iterator[Decision], args: argparse.Namespace) -> None:
    rows: list[list[object]] = [
        ["who looks", "decisions/s", "CPU of a core", "MiB", "lag ms", "p99", "frames/s", "KiB/s a page"]
    ]
    rows.append(await phase(bench, who, decisions, args, 0, scrapes=False))
    rows.append(await phase(bench, who, decisions, args, 0, scrapes=True))
    scrapes = list(who.scrapes)
    rows.append(await phase(bench, who, decisions, args, 1, scrapes=True))
    rows.append(await phase(bench, who, decisions, args, PAGES, scrapes=True))
    table(rows)
    took = [seconds * 1000 for seconds, _ in scrapes]
    print(f"a scrape: {percentile(took, 0.5):.0f} ms, {max(took):.0f} ms at most, {scrapes[-1][1] / 1024:.0f} KiB")
    appends = [seconds * 1000 for seconds in bench.took]
    print(f"an append: {percentile(appends, 0.5):.1f} ms, p99 {percentile(appends, 0.99):.1f} ms")


async def answers(who: Watchers) -> None:
    async with asyncio.timeout(READY_S):
        while True:
            with suppress(aiohttp.ClientError, OSError):
                await who.far(who.bench.written)
                return
            assert who.bench.monitor.poll() is None, (who.bench.directory / "monitor.log").read_text()[-2000:]
            await asyncio.sleep(0.05)


async def settled(pid: int) -> None:
    """What it folded at its start is published and in the history: it has nothing left to do."""
    async with asyncio.timeout(READY_S):
        while True:
            before = cpu_seconds(pid)
            await asyncio.sleep(1)
            if cpu_seconds(pid) - before < IDLE_SHARE:
                return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=100.0, help="decisions a second")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each phase")
    parser.add_argument("--profile", type=int, default=0, metavar="N")
    with tempfile.TemporaryDirectory(prefix="phoenix-bench-") as directory:
        args = parser.parse_args()
        asyncio.run(measure(args, Path(directory)))
        if args.profile:
            pstats.Stats(str(Path(directory) / "profile")).sort_stats("cumulative").print_stats(
                "services|nats", args.profile
            )


if __name__ == "__main__":
    main()
