"""Admission on a real broker with the generated permissions, and all its callers.

The other writers are the test itself, with their own credentials: `write("provisioner", …)`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import itertools
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import nats
from nats.aio.client import Client
from nats.aio.subscription import Subscription

from schemas import facts as f
from schemas.config import CloudConfig
from schemas.envelope import Envelope, decode, encode
from schemas.facts import Fact
from schemas.subjects import JOURNAL_STREAM, journal, journal_writer, request
from services.admission.core.admission import AdmissionCore
from services.admission.edge import Doors
from services.domain.custody.rules import RULES
from services.runtime.broker import credentials
from services.runtime.broker.streams import ensure_streams
from services.runtime.service import Service
from tests.integration.nats_process import NatsProcess
from tests.support.clouds import cloud
from tests.support.ports import free_port
from tests.support.problems import checked
from tests.support.shells import Running
from tests.support.until import DEADLINE_S, until

CLOUD_ID = "c0ffee"
TEXT = cloud(
    "hpc:batch bio:batch web:web",
    "ann:hpc bob:hpc leo:bio wim:web:manager wes:web root:operators:operator",
    """
[http]
listen = "127.0.0.1:{http}"
[monitor]
listen = "127.0.0.1:{monitor}"
[nats]
file_max_mb = {file_max_mb}
""",
)


class House:
    """A started admission, and clients of it."""

    def __init__(self, broker: NatsProcess) -> None:
        self.broker = broker
        self.running: Running
        self.doors: Doors
        self.session: aiohttp.ClientSession
        self._clients: dict[str, Client] = {}
        self._ids = itertools.count(1)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.doors.port}"

    @property
    def service(self) -> Service:
        return self.running.service

    @property
    def core(self) -> AdmissionCore:
        core = self.service.core
        assert isinstance(core, AdmissionCore)
        return core

    async def start(self, instance: str = "a1") -> None:
        self.doors = Doors()
        service = Service("admission", AdmissionCore, self.broker.config, edges=(self.doors,), instance=instance)
        self.running = Running(service)
        await self.running.leads()
        await until(lambda: self.doors.port or self.running.task.done(), "the doors are open")
        assert not self.running.task.done()
        for _ in range(2):  # the broker knows its subscriptions (`hear`)
            await service.nc.flush()

    async def client(self, credential: str) -> Client:
        found = self._clients.get(credential)
        if found is None:
            if credential.startswith("service-"):
                options = credentials.service_options(self.broker.config, credential.removeprefix("service-"))
            else:
                options = credentials.user_options(self.broker.config, credential)
            found = self._clients[credential] = await nats.connect(**options)
        return found

    async def write(self, writer: str, *facts: Fact) -> int:
        """One envelope of another writer, folded by admission when this returns."""
        position = await self.publish(writer, *facts)
        await self.service.wait_for(position, DEADLINE_S)
        return position

    async def publish(self, writer: str, *facts: Fact) -> int:
        """One envelope of another writer, whether or not admission runs; returns its position."""
        nc = await self.client(f"service-{writer}")
        envelope = Envelope(id=f"{writer}-{next(self._ids)}", writer=writer, epoch=1, at=time.time(), facts=facts)
        ack = await nc.jetstream().publish(journal(writer), encode(envelope))
        return ack.seq

    async def furnish(self, cloud: CloudConfig | None = None) -> None:
        """The configuration in force, and hosts: two of hpc (8 cores), one of web."""
        config = f.ConfigAdopted(cloud=CLOUD_ID, custody_rules=RULES, config=cloud or self.broker.config.cloud)
        await self.write("provisioner", config)
        names = ("h1", "h2", "w1")
        described = [f.HostDescribed(host=n, one_id=i, cores=8, memory_mb=8000) for i, n in enumerate(names)]
        await self.write("executor", *described, *[f.HostCleared(host=n) for n in names])
        granted = [f.HostGranted(host=n, dept="web" if n == "w1" else "hpc") for n in names]
        await self.write("provisioner", *granted)
        users = (cloud or self.broker.config.cloud).users
        await until(lambda: all(self.doors.listens(user.name) for user in users), "it hears all of them")

    async def furnish_limits(self, cloud: CloudConfig) -> None:
        """Another configuration is in force."""
        await self.write("provisioner", f.ConfigAdopted(cloud=CLOUD_ID, custody_rules=RULES, config=cloud))

    async def place(self, unit: str, *hosts: str, attempt: int = 1, dept: str = "hpc", cores: int = 0) -> None:
        """Void placements are a mistake of the test."""
        fact = f.UnitPlaced(unit=unit, attempt=attempt, hosts=hosts or ("h1",), cores=cores, memory_mb=cores)
        await self.write(f"scheduler.{dept}", fact)
        assert self.service.custody.live(unit, attempt)

    async def ask(self, user: str, kind: str, payload: Any, *, department: str = "", timeout_s: float = 30.0) -> Any:
        """A request over NATS, in JSON."""
        nc = await self.client(user)
        entry = self.broker.config.cloud.user(user)
        assert entry is not None
        noun, verb = kind.split(".")
        subject = request(department or entry.department, user, noun, verb)
        data = payload if isinstance(payload, bytes) else msgspec.json.encode(payload)
        return msgspec.json.decode((await nc.request(subject, data, timeout=timeout_s)).data)

    async def hear(self, credential: str, subject: str) -> Subscription:
        """A subscription that the broker knows.  Twice: the client's PING overtakes a SUB that it has still to send."""
        nc = await self.client(credential)
        found = await nc.subscribe(subject)
        await nc.flush()
        await nc.flush()
        return found

    def headers(self, user: str) -> dict[str, str]:
        token = credentials.token_file(self.broker.config, user).read_text().strip()
        return {"Authorization": f"Bearer {token}"}

    def guest(self, unit: str, attempt: int = 1, rank: int = 0) -> Guest:
        return Guest(self, unit, attempt, rank)

    async def journaled(self, kind: type | None = None) -> list[Any]:
        """Every fact in the journal, in order; only those of `kind`."""
        admin = await self.client("service-monitor")
        js = admin.jetstream()
        last = (await js.stream_info(JOURNAL_STREAM)).state.last_seq
        found: list[Any] = []
        for seq in range(1, last + 1):
            message = await js.get_msg(JOURNAL_STREAM, seq)
            found += decode(message.data or b"", journal_writer(message.subject or "")).facts
        return [fact for fact in found if kind is None or isinstance(fact, kind)]

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
        if not self.running.task.done():
            await self.running.stop()


class Guest:
    """What a VM says over HTTP."""

    def __init__(self, house: House, unit: str, attempt: int, rank: int) -> None:
        self._house = house
        self._base = f"/v1/guest/{unit}/{attempt}/{rank}/"
        key = house.broker.config.guest_key_file.read_bytes().strip()
        tag = f"{CLOUD_ID}/{unit}/{attempt}/{rank}"
        self.token = hmac.new(key, tag.encode(), hashlib.sha256).hexdigest()
        self.headers = {"Authorization": f"Bearer {self.token}"}

    def path(self, call: str) -> str:
        return self._base + call

    async def call(self, method: str, path: str, data: Any = None) -> tuple[int, bytes]:
        body = data if data is None or isinstance(data, bytes) else msgspec.json.encode(data)
        url = f"{self._house.url}{self._base}{path}"
        async with self._house.session.request(method, url, data=body, headers=self.headers) as answer:
            content = await answer.read()
            if answer.status >= 400:
                checked(answer.status, answer.headers, content)
            return answer.status, content

    async def json(self, method: str, path: str, data: Any = None) -> Any:
        status, content = await self.call(method, path, data)
        assert status == 200, (status, content)
        return msgspec.json.decode(content)

    async def began(self, address: str | None = None, boot: str | None = None) -> int:
        return (await self.call("POST", "began", {"address": address, "boot": boot}))[0]

    async def report(self, exit: int = 0, **told: Any) -> int:
        return (await self.call("POST", "report", {"exit": exit, "signal": None, "seconds": 1.0, **told}))[0]


@contextlib.asynccontextmanager
async def house(directory: Path, file_max_mb: int = 1024) -> AsyncIterator[House]:
    """A furnished house on a broker of its own."""
    broker = NatsProcess(directory, TEXT.format(http=free_port(), monitor=free_port(), file_max_mb=file_max_mb))
    await broker.start()
    here = House(broker)
    try:
        admin = await here.client("service-admin")
        await ensure_streams(admin.jetstream(), broker.config)
        await here.start()
        await here.furnish()
        async with aiohttp.ClientSession() as here.session:
            yield here
    finally:
        await asyncio.shield(here.close())
        await broker.stop()
