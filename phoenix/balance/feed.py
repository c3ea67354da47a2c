"""Where a load balancer learns of instances: the department's public events, and an audit that repairs what they missed.

    attempt.began       it listens there from now on          attempt.closed      it is over: nothing goes there any more
    instance.draining   no new session goes there                     unit.placed       it boots: an audit knows what it runs

Rules
  1. Events are hints that are quick, the audit (`instance.list`) is the truth that is slow.  A lost event costs two seconds.
  2. A broker that is away changes nothing: the table keeps what it knows, and probes show which instances still answer.
  3. An event that cannot be read is logged and dropped; an answer that cannot be read leaves the table as it is.
  4. An audit speaks of the moment at which it was asked: it removes nothing that came later (`Table.audited`).
  5. What an event does not contain (cores, release, health path) an audit at once does.
  6. The department's drain time and health path come with the audit: no copy of the policy is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from phoenix.balance.account import Account
from schemas import subjects
from schemas.problems import problem_in
from schemas.times import Time
from services.runtime.log import get_log, message_of

AUDIT_INTERVAL_S = 2.0
AUDIT_DEADLINE_S = 2.0
AUDIT_SOON_S = 0.25  # until the first answer nothing can be served; and between two audits that events have asked for
ADDRESS_CHARS_MAX = 255
KINDS = (".unit.placed", ".attempt.began", ".attempt.closed", ".instance.draining")

_log = get_log()


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One instance as `instance.list` has it.  `state`: starting (no address yet), running, draining; a draining one without
    an address is over, and only its VM runs off.  `drains_until`: when it is stopped at the latest.  `connections`: requests
    that it is given at a time; 0: not said."""

    unit: str
    attempt: int
    state: Literal["starting", "running", "draining"]
    address: str | None = None
    cores: float = 1.0
    host: str = ""
    release: int = 0
    drains_until: Time | None = None
    health_path: str | None = None
    connections: int = 0

    @property
    def is_over(self) -> bool:
        return self.state == "draining" and not self.address


class Wishes(msgspec.Struct, frozen=True, kw_only=True):
    """What the department says of its load balancer (rule 6).  None: a door that does not say it yet."""

    drain_s: float | None = None
    health_path: str | None = None


class _Listing(Wishes, frozen=True, kw_only=True):
    instances: tuple[Listed, ...]


class _Fact(msgspec.Struct, frozen=True):
    unit: str = ""
    attempt: int = 0
    addresses: tuple[str | None, ...] = ()
    until: float = 0.0


class _Event(msgspec.Struct, frozen=True):
    kind: str
    fact: _Fact = _Fact()


class Table(Protocol):
    """Who keeps the instances.  `now` and `asked_at` are monotonic seconds, `until` is UTC."""

    def began(self, unit: str, attempt: int, addresses: Iterable[str | None], now: float) -> None:
        """The attempt listens at these addresses, by rank."""

    def draining(self, unit: str, attempt: int, until: float | None, now: float) -> None:
        """No new session goes to the attempt; it is closed at `until` at the latest."""

    def closed(self, unit: str, attempt: int, now: float) -> None:
        """The attempt is over."""

    def audited(self, listed: Sequence[Listed], asked_at: float, now: float) -> None:
        """What there was at `asked_at`, or a moment after it."""


_events = msgspec.json.Decoder(_Event)
_listings = msgspec.json.Decoder(_Listing)


class Feed:
    """Keeps a table up to date.  `changed` is called after every change."""

    def __init__(self, account: Account, table: Table, changed: Callable[[], None]) -> None:
        self._account = account
        self._table = table
        self._changed = changed
        self._soon = asyncio.Event()
        self.audited_at: float | None = None
        self.wishes = Wishes()

    async def subscribe(self, client: Client) -> None:
        await client.subscribe(subjects.event(self._account.department, ">"), cb=self._hear)

    async def _hear(self, message: Msg) -> None:
        if message.subject.endswith(KINDS):
            self.hear(message.subject, message.data, time.monotonic())

    def hear(self, subject: str, data: bytes, now: float) -> None:
        """One event."""
        try:
            event = _events.decode(data)
        except msgspec.DecodeError as error:
            _log.warning("event cannot be read", subject=subject, error=error)
            return
        fact = event.fact
        if event.kind == "unit.placed":
            self._soon.set()  # it has no address yet, but its release is known
            return
        if event.kind == "attempt.began":
            self._table.began(fact.unit, fact.attempt, fact.addresses, now)
            self._soon.set()
        elif event.kind == "instance.draining":
            self._table.draining(fact.unit, fact.attempt, fact.until, now)
        elif event.kind == "attempt.closed":
            self._table.closed(fact.unit, fact.attempt, now)
        self._changed()

    async def audit(self, client: Client) -> None:
        """Ask for the list of instances at once, every two seconds and after an instance has begun, until cancelled."""
        while True:
            self._soon.clear()
            try:
                await self._audit_once(client)
            except (nats.errors.Error, TimeoutError, msgspec.DecodeError, ValueError, OSError) as error:
                _log.warning("instances not listed", error=message_of(error))
            await asyncio.sleep(AUDIT_SOON_S)
            if self.audited_at is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(AUDIT_INTERVAL_S - AUDIT_SOON_S):
                        await self._soon.wait()

    async def _audit_once(self, client: Client) -> None:
        account = self._account
        asked_at = time.monotonic()
        subject = subjects.request(account.department, account.user, "instance", "list")
        answer = await client.request(
            subject, b"{}", timeout=AUDIT_DEADLINE_S, headers={"Content-Type": "application/json"}
        )
        self.answered(answer.data, asked_at, time.monotonic())

    def answered(self, data: bytes, asked_at: float, now: float) -> None:
        """The answer to `instance.list`.  Raises `msgspec.DecodeError`; ValueError with its sentence if it is a problem."""
        if (refused := problem_in(data)) is not None:
            raise ValueError(refused.detail)
        listing = _listings.decode(data)
        self.wishes = listing
        fit = [listed for listed in listing.instances if len(listed.address or "") <= ADDRESS_CHARS_MAX]
        self._table.audited(fit, asked_at, now)
        self.audited_at = now
        self._changed()
