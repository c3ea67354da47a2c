"""The campaign at the broker: requests, signals, queries and noise of many users, and how they were answered.

Rules
  1. What is sent is heard: after each batch its sender waits for the answer to one more request, behind the others in its turn.
     So nothing is refused for its number alone, and what is sent is read.
  2. Subjects that may end the connection are said one at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from schemas import requests as r
from schemas.problems import URN
from schemas.signals import SIGNALS
from tests.hostile.fuzz import Fuzz
from tests.support.wire import hpub, proof, pub

BATCH: Final = 250
MARK: Final = "mark"
MARK_S: Final = 90.0  # several times as long as a request may wait for its turn
ANSWER_S: Final = 60.0
BODY_MAX: Final = 900_000  # the broker takes 1 MiB
LIMIT: Final = 1 << 24
QUERIES: Final = ("why", "queue", "whatif", "foresee", "starts", "policies", "state", "troubles")
WHATS: Final = ("request", "signal", "query", "noise")
NOISE: Final = (
    "$JS.API.STREAM.INFO.PHOENIX", "$JS.API.STREAM.DELETE.PHOENIX", "$JS.API.CONSUMER.CREATE.PHOENIX", "$SYS.REQ.SERVER.PING",
    "$KV.leases.admission", "$O.snapshots.C.x", "phoenix.journal.admission", "phoenix.event.bio.x", "phoenix.measure.bio.jobs",
    "phoenix.audit.x", "_INBOX_bio.bea.1", "_INBOX_service.x.1", "$SRV.PING", "$JS.ACK.x", "_R_.x",
)  # fmt: skip
HEADERS: Final = (
    b"Content-Type: application/msgpack\r\n", b"Content-Type: application/json\r\n", b"Content-Type: \xff\r\n",
    b"Nats-Msg-Id: 1\r\n", b"Nats-Expected-Last-Subject-Sequence: 0\r\n", b"Nats-Request-Info: {}\r\n",
    b"Nats-Rollup: all\r\n", b": \r\n", b"x\r\n", b"A: " + b"a" * 4000 + b"\r\n", b"A: \x00\r\n", b"Status: 503\r\n",
)  # fmt: skip
DEAR: Final = (
    "job.whatif",
    "lease.create",
    "lease.extend",
)  # a few are said: their number would be most of what it takes
KINDS: Final = {kind: pair[0] for kind, pair in r.REQUESTS.items()}
USUAL: Final = {kind: one for kind, one in KINDS.items() if kind not in DEAR}


class Talker:
    """A user's connection.  `answers`: by class, of all that were sent to its own inbox."""

    def __init__(self, url: str, name: str, department: str, seed: Path, fuzz: Fuzz) -> None:
        self.name, self.department = name, department
        self._url, self._seed, self.fuzz = url, seed, fuzz
        self.sent: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.ended = 0  # connections that the broker has ended
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._pong, self._marked = asyncio.Event(), asyncio.Event()
        self._inbox = f"_INBOX_{department}.{name}"

    async def talk(self, count: int) -> None:
        """So many messages; raises TimeoutError if nobody answers any more."""
        while count > 0:
            batch: list[bytes] = []
            odd: list[bytes] = []
            for _ in range(min(BATCH, count)):
                subject, said = self._made()
                (odd if subject else batch).append(said)
            await self._say(b"".join(batch))
            await self._mark()
            for one in odd:
                await self._say(one)
                await self._settled()
            count -= len(batch) + len(odd)

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    # ---------------------------------------------------------------------------------------------------------- what is said

    def _made(self) -> tuple[bool, bytes]:
        """Whether its subject is none, and the message."""
        rng, dept = self.fuzz.rng, self.department
        what = rng.choices(WHATS, (60, 20, 17, 3))[0]
        if what == "request":
            kind, body = self.fuzz.kind(KINDS if rng.random() < 0.05 else USUAL)
            subject = f"phoenix.request.{dept}.{self.name}.{kind}"
        elif what == "signal":
            kind, body = self.fuzz.kind(SIGNALS)
            subject = f"phoenix.signal.{dept}.{self.name}.{kind}"
        elif what == "query":
            kind, body = rng.choice(QUERIES), self.fuzz.encoded(self.fuzz.any(), True)
            subject = f"phoenix.query.{rng.choice((f'scheduler.{dept}', 'monitor', 'provisioner'))}.{dept}.{kind}"
        else:
            subject, body = rng.choice(NOISE), self.fuzz.noise()
        self.sent[what] += 1
        told = subject.encode("utf-8", "surrogatepass")
        broken = rng.random() < 0.02
        if broken:
            told = self.fuzz.broken(told)
        told = bytes(
            byte for byte in told if byte not in b" \t\r\n"
        )  # these end a part of the line: the server's affair
        own = f"{self._inbox}.{what}".encode()
        reply = rng.choice((own, own, own, own, own, b"", b"_INBOX_bio.bea.1", b"phoenix.journal.x"))
        if rng.random() < 0.1:
            head = b"NATS/1.0\r\n" + rng.choice(HEADERS) + b"\r\n"
            return broken, hpub(told or b"x", self.fuzz.broken(head) if broken else head, body[:BODY_MAX], reply)
        return broken, pub(told or b"x", body[:BODY_MAX], reply)

    async def _mark(self) -> None:
        """Rule 1."""
        for _ in range(3):  # a connection may end meanwhile
            self._marked.clear()
            subject = f"phoenix.request.{self.department}.{self.name}.job.cancel"
            await self._say(pub(subject.encode(), b'{"jobs":["999999999"]}', f"{self._inbox}.{MARK}".encode()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MARK_S / 3):
                    await self._marked.wait()
                    return
        raise TimeoutError(f"nobody has answered {self.name} for {MARK_S:.0f} s")

    async def _settled(self) -> None:
        """All that was said has been read by the broker, or it has ended the connection."""
        self._pong.clear()
        async with asyncio.timeout(ANSWER_S):
            await self._say(b"PING\r\n")
            await self._pong.wait()

    # ------------------------------------------------------------------------------------------------------- the connection

    async def _say(self, data: bytes) -> None:
        for _ in range(3):
            try:
                writer = self._writer or await self._open()
                writer.write(data)
                await writer.drain()
                return
            except OSError:
                self._writer = None

    async def _open(self) -> asyncio.StreamWriter:
        parts = urlsplit(self._url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=LIMIT)
        info = json.loads((await reader.readline()).removeprefix(b"INFO "))
        told = proof(self._seed, info["nonce"]) | {"headers": True, "verbose": False, "protocol": 1}
        writer.write(b"CONNECT " + json.dumps(told).encode() + f"\r\nSUB {self._inbox}.> 1\r\n".encode())
        self._writer, self._reading = writer, asyncio.create_task(self._read(reader, writer))
        return writer

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while line := await reader.readline():
                if line.startswith((b"MSG ", b"HMSG ")):
                    parts = line.split()
                    data = (await reader.readexactly(int(parts[-1]) + 2))[:-2]
                    head = int(parts[-2]) if line.startswith(b"H") else 0
                    self._heard(parts[1].decode(), data[:head], data[head:])
                elif line == b"PONG\r\n":
                    self._pong.set()
                elif line == b"PING\r\n":
                    writer.write(b"PONG\r\n")
                elif line.startswith(b"-ERR"):
                    self.answers[f"broker: {line[6:-3].decode(errors='replace').partition(' for ')[0]}"] += 1
        if self._writer is writer:
            self._writer = None
            self.ended += 1
        writer.close()
        self._pong.set()

    def _heard(self, subject: str, head: bytes, data: bytes) -> None:
        what = subject.rpartition(".")[2]
        if what == MARK:
            self._marked.set()
        else:
            self.answers[f"{what if what in WHATS else 'odd'}: {class_of(head, data)}"] += 1


def class_of(head: bytes, data: bytes) -> str:
    """ "ok", or the code of the problem; what else it is."""
    if head and b" 503" in head[:20]:
        return "nobody listens"
    for decode in (msgspec.json.decode, msgspec.msgpack.decode):
        try:
            told: Any = decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if isinstance(told, dict):
            return str(told["code"]) if str(told.get("type", "")).startswith(URN) else "ok"
    return "content"
