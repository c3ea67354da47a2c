"""A load balancer's session with the broker: it receives where instances are and how busy they are, and reports what it
sees."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

import nats.errors
from nats.aio.client import Client

from phoenix.balance.account import Account, connected
from phoenix.balance.feed import Feed
from phoenix.balance.reporter import Reporter
from phoenix.balance.utilisation import Usages

CLOSE_DEADLINE_S: Final = 2.0
Publisher = Callable[[Client], Coroutine[Any, Any, None]]


async def talk(
    account: Account,
    name: str,
    on_closed: Callable[[], None],
    *,
    feed: Feed,
    usages: Usages,
    reporter: Reporter,
    publishers: Iterable[Publisher],
) -> None:
    """Everything that needs the broker, from the moment that there is one, until it is cancelled.  Raises `Stop` as `connected`
    does, and what a publisher raises."""
    client = await connected(account, name, on_closed)
    try:
        await feed.subscribe(client)
        await usages.subscribe(client, account.department)
        async with asyncio.TaskGroup() as group:
            group.create_task(feed.audit(client))
            group.create_task(reporter.run(client))
            for publish in publishers:
                group.create_task(publish(client))
    finally:
        with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                await client.close()
