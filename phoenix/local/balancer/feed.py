"""Where the balancer learns of instances: the department's public events, and an audit that repairs what they missed.

1. Events are hints that are quick, the audit is the truth that is slow. A lost event costs two seconds.
2. A broker that is away changes nothing: the pool goes on with what it knows, and probes tell who still answers.
3. An event that cannot be read is counted and dropped; an answer that cannot be read leaves the pool as it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from phoenix.local.balancer.pool import Listed, Pool
from phoenix.local.balancer.settings import Settings
from schemas import subjects
from services.runtime.log import get_log

AUDIT_INTERVAL_S = 2.0
AUDIT_DEADLINE_S = 2.0
FIRST_AUDIT_RETRY_S = 0.25  # until the first answer nothing can be served
ADDRESS_CHARS_MAX = 255

_log = get_log()


class _Fact(msgspec.Struct, frozen=True):
    unit: str = ""
    attempt: int = 0
    addresses: list[str | None] = []


class _Event(msgspec.Struct, frozen=True):
    kind: str
    fact: _Fact = _Fact()


class _Entry(msgspec.Struct, frozen=True):
    unit: str
    attempt: int
    state: str
    address: str | None = None
    cores: float | None = None


class _Listing(msgspec.Struct, frozen=True):
    instances: list[_Entry]


_events = msgspec.json.Decoder(_Event)
_listings = msgspec.json.Decoder(_Listing)


class Feed:
    """Keeps a pool up to date. `changed` is called after every change."""

    def __init__(self, settings: Settings, pool: Pool, changed: Callable[[], None]) -> None:
        self._settings = settings
        self._pool = pool
        self._changed = changed
        self.audited_at: float | None = None

    async def subscribe(self, client: Client) -> None:
        await client.subscribe(subjects.event(self._settings.department, ">"), cb=self._hear)

    async def _hear(self, message: Msg) -> None:
        if not message.subject.endswith((".attempt.began", ".attempt.closed")):
            return
        try:
            event = _events.decode(message.data)
        except msgspec.DecodeError as error:
            _log.warning("event cannot be read", subject=message.subject, error=error)
            return
        now = time.monotonic()
        if event.kind == "attempt.began":
            self._pool.began(event.fact.unit, event.fact.attempt, event.fact.addresses, now)
        elif event.kind == "attempt.closed":
            self._pool.closed(event.fact.unit, event.fact.attempt, now)
        self._changed()

    async def audit(self, client: Client) -> None:
        """Ask for the list of instances at once and every two seconds, until cancelled."""
        while True:
            try:
                await self._audit_once(client)
            except (nats.errors.Error, TimeoutError, msgspec.DecodeError, ValueError, OSError) as error:
                _log.warning("no list of instances", error=str(error) or type(error).__name__)
            await asyncio.sleep(FIRST_AUDIT_RETRY_S if self.audited_at is None else AUDIT_INTERVAL_S)

    async def _audit_once(self, client: Client) -> None:
        settings = self._settings
        asked_at = time.monotonic()
        subject = subjects.request(settings.department, settings.user, "instance", "list")
        answer = await client.request(
            subject, b"{}", timeout=AUDIT_DEADLINE_S, headers={"Content-Type": "application/json"}
        )
        listing = _listings.decode(answer.data)
        # `starting` has no address yet; its `attempt.began` or the next audit brings it.
        known = [
            Listed(
                unit=entry.unit,
                attempt=entry.attempt,
                address=(entry.address or "")[:ADDRESS_CHARS_MAX],
                draining=entry.state == "draining",
                cores=entry.cores or settings.instance_cores,
            )
            for entry in listing.instances
        ]
        now = time.monotonic()
        self._pool.audited(known, asked_at, now)
        self.audited_at = now
        self._changed()
