"""Where a NATS request came from: the address of the connection that waits for its answer.

Theory of operation
  A message does not tell its connection, but the server knows who listens at the inbox to which the answer goes, and every
  account may ask it about connections of its own (CONNZ; no key of the system account is needed).  Asking begins before the
  request is served, so that who closes after the answer is still there; an answer takes about a millisecond, and the record of
  the request waits longer than that in the `Recorder`.

Rules
  1. Asked is only about inboxes of the asker's own, at which the server lets nobody else listen.  So what is named has the
     asker's key, whatever reply subject was chosen: without one of the asker's own, all connections of the asker that listen
     for answers are named.
  2. The request does not wait, and nothing fails: what is not known has the inbox in the place of an address.
  3. Of several servers each answers for its own connections; who knows of none has not answered yet.
  4. What was told is good for `KEPT_S`: a client keeps its inbox when it connects again, from elsewhere maybe.
  5. At most `ASKED_PER_S` questions, and of one user a fifth of that: nobody's haste takes the address from another's record.
     A server that answers none (an older configuration denies them) is left alone for a while.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from schemas.audit import TEXT_MAX, AuditRecord
from schemas.subjects import inbox, is_reply_allowed
from services.runtime.bucket import Bucket, Buckets

SUBJECT: Final = "$SYS.REQ.ACCOUNT.PING.CONNZ"
KEPT_S: Final = 10.0  # about a program that asks all day the server is asked six times a minute
KEPT_MAX: Final = 10_000  # inboxes: some megabytes
ASKED_PER_S: Final = 50.0  # measured: 1.3 ms of the server's at 1,000 connections, so 7 % of a core at most
ASKED_BURST: Final = 200.0
OF_USER: Final = 0.2
ANSWER_S: Final = 0.5  # measured: a millisecond; at its end a leader waits so long at most, and its successor for it
SILENT_S: Final = 60.0  # each question that is denied is a line in two logs
SHOWN_MAX: Final = 4  # connections of one record: 128 characters have room for them


class Found(NamedTuple):
    """`client`: what its program calls itself, of a single connection."""

    peer: str
    client: str


class _Connection(msgspec.Struct):
    ip: str = ""
    port: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""


class _Data(msgspec.Struct):
    connections: list[_Connection] = []


class _Answer(msgspec.Struct):
    data: _Data = msgspec.field(default_factory=_Data)


class _Question(NamedTuple):
    key: str
    at: float


class Whence:
    """Of one connection, `nc`.  Keys stand for inboxes, and for addresses in records that do not have one yet."""

    def __init__(self, nc: Client, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._nc, self._now = nc, monotonic
        self._own = nc.new_inbox()  # one more token each question
        self._count = 0
        self._open: dict[str, _Question] = {}  # by reply subject, the oldest first
        self._known: OrderedDict[str, tuple[Found | None, float]] = OrderedDict()
        self._all = Bucket(ASKED_PER_S, ASKED_BURST, self._now())
        self._of = Buckets(ASKED_PER_S * OF_USER, ASKED_BURST * OF_USER)
        self._heard_at = self._silent_until = float("-inf")
        self._heard = asyncio.Event()

    async def open(self) -> None:
        await self._nc.subscribe(f"{self._own}.*", cb=self._answered)

    async def ask(self, reply: str, department: str, user: str) -> str:
        """Begin to look where `user` of `department` is, whose answer goes to `reply`; returns what stands for it."""
        key, subject = about(reply, department, user)
        now = self._now()
        _, told_at = self._known.get(key, (None, float("-inf")))
        if now - told_at < KEPT_S:
            return key
        self._expire(now)
        if any(question.key == key for question in self._open.values()):
            return key
        self._known.pop(key, None)
        if now >= self._silent_until and self._of.of(user, now).take(now) and self._all.take(now):
            await self._send(key, subject, now)
        return key

    async def settled(self) -> None:
        """Wait, not for long, until no question is open."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                while self._open:
                    self._heard.clear()
                    await self._heard.wait()
        self._expire(self._now())

    def told(self, record: AuditRecord) -> AuditRecord:
        """The record with the address, if that is known."""
        found, _ = self._known.get(record.peer, (None, 0.0))
        if found is None or record.via != "nats":
            return record
        return msgspec.structs.replace(record, peer=found.peer, client=record.client or found.client)

    async def _send(self, key: str, subject: str, now: float) -> None:
        self._count += 1
        box = f"{self._own}.{self._count}"
        data = msgspec.json.encode({"filter_subject": subject, "limit": SHOWN_MAX + 1})
        with suppress(nats.errors.Error, OSError):  # rule 2
            await self._nc.publish(SUBJECT, data, reply=box)
            self._open[box] = _Question(key, now)

    async def _answered(self, msg: Msg) -> None:
        self._heard_at = self._now()
        found = _read(msg.data)
        if found is None:
            return  # rule 3
        question = self._open.pop(msg.subject, None)
        if question is not None:
            self._keep(question.key, found)
        self._heard.set()

    def _expire(self, now: float) -> None:
        """Questions that nobody answers (any more)."""
        late = [box for box, question in self._open.items() if now - question.at >= ANSWER_S]
        for box in late:
            question = self._open.pop(box)
            self._keep(question.key, None)
            if question.at > self._heard_at:
                self._silent_until = now + SILENT_S

    def _keep(self, key: str, found: Found | None) -> None:
        self._known[key] = found, self._now()
        if len(self._known) > KEPT_MAX:
            self._known.popitem(last=False)


def about(reply: str, department: str, user: str) -> tuple[str, str]:
    """Rule 1: what stands for the address, and the subject of which the server is asked who listens there."""
    own = inbox(department, user)
    if not reply.startswith(f"{own}.") or not is_reply_allowed(reply, department):
        return f"{own}.>"[:TEXT_MAX], f"{own}.>"
    name = reply.rpartition(".")[0]  # clients have one inbox, and a token more for each request
    return (reply if name == own else name)[:TEXT_MAX], reply


def _read(data: bytes) -> Found | None:
    """What one server answers; None if it has no such connection."""
    try:
        connections = msgspec.json.decode(data, type=_Answer).data.connections
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return _found(connections) if connections else None


def _found(connections: Sequence[_Connection]) -> Found:
    places = [f"[{c.ip}]:{c.port}" if ":" in c.ip else f"{c.ip}:{c.port}" for c in connections[:SHOWN_MAX]]
    more = ["…"] if len(connections) > SHOWN_MAX else []
    only = connections[0] if len(connections) == 1 else _Connection()
    return Found(", ".join([*sorted(places), *more])[:TEXT_MAX], program(only.name, only.lang, only.version))


def program(name: str, lang: str, version: str) -> str:
    """What a client of NATS calls itself: ``alice (python3 2.16.0)``."""
    library = " ".join(part for part in (lang, version) if part)
    return " ".join(part for part in (name, f"({library})" if library else "") if part)[:TEXT_MAX]
