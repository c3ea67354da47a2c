"""Odd paths, queries, headers and bodies at both HTTP doors: a clear refusal each, and no error of ours."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from schemas.subjects import query
from services.admission.http.guest_routes import ROUTES as GUESTS
from services.admission.http.routes import ROUTES
from services.monitor.edge import MonitorEdge
from services.runtime.http.server import METHODS
from services.runtime.service import Service
from tests.support.admission_house import House, house
from tests.support.shells import Running
from tests.support.until import DEADLINE_S, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROUNDS = 1000 * int(os.environ.get("HOSTILE_ROUNDS", "1"))  # of each door
DEEP = 100_000
SEGMENTS = (
    *("%00", "%ff", "%C0%AF", "%ED%A0%80", "%2e%2e", "..", ".", "", "%2F", "%5c", "%", "%zz", "%u0041", "\\", ";x=1"),
    *(
        "x" * 300,
        "x" * 4000,
        "%ff" * 1000,
        "\u00fc",
        "%F0%9F%98%80",
        "1" * 5000,
        "-1",
        "1e9",
        "nan",
        "99999999999999999999",
    ),
    *(
        "\u0663",
        "%D9%A3",
        "\u00b2",
        "%C2%B2",
        "web.1",
        "web.\u00b2",
        "web.%C2%B2",
        "web.-1",
        "17",
        "17_3",
        "17_%C2%B2",
        "*",
        "$",
    ),
    *(
        "hpc",
        "web",
        "h1",
        "{id}",
        "%7Bid%7D",
        "'",
        '"',
        "<script>",
        "a%0d%0aSet-Cookie:x",
        "%1b%5b2J",
        "%e2%80%ae",
        "None",
    ),
)
NAMES = (
    *(
        "department",
        "after",
        "before",
        "since",
        "until",
        "limit",
        "state",
        "user",
        "attempt",
        "offset",
        "follow",
        "wait_s",
    ),
    *(
        "rank",
        "stream",
        "all",
        "by",
        "kind",
        "job",
        "order",
        "page",
        "span",
        "every",
        "wait_s",
        "from",
        "to",
        "at",
        "format",
    ),
)
READS = (
    *(
        "/v1/queue",
        "/v1/jobs",
        "/v1/leases",
        "/v1/hosts",
        "/v1/departments",
        "/v1/instances",
        "/v1/events",
        "/v1/overview",
    ),
    *(
        "/v1/summary",
        "/v1/lending",
        "/v1/usage",
        "/v1/jobs",
        "/v1/audit",
        "/v1/billable",
        "/v1/prices",
        "/v1/picture",
    ),
    *(
        "/v1/record",
        "/v1/starts",
        "/v1/session",
        "/v1/session/code",
        "/v1/timeline",
        "/",
        "/page.css",
        "/metrics/targets",
    ),
    *(
        "/v1/why/{name}",
        "/v1/story/{entity}",
        "/v1/starts/{job}",
        "/v1/jobs/{job}",
        "/v1/leases/{lease}",
        "/metrics/{process}",
    ),
    *("/v1/departments/{department}", "/v1/departments/{department}/releases"),
)
HEADERS = (
    *(
        "Accept",
        "Content-Type",
        "Last-Event-ID",
        "User-Agent",
        "X-Forwarded-For",
        "Phoenix-Position",
        "Cookie",
        "Range",
        "Origin",
    ),
    *(
        "Sec-Fetch-Site",
        "If-None-Match",
        "Expect",
        "Transfer-Encoding",
        "Content-Encoding",
        "Upgrade",
        "Connection",
        "Host",
    ),
)
VALUES = (
    "",
    "\u00ff",
    "\u00b2",
    "99999999999999999999",
    "-1",
    "application/msgpack",
    "x" * 3000,
    "a=b; c=\u00e9",
    "gzip",
    "chunked",
)


class Doors:
    """Admission and the monitor."""

    def __init__(self, here: House, monitor: int) -> None:
        self.here, self.ports = here, {"admission": here.doors.port, "monitor": monitor}

    async def send(self, door: str, head: str, body: bytes = b"") -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.ports[door])
        try:
            writer.write(head.encode("latin-1", "surrogateescape") + b"\r\n" + body)
            async with asyncio.timeout(DEADLINE_S):
                told = await reader.read(1 << 16)
        finally:
            writer.close()
        assert told, f"no answer to {head[:300]!r}"
        return int(told.split(b" ", 2)[1]), told

    async def ask(
        self, door: str, method: str, path: str, user: str, body: bytes = b"", **headers: str
    ) -> tuple[int, bytes]:
        token = self.here.headers(user)["Authorization"]
        lines = [f"{method} {path} HTTP/1.1"]
        given = {
            "Host": "127.0.0.1",
            "Authorization": token,
            "Connection": "close",
            "Content-Length": str(len(body)),
            **headers,
        }
        lines += [f"{name}: {value}" for name, value in given.items()]
        wire = "".join(f"{line}\r\n" for line in lines)
        return await self.send(door, wire.encode().decode("latin-1"), body)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def doors(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Doors]:
    directory = tmp_path_factory.mktemp("odd")
    async with house(directory) as here:
        config = here.broker.config
        edge = MonitorEdge(config)
        service = Service(None, edge.make_core, config, edges=[edge], instance="m1", name="monitor")
        running = Running(service)
        await running.caught_up()
        await until(lambda: hasattr(edge, "archivist"), "the monitor has started")
        try:
            yield Doors(here, int(config.monitor.listen.rpartition(":")[2]))
        finally:
            assert await running.stop() == 0


def paths(dice: random.Random) -> Iterator[tuple[str, str]]:
    """Methods and paths: ours with other segments, with other queries, and such as nobody serves."""
    known = [(route.method, route.path) for route in (*ROUTES, *GUESTS)] + [("GET", path) for path in READS]
    while True:
        method, path = dice.choice(known)
        parts = [dice.choice(SEGMENTS) if "{" in part and dice.random() < 0.9 else part for part in path.split("/")]
        if dice.random() < 0.3:
            parts.insert(dice.randrange(1, len(parts) + 1), dice.choice(SEGMENTS))
        if dice.random() < 0.1:
            method = dice.choice(METHODS.split(", "))
        query = "&".join(f"{dice.choice(NAMES)}={dice.choice(SEGMENTS)}" for _ in range(dice.choice((0, 0, 1, 2))))
        made = "/".join(parts) + (f"?{query}" if query else "")
        if "follow=" not in made and "/v1/stream" not in made:
            yield method, made.replace(" ", "%20")


@pytest.mark.parametrize("door", ["admission", "monitor"])
async def test_an_odd_path_or_header_is_refused(doors: Doors, door: str) -> None:
    dice, made = random.Random(door), []
    found = paths(dice)
    for _ in range(ROUNDS):
        method, path = next(found)
        headers = {dice.choice(HEADERS): dice.choice(VALUES)} if dice.random() < 0.4 else {}
        status, told = await doors.ask(door, method, path, dice.choice(("ann", "wim", "root")), **headers)
        if status >= 500 and not is_unavailable(status, method, told):
            made.append((status, method, path[:200], headers, told[-200:]))
    assert made == [], "\n".join(str(x)[:420] for x in made)


def is_unavailable(status: int, method: str, told: bytes) -> bool:
    """503, when to come back, and its code; an answer to HEAD has no body that could say it (RFC 9110, 9.3.2)."""
    head, _, body = told.partition(b"\r\n\r\n")
    code = method == "HEAD" or b'"code":"unavailable"' in body.replace(b" ", b"")
    return status == 503 and b"\r\nretry-after:" in head.lower() and code


def posts() -> list[tuple[str, str]]:
    asked = [("admission", route.path) for route in ROUTES if route.method == "POST"]
    return [*asked, ("monitor", "/v1/session")]


@pytest.mark.parametrize("packed", [False, True], ids=["JSON", "MessagePack"])
@pytest.mark.parametrize(("door", "path"), posts())
async def test_what_is_too_deep_is_answered_400(doors: Doors, door: str, path: str, packed: bool) -> None:
    kind = "application/msgpack" if packed else "application/json"
    for body in (
        (b"\x91" * DEEP, b"\x81\xa1a" * DEEP) if packed else (b"[" * DEEP, b'{"script":' * DEEP, b'{"x":' + b"[" * DEEP)
    ):
        body = body[:4000] if door == "monitor" or "signals" in path else body  # no more is read
        at = (
            path.replace("{department}", "web")
            .replace("{name}", "cpu")
            .replace("{job}", "1")
            .replace("{lease}", "1")
            .replace("{host}", "h1")
        )
        status, told = await doors.ask(
            door, "POST", at.replace("{unit}", "web.1"), "root", body, **{"Content-Type": kind}
        )
        assert status in (400, 422), told
        assert b"invalid" in told
        assert b"\r\n\r\n" in told


async def test_what_is_too_deep_is_answered_over_nats(doors: Doors) -> None:
    for kind in ("job.submit", "scale.set", "host.cordon", "job.cancel"):
        told: Any = await doors.here.ask("root", kind, b"[" * DEEP, department="web", timeout_s=DEADLINE_S)
        assert told["code"] == "invalid"


@pytest.mark.parametrize(
    "data", [b'{"limit":' + b"[" * DEEP, b'{"limit":1e999}', b'{"limit":"\xff"}', b"\xc3", b"[]", b'{"limit":[]}']
)
async def test_an_odd_query_is_answered_over_nats(doors: Doors, data: bytes) -> None:
    ann = await doors.here.client("ann")
    told = msgspec.json.decode((await ann.request(query("monitor", "hpc", "queue"), data, timeout=DEADLINE_S)).data)
    assert told["code"] == "invalid"


async def test_a_guest_that_sends_what_is_too_deep_is_refused(doors: Doors) -> None:
    job = (await doors.here.ask("ann", "job.submit", {"script": "x"}))["job"]
    await doors.here.place(job, "h1")
    guest = doors.here.guest(job)
    for path in (
        "began",
        "report",
        "launch",
        "checkpoint",
        "usage",
        "used",
        "ended",
        "launch/1/events",
        "launch/1/signal",
    ):
        status, told = await guest.call("POST", path, b"[" * DEEP)
        assert status in (400, 413), (path, told)
        assert msgspec.json.decode(told)["code"] == ("invalid" if status == 400 else "limit")


@pytest.mark.parametrize("door", ["admission", "monitor"])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/queue"),
        ("GET", "/healthz"),
        ("GET", "/v1/jobs/x/output"),
        ("PUT", "/v1/jobs"),
        ("GET", "/none"),
        ("GET", "/%"),
    ],
)
async def test_no_answer_is_kept_or_taken_for_what_it_is_not(doors: Doors, door: str, method: str, path: str) -> None:
    for user in ("ann", "root"):
        _, told = await doors.ask(door, method, path, user)
        head = told.partition(b"\r\n\r\n")[0].lower()
        assert b"x-content-type-options: nosniff" in head, told
        assert b"cache-control: no-" in head, told


@pytest.mark.parametrize("door", ["admission", "monitor"])
async def test_no_token_gets_into_a_log(doors: Doors, door: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    secret = "s3cr3t"
    odd = (
        f"{secret}\xff",
        f"\xff{secret}",
        f"{secret}\x00",
        f"{secret}\x0b",
        f"\u00a0{secret}",
        f"{secret}\x85",
        f"a b{secret}",
    )
    for value in odd:
        for name in (
            "Authorization",
            "Cookie",
            "X-Forwarded-For",
            "Content-Type",
            "Accept",
            "Phoenix-Position",
            "Last-Event-ID",
        ):
            shown = (
                f"Bearer {value}"
                if name == "Authorization"
                else f"phoenix_session={value}"
                if name == "Cookie"
                else value
            )
            for path in ("/v1/queue", "/v1/jobs/1/output", "/v1/guest/1/1/0/boot", "/v1/session"):
                head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{name}: {shown}\r\n"
                status, told = await doors.send(door, head)
                assert 400 <= status < 500 or name not in ("Authorization", "Cookie"), (name, value, told)
                assert status != 500, (name, value, told)
                assert secret.encode() not in told
    assert secret not in caplog.text


RAW = b"\xff\xfe\xc3(\xed\xa0\x80"  # no UTF-8


async def test_bytes_that_are_no_text_end_nothing(doors: Doors) -> None:
    """In paths, queries and headers; what they are refused with goes to the audit, too."""
    here = doors.here
    for door in ("admission", "monitor"):
        token = here.headers("ann")["Authorization"].encode()
        for path in (
            b"/v1/jobs/%b",
            b"/v1/jobs/%b/output",
            b"/v1/departments/%b",
            b"/v1/usage?department=%b",
            b"/v1/story/%b",
            b"/%b",
        ):
            for given in (token, b"Bearer %b" % RAW, b"Bearer nobodys", b""):
                for name in (
                    b"User-Agent",
                    b"X-Forwarded-For",
                    b"Accept",
                    b"Cookie",
                    b"Last-Event-ID",
                    b"Origin",
                    b"Content-Type",
                ):
                    reader, writer = await asyncio.open_connection("127.0.0.1", doors.ports[door])
                    line = (
                        b"GET "
                        + path % (RAW if name == b"Accept" else b"x")
                        + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                    )
                    writer.write(line + b"Authorization: %b\r\n%b: %b\r\n\r\n" % (given, name, RAW))
                    async with asyncio.timeout(DEADLINE_S):
                        told = await reader.read(1 << 16)
                    writer.close()
                    assert told[9:12] not in (b"", b"500"), (door, path, given[:20], name, told)
    await here.doors.recorder.flush()
    assert not here.running.task.done()
    assert await here.ask("ann", "job.submit", {"script": "x"})
