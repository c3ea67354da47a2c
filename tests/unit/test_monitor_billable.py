"""What a bill is made of, over HTTP: a day that runs, one that is over, what may be seen; and the price table."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from msgspec import structs

from phoenix.cli.__main__ import main
from schemas.config import BatchPolicy, Department, WebPolicy
from schemas.facts import ConfigAdopted
from schemas.units import exact, seconds
from services.domain.custody.rules import RULES
from services.monitor.history.retention import Kept, trim
from services.monitor.http.access import Access, faults
from services.monitor.http.billable import SETTLED_MS, Billable, together
from services.monitor.http.price_routes import PriceRoutes
from services.runtime.broker.credentials import digest
from services.runtime.callers.identity import Identities
from services.runtime.config.file import load
from services.runtime.config.text import dump_toml
from tests.unit.test_custody_rules import granted, job, placed
from tests.unit.test_monitor_core import Desk
from tests.unit.test_monitor_http import CLOUD

DAY_S = 86_400
TABLE = """
[[price]]
per = "core_hour"
amount = "1"
[[price]]
per = "core_hour"
amount = "2"
department = "web"
from = 2026-11-01
"""
ROOT = Path(__file__).parents[2]


class Door:
    """hpc has held a host since the first second of 1970, and alice's job runs on it."""

    def __init__(self, tmp_path: Path) -> None:
        self.desk, self.now = Desk(tmp_path / "h.sqlite"), 100.0
        self.desk.play(("provisioner", ConfigAdopted(cloud="x", custody_rules=RULES, config=CLOUD)))
        self.desk.play(*granted(), job(), placed())
        self.file = tmp_path / "prices.toml"
        self.file.write_text(TABLE)
        tokens = tmp_path / "tokens.json"
        tokens.write_bytes(orjson.dumps({digest(f"t-{u.name}"): u.name for u in CLOUD.users}))
        access = Access(self.desk.core.custody, Identities(tokens, CLOUD))
        assert self.desk.history is not None
        app = web.Application(middlewares=[faults])
        app.add_routes(Billable(access, self.desk.history, self.desk.core.accounting, lambda: self.now).routes())
        app.add_routes(PriceRoutes(access, self.file).routes())
        self.client = TestClient(TestServer(app))

    async def get(self, path: str, user: str = "oscar") -> Any:
        answer = await self.client.get(path, headers={"Authorization": f"Bearer t-{user}"})
        found = orjson.loads(await answer.read())
        return found["detail"] if answer.status >= 400 else found


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    door = Door(tmp_path)
    await door.client.start_server()
    yield door
    await door.client.close()
    assert door.desk.history is not None
    await door.desk.history.close()


async def test_of_the_day_that_runs_it_says_what_was_until_now(door: Door) -> None:
    found = await door.get("/v1/billable?day=1970-01-01T00:00:00Z")
    assert (found["until"], found["over"], found["kinds"]) == (exact(100.0), False, {"hpc": "batch", "web": "web"})
    assert [one["until_at"] for one in found["attempts"]] == [exact(100.0)]
    [held] = [one for one in found["holding"] if one["department"] == "hpc"]
    since = seconds(found["attempts"][0]["from_at"])
    assert since is not None
    assert (held["begin_at"], 100.0 - held["held_s"] < since) == (exact(0.0), True)  # granted before the job was placed
    door.now = 200.0
    [later] = [
        one
        for one in (await door.get("/v1/billable?day=1970-01-01T00:00:00Z"))["holding"]
        if one["department"] == "hpc"
    ]
    assert later["held_s"] == held["held_s"] + 100.0
    assert await door.get(f"/v1/billable?day={exact(DAY_S)}") == "that day is to come"


async def test_a_day_is_over_when_its_facts_can_no_longer_be_on_their_way(door: Door) -> None:
    for late_ms, over in ((-1, False), (0, True)):
        door.now = DAY_S + (SETTLED_MS + late_ms) / 1000
        found = await door.get("/v1/billable?day=1970-01-01T00:00:00Z")
        assert (found["over"], found["until"]) == (over, exact(DAY_S))
        assert [one["until_at"] for one in found["attempts"]] == [exact(DAY_S)]
        assert sum(one["held_s"] for one in found["holding"] if one["begin_at"] == exact(3600.0)) == 3600.0


async def test_a_department_is_told_of_itself(door: Door) -> None:
    found = await door.get("/v1/billable?day=1970-01-01T00:00:00Z", "wendy")
    assert found["kinds"] == {"web": "web"}
    assert {one["department"] for name in ("attempts", "holding") for one in found[name]} <= {"web"}


async def test_a_department_is_of_the_kind_that_it_was_last_on_the_day(door: Door) -> None:
    bio = Department(name="bio", kind="batch", batch=BatchPolicy())
    kinds = {0: bio, DAY_S: bio, 2 * DAY_S: structs.replace(bio, kind="web", batch=None, web=WebPolicy())}
    for at, department in kinds.items():
        config = structs.replace(CLOUD, departments=(*CLOUD.departments, department))
        door.desk.play(("provisioner", ConfigAdopted(cloud="x", custody_rules=RULES, config=config)), at=at)
    door.now = 4.0 * DAY_S
    told = [(await door.get(f"/v1/billable?day={exact(day * DAY_S)}"))["kinds"]["bio"] for day in range(4)]
    assert told == ["batch", "batch", "web", "web"]
    assert door.desk.history is not None
    rows = door.desk.history.database.execute("SELECT kind FROM departments WHERE department = 'bio' ORDER BY position")
    assert [kind for (kind,) in rows] == ["batch", "web"]  # what is not new is not said again


def test_what_was_taken_back_is_kept_as_long_as_the_day_that_bills_it(door: Door) -> None:
    assert door.desk.history is not None
    db, day_ms = door.desk.history.database, DAY_S * 1000
    for number, told_ms in enumerate((2 * day_ms, 4 * day_ms)):
        db.execute(
            "INSERT INTO losses VALUES (1, ?, 0, ?, '1', 1, 'hpc', 'alice', '', '', 'web', -1)", (number, told_ms)
        )
    assert trim(db, 5 * day_ms, Kept(days=2, rows=0))
    assert db.execute("SELECT told_ms FROM losses").fetchall() == [(4 * day_ms,)]


def test_an_hour_that_ended_meanwhile_counts_once() -> None:
    hour = {"department": "hpc", "begin_ms": 0, "held_ms": 9, "lent_ms": 0, "borrowed_ms": 0}
    next_hour = {**hour, "begin_ms": 3_600_000}
    other = {**hour, "department": "web"}
    assert together([hour], [{**hour, "held_ms": 8}, next_hour, other]) == [hour, next_hour, other]


async def test_the_table_is_read_each_time_and_each_sees_its_own_prices(door: Door) -> None:
    seen = {user: await door.get("/v1/prices", user) for user in ("alice", "wendy")}
    assert [len(one["prices"]["price"]) for one in seen.values()] == [1, 2]
    assert seen["alice"]["digest"] == seen["wendy"]["digest"]
    assert seen["wendy"]["prices"]["price"][1]["from"] == "2026-11-01"
    door.file.write_text(TABLE.replace('"1"', '"-1"'))
    assert "the cloud's price table has problems:\nprices.toml:4: price.amount" in await door.get("/v1/prices")
    door.file.write_text(TABLE.replace('"1"', '"3"'))
    assert (await door.get("/v1/prices"))["prices"]["price"][0]["amount"] == "3"


def test_a_configuration_names_its_table_and_the_check_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site, table = tmp_path / "site.toml", tmp_path / "prices.toml"
    sample = (ROOT / "deploy" / "phoenix.toml").read_text()
    site.write_text(sample.replace('# prices = "prices.toml"', 'prices = "prices.toml"'))
    assert load(site).billing.prices == table
    assert f'prices = "{table}"' in dump_toml(load(site))

    def check() -> tuple[int, str]:
        return main(["--data", str(tmp_path), "config", "check", str(site)]), capsys.readouterr().err

    code, told = check()
    assert (code, "[billing] prices, that cannot be used" in told, "cannot be read" in told) == (1, True, True)
    table.write_text(TABLE.replace('"1"', '"-1"'))
    code, told = check()
    assert (code, 'price.amount (of "number 1"): "-1": should be a decimal' in told) == (1, True)
    table.write_text(TABLE.replace('department = "web"', 'department = "wbe"'))
    assert check() == (0, "phoenix: prices.toml has prices for 'wbe', and there is no such department\n")
    table.write_text(TABLE + 'user = "alise"\n')
    assert check() == (0, "phoenix: prices.toml has prices for 'alise', and there is no such user\n")
    table.write_text(TABLE)
    assert check() == (0, "")
