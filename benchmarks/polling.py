"""What looking at OpenNebula costs, and how soon a change is seen: at 100, 1,000 and 5,000 VMs, with and without events.

    python -m benchmarks.polling [--vms 100,1000,5000] [--idle-s 10]

A real broker, the embedded OpenNebula and the executor are processes of their own, so the CPU of each is its own; this process
writes the facts that schedulers would, and follows the journal.  Three tables: one look (this process asks), the executor at
rest, and the time from a change to its fact in the journal.  *Adopted* is from the start of an executor after `kill -9` of the
one before to the first VM that it starts: until then it has looked at everything.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyone

from benchmarks.cloud import cpu_seconds, percentile, table
from phoenix.local.opennebula.dummy import DummyDriver
from phoenix.local.opennebula.server import OpenNebula as Server
from phoenix.local.opennebula.settings import Settings
from schemas import facts as f
from schemas.config import CloudConfig, Policy
from schemas.envelope import FACTS_MAX
from schemas.size import Size
from services.domain.custody.rules import RULES
from services.executor.core.executor import ExecutorCore
from services.executor.opennebula.client import OpenNebula, vm_reader
from services.runtime.config.tables import Config, Data, Http
from services.runtime.config.tables import OpenNebula as OneConfig
from services.runtime.config.text import dump_toml
from services.runtime.service import Service
from tests.support.executor_stage import CLOUD, HPC, WEB
from tests.support.nats import running_server
from tests.support.ports import free_port
from tests.support.shells import Running, World, world
from tests.support.until import until

HOSTS, CORES, MEMORY_MB = 64, 128, 65_536
SESSION = "oneadmin:opennebula"
CHANGES = 20
POLLED = 4  # changes by somebody else's hand that only an audit finds: each waits for one
LOOKS = 9
GROW = 200  # jobs placed at once
PATIENCE_S = 300.0
READY_S = 30.0
LEASE_S = 10.0  # a busy machine may keep a call waiting for long; the executor gives each half of it


class Bench:
    """`follower`: the executor's fold, followed here."""

    def __init__(
        self, here: World, directory: Path, port: int, events_port: int, server: subprocess.Popen[bytes]
    ) -> None:
        self.here, self.directory, self.server = here, directory, server
        self.url = f"http://127.0.0.1:{port}/RPC2"
        self.events = f"tcp://127.0.0.1:{events_port}"
        self.executor: subprocess.Popen[bytes] | None = None
        self.jobs = self.starts = self._ids = 0
        self.config = self._config("")
        self.follower = Running(Service(None, ExecutorCore, self.config, instance="m1", name="monitor"))

    def _config(self, events: str) -> Config:
        one = OneConfig(endpoint=self.url, events=events, auth_file=self.directory / "one_auth", timeout_s=10.0)
        data = Data(directory=self.directory, guest_key_file=self.directory / "guest.key")
        cloud = CloudConfig(name="c", departments=(HPC, WEB), policy=Policy())
        http = Http(listen="127.0.0.1:7480", url="http://127.0.0.1:7480")
        return msgspec.structs.replace(self.here.config, cloud=cloud, opennebula=one, data=data, http=http)

    def start(self, events: bool) -> None:
        """An executor; the one before was reaped."""
        file = self.directory / "cloud.toml"
        file.write_text(dump_toml(self._config(self.events if events else "")))
        reaped, self.starts = f"e{self.starts}", self.starts + 1
        words = ["--config", str(file), "--instance", f"e{self.starts}", "--reaped", reaped]
        log = (self.directory / "executor.log").open("ab")
        self.executor = subprocess.Popen([sys.executable, "-m", "services.executor", *words], stdout=log, stderr=log)

    def kill(self) -> None:
        assert self.executor is not None
        self.executor.kill()
        self.executor.wait(10)

    async def write(self, writer: str, facts: list[f.Fact]) -> None:
        for first in range(0, len(facts), FACTS_MAX):
            self._ids += 1
            await self.here.write(*facts[first : first + FACTS_MAX], writer=writer, id=f"{writer}-{self._ids}")

    async def until(self, true: Callable[[], Any], what: str) -> None:
        await until(true, what, PATIENCE_S)

    @property
    def custody(self) -> Any:
        return self.follower.service.custody

    def started(self) -> int:
        return sum(1 for vm in self.custody.state.vms.values() if vm.started_at is not None)

    async def grow(self, vms: int) -> None:
        """As many VMs as that run."""
        while self.started() < vms:
            await self.add(min(GROW, vms - self.started()))

    async def add(self, count: int) -> None:
        """So many more jobs; returns when they run."""
        units = [str(self.jobs + n + 1) for n in range(count)]
        self.jobs += count
        job: dict[str, Any] = {"dept": "hpc", "user": "a", "name": "j", "payload": "p", "walltime_s": 1e6, "nodes": 1}
        await self.write("admission", [f.JobSubmitted(job=unit, **job) for unit in units])
        placed: list[f.Fact] = [self._placed(unit) for unit in units]
        await self.write("scheduler.hpc", placed)
        state = self.custody.state

        def runs(unit: str) -> bool:
            vm = state.vms.get(f"{unit}/1/0")
            return vm is not None and vm.started_at is not None

        await self.until(lambda: all(runs(unit) for unit in units), "the jobs run")

    def _placed(self, unit: str) -> f.UnitPlaced:
        return f.UnitPlaced(unit=unit, attempt=1, hosts=(f"host{int(unit) % HOSTS:03}",), cores=1, memory_mb=64)


async def serve(port: int, events_port: int) -> None:
    """The embedded OpenNebula with a dummy hypervisor whose VMs have no guests: nobody is there whom they could call."""
    settings = Settings(hosts=HOSTS, size=Size(CORES, MEMORY_MB), port=port, events_port=events_port)
    server = Server(settings, DummyDriver())
    await server.start()
    await asyncio.get_running_loop().create_future()


@contextlib.contextmanager
def opennebula(port: int, events_port: int) -> Iterator[subprocess.Popen[bytes]]:
    words = ["--serve", str(port), str(events_port)]
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.polling", *words])
    try:
        end = time.monotonic() + READY_S
        while not _listens(port):
            assert time.monotonic() < end, "the embedded OpenNebula does not come up"
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait(10)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="phoenix-bench-") as name, running_server() as broker:
        directory, port, events_port = Path(name), free_port(), free_port()
        (directory / "one_auth").write_text(SESSION + "\n")
        (directory / "guest.key").write_bytes(b"a key of the guests")
        with opennebula(port, events_port) as server:
            async with world(broker, lease_ttl_s=LEASE_S) as here:
                made = Bench(here, directory, port, events_port, server)
                try:
                    await _open(made)
                    yield made
                finally:
                    if made.executor is not None:
                        made.kill()
                    await made.follower.stop()


async def _open(made: Bench) -> None:
    await made.follower.caught_up()
    adopted = f.ConfigAdopted(cloud=CLOUD, custody_rules=RULES, config=made.config.cloud)
    await made.write("provisioner", [adopted])
    made.start(events=True)
    await made.until(lambda: len(made.custody.index.by_state["free"]) == HOSTS, "all hosts are free")
    hosts = sorted(made.custody.state.hosts)
    await made.write("provisioner", [f.HostGranted(host=host, dept="hpc") for host in hosts])


# ---------------------------------------------------------------------------------------------------------------- one look


def looks(made: Bench, vms: int) -> list[list[object]]:
    """Rows of the first table."""
    plain = pyone.OneServer(made.url, session=SESSION)
    lean = OpenNebula(made.url, SESSION, 30.0, 30.0)
    ids = sorted(vm.vm for vm in made.custody.state.vms.values())[:50]
    reader, last = vm_reader(), vm_reader()

    def changed() -> None:
        for piece in list(reader._known)[: len(ids)]:
            del reader._known[piece]
        reader._last = b""
        lean.vms(reader)

    lean.vms(reader)
    lean.vms(last)
    ways: list[tuple[str, Callable[[], object]]] = [
        ("vmpool.info, pyone's bindings", lambda: plain.vmpool.info(-2, -1, -1, -1)),
        ("vmpool.info, lean, first", lean.vms),
        (f"vmpool.info, lean, {len(ids)} changed", changed),
        ("vmpool.info, lean, nothing changed", lambda: lean.vms(last)),
        (f"vmpool.infoset of {len(ids)}, lean", lambda: lean.vms_named(ids)),
        ("vmpool.infoset of 1, lean", lambda: lean.vms_named(ids[:1])),
    ]
    return [[vms, name, *_look(made.server.pid, way)] for name, way in ways]


def _look(server: int, way: Callable[[], object]) -> tuple[float, float, float]:
    """Median wall, mean CPU here and mean CPU of the server: milliseconds."""
    walls, here, there = [], time.thread_time(), cpu_seconds(server)
    for _ in range(LOOKS):
        began = time.perf_counter()
        way()
        walls.append(time.perf_counter() - began)
    used = time.thread_time() - here, cpu_seconds(server) - there
    return percentile(walls, 0.5) * 1e3, used[0] / LOOKS * 1e3, used[1] / LOOKS * 1e3


# ------------------------------------------------------------------------------------------------------------ the executor


async def at_rest(made: Bench, seconds: float) -> tuple[float, float]:
    """CPU milliseconds a second of executor and server while nothing changes."""
    assert made.executor is not None
    pids = made.executor.pid, made.server.pid
    await asyncio.sleep(3.0)  # whatever was under way has ended
    before, began = [cpu_seconds(pid) for pid in pids], time.monotonic()
    await asyncio.sleep(seconds)
    passed = time.monotonic() - began
    used = [(cpu_seconds(pid) - was) / passed * 1e3 for pid, was in zip(pids, before, strict=True)]
    return used[0], used[1]


async def to_seen(made: Bench, changes: int) -> list[float]:
    """Milliseconds from a VM's end by somebody else's hand to `vm.ended` in the journal, one after the other."""
    one = OpenNebula(made.url, SESSION, 30.0, 30.0)
    found = []
    for key, vm in list(made.custody.state.vms.items())[:changes]:
        await asyncio.to_thread(one.terminate, vm.vm, True)
        began = time.perf_counter()
        await made.until(lambda: key not in made.custody.state.vms, "vm.ended")  # noqa: B023
        found.append((time.perf_counter() - began) * 1e3)
    return found


async def to_start(made: Bench) -> list[float]:
    """Milliseconds from a placement to `vm.started`, one job after the other."""
    found = []
    for _ in range(CHANGES):
        began = time.perf_counter()
        await made.add(1)
        found.append((time.perf_counter() - began) * 1e3)
    return found


async def adopted(made: Bench, events: bool) -> float:
    """Seconds from an executor's start, after `kill -9` of the one before, to the first VM that it starts."""
    made.kill()
    began = time.monotonic()
    made.start(events)
    await made.add(1)
    return time.monotonic() - began


async def measure(sizes: list[int], idle_s: float) -> None:
    look: list[list[object]] = [["VMs", "one look", "ms", "CPU ms here", "CPU ms server"]]
    rest: list[list[object]] = [["VMs", "events", "executor CPU ms/s", "server CPU ms/s", "adopted s"]]
    seen: list[list[object]] = [["VMs", "events", "ended ms p50", "p95", "started ms p50", "p95"]]
    async with bench() as made:
        for vms in sizes:
            await made.grow(vms)
            for events in (True, False):
                again = await adopted(made, events)
                await to_start(made)  # the stream proves itself
                rest.append([vms, "on" if events else "off", *await at_rest(made, idle_s), again])
                ended = await to_seen(made, CHANGES if events else POLLED)
                started = await to_start(made)
                marks = [percentile(values, share) for values in (ended, started) for share in (0.5, 0.95)]
                seen.append([vms, "on" if events else "off", *marks])
            look += await asyncio.to_thread(looks, made, vms)
            await adopted(made, True)
            for rows in (look, rest, seen):
                table(rows)
                print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vms", default="100,1000,5000", help="sizes, ascending")
    parser.add_argument("--idle-s", type=float, default=10.0, help="seconds of rest that are measured")
    parser.add_argument("--serve", nargs=2, type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        asyncio.run(serve(*given.serve))
    asyncio.run(measure([int(size) for size in given.vms.split(",")], given.idle_s))


if __name__ == "__main__":
    main()
