"""The record, which is everybody's work: who may read it, and one at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from aiohttp import web as http
from aiohttp.test_utils import TestClient, TestServer
from nats.aio.client import Client
from nats.js import JetStreamContext

from schemas.config import CloudConfig, User
from services.domain.custody.custody import Custody
from services.monitor.explain.record import Records
from services.monitor.http.access import Access, faults
from services.runtime.broker.credentials import digest
from services.runtime.callers.identity import Identities
from tests.support.shells import LOG
from tests.support.world import batch

PEOPLE = (
    User(name="alice", department="hpc"),
    User(name="mona", department="hpc", role="manager"),
    User(name="oscar", department="operators", role="operator"),
)
CLOUD = CloudConfig(name="c", departments=(batch("hpc"),), users=PEOPLE)


class House:
    """The route, and what is asked of the broker: nothing of these is to come so far."""

    def __init__(self, directory: Path) -> None:
        tokens = directory / "tokens.json"
        tokens.write_bytes(orjson.dumps({digest(f"t-{user.name}"): user.name for user in PEOPLE}))
        access = Access(Custody(), Identities(tokens, CLOUD))
        nobody = cast(Any, None)
        self.records = Records(access, cast(Client, nobody), cast(JetStreamContext, nobody), directory, LOG)
        app = http.Application(middlewares=[faults])
        app.add_routes(self.records.routes())
        self.client = TestClient(TestServer(app))


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    await made.client.start_server()
    yield made
    await made.client.close()


@pytest.mark.parametrize(
    ("query", "user", "busy", "status", "said"),
    [
        ("?since=1970-01-01T00:00:00Z", "nobody", False, 401, "a known bearer token is needed"),
        ("?since=1970-01-01T00:00:00Z", "alice", False, 403, "only operators may read it"),
        ("?since=1970-01-01T00:00:00Z", "mona", False, 403, "only operators may read it"),
        ("?since=1970-01-01T00:00:09Z&until=1970-01-01T00:00:09Z", "oscar", False, 400, "until is not after since"),
        ("?since=x", "oscar", False, 400, "since='x' is no time"),
        ("?since=1970-01-01T00:00:00Z", "oscar", True, 503, "another record is being read"),
    ],
)
async def test_who_may_read_it_and_when(
    house: House, query: str, user: str, busy: bool, status: int, said: str
) -> None:
    house.records._busy = busy
    answer = await house.client.get(f"/v1/record{query}", headers={"Authorization": f"Bearer t-{user}"})
    assert answer.status == status
    assert said in (await answer.json())["detail"]
    assert house.records._busy is busy
