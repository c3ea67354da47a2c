"""Connections that the broker refused, in the audit: those with no key that it knows, and their addresses.

Theory of operation
  nats-server publishes each refused connection on a subject of its system account.  The configuration gives one key a place
  there, which receives that and can publish nothing.  With several monitors one of them receives each (a queue group).

Rules
  1. The caller is unknown: a key that was shown proves nothing until it is.  The record names the public key; what else was
     tried (a user, a password, a token) is left out, since people put secrets into the wrong place.
  2. At a bounded rate for each address, low enough that a program with a revoked key, which tries for ever, fills in a week
     what the audit keeps.
  3. A broker that is away, or does not know our key (its configuration is older, or a site's own), stops nothing: tried again.
  4. What a connection is denied later (a subject that it may not use) the server reports to the connection and its log alone.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Final

import msgspec
import nats.errors
from nats.aio.msg import Msg

from schemas.audit import MESSAGE_MAX, TEXT_MAX, AuditRecord
from services.runtime.broker import permissions
from services.runtime.broker.client import Client
from services.runtime.broker.connect import PING_INTERVAL_S, PINGS_MAX
from services.runtime.broker.credentials import seed_file
from services.runtime.broker.origin import program
from services.runtime.callers.audit import Sparingly
from services.runtime.clock import Clock, system_clock
from services.runtime.config.tables import Config
from services.runtime.log import Log

GROUP: Final = "audit"
CONNECT_S: Final = 5.0
AGAIN_S: Final = 2.0  # after a broker that was away
REFUSED_AGAIN_S: Final = 60.0  # each try is a line in the broker's log
TOLD_PER_S: Final = 1 / 60  # of one address: 10,080 a week; 10,000 messages are kept
TOLD_BURST: Final = 5.0
PENDING_MAX: Final = 1_000  # events; what is more is a flood, and most of it would be left out
_KEY: Final = re.compile(r"U[A-Z2-7]{55}")


class _Client(msgspec.Struct):
    host: str = ""
    user: str = ""
    name: str = ""
    lang: str = ""
    ver: str = ""


class _Event(msgspec.Struct):
    client: _Client
    reason: str = ""


class RefusedKeys:
    """`note` takes what goes to the audit."""

    def __init__(
        self,
        config: Config,
        note: Callable[[AuditRecord], None],
        log: Log,
        clock: Clock = system_clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url, self._seed = config.nats.url, seed_file(config, permissions.WATCH)
        self._log, self._clock = log, clock
        self._sparingly = Sparingly(note, monotonic, TOLD_PER_S, TOLD_BURST)
        self._said = ""

    async def run(self) -> None:
        """Listen for ever; return at once in an installation that has no such key."""
        while self._seed.exists():
            wait_s = AGAIN_S
            try:
                await self._listen()
            except (nats.errors.Error, OSError, TimeoutError) as error:
                why = str(error) or type(error).__name__
                wait_s = REFUSED_AGAIN_S if "authorization violation" in why.lower() else AGAIN_S
                self._say("refused connections are not in the audit", error=why)
            await asyncio.sleep(wait_s)

    async def _listen(self) -> None:
        """Until the connection ends."""
        ended = asyncio.Event()

        async def closed() -> None:
            ended.set()

        nc = Client()
        try:
            async with asyncio.timeout(CONNECT_S):
                await nc.connect(
                    self._url,
                    name="monitor: refused connections",
                    nkeys_seed=str(self._seed),
                    allow_reconnect=False,
                    max_reconnect_attempts=1,  # the client tries a first connection as often
                    reconnect_time_wait=0,
                    ping_interval=PING_INTERVAL_S,
                    max_outstanding_pings=PINGS_MAX,
                    closed_cb=closed,
                    error_cb=_quiet,
                )
            await nc.subscribe(permissions.REFUSED, queue=GROUP, cb=self._heard, pending_msgs_limit=PENDING_MAX)
            await nc.flush()
            self._say("refused connections are in the audit")
            await ended.wait()
        finally:
            await nc.close()

    async def _heard(self, msg: Msg) -> None:
        try:
            event = msgspec.json.decode(msg.data, type=_Event)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        self._sparingly.note(f"@{event.client.host}", lambda: record(event, self._clock()))

    def _say(self, message: str, **more: object) -> None:
        """Once, not at each try."""
        if message != self._said:
            self._log.info(message, **more)
            self._said = message


def record(event: _Event, at: float) -> AuditRecord:
    client, key = event.client, _KEY.fullmatch(event.client.user)
    why = (
        "the broker does not know this key, or its signature is wrong"
        if key
        else "no key that the broker knows was presented"
    )
    return AuditRecord(
        at=at,
        kind="broker.connect",
        outcome="refused",
        via="nats",
        names=(client.user,) if key else (),
        peer=client.host[:TEXT_MAX],
        client=program(client.name, client.lang, client.ver),
        code="denied",
        message=f"{why} ({event.reason})"[:MESSAGE_MAX],
    )


async def _quiet(_error: Exception) -> None:
    """It is raised, too, or the connection ends."""
