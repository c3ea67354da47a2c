"""The supervisor's own requests to NATS: the streams, as admin, and `config.apply`, as an operator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import nats.errors
from nats.aio.client import Client

from schemas import subjects
from schemas.config import CloudConfig
from schemas.problems import problem_in
from schemas.requests import ConfigApplied, ConfigApply
from services.runtime.broker import credentials
from services.runtime.broker.client import connected
from services.runtime.broker.streams import ensure_streams
from services.runtime.config.tables import Config
from services.runtime.log import message_of

CONNECT_S: Final = 10.0
APPLY_S: Final = 15.0
RELOAD_S: Final = 10.0  # it takes some milliseconds, on a busy machine a second
RELOAD_ASK_S: Final = 0.02
RELOADED: Final = (b"Reloaded server configuration", b"Failed to reload server configuration")
REFUSED_S: Final = 3.0  # another process may have asked for a reload
REFUSED_PAUSE_S: Final = 0.1


class BrokerError(Exception):
    """The broker or a service did not do what was asked; the message says what and why."""


async def make_streams(config: Config) -> list[str]:
    """Streams and buckets, made or verified; returns the names of those made.  Raises `BrokerError` or `Stop`."""
    client = await _connected(credentials.service_options(config, "admin"))
    try:
        async with asyncio.timeout(CONNECT_S * 3):
            return await ensure_streams(client.jetstream(timeout=CONNECT_S), config)
    except (nats.errors.Error, TimeoutError) as error:
        raise BrokerError(f"the streams could not be made: {message_of(error)}") from error
    finally:
        await client.close()


async def reload(hangup: Callable[[], None], log: Path) -> None:
    """`hangup` sends SIGHUP to nats-server.  Twice: the services that a new account imports are connected only when nats-server
    (2.15.1) reads its file once more."""
    for _ in range(2):
        await _reload(hangup, log)


async def _reload(hangup: Callable[[], None], log: Path) -> None:
    """The server says in its log when it has read its file: only then does it let in who is new, and no longer drop whom it
    finds between greeting and key.  One that does not say it within `RELOAD_S` is waited for no more: the next client to
    connect gets the error."""
    end = _size(log)
    hangup()
    deadline = asyncio.get_running_loop().time() + RELOAD_S
    while asyncio.get_running_loop().time() < deadline:
        answer = await asyncio.to_thread(_since, log, end)
        if any(words in answer for words in RELOADED):
            return
        await asyncio.sleep(RELOAD_ASK_S)


def _size(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


def _since(log: Path, end: int) -> bytes:
    """What has been added; everything, if it has been cut meanwhile."""
    if _size(log) == 0:
        return b""
    with log.open("rb") as file:
        file.seek(end if _size(log) >= end else 0)
        return file.read()


async def adopt(
    config: Config, cloud: CloudConfig, *, accept_late_leases: bool = False, dry_run: bool = False
) -> ConfigApplied:
    """Ask the provisioner to adopt `cloud`, or what would come of it.  Raises `BrokerError`."""
    operator = next((user for user in config.cloud.users if user.role == "operator"), None)
    if operator is None:
        raise BrokerError("the configuration in force has no operator, so no user may change it")
    client = await _connected(credentials.user_options(config, operator.name))
    subject = subjects.request(operator.department, operator.name, "config", "apply")
    payload = msgspec.json.encode(ConfigApply(config=cloud, accept_late_leases=accept_late_leases, dry_run=dry_run))
    try:
        answer = await client.request(subject, payload, timeout=APPLY_S, headers={"Content-Type": "application/json"})
    except (nats.errors.Error, TimeoutError) as error:
        raise BrokerError(f"the provisioner does not answer: {message_of(error)}") from error
    finally:
        await client.close()
    if (refused := problem_in(answer.data)) is not None:
        raise BrokerError(refused.detail)
    return msgspec.json.decode(answer.data, type=ConfigApplied)


async def _connected(options: dict[str, Any]) -> Client:
    """A connection that does not try again for ever: the caller waits for it.  A refusal is not the last word: nats-server
    drops whom it finds between greeting and key while it reloads its permissions (`reload`)."""
    loop = asyncio.get_running_loop()
    patient_until = loop.time() + REFUSED_S
    while True:
        try:
            async with asyncio.timeout(CONNECT_S):
                return await connected(**options, allow_reconnect=False, connect_timeout=5, error_cb=_quiet)
        except (nats.errors.Error, OSError, TimeoutError) as error:
            if loop.time() > patient_until:
                raise BrokerError(f"nats does not take the connection: {message_of(error)}") from error
        await asyncio.sleep(REFUSED_PAUSE_S)


async def _quiet(_error: Exception) -> None:
    """It is raised, too."""
