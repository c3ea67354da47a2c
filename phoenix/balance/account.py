"""A load balancer's account at the broker, and its connection.

Rules
  1. A broker that is not there yet is waited for; a wrong key ends the process (`Stop`, usage).
  2. A connection that the library has given up is a zombie: `on_closed`, and the process ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
from nats.aio.client import Client

from services.domain.exits import Exit, Stop
from services.runtime.broker import connect
from services.runtime.log import get_log

RECONNECT_PAUSE_S = 1.0

_log = get_log()


class Account(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user of the department.  `nkey`: path of the NATS seed file, None for a broker without authentication."""

    department: str
    user: str
    nats_url: str
    inbox_prefix: str
    nkey: str | None = None


async def connected(account: Account, name: str, on_closed: Callable[[], None]) -> Client:
    """A client, as soon as there is a broker.  Raises `Stop` if it refuses the key."""
    while True:
        try:
            return await connect.connect(
                account.nats_url,
                name=name,
                inbox=account.inbox_prefix,
                log=_log,
                seed_file=Path(account.nkey) if account.nkey else None,
                watch=connect.Watch(on_closed=on_closed),
            )
        except Stop as error:
            if error.code == Exit.USAGE:
                raise
            _log.warning("broker not reachable yet", error=error.why)
            await asyncio.sleep(RECONNECT_PAUSE_S)
