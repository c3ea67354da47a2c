"""The executor at its edge to OpenNebula: launches a second, adoption after a crash, and how long an end holds a host up.

    python -m benchmarks.executor [launch] [adopt] [release] [--vms 300] [--adopted 1000] [--releases 200] [--pace]

The executor is the real process, on a broker and an embedded OpenNebula of `phoenix up` (hypervisor dummy: boots and ends take
no time of their own); what the other services write is written here.  `--pace`: the embedded OpenNebula is no faster than a
real `oned` (35 launches and 60 ends a second, 15 connections).  Times are those of the facts in the journal.

  launch    from the placement of all to the last `vm.started`, with 1, 8 and 32 calls in flight
  adopt     SIGKILL while VMs run; from the start of the next process until it knows each of them to run, and until it has
            allocated the next one
  release   from `host.released` (with it the VM's end is decided) to `host.cleared`: one host at a time, then all at once
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.cloud import cloud, percentile, table
from schemas import facts as f
from schemas.envelope import Envelope, encode
from schemas.subjects import journal
from services.domain.custody.meta import Meta
from services.domain.custody.rules import RULES
from services.executor.core.executor import ExecutorCore
from services.runtime.broker import credentials
from services.runtime.broker.client import connected
from services.runtime.config.file import load
from services.runtime.config.tables import Config
from services.runtime.config.text import dump_toml
from services.runtime.service import Service

HOSTS: Final = 32
AT_ONCE: Final = 100  # facts in one envelope
WAIT_S: Final = 60.0
ADOPTED: Final = "c10d"
IN_FLIGHT: Final = (1, 8, 32)


class Recorder(ExecutorCore):
    """The executor's fold, which also notes when what was said."""

    def __init__(self, custody: Any) -> None:
        super().__init__(custody)
        self.at: dict[tuple[str, str], float] = {}

    def apply(self, fact: f.Fact, meta: Meta) -> None:
        super().apply(fact, meta)
        name = getattr(fact, "unit", "") or getattr(fact, "host", "")
        if meta.void is None and name:
            self.at[f.kind_of(fact), name] = meta.at


class Bench:
    """One cloud without services; `executor` starts the one that is measured."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._pens: dict[str, Any] = {}
        self._number = self._job = 0
        self.follower = Service(None, Recorder, config, instance="bench", name="monitor")

    @property
    def seen(self) -> Recorder:
        assert isinstance(self.follower.core, Recorder)
        return self.follower.core

    async def write(self, writer: str, facts: list[f.Fact]) -> None:
        if writer not in self._pens:
            self._pens[writer] = await connected(**credentials.service_options(self.config, writer))
        js = self._pens[writer].jetstream(timeout=10)
        for start in range(0, len(facts), AT_ONCE):
            self._number += 1
            part = tuple(facts[start : start + AT_ONCE])
            envelope = Envelope(id=f"b{self._number}", writer=writer, epoch=1, at=time.time(), facts=part)
            position = (await js.publish(journal(writer), encode(envelope))).seq
        await self.follower.wait_for(position, WAIT_S)

    async def until(self, true: Any, what: str) -> None:
        end = time.monotonic() + WAIT_S
        while not true():
            if time.monotonic() > end:
                raise TimeoutError(what)
            await asyncio.sleep(0.005)

    def submitted(self, count: int) -> tuple[list[str], list[f.Fact]]:
        names = [str(self._job + n + 1) for n in range(count)]
        self._job += count
        return names, [
            f.JobSubmitted(job=n, dept="hpc", user="alice", name="b", payload="p", walltime_s=3600.0) for n in names
        ]

    async def placed(self, count: int, hosts: list[str]) -> list[str]:
        names, facts = self.submitted(count)
        await self.write("admission", facts)
        host = (hosts[n % len(hosts)] for n in range(count))
        places = [f.UnitPlaced(unit=n, attempt=1, hosts=(next(host),), cores=1, memory_mb=64) for n in names]
        await self.write("scheduler.hpc", [*places])
        return names

    async def all_said(self, kind: str, names: list[str]) -> list[float]:
        """When it was said of each."""
        await self.until(lambda: all((kind, name) in self.seen.at for name in names), f"{kind} of all")
        return [self.seen.at[kind, name] for name in names]

    async def end(self, names: list[str]) -> None:
        done: list[f.Fact] = [f.AttemptReported(unit=name, attempt=1, exit=0) for name in names]
        await self.write("admission", done)
        await self.all_said("vm.ended", names)

    async def close(self) -> None:
        for pen in self._pens.values():
            await pen.close()


@contextlib.contextmanager
def executor(config: Config, number: int, in_flight: int = 8) -> Iterator[subprocess.Popen[bytes]]:
    """The process, killed at the end.  Whoever was there before is known to be dead."""
    one = msgspec.structs.replace(config.opennebula, concurrency=in_flight)
    file = config.data.directory / f"bench-{number}.toml"
    file.write_text(dump_toml(msgspec.structs.replace(config, opennebula=one)))
    command = [sys.executable, "-m", "services.executor", "--config", str(file), "--instance", f"e{number}"]
    if number:
        command += ["--reaped", f"e{number - 1}"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@contextlib.asynccontextmanager
async def stage(pace: bool) -> AsyncIterator[Bench]:
    options = ("--services", "none", "--hosts", str(HOSTS), "--cores", "128", "--memory-mb", "65536")
    with cloud(*options, "--hypervisor", "dummy", *(["--pace"] if pace else [])) as status:
        bench = Bench(load(Path(status["data"]) / "phoenix.toml"))
        task = asyncio.create_task(bench.follower.run())
        try:
            await bench.until(lambda: bench.follower.caught_up, "the journal is read")
            adopted = f.ConfigAdopted(cloud=ADOPTED, custody_rules=RULES, config=bench.config.cloud)
            await bench.write("provisioner", [adopted])
            yield bench
        finally:
            await bench.close()
            bench.follower.stop()
            await task


async def granted(bench: Bench) -> list[str]:
    """All hosts, held by the department."""
    state = bench.follower.custody
    await bench.until(lambda: len(state.index.by_state["free"]) == HOSTS, "the hosts are free")
    hosts = sorted(state.state.hosts)
    await bench.write("provisioner", [f.HostGranted(host=host, dept="hpc") for host in hosts])
    return hosts


async def launch(pace: bool, vms: int) -> list[list[object]]:
    rows: list[list[object]] = [["calls in flight", "VMs", "first running s", "all running s", "VMs/s to running"]]
    async with stage(pace) as bench:
        hosts: list[str] = []
        for number, in_flight in enumerate(IN_FLIGHT):
            with executor(bench.config, number, in_flight):
                hosts = hosts or await granted(bench)
                first = await bench.placed(1, hosts)
                await bench.all_said("vm.started", first)  # it leads, and its connections are open
                await bench.end(first)
                names = await bench.placed(vms, hosts)
                began = min(await bench.all_said("unit.placed", names))
                started = await bench.all_said("vm.started", names)
                took = max(started) - began
                rows.append([in_flight, vms, min(started) - began, took, vms / took])
                await bench.end(names)
    return rows


def running(config: Config) -> int:
    """How many VMs the executor has seen running, by its metrics; -1 while it does not answer."""
    host, port = config.metrics.listen, config.metrics.ports["executor"]
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=5.0) as answer:
            found = re.search(r'^phoenix_vms\{state="running"\} (\S+)', answer.read().decode(), re.MULTILINE)
    except OSError:
        return -1
    return int(float(found[1])) if found else 0


async def adopt(pace: bool, vms: int) -> list[list[object]]:
    rows: list[list[object]] = [["VMs", "facts", "process answers s", "all seen running s", "next VM allocated s"]]
    async with stage(pace) as bench:
        with executor(bench.config, 0):
            hosts = await granted(bench)
            names = await bench.placed(vms, hosts)
            await bench.all_said("vm.started", names)
        [late] = await bench.placed(1, hosts)  # nobody is there to hear it
        facts, began = len(bench.seen.at), time.time()
        with executor(bench.config, 1):
            answers = 0.0
            while (seen := await asyncio.to_thread(running, bench.config)) < vms:
                answers = answers or (time.time() if seen >= 0 else 0.0)
                await asyncio.sleep(0.01)
            adopted = time.time()
            [allocated] = await bench.all_said("vm.allocated", [late])
            rows.append([vms, facts, (answers or adopted) - began, adopted - began, allocated - began])
            assert sum(1 for vm in bench.follower.custody.state.vms.values() if vm.started_at) >= vms
    return rows


async def cleared(bench: Bench, hosts: list[str], alone: bool) -> list[float]:
    """A VM on each, then the hosts are given back: seconds until each is free."""
    names = [(await bench.placed(1, [host]))[0] for host in hosts]
    await bench.all_said("vm.started", names)
    took = []
    for part in [[host] for host in hosts] if alone else [hosts]:
        for host in part:
            bench.seen.at.pop(("host.cleared", host), None)
        released = [f.HostReleased(host=host) for host in part]
        await bench.write("scheduler.hpc", [*released])
        ends = await bench.all_said("host.cleared", part)
        took += [end - bench.seen.at["host.released", host] for host, end in zip(part, ends, strict=True)]
    await bench.write("provisioner", [f.HostGranted(host=host, dept="hpc") for host in hosts])
    return took


async def release(pace: bool, count: int) -> list[list[object]]:
    rows: list[list[object]] = [["hosts at once", "hosts", "p50 ms", "p99 ms", "most ms"]]
    async with stage(pace) as bench:
        with executor(bench.config, 0):
            hosts = await granted(bench)
            for alone in (True, False):
                took: list[float] = []
                while len(took) < count:
                    took += await cleared(bench, hosts, alone)
                ms = [1000 * percentile(took, share) for share in (0.5, 0.99, 1.0)]
                rows.append([1 if alone else HOSTS, len(took), *ms])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help="launch, adopt, release; all if none is named")
    parser.add_argument("--vms", type=int, default=300)
    parser.add_argument("--adopted", type=int, default=1000)
    parser.add_argument("--releases", type=int, default=200)
    parser.add_argument("--pace", action="store_true", help="an OpenNebula that is no faster than a real one")
    given = parser.parse_args()
    works = {
        "launch": lambda: launch(given.pace, given.vms),
        "adopt": lambda: adopt(given.pace, given.adopted),
        "release": lambda: release(given.pace, given.releases),
    }
    unknown = [name for name in given.what if name not in works]
    if unknown:
        parser.error(f"{', '.join(unknown)}: not one of {', '.join(works)}")
    for name in given.what or works:
        print(f"\n{name}{', at the pace of a real oned' if given.pace else ''}")
        table(asyncio.run(works[name]()))


if __name__ == "__main__":
    main()
