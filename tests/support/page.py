"""A monitor's page over a fold of the test's choice: who logs in, what is reported, what is streamed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
from aiohttp import ClientResponse, DummyCookieJar, web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import CollectorRegistry

from schemas.audit import AuditRecord
from schemas.config import BatchPolicy, CloudConfig, Department, User, WebPolicy
from schemas.facts import ConfigAdopted
from services.domain.custody.rules import RULES
from services.monitor.http import page_files
from services.monitor.http.access import Access
from services.monitor.http.denied_reads import RefusedReads
from services.monitor.http.origin import Hosts
from services.monitor.http.reads import Reads
from services.monitor.http.session_routes import SessionRoutes
from services.monitor.http.session_store import KeptSessions
from services.monitor.http.sessions import Sessions
from services.monitor.http.stream import Stream
from services.runtime.broker.credentials import digest
from services.runtime.callers.identity import Identities
from services.runtime.callers.peers import Peers
from services.runtime.log import get_log
from tests.unit.test_custody_rules import Step, granted, job, placed
from tests.unit.test_monitor_core import Desk

COOKIE = "phoenix_session_7481"
CLOUD = CloudConfig(
    name="c",
    departments=(
        Department(name="hpc", kind="batch", batch=BatchPolicy()),
        Department(name="web", kind="web", web=WebPolicy()),
    ),
    users=(
        User(name="alice", department="hpc"),
        User(name="wendy", department="web"),
        User(name="oscar", department="operators", role="operator"),
    ),
)


def adopted(config: CloudConfig) -> Step:
    return "provisioner", ConfigAdopted(cloud="x", custody_rules=RULES, config=config)


class House:
    def __init__(
        self,
        tmp_path: Path,
        page: Path | None = None,
        url: str = "http://monitor.test:7481",
        more: Callable[[Access], list[web.RouteDef]] = lambda _access: [],
        now: float = 100.0,
    ) -> None:
        self.now = now  # of sessions
        self.desk = Desk().play(adopted(CLOUD), *granted(), job(), placed())
        self.tokens = tmp_path / "tokens.json"
        self.write_tokens({f"t-{user.name}": user.name for user in CLOUD.users})
        identities = Identities(self.tokens, CLOUD)
        self.sessions = Sessions(identities, lambda: self.now, lambda: self.now)
        self.kept = KeptSessions(self.sessions, tmp_path, get_log())
        self.kept.restore(CLOUD)
        access = Access(self.desk.core.custody, identities, self.sessions, COOKIE)
        self.stream = Stream(self.desk.core, self.desk.views, self.desk.publisher, access, clock=lambda: 0.0)
        self.audit: list[AuditRecord] = []
        reads = Reads(
            self.desk.core,
            self.desk.views,
            None,  # type: ignore[arg-type]  # no test here asks for history
            self.desk.publisher,
            access,
            CollectorRegistry(),
            self._wait_for,
            more=[
                *SessionRoutes(access, self.kept, url, self.audit.append, clock=lambda: 5.0).routes(),
                *self.stream.routes(),
                *more(access),
                *(page_files.routes(page) if page is not None else []),
            ],
            hosts=Hosts(url),
            watch=[RefusedReads(access, self.audit.append, Peers(), lambda: 5.0, lambda: self.now).watch],
        )
        self.client = TestClient(TestServer(reads.app()), cookie_jar=DummyCookieJar())
        self._telling: asyncio.Task[None] | None = None

    async def _wait_for(self, position: int, timeout_s: float) -> None:
        assert position
        assert timeout_s

    def write_tokens(self, tokens: dict[str, str]) -> None:
        written = self.tokens.with_suffix(".new")
        written.write_bytes(orjson.dumps({digest(token): user for token, user in tokens.items()}))
        written.rename(self.tokens)

    async def start(self) -> None:
        await self.client.start_server()
        self._telling = asyncio.create_task(self.stream.run())

    def pause(self) -> None:
        """No client is notified any more."""
        if self._telling is not None:
            self._telling.cancel()

    async def close(self) -> None:
        self.stream.close()
        await self.client.close()
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, dict[str, Any], ClientResponse]:
        answer = await self.client.post(path, json=body, headers=named(headers))
        return answer.status, await answer.json(), answer

    async def login(self, user: str = "alice") -> str:
        """The cookie's value."""
        status, _, answer = await self.post("/v1/session", {"token": f"t-{user}"})
        assert status == 200
        return answer.cookies[COOKIE].value

    async def get(self, path: str, cookie: str = "", **headers: str) -> int:
        return (await self.answer(path, cookie, **headers)).status

    async def answer(self, path: str, cookie: str = "", **headers: str) -> ClientResponse:
        given = {**named(headers), **({"Cookie": f"{COOKIE}={cookie}"} if cookie else {})}
        answer = await self.client.get(path, headers=given)
        await answer.read()
        return answer


def named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def bearer(user: str) -> dict[str, str]:
    return {"Authorization": f"Bearer t-{user}"}
