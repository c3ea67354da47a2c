"""What crosses the HTTP door's wire: MessagePack as well as JSON, unknown methods, and nothing of it in a log."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from schemas import problems
from services.runtime import log
from services.runtime.http import body
from tests.support.admission_house import House, house
from tests.support.problems import checked

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with house(tmp_path_factory.mktemp("admission")) as found:
        yield found


@pytest.mark.parametrize(
    ("method", "path", "data", "status"),
    [
        ("POST", "/v1/jobs", {"script": "x", "held": True}, 200),
        ("POST", "/v1/jobs", {"script": "x", "tasks": "two"}, 422),
        ("POST", "/v1/jobs", b"\xc1", 400),
        ("POST", "/v1/jobs/99999/cancel", {}, 404),
        ("POST", "/v1/leases/77/cancel", {}, 404),
        ("POST", "/v1/hosts/h1/cordon", {"reason": "x"}, 403),
        ("POST", "/v1/hosts/h1/cordon", {"reason": 7}, 422),
        ("POST", "/v1/departments/web/instances/web.1/report", {"attempt": "x"}, 422),
        ("GET", "/v1/jobs/x/output", None, 422),
        ("GET", "/v1/queue", None, 503),
        ("PUT", "/v1/jobs", {}, 405),
        ("DELETE", "/v1/queue", None, 405),
        ("GET", "/nowhere", None, 404),
    ],
)
async def test_messagepack_is_answered_in_messagepack(
    here: House, method: str, path: str, data: Any, status: int
) -> None:
    headers = {**here.headers("ann"), "Content-Type": "application/msgpack"}
    packed = data if data is None or isinstance(data, bytes) else msgspec.msgpack.encode(data)
    async with here.session.request(method, here.url + path, data=packed, headers=headers) as answer:
        content = await answer.read()
        kind = "application/msgpack" if status == 200 else problems.MSGPACK
        assert (answer.status, answer.content_type) == (status, kind), msgspec.msgpack.decode(content)
        if status >= 400:
            checked(status, answer.headers, content)
        else:
            assert msgspec.msgpack.decode(content)["job"]


async def test_a_method_that_nobody_knows_is_told_which_there_are(here: House) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", here.doors.port)
    writer.write(b"BREW /v1/jobs HTTP/1.1\r\nHost: x\r\n\r\n")
    head, _, told = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b" 405 " in head
    assert b"Allow: DELETE, GET, HEAD, POST, PUT" in head
    assert msgspec.json.decode(told)["code"] == "invalid"


@pytest.mark.parametrize("form", ["text", "json"])
async def test_what_cannot_be_read_is_neither_logged_nor_sent_back(
    here: House, form: log.Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "s3cr3t-of-ann"
    said = io.StringIO()
    loggers = [logging.getLogger(name) for name in ("phoenix", "")]
    kept = [(logger, list(logger.handlers), logger.level, logger.propagate) for logger in loggers]
    for name in ("excepthook", "unraisablehook"):
        monkeypatch.setattr(sys, name, getattr(sys, name))
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(sys, "stderr", said)
    log.configure("debug", form)
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer "
    good = head + here.headers("ann")["Authorization"].removeprefix("Bearer ").encode() + b"\r\n"
    bad = secret.encode()
    sent = {
        "a token file with CRLF": head + bad + b"\r\r\n\r\n",
        "a cookie": good + b"Cookie: phoenix_session=" + bad + b"\x01; \xff==;\r\n\r\n",
        "percent-encoding": good.replace(b"/v1/jobs", b"/v1/jobs?x=%zz%" + bad) + b"\r\n",
        "JSON": good + b"Content-Length: %d\r\n\r\n{%b" % (len(bad) + 1, bad),
        "MessagePack": good
        + b"Content-Type: application/msgpack\r\nContent-Length: %d\r\n\r\n\x81%b" % (len(bad) + 1, bad),
        "half a character": good + b'Content-Length: %d\r\n\r\n{"name": "\xff%b"}' % (len(bad) + 13, bad),
        "a chunk": good + b"Transfer-Encoding: chunked\r\n\r\n" + bad + b"\r\n",
        "no gzip": good + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(bad), bad),
    }
    try:
        for what, data in sent.items():
            reader, writer = await asyncio.open_connection("127.0.0.1", here.doors.port)
            writer.write(data)
            answer = await reader.read()
            writer.close()
            assert answer[:10] in (b"HTTP/1.0 4", b"HTTP/1.1 4"), (what, answer)
            told, _, content = answer.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in told.decode().split("\r\n")[1:])
            assert checked(int(told.split()[1]), headers, content).status < 500, what
            assert bad not in answer, what
    finally:
        for logger, handlers, level, propagates in kept:
            logger.handlers[:] = handlers
            logger.setLevel(level)
            logger.propagate = propagates
        logging.captureWarnings(False)
    assert here.service.http.malformed > 0
    assert secret not in said.getvalue()
    assert "trace" not in said.getvalue()


@pytest.mark.parametrize(("as_guest", "status"), [(False, b" 408 "), (True, b" 503 ")])
async def test_a_body_that_does_not_come_is_told_so_and_a_guest_asks_again(
    here: House, as_guest: bool, status: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body, "GRACE_S", 0.05)
    path, headers = "/v1/jobs", here.headers("ann")
    if as_guest:
        job = (await here.ask("ann", "job.submit", {"script": "x"}))["job"]
        await here.place(job, "h1")
        path, headers = f"/v1/guest/{job}/1/0/output/stdout?offset=0", here.guest(job).headers
    method = "PUT" if as_guest else "POST"
    reader, writer = await asyncio.open_connection("127.0.0.1", here.doors.port)
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {headers['Authorization']}\r\nContent-Length: 9\r\n\r\n12"
    writer.write(head.encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    assert status in answer.partition(b"\r\n")[0]
