"""What a client sends through the embedded load balancer takes no instance out of service."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from tests.support.balancer_site import Site
from tests.support.until import DEADLINE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")
METHODS = ("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE", "POST", "PATCH", "CONNECT", "PROPFIND", "X")
PATHS = (
    "/",
    "/healthz",
    "//",
    "//other.host/",
    "/%00",
    "/%ff",
    "/..",
    "*",
    "http://other.host/",
    "http://[",
    "/\u00ff",
    "/a#b",
    "?",
    "/%",
)
HEADERS = (
    "",
    "Expect: 100-continue\r\n",
    "Connection: close, x-gone\r\nX-Gone: 1\r\n",
    "Content-Encoding: gzip\r\n",
    "Host: \r\n",
    "Host: [::1\r\n",
    "Host: a b\r\n",
    "X-Odd: \u00ff\r\n",
    "Range: bytes=0-0\r\n",
    "If-None-Match: *\r\n",
    "Accept-Encoding: br;q=0\r\n",
    "Cookie: " + "x" * 7000 + "\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 5\r\nContent-Length: 6\r\n",
    "Upgrade: websocket\r\nConnection: Upgrade\r\n",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        yield Site(tmp_path_factory.mktemp("balancer"), stack)


async def send(site: Site, head: str, body: bytes) -> bytes:
    host, _, port = site.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(head.encode("latin-1") + body)
        async with asyncio.timeout(DEADLINE_S):
            return await reader.read(1 << 16)
    finally:
        writer.close()


async def test_nothing_that_a_client_sends_takes_an_instance_out(site: Site) -> None:
    await site.start()
    unit, _ = await site.instance()
    await site.until_in_service(unit)
    wrong, end = [], b"0\r\n\r\n"  # five bytes, and the end of chunks
    for method in METHODS:
        for path in PATHS:
            for header in HEADERS if path == "/" else HEADERS[:1]:
                told = await send(
                    site,
                    f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{header}\r\n",
                    end if "chunked" in header or "Length" in header else b"",
                )
                (one,) = (await site.status())["instances"]
                if one["state"] != "in service" or one["failed"] or told[9:12] in (b"500", b"502"):
                    wrong.append((method, path, header[:60], told[:40], one))
                    await site.until_in_service(unit)
    assert not wrong, wrong
    assert (await send(site, "GET http://other.host/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b""))[
        9:12
    ] == b"200"
    site.unlist(unit)
    await site.event("attempt.closed", unit=unit, attempt=1)
    await site.until_in_service()


async def test_a_program_that_answers_head_with_a_body_stays_in_service(site: Site) -> None:
    """Its body comes when the next request is sent: whoever shares the connection would be answered with it."""
    late: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = b"a body that nobody wants"
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"".join(late) + b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
                late.clear()
                if head.startswith(b"HEAD"):
                    late.append(body)
                else:
                    writer.write(body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    site.listed.append({"unit": "web.odd", "attempt": 1, "address": address, "state": "running", "connections": 1})
    await site.event("attempt.began", unit="web.odd", attempt=1, addresses=[address])
    await site.until_in_service("web.odd")
    for _ in range(3):
        async with site.session.head(site.url + "/") as answer:
            assert answer.status == 200
        late.clear()  # of the connection that is gone
        assert await site.get("/") == 200
        (one,) = [x for x in (await site.status())["instances"] if x["unit"] == "web.odd"]
        assert (one["state"], one["failed"]) == ("in service", 0)
    server.close()
