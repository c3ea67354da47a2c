"""Leases at a real door: over HTTP and NATS, once for each request id, and the last hosts for one of two that come together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas.config import BatchPolicy
from schemas.times import exact
from tests.support.admission_house import House, house
from tests.support.until import until

pytestmark = pytest.mark.timeout(60)
SOON_S = 1000.0


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[House]:
    """A house whose hpc, keeps leases; three hosts of eight cores are known."""
    async with house(tmp_path) as opened:
        cloud = opened.broker.config.cloud
        departments = tuple(
            msgspec.structs.replace(d, batch=BatchPolicy(order="leases")) if d.name == "hpc" else d
            for d in cloud.departments
        )
        await opened.furnish(msgspec.structs.replace(cloud, departments=departments))
        yield opened


def at(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def wanted(**asked: Any) -> dict[str, Any]:
    start = float(int(time.time() + SOON_S))
    return {"kind": "advance", "start_at": exact(start), "duration_s": 60.0, "nodes": 2, "cores": 8, **asked}


async def post(here: House, user: str, path: str, payload: Any) -> tuple[int, Any]:
    async with here.session.post(f"{here.url}{path}", json=payload, headers=here.headers(user)) as answer:
        return answer.status, await answer.json()


async def test_two_that_come_together_cannot_both_have_the_last_hosts(here: House) -> None:
    asked = wanted(nodes=1)
    answers = await asyncio.gather(*(here.ask("ann", "lease.create", {**asked, "name": f"n{i}"}) for i in range(6)))
    assert ["type" in answer for answer in answers].count(False) == 3  # three hosts are known: one is held by web
    refused = next(answer for answer in answers if "type" in answer)
    assert (refused["code"], refused["field"], len(refused["lease"]["collides_with"])) == ("conflict", "start_at", 3)


async def test_over_http_with_alternatives_that_are_accepted(here: House) -> None:
    asked = wanted()
    status, first = await post(here, "ann", "/v1/leases", asked)
    assert (status, at(first["end_at"]) - at(first["start_at"])) == (200, 60.0)
    status, told = await post(here, "bob", "/v1/leases", asked)
    assert (status, told["lease"]["collides_with"]) == (409, [first["lease"]])
    offered = told["lease"]["earliest"]
    assert (await post(here, "bob", "/v1/leases", {**asked, "start_at": offered["start_at"]}))[0] == 200
    facts = await here.journaled(f.JobSubmitted)
    assert [fact.lease.start_at for fact in facts] == [at(asked["start_at"]), at(offered["start_at"])]


async def test_a_request_id_gets_one_lease_and_one_extension(here: House) -> None:
    asked = wanted(request="r1")
    answers = await asyncio.gather(*(here.ask("ann", "lease.create", asked) for _ in range(5)))
    assert all(answer == answers[0] for answer in answers)
    name = answers[0]["lease"]
    other = await here.ask("ann", "lease.create", {**asked, "duration_s": 61.0})
    assert other["field"] == "request"
    longer = {"by_s": 30.0, "request": "r2"}
    told = [await post(here, "ann", f"/v1/leases/{name}/extend", longer) for _ in range(3)]
    assert [status for status, _ in told] == [200] * 3
    assert {answer["end_at"] for _, answer in told} == {exact(at(asked["start_at"]) + 90.0)}
    assert [fact.walltime_s for fact in await here.journaled(f.LeaseExtended)] == [90.0]


async def test_extended_and_cancelled_by_its_owner_only(here: House) -> None:
    name = (await here.ask("ann", "lease.create", wanted()))["lease"]
    assert (await post(here, "bob", f"/v1/leases/{name}/cancel", {}))[0] == 403
    assert (await post(here, "leo", f"/v1/leases/{name}/extend", {"by_s": 1}))[0] == 404
    assert (await post(here, "ann", f"/v1/leases/{name}/extend", {}))[0] == 422
    assert (await post(here, "root", f"/v1/leases/{name}/extend", {"by_s": 1}))[0] == 200
    assert (await post(here, "ann", f"/v1/leases/{name}/cancel", {})) == (200, {"ok": True})
    assert (await here.ask("ann", "lease.extend", {"lease": name, "by_s": 1}))["code"] == "conflict"
    assert "type" not in await here.ask("bob", "lease.create", wanted())


async def test_one_that_never_had_hosts_is_cancelled_when_its_time_has_passed(here: House) -> None:
    name = (await here.ask("ann", "lease.create", {**wanted(kind="immediate", duration_s=0.5), "start_at": None}))[
        "lease"
    ]
    unit = here.service.custody.state.units[name]
    await until(lambda: unit.final, "its time has passed and it still waits")
    assert unit.final == "cancelled"
    assert [(fact.job, fact.user) for fact in await here.journaled(f.JobCancelled)] == [(name, "")]


async def test_departments_with_another_order_refuse(here: House) -> None:
    assert (await here.ask("leo", "lease.create", wanted(nodes=1)))["field"] == "kind"
