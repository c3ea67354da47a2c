"""Whether the broker still writes: a stream whose write failed once is written no more until nats-server is started again.

Measured with nats-server 2.15.1 on a full file system: the first write that fails ("no space left on device") stops the store
of that stream permanently, also when there is space again.  Publishers to it get no answer at all; reading it, its state
and the other streams work.  The server reports it in its health check, which the system account may request.

Rules
  1. Asking writes nothing, and takes one connection of its own with the key of the system account (`permissions.WATCH`).
  2. Every server of a cluster answers, and their number is unknown: all answers within `ANSWERS_S` count.  Without
     any answer nothing is known, which is an error, not health.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec
import nats.errors

from services.runtime.broker import permissions
from services.runtime.broker.client import Client
from services.runtime.broker.credentials import seed_file
from services.runtime.config.tables import Config

CONNECT_S: Final = 2.0
ANSWERS_S: Final = 1.0  # one server of the same machine takes about a millisecond
ANSWERS_MAX: Final = 16  # servers of a cluster; JetStream is run on three or five
# in the server's text; a replica that is behind is another error, which mends itself
WRITE_ERROR: Final = "write error"
_QUESTION: Final = b'{"details": true}'


class _Error(msgspec.Struct):
    stream: str = ""
    error: str = ""


class _Health(msgspec.Struct):
    errors: list[_Error] = []


class _Answer(msgspec.Struct):
    data: _Health = msgspec.field(default_factory=_Health)


def may_ask(config: Config) -> bool:
    """False in an installation without credentials, or one that has no key for the system account."""
    return seed_file(config, permissions.WATCH).exists()


async def stopped(config: Config, *, servers: int = ANSWERS_MAX) -> dict[str, str]:
    """The streams that the broker writes no more, each with the system's error.  `servers`: the number of answers that
    are waited for.  Raises `nats.errors.Error`, OSError or TimeoutError."""
    nc = Client()
    try:
        async with asyncio.timeout(CONNECT_S):
            await nc.connect(
                config.nats.url,
                name="are stores written",
                nkeys_seed=str(seed_file(config, permissions.WATCH)),
                inbox_prefix=permissions.WATCH_INBOX,
                allow_reconnect=False,
                max_reconnect_attempts=1,  # the client tries a first connection as often
                reconnect_time_wait=0,
                error_cb=_quiet,
            )
        return read(await _answers(nc, servers))
    finally:
        await nc.close()


async def _answers(nc: Client, servers: int) -> list[bytes]:
    inbox = nc.new_inbox()
    subscription = await nc.subscribe(inbox, max_msgs=servers)
    await nc.publish(permissions.HEALTH, _QUESTION, reply=inbox)
    found: list[bytes] = []
    try:
        async with asyncio.timeout(ANSWERS_S):
            while len(found) < servers:
                found.append((await subscription.next_msg(timeout=ANSWERS_S)).data)
    except (TimeoutError, nats.errors.TimeoutError):
        if not found:
            raise TimeoutError("the broker does not say whether it writes") from None
    return found


def read(answers: Iterable[bytes]) -> dict[str, str]:
    """By stream, what the servers say of it.  TimeoutError for an answer that cannot be read: nothing is known then."""
    found: dict[str, str] = {}
    for answer in answers:
        try:
            health = msgspec.json.decode(answer, type=_Answer).data
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise TimeoutError("the broker's health check cannot be read") from error
        found |= {
            each.stream: each.error.rpartition(": ")[2]
            for each in health.errors
            if each.stream and WRITE_ERROR in each.error
        }
    return found


async def _quiet(_error: Exception) -> None:
    """It is raised, too."""
