"""Sessions that outlive the monitor: what is on file, whom it lets in, and what it costs when it is not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from services.monitor.http.session_store import FILE
from services.monitor.http.sessions import PER_USER_MAX, SESSION_S, Pass, Passes, Sessions
from services.runtime.broker.credentials import digest
from services.runtime.callers.identity import Identities
from tests.support.page import CLOUD, COOKIE, House, bearer


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    house = House(tmp_path)
    await house.start()
    yield house
    await house.close()


async def again(house: House, tmp_path: Path, now: float = 100.0) -> House:
    """The monitor that follows `house`."""
    await house.close()
    after = House(tmp_path, now=now)
    await after.start()
    return after


async def test_a_session_survives_a_restart_as_long_as_it_lasts(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.start()
    cookie, wendys = await house.login(), await house.login("wendy")
    house = await again(house, tmp_path, 100.0 + SESSION_S - 1)
    assert await house.get("/v1/queue", cookie) == 200
    assert await house.get("/v1/queue?department=hpc", wendys) == 403  # whose it is, too
    house.now += 1
    assert await house.get("/v1/queue", cookie) == 401
    await house.close()


async def test_a_session_that_was_ended_stays_so_after_a_crash(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.start()
    cookie, other = await house.login(), await house.login()
    await house.client.delete("/v1/session", headers={"Cookie": f"{COOKIE}={cookie}"})
    house = await again(house, tmp_path)
    assert [await house.get("/v1/queue", one) for one in (cookie, other)] == [401, 200]
    await house.close()


async def test_a_session_whose_token_went_while_nobody_looked_is_over(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.start()
    cookie, wendys = await house.login(), await house.login("wendy")
    await house.close()
    told = house.kept.path.read_bytes()
    house.write_tokens({"t-wendy": "alice"})
    sessions_ = Sessions(Identities(house.tokens, CLOUD), lambda: 0.0, lambda: 100.0)
    sessions_.restore(msgspec.json.decode(told, type=dict[str, Pass]), CLOUD)
    assert len(sessions_.passes) == 0  # alice's token is gone, and wendy's is another user's now
    assert sessions_.who(cookie, CLOUD) is sessions_.who(wendys, CLOUD) is None


async def test_what_is_on_file_opens_nothing_and_is_the_owners_alone(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.start()
    cookie = await house.login()
    code = (await (await house.client.post("/v1/session/code", headers=bearer("wendy"))).json())["code"]
    written = house.kept.path.read_text()
    assert (house.kept.path.stat().st_mode & 0o777, "alice" in written) == (0o600, True)
    assert not [secret for secret in (cookie, code, "t-alice") if secret in written]
    stolen = next(iter(msgspec.json.decode(written)))
    assert await house.get("/v1/queue", stolen) == 401
    await house.close()


@pytest.mark.parametrize("until", [100.0, 100.0 + SESSION_S + 1, float("inf"), -1.0])
def test_an_end_that_no_session_can_have_is_not_believed(until: float) -> None:
    passes = Passes(SESSION_S, lambda: 100.0)
    passes.restore({"a": Pass("token", "alice", until), "b": Pass("token", "alice", 101.0)}, lambda _: True)
    assert list(passes.kept) == ["b"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"a": {"token": 7}}', b"\xff\xfe"])
async def test_a_file_that_cannot_be_read_costs_the_sessions_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    house = House(tmp_path)
    await house.start()
    cookie = await house.login()
    house = await again(house, tmp_path)
    assert await house.get("/v1/queue", cookie) == 200
    await house.close()


async def test_a_file_that_cannot_be_written_costs_no_login(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    house = House(tmp_path)
    await house.start()
    assert await house.get("/v1/queue", await house.login()) == 200
    await house.close()


async def test_many_logins_at_once_are_all_on_file(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.start()
    answers = await asyncio.gather(*(house.post("/v1/session", {"token": "t-alice"}) for _ in range(PER_USER_MAX)))
    made = {digest(answer.cookies[COOKIE].value) for _, _, answer in answers}
    assert set(msgspec.json.decode(house.kept.path.read_bytes())) == made
    await house.close()


async def test_who_logs_in_again_ends_the_session_before(house: House) -> None:
    cookie = await house.login()
    await house.post("/v1/session", {"token": "t-wendy"}, Cookie=f"{COOKIE}={cookie}")
    assert await house.get("/v1/queue", cookie) == 401
    assert len(house.sessions.passes) == 1
