"""The signals of a load balancer, published (docs/reference/signals.md has their meaning).

A signal that cannot be published is lost: the next one repeats it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import nats.errors
from nats.aio.client import Client

from phoenix.balance.account import Account
from schemas import subjects
from schemas.signals import NAME, AnySignal, encode
from services.runtime.log import get_log, message_of

_log = get_log()


async def publish(client: Client, account: Account, signal: AnySignal) -> bool:
    """Publish one of `schemas.signals`; False if the broker is away."""
    if not client.is_connected:
        return False
    try:
        subject = subjects.signal(account.department, account.user, NAME[type(signal)])
        await client.publish(subject, encode(signal))
    except (nats.errors.Error, OSError) as error:
        _log.warning("signal not sent", error=message_of(error))
        return False
    return True


async def ticks(interval_s: float) -> AsyncIterator[None]:
    """Once an interval; what is late is not made up for."""
    due = time.monotonic()
    while True:
        due = max(due + interval_s, time.monotonic())
        await asyncio.sleep(due - time.monotonic())
        yield
