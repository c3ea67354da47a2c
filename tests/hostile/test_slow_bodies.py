"""Bodies that come slowly, and many of them: whoever sends them keeps nobody else out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from services.admission.http import door as door_http
from services.admission.http.door import LARGE_BYTES
from tests.support.admission_house import House, house
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
SLOW = 8  # twice as many as are worked on at once


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with house(tmp_path_factory.mktemp("slow")) as found:
        yield found


@contextlib.asynccontextmanager
async def begun(here: House, method: str, path: str, headers: dict[str, str]) -> AsyncIterator[None]:
    """`SLOW` requests whose bodies are announced, begun, and never finished."""
    writers = []
    try:
        for _ in range(SLOW):
            _, writer = await asyncio.open_connection("127.0.0.1", here.doors.port)
            head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {headers['Authorization']}\r\n"
            writer.write(f"{head}Content-Length: {8 << 20}\r\n\r\n".encode() + b" " * 100)
            await writer.drain()
            writers.append(writer)
        await until(lambda: here.doors.room.held >= SLOW * 100, "all of them are being read")
        yield
    finally:
        for writer in writers:
            writer.close()
        await until(lambda: not here.doors.room.held, "what has ended holds nothing")


async def test_large_submissions_are_taken_beside_slow_bodies(here: House) -> None:
    async with begun(here, "POST", "/v1/jobs", here.headers("ann")):
        data = b'{"script": "x", "environment": {"A": "%b"}}' % (b"x" * 100)
        padded = data + b" " * (LARGE_BYTES + 1 - len(data))
        async with here.session.post(f"{here.url}/v1/jobs", data=padded, headers=here.headers("leo")) as answer:
            assert answer.status == 200, await answer.text()


@pytest.mark.parametrize("path", ["files/kept", "checkpoint/files/kept"])
async def test_files_of_another_job_are_kept_beside_slow_bodies(here: House, path: str) -> None:
    slow = (await here.ask("ann", "job.submit", {"script": "x"}))["job"]
    other = (await here.ask("bob", "job.submit", {"script": "x"}))["job"]
    await here.place(slow, "h1")
    await here.place(other, "h2")
    guest = here.guest(slow)
    async with begun(here, "PUT", f"/v1/guest/{slow}/1/0/{path}", guest.headers):
        status, told = await here.guest(other).call("PUT", path, b"content")
        assert status in (200, 204), told


async def test_who_sends_more_than_its_part_is_refused_and_others_are_not(
    here: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ROOM_MIN_BYTES", "ROOM_MAX_BYTES"):
        monkeypatch.setattr(door_http, name, 4 << 20)
    body = b'{"script": "x"}' + b" " * (1 << 20)
    async with here.session.post(f"{here.url}/v1/jobs", data=body, headers=here.headers("ann")) as answer:
        told = await answer.json()
        assert (answer.status, told["code"]) == (429, "limit")
        assert "wait for an answer" in told["detail"]
    job = (await here.ask("ann", "job.submit", {"script": "x"}))["job"]
    await here.place(job, "h1")
    status, _ = await here.guest(job).call("PUT", "files/large", body)
    assert status == 503  # a guest comes back
    async with here.session.post(f"{here.url}/v1/jobs", data=body[:1000], headers=here.headers("ann")) as answer:
        assert answer.status == 200
    assert here.doors.room.held == 0
