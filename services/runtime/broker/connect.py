"""One connection to NATS, with the settings under which it fails loudly (NATS.md 3.7).

Rules
  1. Reconnect for ever; but a connection that the library has *closed*, or that the broker refuses again and again, is a
     zombie: the process must end (`on_closed`).
  2. The outbound buffer is bounded; when it is full, `publish` raises and callers treat that as back-pressure.
  3. Errors that arrive asynchronously (permissions, slow consumers) are logged and counted, never lost.
  4. A client that stays silent although the broker answers others is stuck: `answers` distinguishes the two.
  5. Each process authenticates with its own key file and uses its own inbox, so that replies cannot leak between users.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import Client as AnyClient
from nats.js import JetStreamContext

from services.domain.exits import Exit, Stop
from services.runtime.broker import credentials, permissions
from services.runtime.broker.client import Client
from services.runtime.config.tables import Config
from services.runtime.log import Log, message_of

CONNECT_TIMEOUT_S: Final = 30.0  # a service may be started before its broker
RECONNECT_WAIT_S: Final = 0.2
PENDING_MAX_BYTES: Final = 4 << 20  # four envelopes: more would only be refused by the fence after a reconnect
REFUSALS_MAX: Final = 5  # in a row: a broker that is just being reconfigured may refuse once or twice
PING_INTERVAL_S: Final = 1  # with two outstanding: a broker that is silent for about 3 s is left
PINGS_MAX: Final = 2
DRAIN_TIMEOUT_S: Final = 3
PROBE_TIMEOUT_S: Final = 1.0
API_TIMEOUT_S: Final = 5.0
_VITAL: Final = ("phoenix.journal.", "$js.api.", "$kv.", "_inbox_service.")  # an asker's inbox may well be denied


def _ignore() -> None:
    """No listener."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Callbacks for the events of a connection.  Called from the connection's tasks, so they must be short."""

    on_closed: Callable[[], None] = _ignore
    on_reconnected: Callable[[], None] = _ignore
    on_error: Callable[[Exception], None] = lambda _error: None


async def connect(
    url: str,
    *,
    name: str,
    inbox: str,
    log: Log,
    seed_file: Path | None = None,
    watch: Watch | None = None,
) -> Client:
    """A connected client.  `inbox`: this user's inbox prefix; `seed_file`: its nkey seed (None: no authentication).
    Raises `Stop` if the broker cannot be reached or refuses the key."""
    told = watch or Watch()

    client = Client()
    refusals = 0

    async def closed() -> None:
        told.on_closed()

    async def disconnected() -> None:
        if not client.is_closed:  # not who closes it
            log.warning("nats disconnected")

    async def reconnected() -> None:
        nonlocal refusals
        refusals = 0
        log.info("nats reconnected")
        told.on_reconnected()

    async def failed(error: Exception) -> None:
        nonlocal refusals
        log.warning("nats error", error=message_of(error))
        told.on_error(error)
        if "authorization violation" in str(error).lower():
            refusals += 1
            if refusals >= REFUSALS_MAX and connecting:
                raise Stop(Exit.USAGE, f"nats at {url} does not have the key of {name}; `phoenix up` writes the keys")
            if refusals == REFUSALS_MAX:
                told.on_closed()  # the library would try for ever

    connecting = True
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await client.connect(
                url,
                name=name,
                nkeys_seed=str(seed_file) if seed_file else None,
                inbox_prefix=inbox,
                max_reconnect_attempts=-1,
                reconnect_time_wait=RECONNECT_WAIT_S,
                ping_interval=PING_INTERVAL_S,
                max_outstanding_pings=PINGS_MAX,
                pending_size=PENDING_MAX_BYTES,
                drain_timeout=DRAIN_TIMEOUT_S,
                closed_cb=closed,
                disconnected_cb=disconnected,
                reconnected_cb=reconnected,
                error_cb=failed,
            )
    except TimeoutError as error:
        raise Stop(Exit.FAILED, f"nats at {url} was not reachable within {CONNECT_TIMEOUT_S:.0f} s") from error
    except FileNotFoundError as error:
        raise Stop(Exit.USAGE, f"{seed_file}: no key for {name}; `phoenix up` writes one for each service") from error
    except (nats.errors.Error, OSError) as error:
        raise Stop(Exit.FAILED, f"nats at {url}: {message_of(error)}") from error
    connecting = False
    return client


def service_key(config: Config, process: str) -> tuple[str, Path | None]:
    """Inbox prefix and seed file of a service process; no seed file if the installation has no credentials at all (a broker
    without users, as in tests)."""
    directory = config.nats.credentials_dir
    seed = credentials.seed_file(config, permissions.service_credential(process)) if directory.is_dir() else None
    return permissions.service_inbox(process), seed


def is_vital_denial(error: Exception) -> bool:
    """True if the broker denies something without which a service is of no use.  A denial arrives as an asynchronous error and
    nowhere else: to the call it looks like a timeout."""
    text = str(error).lower()
    return "permissions violation" in text and any(part in text for part in _VITAL)


async def answers(url: str) -> bool:
    """True if a broker greets a new connection to `url`."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 4222)
            try:
                return await reader.readexactly(4) == b"INFO"
            finally:
                writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return False


def jetstream(client: AnyClient) -> JetStreamContext:
    """JetStream with a deadline on every call."""
    return client.jetstream(timeout=API_TIMEOUT_S)
