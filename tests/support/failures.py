"""A web department of an embedded cloud behind HAProxy, under an open load, while something of it is killed.

    with front(directory) as cloud:                       # HAProxy, its agent, two instances on five hosts
        found = await trial(cloud, FAULTS["instance"])    # load, the fault, and load until all is as before
        assert found.unexplained == []

What a client may see
  1. The agent and the broker are on no request's way: no request fails.
  2. An instance, or a host with one: a GET is tried again elsewhere, so none fails.  A POST is never sent twice: what was
     under way of them when the instance died fails, and nothing else.
  3. One that hangs: as HAProxy cannot know it before its checks have failed, what is sent there until then waits.
  4. HAProxy: what was under way is cut off.  Nothing else fails: what comes meanwhile waits in the socket that the supervisor
     holds until it is started again, and then until the agent has told it its servers.
  Every other failure is unexplained.

The load is open and never stops (`phoenix.load`).  A fault begins when STEADY requests have been answered; the trial ends
when all processes are well, both instances serve, and as many again have been answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import time
import urllib.request
import xmlrpc.client
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from phoenix.load.curve import constant, plan
from phoenix.load.generator import Generator
from phoenix.load.record import Outcome, Record, Row, kind
from phoenix.load.target import parse
from phoenix.local.supervisor_child import started_at
from services.runtime.config.file import load as load_config
from tests.integration.up_cloud import REST, Cloud, until
from tests.support.tools import tool

INSTANCES: Final = 2
HOSTS: Final = 5
RATE: Final = 25.0  # a second: with 4 ms of CPU each, a tenth of a core of the machine
PATH: Final = "/?cpu_ms=4"
CORE_SHARE: Final = 0.2  # an instance answers fifty a second; one of them is half busy when the other is dead
POST_SHARE: Final = 0.3
FRESH_SHARE: Final = 0.3
STEADY: Final = 20  # answers before the fault, and after it
TIMEOUT_S: Final = 30.0  # what is late on a busy machine has not failed
DEADLINE_S: Final = 90.0  # of one trial
ASK_S: Final = 0.05
OFFLINE, ENABLE = 2, 0  # of one.host.status


def configuration(name: str, guarantee: int, web: str, more: str = "") -> str:
    """A batch and a web department, with a manager, a balancer and an operator.  `web`: settings of the web department;
    `more`: tables beside these."""
    return f"""
[cloud]
name = "{name}"
[[department]]
name = "hpc"
kind = "batch"
[[department]]
name = "web"
kind = "web"
guarantee = {guarantee}
[department.web]
{web}
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
{more}
"""


SITE: Final = configuration("failures", 3, "instances_max = 4\ndrain_s = 2.0\nunreachable_s = 2.0")

Dies = Literal["nothing", "instance", "front", "hangs"]  # what of a request's way


class Front(Cloud):
    """The cloud.  `wanted`: instances; `base`: whom clients ask; `lost`: hosts that are away."""

    def __init__(self, data: Path, site: str = SITE, wanted: int = INSTANCES, hosts: int = HOSTS) -> None:
        super().__init__(data)
        self.site, self.wanted, self.hosts = site, wanted, hosts
        self.base = ""
        self.lost: list[str] = []

    def up(self) -> None:
        tool("haproxy")
        file = self.data.parent / "site.toml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.site)
        size = ("--hosts", str(self.hosts), "--cores", "1", "--core-share", str(CORE_SHARE))
        self.ok("up", "--detach", "--balancer", "haproxy", "--config", str(file), *size)
        self.ok("scale", "web", "--exact", str(self.wanted), "--as", "wendy")
        self.base = str(self.status()["balancers"]["web"])

    def process(self, name: str) -> dict[str, Any]:
        return dict(next(p for p in self.status()["processes"] if p["name"] == name))

    def serving(self) -> int:
        """Instances to which HAProxy sends requests, by its agent; -1 if that does not answer."""
        with (
            contextlib.suppress(OSError, ValueError, StopIteration),
            urllib.request.urlopen(self.agent, timeout=2) as told,
        ):
            lines = told.read().decode().splitlines()
            return int(
                float(next(x for x in lines if x.startswith('phoenix_haproxy_slots{state="serving"}')).split()[1])
            )
        return -1

    def ill(self) -> list[str]:
        """What is not as it should be."""
        found = [p for p in self.status()["processes"] if p["health"] != "ok" or p["ailing"]]
        processes = [p for p in found if not (self.lost and p["name"] == "executor")]  # which tells of lost hosts
        serving = self.serving()
        return [
            *(f"{p['name']} is {p['health']} {p['ailing']}" for p in processes),
            *([] if serving == self.wanted else [f"{serving} instances serve"]),
        ]

    @property
    def agent(self) -> str:
        return str(self.process("agent.web")["url"])

    def instances(self) -> dict[str, tuple[int, str]]:
        """By unit: process id of its program, and its host."""
        there = {unit: str(host["host"]) for host in self.json("hosts")["hosts"] for unit in host["units"]}
        mine = f"PHOENIX_URL={self.status()['http_url']}".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                words = (entry / "environ").read_bytes().split(b"\0") if entry.name.isdigit() else []
                units = [word.partition(b"=")[2].decode() for word in words if word.startswith(b"PHOENIX_INSTANCE=")]
                if mine in words and units:
                    found[units[0]] = (int(entry.name), there.get(units[0], ""))
        return found


@contextlib.contextmanager
def front(directory: Path) -> Iterator[Front]:
    """A running cloud; nothing is left afterwards."""
    cloud = Front(directory / "data")
    try:
        cloud.up()
        yield cloud
    finally:
        cloud.close()


def host_status(cloud: Cloud, host: str, status: int) -> None:
    """As an administrator of OpenNebula says it."""
    config = load_config(cloud.data / "phoenix.toml").opennebula
    with xmlrpc.client.ServerProxy(config.endpoint) as server:
        told: Any = server.one.host.status(config.auth_file.read_text().strip(), int(host.removeprefix("host")), status)
    assert told[0], told


# -------------------------------------------------------------------------------------------------------------- the faults


class Fault(NamedTuple):
    """`strike` returns when it is done; `over`: whether what it did is undone; `mend`: what a person does afterwards."""

    dies: Dies
    strike: Callable[[Front], Callable[[], bool]]
    mend: Callable[[Front], None] = lambda _cloud: None


def _kill(pid: int) -> None:
    """Returns when it is dead: until then it may still take what is sent to it."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: started_at(pid) is None, f"process {pid} does not die")


def _killed(name: str) -> Callable[[Front], Callable[[], bool]]:
    """A process that the supervisor starts again."""

    def strike(cloud: Front) -> Callable[[], bool]:
        was = cloud.process(name)
        _kill(was["pid"])
        return lambda: cloud.process(name)["restarts"] > was["restarts"]

    return strike


def _instance_killed(cloud: Front) -> Callable[[], bool]:
    before = cloud.instances()
    unit = min(before)
    _kill(before[unit][0])
    return lambda: len(cloud.instances().keys() - before.keys()) > 0


def host_lost(cloud: Front) -> Callable[[], bool]:
    """Its power fails: everything on it is gone at once, and OpenNebula finds it away."""
    before = cloud.instances()
    host = min(before.values(), key=lambda it: it[1])[1]
    for pid, there in before.values():
        if there == host:
            _kill(pid)
    host_status(cloud, host, OFFLINE)
    cloud.lost.append(host)
    return lambda: len(cloud.instances().keys() - before.keys()) > 0


def hosts_back(cloud: Front) -> None:
    while cloud.lost:
        host_status(cloud, cloud.lost.pop(), ENABLE)


FAULTS: Final[dict[str, Fault]] = {
    "HAProxy": Fault("front", _killed("balancer.web")),
    "the agent": Fault("nothing", _killed("agent.web")),
    "NATS": Fault("nothing", _killed("nats")),
    "an instance": Fault("instance", _instance_killed),
    "a host": Fault("instance", host_lost, hosts_back),
}


def _instance_hangs(cloud: Front) -> Callable[[], bool]:
    """It answers no request, and keeps every connection: what a host does that has fallen off the network."""
    before = cloud.instances()
    os.kill(before[min(before)][0], signal.SIGSTOP)
    return lambda: min(before) not in cloud.instances()


HANGS: Final[dict[str, Fault]] = {"an instance hangs": Fault("hangs", _instance_hangs)}


# --------------------------------------------------------------------------------------------------------------- the trial


class Struck(NamedTuple):
    """When the fault happened, in the record's seconds: not before `since`, not after `until`."""

    dies: Dies
    since: float
    until: float


class Found(NamedTuple):
    """What a trial came to.  `failed`: by kind and moment.  `again_s`: from the fault until all was as before."""

    requests: int
    failed: Counter[str]
    unexplained: list[Row]
    slowest_s: float
    again_s: float


def under_way(row: Row, struck: Struck) -> bool:
    """A connection that ends before anything is sent on it was under way from when it was asked for."""
    began = row.taken if math.isnan(row.sent) else row.sent
    return began <= struck.until and row.ended >= struck.since


def explained(row: Row, struck: Struck) -> str:
    """Why the request may have failed, in two words; empty if it may not."""
    may = struck.dies in ("front", "hangs") or (struck.dies == "instance" and row.post)
    return "under way" if may and under_way(row, struck) else ""


def judge(rows: list[Row], struck: Struck, again_s: float) -> Found:
    bad = [row for row in rows if row.outcome is not Outcome.ANSWERED]
    why = [(row, explained(row, struck)) for row in bad]
    return Found(
        requests=len(rows),
        failed=Counter(f"{'POST' if row.post else 'GET'} {kind(row)}, {told or 'unexplained'}" for row, told in why),
        unexplained=[row for row, told in why if not told],
        slowest_s=max((row.ended - row.due for row in rows if row.outcome is Outcome.ANSWERED), default=0.0),
        again_s=again_s,
    )


async def trial(cloud: Front, fault: Fault, *, rate: float = RATE, steady: int = STEADY) -> Found:
    """One fault under load."""
    what = plan(constant(rate, DEADLINE_S), seed=1, fresh_share=FRESH_SHARE, post_share=POST_SHARE)
    generator = Generator(parse(cloud.base + PATH), what, body=b"order", timeout_s=TIMEOUT_S)
    running = asyncio.create_task(generator.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            record = generator.record
            await until_true(lambda: cloud.serving() == cloud.wanted)
            await answered(record, steady)
            since = time.time()
            undone = await asyncio.to_thread(fault.strike, cloud)
            struck = time.time()
            await until_true(undone)
            if fault.dies == "hangs":
                struck = time.time()  # what is sent to it until it is replaced is under way on what died
            await until_true(lambda: not cloud.ill())
            again_s = time.time() - since
            await answered(record, steady)
    except TimeoutError as error:
        raise AssertionError(f"not as before within {DEADLINE_S:.0f} s: {cloud.ill()}") from error
    finally:
        generator.stop()
        record = await running
        await asyncio.to_thread(fault.mend, cloud)
    found = Struck(fault.dies, since - record.began_at, struck - record.began_at)
    return judge(list(record.rows()), found, again_s)


async def until_true(true: Callable[[], bool]) -> None:
    while True:
        began = time.monotonic()
        if await asyncio.to_thread(true):  # it is asked of other processes
            return
        await asyncio.sleep(max(ASK_S, REST * (time.monotonic() - began)))


async def answered(record: Record, more: int) -> None:
    """This many more requests have been answered."""
    enough = record.outcomes.count(Outcome.ANSWERED) + more
    while record.outcomes.count(Outcome.ANSWERED) < enough:  # noqa: ASYNC110  # the generator has no event for it
        await asyncio.sleep(ASK_S)
