"""What the monitor puts into the audit: who logs in, who tries to, and who asks for what is not theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.monitor.http import sessions
from services.runtime.callers.audit import REFUSED_BURST
from tests.support.page import House, bearer


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    house = House(tmp_path)
    await house.start()
    yield house
    await house.close()


async def test_who_logs_in_is_in_the_audit_and_no_token_is(house: House) -> None:
    await house.post("/v1/session", {"token": "t-alice"}, User_Agent="Browser/1")
    await house.post("/v1/session", {"token": "t-wrong-one"})
    await house.client.post("/v1/session/code", headers=bearer("oscar"))
    told = [(one.kind, one.outcome, one.user, one.department, one.role, one.code) for one in house.audit]
    assert told == [
        ("session.open", "granted", "alice", "hpc", "user", ""),
        ("session.open", "refused", "", "", "", "denied"),
        ("session.code", "granted", "oscar", "operators", "operator", ""),
    ]
    assert {(one.via, one.peer, one.at) for one in house.audit} == {("page", "127.0.0.1", 5.0)}
    assert house.audit[0].client == "Browser/1"
    assert "t-wrong-one" not in str(house.audit)
    assert "t-alice" not in str(house.audit)


async def test_reads_that_are_denied_are_in_the_audit(house: House) -> None:
    cookie = await house.login()
    house.audit.clear()
    assert await house.get("/v1/queue?department=web", **bearer("alice"), User_Agent="Tool/1") == 403
    assert await house.get("/v1/hosts", Authorization="Bearer t-guess") == 401
    assert await house.get("/v1/session", Authorization="Bearer t-guess") == 401
    assert await house.get("/v1/queue", cookie, Sec_Fetch_Site="cross-site") == 403
    assert await house.get("/v1/queue", Host="evil.test", **bearer("wendy")) == 421
    assert (await house.post("/v1/session", {"token": "t-alice"}, Sec_Fetch_Site="cross-site"))[0] == 403
    told = [(one.kind, one.user, one.department, one.via, one.code) for one in house.audit]
    assert told == [
        ("GET /v1/queue", "alice", "hpc", "http", "denied"),
        ("GET /v1/hosts", "", "", "http", "denied"),
        ("GET /v1/session", "", "", "http", "denied"),
        ("GET /v1/queue", "alice", "hpc", "page", "denied"),
        ("GET /v1/queue", "wendy", "web", "http", "denied"),
        ("session.open", "", "", "page", "denied"),
    ]
    assert {(one.outcome, one.peer, one.at) for one in house.audit} == {("refused", "127.0.0.1", 5.0)}
    assert (house.audit[0].client, house.audit[0].field) == ("Tool/1", "department")
    assert "t-guess" not in str(house.audit)


async def test_a_read_of_what_is_hidden_is_in_the_audit_as_what_it_was(house: House) -> None:
    assert await house.get("/v1/jobs/1", **bearer("wendy")) == 404
    (told,) = house.audit
    assert (told.kind, told.user, told.code, told.message) == (
        "GET /v1/jobs/1",
        "wendy",
        "denied",
        "it is of department hpc",
    )


async def test_what_is_granted_mistyped_or_asked_by_nobody_yet_is_not_in_the_audit(house: House) -> None:
    assert await house.get("/v1/queue", **bearer("alice")) == 200
    assert await house.get("/v1/queue?limit=x", **bearer("alice")) == 400
    assert await house.get("/v1/nothing", **bearer("alice")) == 404
    assert await house.get("/v1/session") == 401
    assert await house.get("/v1/session", "no-session") == 401
    assert house.audit == []


async def test_who_is_said_to_have_asked_stands_beside_who_said_it(house: House) -> None:
    await house.get("/v1/queue?department=web", **bearer("alice"), X_Forwarded_For="6.6.6.6, 10.0.0.7")
    assert [one.peer for one in house.audit] == ["10.0.0.7 by 127.0.0.1"]


async def test_guesses_do_not_flood_the_audit_whoever_they_claim_to_be(house: House) -> None:
    for number in range(int(REFUSED_BURST) + 9):
        await house.get("/v1/queue", Authorization=f"Bearer {number}", X_Forwarded_For=f"10.0.0.{number}")
    assert len(house.audit) == REFUSED_BURST
    house.now += 1
    await house.get("/v1/queue", Authorization="Bearer x")
    assert house.audit[-1].left_out == 9


async def test_too_many_tries_do_not_fill_the_audit(house: House) -> None:
    for _ in range(int(sessions.FAILED_BURST) + 20):
        await house.post("/v1/session", {"token": "guess"})
    assert len(house.audit) == sessions.FAILED_BURST
