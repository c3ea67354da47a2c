"""Logging in at the page: what a cookie is worth, how it ends, and who cannot use it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import AsyncIterator
from fnmatch import fnmatch
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from yarl import URL

from services.monitor.http import page_files, sessions
from services.monitor.http.access import Access
from services.monitor.http.origin import Hosts
from services.monitor.http.sessions import CODE_S, PER_USER_MAX, SESSION_S, Pass, Passes, Sessions
from services.runtime.callers.identity import Identities
from tests.support.page import CLOUD, COOKIE, House, adopted, bearer


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    page = tmp_path / "page"
    page.mkdir()
    (page / "index.html").write_text("<!doctype html>")
    (page / "main.js").write_text("'use strict';")
    (page / "secret.txt").write_text("not a file of the page")
    house = House(tmp_path, page)
    await house.start()
    yield house
    await house.close()


async def test_a_token_opens_a_session_that_reads(house: House) -> None:
    status, told, answer = await house.post("/v1/session", {"token": "t-alice"})
    assert status == 200
    assert told == {
        "user": "alice",
        "role": "user",
        "department": "hpc",
        "cloud": "c",
        "url": "http://monitor.test:7481",
    }
    cookie = answer.cookies[COOKIE]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Strict", "/")
    assert cookie["max-age"] == str(int(SESSION_S))
    assert not cookie["secure"]  # of http
    assert answer.headers["Cache-Control"] == "no-store"
    assert "t-alice" not in str(answer.headers)
    assert await house.get("/v1/session", cookie.value) == 200
    assert await house.get("/v1/queue", cookie.value) == 200
    assert await house.get("/v1/queue?department=web", cookie.value) == 403


async def test_of_an_https_page_the_cookie_is_secure(tmp_path: Path) -> None:
    house = House(tmp_path, url="https://monitor.test")
    await house.start()
    _, _, answer = await house.post("/v1/session", {"token": "t-alice"})
    assert answer.cookies[COOKIE]["secure"]
    await house.close()


@pytest.mark.parametrize(
    "body", [{}, {"token": ""}, {"token": "t-alice", "code": "x"}, {"token": 7}, [], {"token": "x" * 5000}]
)
async def test_what_is_no_login_is_said(house: House, body: object) -> None:
    status, told, answer = await house.post("/v1/session", body)
    assert (status, told["code"]) == ((413, "limit") if len(str(body)) > 5000 else (400, "invalid"))
    assert COOKIE not in answer.cookies


async def test_a_wrong_token_opens_nothing(house: House) -> None:
    status, told, answer = await house.post("/v1/session", {"token": "t-nobody"})
    assert (status, told["field"]) == (401, "token")
    assert COOKIE not in answer.cookies
    assert len(house.sessions.passes) == 0


async def test_a_form_of_another_site_opens_nothing(house: House) -> None:
    answer = await house.client.post("/v1/session", data='{"token": "t-alice"}', headers={"Content-Type": "text/plain"})
    assert answer.status == 403
    status, _, _ = await house.post("/v1/session", {"token": "t-alice"}, Sec_Fetch_Site="cross-site")
    assert status == 403
    assert len(house.sessions.passes) == 0


async def test_a_session_ends_by_itself(house: House) -> None:
    cookie = await house.login()
    house.now += SESSION_S - 1
    assert await house.get("/v1/queue", cookie) == 200
    house.now += 1
    assert await house.get("/v1/queue", cookie) == 401
    assert len(house.sessions.passes) == 0


async def test_a_session_ends_when_it_is_ended(house: House) -> None:
    cookie, other = await house.login(), await house.login()
    answer = await house.client.delete("/v1/session", headers={"Cookie": f"{COOKIE}={cookie}"})
    assert answer.status == 200
    assert answer.cookies[COOKIE].value == ""
    assert await house.get("/v1/queue", cookie) == 401
    assert await house.get("/v1/queue", other) == 200


async def test_another_site_cannot_end_a_session(house: House) -> None:
    cookie = await house.login()
    headers = {"Cookie": f"{COOKIE}={cookie}", "Sec-Fetch-Site": "cross-site"}
    await house.client.delete("/v1/session", headers=headers)
    assert await house.get("/v1/queue", cookie) == 200


async def test_a_session_ends_with_its_token(house: House) -> None:
    cookie = await house.login()
    house.write_tokens({"t-new": "alice", "t-oscar": "oscar"})
    assert await house.get("/v1/queue", cookie) == 401
    house.write_tokens({"t-alice": "alice"})
    assert await house.get("/v1/queue", cookie) == 401  # it is over, not asleep


async def test_a_session_ends_with_its_user(house: House) -> None:
    cookie = await house.login()
    left = tuple(user for user in CLOUD.users if user.name != "alice")
    house.desk.play(adopted(msgspec.structs.replace(CLOUD, users=left)))
    assert await house.get("/v1/queue", cookie) == 401


async def test_a_changed_role_holds_at_once(house: House) -> None:
    cookie = await house.login("oscar")
    assert await house.get("/v1/queue?department=web", cookie) == 200
    fewer = tuple(
        msgspec.structs.replace(user, role="user", department="hpc") if user.name == "oscar" else user
        for user in CLOUD.users
    )
    house.desk.play(adopted(msgspec.structs.replace(CLOUD, users=fewer)))
    assert await house.get("/v1/queue?department=web", cookie) == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec_Fetch_Site": "same-origin"}, 200),
        ({"Sec_Fetch_Site": "none"}, 200),  # typed into the address line
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),  # another port of this host
        ({"Origin": "http://evil.test"}, 403),
        ({"Origin": "http://127.0.0.1:7481"}, 403),  # another port of this host
        ({"Origin": "null"}, 403),
    ],
)
async def test_a_cookie_counts_for_our_page_alone(house: House, headers: dict[str, str], status: int) -> None:
    cookie = await house.login()
    assert await house.get("/v1/queue", cookie, **headers) == status


async def test_our_own_origin_counts(house: House) -> None:
    cookie = await house.login()
    origin = f"http://{house.client.host}:{house.client.port}"
    assert await house.get("/v1/queue", cookie, Origin=origin) == 200


async def test_a_cookie_is_for_reading(house: House) -> None:
    cookie = await house.login()
    answer = await house.client.post("/v1/session/code", headers={"Cookie": f"{COOKIE}={cookie}"})
    assert answer.status == 401
    assert await house.get("/v1/queue", f"{cookie}x") == 401


async def test_a_cookie_opens_nothing_that_is_no_read(tmp_path: Path) -> None:
    def change(access: Access) -> list[web.RouteDef]:
        async def handler(request: web.Request) -> web.Response:
            return web.Response(text=access.who(request).user)

        return [web.post("/v1/change", handler)]

    house = House(tmp_path, more=change)
    await house.start()
    cookie = await house.login()
    assert (await house.client.post("/v1/change", headers={"Cookie": f"{COOKIE}={cookie}"})).status == 403
    assert (await house.client.post("/v1/change", headers=bearer("alice"))).status == 200
    await house.close()


async def test_a_token_that_is_shown_counts_alone(house: House) -> None:
    cookie = await house.login("oscar")
    assert await house.get("/v1/queue?department=web", cookie, **bearer("alice")) == 403
    assert await house.get("/v1/queue", cookie, Authorization="Bearer wrong") == 401


async def test_a_code_is_a_login_once(house: House) -> None:
    answer = await house.client.post("/v1/session/code", headers=bearer("wendy"))
    told = await answer.json()
    assert told["url"] == "http://monitor.test:7481"
    assert told["expires_s"] == CODE_S
    assert re.fullmatch(r"[\w-]{43}", told["code"])
    status, who, _ = await house.post("/v1/session", {"code": told["code"]})
    assert (status, who["user"]) == (200, "wendy")
    status, who, _ = await house.post("/v1/session", {"code": told["code"]})
    assert (status, who["field"]) == (401, "code")


async def test_a_code_is_good_for_a_minute(house: House) -> None:
    told = await (await house.client.post("/v1/session/code", headers=bearer("wendy"))).json()
    house.now += CODE_S
    assert (await house.post("/v1/session", {"code": told["code"]}))[0] == 401


async def test_a_code_of_a_revoked_token_is_worth_nothing(house: House) -> None:
    told = await (await house.client.post("/v1/session/code", headers=bearer("wendy"))).json()
    house.write_tokens({"t-alice": "alice"})
    assert (await house.post("/v1/session", {"code": told["code"]}))[0] == 401


async def test_who_fails_too_often_waits_and_who_is_right_does_not(house: House) -> None:
    for _ in range(int(sessions.FAILED_BURST)):
        assert (await house.post("/v1/session", {"token": "guess"}))[0] == 401
    told_before = len(house.audit)
    status, told, _ = await house.post("/v1/session", {"token": "guess"})
    assert (status, told["code"], told["retry_after_s"]) == (429, "limit", 1 / sessions.FAILED_PER_S)
    assert len(house.audit) == told_before
    assert (await house.post("/v1/session", {"token": "t-alice"}))[0] == 200  # another person behind the same address
    assert (await house.post("/v1/session", {"token": "guess"}))[0] == 429
    house.now += 1 / sessions.FAILED_PER_S
    assert (await house.post("/v1/session", {"token": "guess"}))[0] == 401


async def test_who_logs_in_often_waits_for_nothing(house: House) -> None:
    for _ in range(int(sessions.FAILED_BURST) * 2):
        assert (await house.post("/v1/session", {"token": "t-alice"}))[0] == 200


def test_failures_are_counted_for_each_caller_and_not_for_ever(tmp_path: Path) -> None:
    door = Sessions(Identities(tmp_path / "none", CLOUD), lambda: 0.0)
    for peer in range(sessions.PEERS_MAX + 5):
        for _ in range(int(sessions.FAILED_BURST)):
            door.failed(f"peer-{peer}")
    assert door.wait_s(f"peer-{sessions.PEERS_MAX + 4}") == 1 / sessions.FAILED_PER_S
    assert door.wait_s("peer-0") == 0  # forgotten: the least recent of many
    assert door.wait_s("another") == 0
    assert len(door._failed) == sessions.PEERS_MAX
    door.failed("peer-5")  # the least recent of those that are kept: it is seen again, and another one goes
    door.failed("one more")
    assert door.wait_s("peer-5") > 0
    assert door.wait_s("peer-6") == 0


def test_a_user_has_so_many_sessions_the_newest() -> None:
    passes = Passes(10.0, lambda: 0.0)
    other = passes.make("token", "wendy")
    made = [passes.make("token", "alice") for _ in range(PER_USER_MAX + 2)]
    assert [passes.find(one) is not None for one in made[:3]] == [False, False, True]
    assert passes.find(made[-1]) == Pass("token", "alice", 10.0)
    assert passes.find(other) == Pass("token", "wendy", 10.0)
    assert len(passes) == PER_USER_MAX + 1


def test_all_together_have_so_many_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 3)
    passes = Passes(10.0, lambda: 0.0)
    made = [passes.make("token", f"user-{i}") for i in range(5)]
    assert [passes.find(one) is not None for one in made] == [False, False, True, True, True]


def test_what_is_in_memory_opens_nothing() -> None:
    passes = Passes(10.0, lambda: 0.0)
    made = passes.make("hash-of-a-token", "alice")
    assert made not in repr(passes.kept)


# ------------------------------------------------------------------------------------------------- the host that is asked


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1:7481", True),
        ("[::1]:7481", True),
        ("10.1.2.3", True),  # an address: no site's name leads here
        ("localhost:7481", True),
        ("LocalHost", True),
        ("monitor.localhost:7481", True),
        ("monitor.test", True),
        ("monitor.test.", True),
        ("MONITOR.test:7481", True),
        ("evil.test:7481", False),
        ("monitor.test.evil.test", False),
        ("xlocalhost", False),
        ("localhost.evil.test", False),
        ("127.0.0.1.evil.test", False),
        ("", False),
        ("[", False),
    ],
)
def test_names_of_this_server(host: str, known: bool) -> None:
    assert Hosts("http://monitor.test:7481").knows(host) is known


def test_without_a_name_addresses_and_this_machine_are_known() -> None:
    assert Hosts("").knows("127.0.0.1")
    assert not Hosts("").knows("")


@pytest.mark.parametrize("path", ["/", "/main.js", "/metrics", "/healthz", "/v1/queue", "/v1/stream", "/v1/session"])
async def test_a_site_whose_name_leads_here_reads_nothing(house: House, path: str) -> None:
    assert await house.get(path, Host="evil.test:7481", **bearer("alice")) == 421
    assert (await house.post("/v1/session", {"token": "t-alice"}, Host="evil.test"))[0] == 421


# ------------------------------------------------------------------------------------------------------------- its files


async def test_the_files_need_no_token_and_may_load_nothing_else(house: House) -> None:
    for path, kind in (("/", "text/html"), ("/index.html", "text/html"), ("/main.js", "text/javascript")):
        answer = await house.answer(path)
        assert answer.status == 200
        assert answer.content_type == kind
        assert answer.charset == "utf-8"
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    [
        "/secret.txt",
        "/../tokens.json",
        "/%2e%2e/tokens.json",
        "/main.js/../../tokens.json",
        "/page/main.js",
    ],
)
async def test_no_path_leads_to_another_file(house: House, path: str) -> None:
    answer = await house.client.get(URL(path, encoded=True))
    assert answer.status == 404


def test_an_installation_without_the_page_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"index\.html is not there"):
        page_files.routes(tmp_path)


def test_every_file_of_the_page_is_installed_and_served() -> None:
    project = tomllib.loads((page_files.DIRECTORY.parents[3] / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["*"]
    files = [path for path in page_files.DIRECTORY.iterdir() if path.is_file()]
    assert [path.name for path in files if not any(fnmatch(path.name, pattern) for pattern in patterns)] == []
    assert [path.name for path in files if path.suffix not in page_files.TYPES] == []
    assert len(page_files.routes()) == len(files) + 1
