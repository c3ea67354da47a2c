"""`make hostile ROUNDS=10`: a department's user says 100,000 things a round that no program would say, at every door there is.

    python -m tests.hostile.campaign [--rounds 10] [--messages 100000] [--seed 0]

What is said is made from the schemas (`fuzz`): requests, signals and queries over NATS, subjects of noise among them; routes of
both HTTP doors with odd paths, headers and bodies; and raw bytes at every port.  After each round somebody of another
department submits a job, which completes; and then

    no process has ended; none has grown by more than GROWS_MB since the first round; no credential is in any log.

Ends with 1 if one of these is not so.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
import orjson
from yarl import URL

from benchmarks.cloud import cloud, memory_mb
from schemas import requests as r
from schemas.signals import SIGNALS
from tests.hostile.fuzz import TEXTS, Fuzz
from tests.integration.up_cloud import Cloud
from tests.support.wire import Wire, pub

GROWS_MB: Final = 200.0
CANARY_S: Final = 120.0
BATCH: Final = 500
CONNECTIONS: Final = 8
BEGINNINGS: Final = (b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"POST /RPC2 HTTP/1.1\r\nHost: x\r\n", b"CONNECT {")
METHODS: Final = ("GET", "GET", "GET", "POST", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH")
QUERIES: Final = ("why", "queue", "whatif", "foresee", "starts", "policies", "state")
SCRIPT: Final = "#!/bin/sh\ntrue\n"
CONFIG: Final = """
[cloud]
name = "hostile"
[[department]]
name = "hpc"
kind = "batch"
[[department]]
name = "bio"
kind = "batch"
guarantee = 2
[[department]]
name = "web"
kind = "web"
[[user]]
name = "mallory"
department = "hpc"
[[user]]
name = "mona"
department = "web"
[[user]]
name = "bea"
department = "bio"
[[user]]
name = "oscar"
department = "operators"
role = "operator"
"""


class Campaign:
    """`sent`: by door; `answered`: HTTP answers by status."""

    def __init__(self, status: dict[str, Any], seed: int) -> None:
        self.status, self.fuzz = status, Fuzz(seed)
        self.sent: Counter[str] = Counter()
        self.answered: Counter[int] = Counter()
        self.pids = {one["name"]: one["pid"] for one in status["processes"]}
        self.first: dict[str, float] = {}
        self.problems: list[str] = []
        self._routes = routes()
        self._tokens = {name: Path(one["token"]).read_text().strip() for name, one in status["credentials"].items()}

    async def round(self, messages: int) -> None:
        await self.broker(messages * 8 // 10)
        await self.doors(messages * 19 // 100)
        await self.ports(messages // 100)
        self.problems += await self.after()

    # --------------------------------------------------------------------------------------------------------------- NATS

    async def broker(self, count: int) -> None:
        """As mallory of hpc and mona of web, each in a name of their own, or in somebody's."""
        seeds = {name: Path(self.status["credentials"][name]["nkey"]) for name in ("mallory", "mona")}
        wires: dict[str, Wire] = {}
        for begin in range(0, count, BATCH):
            for name, dept in (("mallory", "hpc"), ("mona", "web")):
                said = b"".join(self.published(dept, name) for _ in range(min(BATCH, count - begin) // 2))
                try:
                    wire = wires.get(name) or await Wire.open(self.status["nats_url"], seeds[name])
                    await wire.say(said)
                    if await wire.settled():
                        wires[name] = wire
                        continue
                except (ConnectionError, asyncio.LimitOverrunError, ValueError):
                    pass
                if (
                    old := wires.pop(name, None)
                ) is not None:  # the server has ended it: a subject that it does not take
                    old.close()
        for wire in wires.values():
            wire.close()

    def published(self, dept: str, name: str) -> bytes:
        rng = self.fuzz.rng
        what = rng.choices(("request", "signal", "query"), (6, 2, 2))[0]
        if what == "request":
            kind, body = self.fuzz.kind({kind: pair[0] for kind, pair in r.REQUESTS.items()})
            subject = f"phoenix.request.{dept}.{name}.{kind}"
        elif what == "signal":
            kind, body = self.fuzz.kind(SIGNALS)
            subject = f"phoenix.signal.{dept}.{name}.{kind}"
        else:
            kind, body = rng.choice(QUERIES), self.fuzz.encoded(self.fuzz.any(), True)
            subject = f"phoenix.query.{rng.choice((f'scheduler.{dept}', 'monitor', 'provisioner'))}.{dept}.{kind}"
        told = subject.encode("utf-8", "surrogatepass")
        if rng.random() < 0.02:
            told = self.fuzz.broken(told)
        told = bytes(
            byte for byte in told if byte not in b" \t\r\n"
        )  # these end a part of the line: the server's affair
        own = f"_INBOX_{dept}.{name}.{rng.randrange(9)}".encode()
        reply = rng.choice((b"", own, b"_INBOX_bio.bea.1", b"phoenix.journal.x"))
        self.sent[what] += 1
        return pub(told or b"x", body[:1_000_000], reply)

    # ------------------------------------------------------------------------------------------------------------- HTTP

    async def doors(self, count: int) -> None:
        left = iter(range(count))
        timeout = aiohttp.ClientTimeout(total=60.0)
        async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:
            await asyncio.gather(*(self._visitor(session, left) for _ in range(CONNECTIONS)))

    async def _visitor(self, session: aiohttp.ClientSession, left: Iterator[int]) -> None:
        for _ in left:
            door = self.fuzz.rng.choice(("http_url", "http_url", "monitor_url"))
            method, path, headers, body = self.call(door)
            self.sent[door] += 1
            try:
                url = URL(self.status[door] + path, encoded=True)
                async with session.request(method, url, headers=headers, data=body or None) as answer:
                    with contextlib.suppress(asyncio.TimeoutError):  # a stream never ends by itself
                        async with asyncio.timeout(1.0):
                            await answer.content.read(100_000)
                    self.answered[answer.status] += 1
                    if answer.status == 500:
                        self.problems.append(f"500: {method} {path[:200]}")
            except (aiohttp.ClientError, ValueError, TimeoutError):
                self.answered[0] += 1

    def call(self, door: str) -> tuple[str, str, dict[str, str], bytes]:
        rng, fuzz = self.fuzz.rng, self.fuzz
        method, path = rng.choice(self._routes[door])
        while "{" in path:
            before, _, rest = path.partition("{")
            path = before + _quoted(rng.choice(TEXTS)) + rest.partition("}")[2]
        if rng.random() < 0.3:
            path += "?" + "&".join(f"{_quoted(rng.choice(ASKED))}={_quoted(rng.choice(TEXTS))}" for _ in range(2))
        if rng.random() < 0.1:
            method = rng.choice(METHODS)
        token = rng.choice((self._tokens["mallory"], self._tokens["mallory"], self._tokens["mona"], "x" * 40, ""))
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        headers["Content-Type"] = rng.choice(
            ("application/json", "application/msgpack", "text/plain", "multipart/form-data")
        )
        body = fuzz.kind({kind: pair[0] for kind, pair in r.REQUESTS.items()})[1] if method in ("POST", "PUT") else b""
        return method, path, headers, body[:1_000_000]

    async def ports(self, count: int) -> None:
        """Bytes that are no request at all, or half of one, at every port that is known."""
        urls = [
            self.status[name] for name in ("http_url", "monitor_url", "opennebula_url", "nats_url") if self.status[name]
        ]
        for _ in range(count):
            parts = urlsplit(self.fuzz.rng.choice(urls))
            begun = self.fuzz.rng.choice(BEGINNINGS)
            self.sent["bytes"] += 1
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                async with asyncio.timeout(5.0):
                    _, writer = await asyncio.open_connection(parts.hostname, parts.port)
                    try:
                        writer.write(begun + self.fuzz.broken(self.fuzz.noise() + b"\r\n\r\n"))
                        await writer.drain()
                    finally:
                        writer.close()

    # -------------------------------------------------------------------------------------------------------------- after

    async def after(self) -> list[str]:
        """What is not as it must be."""
        found = []
        took = await self.canary()
        if took is None:
            found.append(f"a job of bio was not done within {CANARY_S:.0f} s")
        else:
            print(f"  a job of bio was submitted, run and told as completed in {took:.2f} s", flush=True)
        processes = Cloud(Path(self.status["data"])).status()["processes"]
        found += [f"{one['name']} is not well: {one}" for one in processes if one.get("state", "ready") != "ready"]
        now = {one["name"]: one["pid"] for one in processes}
        found += [f"{name} has ended" for name, pid in self.pids.items() if now.get(name) != pid]
        self.pids = now
        grown = {name: memory_mb(pid) for name, pid in now.items()}
        self.first = self.first or grown
        found += [
            f"{name} has grown from {self.first[name]:.0f} to {mb:.0f} MiB"
            for name, mb in grown.items()
            if mb - self.first.get(name, mb) > GROWS_MB
        ]
        return found + told_secrets(Path(self.status["data"]))

    async def canary(self) -> float | None:
        began, headers = time.monotonic(), {"Authorization": f"Bearer {self._tokens['bea']}"}
        async with aiohttp.ClientSession(headers=headers) as session:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CANARY_S):
                    job = ""
                    while not job:
                        async with session.post(f"{self.status['http_url']}/v1/jobs", json={"script": SCRIPT}) as said:
                            job = (await said.json()).get("job", "") if said.status == 200 else ""
                    while True:
                        async with session.get(f"{self.status['monitor_url']}/v1/jobs/{job}") as said:
                            if said.status == 200 and (await said.json())["state"] == "completed":
                                return time.monotonic() - began
                        await asyncio.sleep(0.05)
        return None


ASKED: Final = (
    "limit", "since", "until", "department", "user", "state", "by", "points", "after", "follow", "cursor", "name",
)  # fmt: skip


def routes() -> dict[str, list[tuple[str, str]]]:
    """Of both doors, as the documents have them."""
    document = orjson.loads((Path(__file__).parents[2] / "services/admission/openapi.json").read_bytes())
    door = [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]
    names = "queue jobs jobs/{x} why/{x} story/{x} starts starts/{x} hosts history events summary timeline usage lending leases"
    names += " leases/{x} instances departments departments/{x} departments/{x}/releases overview picture prices billable audit"
    read = [("GET", f"/v1/{name}") for name in [*names.split(), "record", "session", "{x}"]]
    return {
        "http_url": door,
        "monitor_url": [*read, ("POST", "/v1/session"), ("POST", "/v1/session/code"), ("GET", "/")],
    }


def told_secrets(data: Path) -> list[str]:
    """Files of logs in which a token or a key stands."""
    secrets = {
        secret: file.name
        for file in (data / "credentials").rglob("*")
        if file.suffix in (".token", ".nk") and (secret := file.read_bytes().strip())
    }
    logs = [file for file in data.rglob("*.log*") if file.is_file()]
    assert secrets
    assert logs
    return [
        f"{file.name} has the secret of {secrets[secret]}"
        for file in logs
        for content in [file.read_bytes()]
        for secret in secrets
        if secret in content
    ]


def _quoted(text: str) -> str:
    """As it is, but for what would end the line or the part of the address."""
    return "".join(c if 32 < ord(c) < 127 and c not in "#?/{}" else f"%{ord(c) & 255:02X}" for c in text)


async def campaign(status: dict[str, Any], rounds: int, messages: int, seed: int) -> list[str]:
    here = Campaign(status, seed)
    for number in range(1, rounds + 1):
        began = time.monotonic()
        await here.round(messages)
        print(
            f"round {number}: {dict(here.sent)}; HTTP {dict(here.answered)}; {time.monotonic() - began:.0f} s",
            flush=True,
        )
        if here.problems:
            break
    return here.problems


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with cloud(config=CONFIG) as status:
        problems = asyncio.run(campaign(status, args.rounds, args.messages, args.seed))
    for problem in problems[:50]:
        print(problem)
    print(f"{args.rounds} rounds of {args.messages}, seed {args.seed}: " + ("PROBLEMS" if problems else "all well"))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
