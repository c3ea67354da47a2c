"""A cloud under fire: real jobs and web load on a cloud of `phoenix up`, while its processes are killed.

    with siege(directory) as cloud:                  # 8 hosts, hypervisor `process`, all services
        load = Load(cloud, jobs=60); killer = Killer(cloud, seed=1)
        await together(load.run(), killer.run(20.0))
        await cloud.rest()                           # every job over, every process well
        journal = await cloud.journal()              # every message, for `faults_verdict`

What a job does
  It takes a lock that no other attempt of its unit may hold, writes `start <unit> <attempt>` to its own output and to a file
  outside of the cloud (the witness), works, and writes `end …`.  Only the scripts write to the witness, so it shows what
  ran, whatever the journal believes; the lock is let go of by the kernel when the last process of the attempt is gone, so an
  overlap is seen without comparing clocks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

import nats
import orjson
from nats.aio.client import Client as Nats
from nats.js import JetStreamContext

from phoenix.cli.errors import UNKNOWN, UNREACHABLE, CliError
from phoenix.cli.http import Client
from schemas import subjects
from services.runtime.broker import credentials
from services.runtime.broker.objects import Objects
from services.runtime.config.file import load
from services.runtime.config.tables import Config
from services.runtime.journal.fold import Stored
from services.runtime.journal.reader import Reader
from services.runtime.journal.snapshots import Snapshot, unpack
from services.runtime.log import get_log
from tests.integration.up_cloud import Cloud, until

LOG: Final = get_log(service="faults")
HOSTS: Final = 7  # few enough that web spikes meet running jobs
SERVICES: Final = ("admission", "provisioner", "executor", "scheduler.hpc", "scheduler.web", "monitor")
REST_S: Final = 60.0
ASK_S: Final = 0.1
CALL_S: Final = 5.0
SITE: Final = """
[cloud]
name = "siege"
[[department]]
name = "hpc"
kind = "batch"
[[department]]
name = "web"
kind = "web"
[department.web]
rule = "threshold"
window_s = 1.0
drain_s = 0.5
instances_min = 1
instances_max = 5
[[user]]
name = "alice"
department = "hpc"
[[user]]
name = "wendy"
department = "web"
role = "manager"
[[user]]
name = "web-balancer"
department = "web"
[[user]]
name = "oscar"
department = "operators"
role = "operator"
[policy]
grace_s = 1.0
[runtime]
snapshot_every = 60
"""
# $1: the witness's directory, $2: seconds of work, $3: a file there that ends it instead.  A short line is written at once
# (O_APPEND).  Each VM has a uid of its own: without the umask a second attempt could not open the lock of the first.  Who is
# told to stop takes 0.6 s of its grace, so that a successor that does not wait for it is seen.
SCRIPT: Final = """#!/bin/sh
me="$PHOENIX_JOB_ID $PHOENIX_ATTEMPT"
umask 0
exec 9>>"$1/$PHOENIX_JOB_ID.lock"
flock -n 9 || echo "overlap $me" >> "$1/witness"
trap 'sleep 0.6; exit 143' TERM
echo "start $me" >> "$1/witness"
echo "start $me"
if [ -z "$3" ]; then sleep "$2"; else while [ ! -e "$1/$3" ]; do sleep 0.1; done; fi
echo "end $me"
echo "end $me" >> "$1/witness"
"""


class Siege(Cloud):
    """A cloud with a witness."""

    def __init__(self, data: Path, witness: Path, batch: str = "") -> None:
        super().__init__(data)
        self.site = SITE.replace('kind = "batch"\n', f'kind = "batch"\n{batch}')
        self.witness = witness
        witness.chmod(0o777)  # jobs run under uids of their own
        (witness / "witness").touch()
        (witness / "witness").chmod(0o666)

    def up(self, hosts: int = HOSTS) -> None:
        file = self.data.parent / "site.toml"
        file.write_text(self.site)
        self.ok("up", "--detach", "--config", str(file), "--hosts", str(hosts), "--cores", "2")

    @property
    def config(self) -> Config:
        return load(self.data / "phoenix.toml")

    def pid(self, name: str) -> int | None:
        """The process that is now the service `name`; None while it is being started again."""
        entry = orjson.loads((self.data / "run" / "processes.json").read_bytes()).get(name)
        return int(entry["pid"]) or None if entry else None

    def signal(self, name: str, number: signal.Signals) -> bool:
        """Send it; False if the process is not there at the moment."""
        pid = self.pid(name)
        if pid is None:
            return False
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True

    async def strike(self, name: str, number: signal.Signals) -> None:
        """Send it as soon as the process is there."""
        deadline = time.monotonic() + REST_S
        while not self.signal(name, number):
            assert time.monotonic() < deadline, f"{name} does not come back"
            await asyncio.sleep(ASK_S)

    def told(self) -> list[str]:
        """What the scripts have said, line by line."""
        return (self.witness / "witness").read_text().splitlines()

    # ------------------------------------------------------------------------------------------------------------ HTTP

    def client(self, user: str) -> Client:
        config = self.config
        return Client(config.http.url, credentials.token_file(config, user).read_text().strip(), timeout_s=CALL_S)

    async def ask(self, user: str, call: Callable[[Client], Any]) -> Any:
        """The answer of the door, asked again while it is away, also for a change that was sent and not answered (UNKNOWN):
        each that is asked for here carries a request id, so asking again cannot do it twice."""
        deadline = time.monotonic() + REST_S
        while True:
            try:
                return await asyncio.to_thread(call, self.client(user))  # after a new start it may be elsewhere
            except (CliError, OSError, ValueError) as error:
                if isinstance(error, CliError) and error.code not in (UNREACHABLE, UNKNOWN):
                    raise
                if time.monotonic() > deadline:
                    raise AssertionError(f"admission does not answer: {error}") from error
            await asyncio.sleep(ASK_S)

    async def submit(self, request: dict[str, Any]) -> str:
        """The job's id."""
        return str((await self.ask("alice", lambda client: client.post("/v1/jobs", request)))["job"])

    async def output(self, job: str) -> bytes:
        """What the job said to its standard output."""
        answer = await self.ask("alice", lambda client: client.fetch("GET", f"/v1/jobs/{job}/output"))
        return bytes(answer.body)

    async def rest(self) -> None:
        """Returns when every process is well and no job is pending or running."""
        await asyncio.to_thread(until, lambda: self.status()["healthy"], "a process is not well")
        deadline = time.monotonic() + REST_S
        while (left := await self.ask("oscar", lambda c: c.get("/v1/queue")))["total"]:
            assert time.monotonic() < deadline, f"jobs are not over: {left['jobs'][:3]}"
            await asyncio.sleep(ASK_S)

    async def alive(self) -> dict[int, str]:
        """VMs that OpenNebula has not done away with: id -> PHOENIX_ID."""
        import pyone

        config = self.config
        session = config.opennebula.auth_file.read_text().strip()

        def look() -> dict[int, str]:
            pool = pyone.OneServer(config.opennebula.endpoint, session=session).vmpool.infoextended(-2, -1, -1, -1)
            return {vm.ID: str(vm.USER_TEMPLATE.get("PHOENIX_ID")) for vm in pool.VM}

        return await asyncio.to_thread(look)

    # ------------------------------------------------------------------------------------------------------------ NATS

    @contextlib.asynccontextmanager
    async def admin(self) -> AsyncIterator[tuple[Nats, JetStreamContext]]:
        client = await nats.connect(**credentials.service_options(self.config, "admin"))
        try:
            yield client, client.jetstream(timeout=CALL_S)
        finally:
            await client.close()

    async def journal(self) -> list[Stored]:
        """Every message of the journal so far."""
        found: list[Stored] = []
        arrived = asyncio.Event()
        async with self.admin() as (client, js), asyncio.timeout(REST_S):
            end = (await js.stream_info(subjects.JOURNAL_STREAM)).state.last_seq
            reader = Reader(client, js, start=0, heartbeat_s=0.5, kick=arrived.set, log=LOG)
            await reader.open()
            while reader.position < end or reader.waiting:
                found += reader.take(1000)
                await reader.acknowledge()
                arrived.clear()
                if reader.position < end and not reader.waiting:
                    await arrived.wait()
            await reader.close()
        return found

    async def snapshots(self) -> dict[str, Snapshot]:
        """The snapshots that the services have left, by service."""
        async with self.admin() as (_, js):
            objects = Objects(js, subjects.SNAPSHOTS)
            read = {name: await objects.get(name) for name in SERVICES}
        return {name: unpack(data) for name, data in read.items() if data is not None}


@contextlib.contextmanager
def siege(directory: Path, hosts: int = HOSTS, batch: str = "") -> Iterator[Siege]:
    """A running cloud in `directory`, `batch` among the settings of its batch department; nothing is left afterwards."""
    witness = Path(tempfile.mkdtemp(prefix="phoenix-witness-"))  # jobs cannot enter pytest's directories
    cloud = Siege(directory / "data", witness, batch)
    try:
        cloud.up(hosts)
        yield cloud
    finally:
        cloud.close()
        shutil.rmtree(witness, ignore_errors=True)


async def together(*works: Coroutine[Any, Any, None]) -> None:
    """All at once; the first failure ends the others."""
    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(work)


class Load:
    """A stream of jobs, and web load that rises and falls.  `submitted`: request id -> job."""

    def __init__(
        self,
        cloud: Siege,
        *,
        jobs: int,
        seed: int,
        over_s: float,
        longest_s: float = 3.0,
        on_reclaim: tuple[str, ...] = ("requeue",),
    ) -> None:
        self.cloud, self.jobs, self.over_s, self.longest_s = cloud, jobs, over_s, longest_s
        self.on_reclaim = on_reclaim  # one job after the other
        self.chance = random.Random(f"load {seed}")
        self.submitted: dict[str, str] = {}

    async def run(self) -> None:
        work = asyncio.create_task(self._submit())
        spikes = asyncio.create_task(self._spikes())
        try:
            await work
        finally:
            spikes.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await spikes

    async def _submit(self) -> None:
        for number in range(self.jobs):
            nodes = 2 if self.chance.random() < 0.15 else 1
            seconds = self.chance.uniform(0.1, self.longest_s)
            request = self._request(f"r{number}", seconds, nodes, self.chance.choice((1, 2)))  # a host has two cores
            request["on_reclaim"] = self.on_reclaim[number % len(self.on_reclaim)]
            job = await self.cloud.submit(request)
            self.submitted[f"r{number}"] = job
            if self.chance.random() < 0.2:  # a client that has lost the answer
                assert await self.cloud.submit(request) == job, "one request made two jobs"
            await asyncio.sleep(self.chance.uniform(0, 2 * self.over_s / self.jobs))

    async def add(self, name: str) -> str:
        """One more job, now, whatever the stream is at, that runs until `let_go`; its id."""
        request = self._request(name, 0.0, nodes=1, cores=1)
        request["argv"].append(name)
        job = self.submitted[name] = await self.cloud.submit(request)
        return job

    def let_go(self, name: str) -> None:
        (self.cloud.witness / name).touch()

    def _request(self, name: str, seconds: float, nodes: int, cores: int) -> dict[str, Any]:
        return {
            "request": name,
            "name": name,
            "script": SCRIPT,
            "argv": [str(self.cloud.witness), f"{seconds:.2f}"],
            "nodes": nodes,
            "tasks": nodes,
            "cpus_per_task": cores,
            "walltime_s": 600.0,
        }

    async def _spikes(self) -> None:
        """Signals of a load balancer of the department's own, over NATS, as a plain client publishes them."""
        options, level = credentials.user_options(self.cloud.config, "wendy"), 0.0
        client = await nats.connect(**options, max_reconnect_attempts=-1, reconnect_time_wait=0.1, error_cb=_quiet)
        try:
            while True:
                level, end = 9.0 - level, time.monotonic() + self.chance.uniform(2.0, 4.0)
                while time.monotonic() < end:
                    signal_ = {"utilisation": level, "interval_s": 0.25, "source": "test"}
                    with contextlib.suppress(nats.errors.Error):
                        await client.publish(subjects.signal("web", "wendy", "cpu"), orjson.dumps(signal_))
                    await asyncio.sleep(0.25)
        finally:
            with contextlib.suppress(nats.errors.Error, OSError):  # the broker may just have died
                await client.close()


async def _quiet(_error: Exception) -> None:
    """The broker is killed on purpose."""


class Killer:
    """SIGKILL for one of `names` at random moments; the supervisor starts it again."""

    def __init__(self, cloud: Siege, *, seed: int, names: tuple[str, ...] = (*SERVICES, "nats")) -> None:
        self.cloud, self.names = cloud, names
        self.chance = random.Random(f"killer {seed}")
        self.kills: dict[str, int] = dict.fromkeys(names, 0)

    async def run(self, seconds: float, rounds: int = 3) -> None:
        """Each of them `rounds` times, in random order, within about `seconds`."""
        victims = [name for name in self.names for _ in range(rounds)]
        self.chance.shuffle(victims)
        for name in victims:
            await asyncio.sleep(self.chance.uniform(0, 2 * seconds / len(victims)))
            await self.cloud.strike(name, signal.SIGKILL)
            self.kills[name] += 1
