"""The campaign at the doors that speak HTTP, and raw bytes at every port: what is asked, and how it was answered."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

import aiohttp
import orjson
from yarl import URL

from schemas import requests as r
from schemas.ids import vm_tag
from schemas.signals import SIGNALS
from services.admission.guests.tokens import GuestTokens, job_token
from services.admission.http.guest_routes import ROUTES as GUEST_ROUTES
from tests.hostile.fuzz import TEXTS, Fuzz

VISITORS: Final = 16
STREAM_S: Final = 0.2  # of a stream, which never ends by itself
ASK_S: Final = 60.0
BEGINS_LOOKS: Final = 15
BODY_MAX: Final = 900_000
READ_MAX: Final = 1 << 20
SLEEP: Final = "#!/bin/sh\nsleep 60\n"
METHODS: Final = ("GET", "GET", "GET", "POST", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "TRACE", "X")
TYPES: Final = (
    "application/json",
    "application/json",
    "application/msgpack",
    "text/plain",
    "multipart/form-data",
    "\\",
)
ASKED: Final = (
    "limit", "since", "until", "department", "user", "state", "by", "points", "after", "follow", "cursor", "name",
)  # fmt: skip
BODIES: Final = {
    "/v1/jobs": "job.submit", "/v1/leases": "lease.create", "/v1/jobs/{job}/cancel": "job.cancel",
    "/v1/leases/{lease}/extend": "lease.extend", "/v1/departments/{department}/scale": "scale.set",
    "/v1/departments/{department}/releases": "release.deploy", "/v1/hosts/{host}/drain": "host.drain",
    "/v1/departments/{department}/instances/{unit}/report": "instance.report",
}  # fmt: skip
ONE_CALLS: Final = (
    "one.vm.info", "one.vm.allocate", "one.vm.action", "one.vm.deploy", "one.vmpool.info", "one.vmpool.infoset",
    "one.host.info", "one.hostpool.info", "one.hostpool.monitoring", "one.host.status", "one.user.login", "one.userpool.info",
    "one.hook.info", "one.system.version", "one.system.config", "one.template.instantiate", "one.image.info", "one.nosuch",
    "phoenix.dummy.steer", "system.listMethods", "system.multicall", "", "one.vm.__class__", "one.documentpool.info",
)  # fmt: skip
BEGINNINGS: Final = (
    b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"POST /RPC2 HTTP/1.1\r\nHost: x\r\n", b"CONNECT {",
    b"GET /v1/queue HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer TOKEN\r\n", b"GET /TOKEN HTTP/1.1\r\nHost: x\r\nX: TOKEN",
    b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer TOKEN\xff\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"PUB phoenix.request.hpc.mallory1.job.submit 5\r\n",
)  # fmt: skip


class Visitors:
    """`cloud`: its id, which names of VMs begin with.  `answers`: by door, statuses; 0 where a connection ended without one."""

    def __init__(self, status: dict[str, Any], cloud: str, tokens: dict[str, str], fuzz: Fuzz) -> None:
        self._status, self._tokens, self.fuzz = status, tokens, fuzz
        self.sent: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.problems: list[str] = []
        self._guests, self._cloud = GuestTokens.load(Path(status["credentials_dir"]) / "guest.key"), cloud
        self.job, self.attempt = "1", 1
        self._routes = routes()
        self._urls = {
            "door": status["http_url"],
            "guest": status["http_url"],
            "monitor": status["monitor_url"],
            "balancer": next(iter(status["balancers"].values())),
            "oned": status["opennebula_url"],
            "metrics": status["metrics"]["admission"],
        }

    async def visit(self, count: int) -> None:
        left = iter(range(count))
        timeout = aiohttp.ClientTimeout(total=ASK_S)
        async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:
            await asyncio.gather(*(self._visitor(session, left) for _ in range(VISITORS)))

    async def _visitor(self, session: aiohttp.ClientSession, left: Iterator[int]) -> None:
        for _ in left:
            door = self.fuzz.rng.choices(
                ("door", "guest", "monitor", "balancer", "oned", "metrics"), (5, 3, 4, 1, 3, 1)
            )[0]
            self.sent[door] += 1
            try:
                method, url, headers, body = self._call(door)
                async with session.request(
                    method, URL(url, encoded=True), headers=headers, data=body or None
                ) as answer:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(STREAM_S):
                            await answer.content.read(READ_MAX)
                    self.answers[f"{door}: {answer.status}"] += 1
                    if answer.status == 500:
                        self.problems.append(f"500: {method} {url[:200]}")
            except TimeoutError:
                self.problems.append(f"no answer in {ASK_S:.0f} s: {method} {url[:200]}")
            except (aiohttp.ClientError, ValueError):
                self.answers[f"{door}: 0"] += 1

    async def run_a_job(self, token: str) -> None:
        """Of which the attacker is the job, and the guest whose token was stolen.  Where it does not begin soon, its calls are
        made all the same."""
        given = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(headers=given) as session, asyncio.timeout(ASK_S):
            async with session.post(f"{self._urls['door']}/v1/jobs", json={"script": SLEEP}) as said:
                self.job = (await said.json())["job"]
            for _ in range(BEGINS_LOOKS):
                async with session.get(f"{self._urls['monitor']}/v1/jobs/{self.job}") as said:
                    told = await said.json()
                    self.attempt = told.get("attempt") or 1
                    if told.get("state") == "running":
                        return
                await asyncio.sleep(STREAM_S)

    # ------------------------------------------------------------------------------------------------------------- requests

    def _call(self, door: str) -> tuple[str, str, dict[str, str], bytes]:
        if door == "oned":
            return "POST", self._urls[door], {"Content-Type": "text/xml"}, self._xml()
        rng = self.fuzz.rng
        method, path, body = rng.choice(self._routes.get(door, [("GET", "/{x}", None), ("POST", "/", "bytes")]))
        if door == "guest" and rng.random() < 0.8:
            path = path.replace("{unit}/{attempt}/{rank}", f"{self.job}/{self.attempt}/0")
        while "{" in path:
            before, _, rest = path.partition("{")
            path = before + _quoted(self.fuzz.text()) + rest.partition("}")[2]
        if rng.random() < 0.3:
            path += "?" + "&".join(f"{_quoted(rng.choice(ASKED))}={_quoted(rng.choice(TEXTS))}" for _ in range(2))
        if rng.random() < 0.1:
            method = rng.choice(METHODS)
        token = rng.choice(list(self._tokens.values())) if rng.random() < 0.7 else rng.choice(("x" * 40, "", "\xff"))
        if door == "guest" and rng.random() < 0.8:
            guests = self._guests.of(vm_tag(self._cloud, self.job, self.attempt, 0))
            token = guests if rng.random() < 0.5 else job_token(guests)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        headers["Content-Type"] = rng.choice(TYPES)
        return method, self._urls[door].removesuffix("/metrics") + path, headers, self._body(method, body)[:BODY_MAX]

    def _body(self, method: str, kind: Any) -> bytes:
        if method not in ("POST", "PUT", "PATCH"):
            return b""
        if kind is None or self.fuzz.rng.random() < 0.1:
            return self.fuzz.kind(KINDS)[1]
        return self.fuzz.noise() if kind == "bytes" else self.fuzz.message(kind, json_only=True)

    def _xml(self) -> bytes:
        rng, fuzz = self.fuzz.rng, self.fuzz
        kinds = ("string", "int", "i4", "boolean", "double", "array", "struct", "base64", "nil", "x")
        said = [("string", rng.choice(("oneadmin:x", "oneadmin", "serveradmin:", "mallory1:x")))]
        said += [(rng.choice(kinds), str(fuzz.any())) for _ in range(rng.randrange(6))]
        params = "".join(f"<param><value><{k}>{escape(v)}</{k}></value></param>" for k, v in said)
        call = f"<methodCall><methodName>{rng.choice(ONE_CALLS)}</methodName><params>{params}</params></methodCall>"
        data = call.encode("utf-8", "replace")
        return fuzz.broken(data)[:BODY_MAX] if rng.random() < 0.4 else data

    # ------------------------------------------------------------------------------------------------------------ raw bytes

    async def knock(self, count: int) -> None:
        """Bytes that are no request at all, or half of one, at every port that is known."""
        urls = [*self._urls.values(), self._status["nats_url"], *self._status["metrics"].values()]
        left = iter(range(count))
        await asyncio.gather(*(self._knocks(urls, left) for _ in range(VISITORS)))

    async def _knocks(self, urls: list[str], left: Iterator[int]) -> None:
        for _ in left:
            rng = self.fuzz.rng
            parts = urlsplit(rng.choice(urls))
            token = rng.choice(list(self._tokens.values())).encode()
            begun = rng.choice(BEGINNINGS).replace(b"TOKEN", token)
            said = begun + self.fuzz.broken(self.fuzz.noise() + b"\r\n\r\n")
            self.sent["bytes"] += 1
            told = b""
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(STREAM_S * 5):
                    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
                    try:
                        writer.write(said)
                        if rng.random() < 0.8:
                            writer.write_eof()
                        await writer.drain()
                        told = await reader.read(64)
                    finally:
                        writer.close()
            self.answers[f"bytes: {_first(told)}"] += 1


KINDS: Final = {kind: pair[0] for kind, pair in r.REQUESTS.items()} | SIGNALS


def _first(told: bytes) -> str:
    """The status, the broker's greeting, or nothing."""
    line = told.partition(b"\r\n")[0]
    return line[9:12].decode(errors="replace") if line.startswith(b"HTTP/1.") else line[:4].decode(errors="replace")


def routes() -> dict[str, list[tuple[str, str, Any]]]:
    """Of the doors, as the documents have them: method, path, what the body is meant to be."""
    document = orjson.loads((Path(__file__).parents[2] / "services/admission/http/openapi.json").read_bytes())
    door = [
        (method.upper(), path, KINDS.get(BODIES.get(path, "")))
        for path, methods in document["paths"].items()
        for method in methods
        if not path.startswith("/v1/guest")
    ]
    names = "queue jobs jobs/{x} why/{x} story/{x} starts starts/{x} hosts history events summary timeline usage lending leases"
    names += " leases/{x} instances departments departments/{x} departments/{x}/releases overview picture prices billable audit"
    read = [("GET", f"/v1/{name}", None) for name in [*names.split(), "record", "session", "{x}"]]
    guest = [
        (route.method, route.path, route.body if isinstance(route.body, type) else "bytes")
        for route in GUEST_ROUTES
        if not route.path.endswith("/report")  # it would end the job that says all this
    ]
    return {
        "door": door,
        "guest": guest,
        "monitor": [*read, ("POST", "/v1/session", None), ("POST", "/v1/session/code", None), ("GET", "/", None)],
        "metrics": [("GET", "/metrics", None), ("GET", "/{x}", None), ("POST", "/metrics", "bytes")],
    }


def _quoted(text: str) -> str:
    """As it is, but for what would end the line or the part of the address."""
    return "".join(c if 32 < ord(c) < 127 and c not in "#?/{}" else f"%{ord(c) & 255:02X}" for c in text)
