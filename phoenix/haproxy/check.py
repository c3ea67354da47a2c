"""`phoenix-haproxy --check`: looks at everything that the agent needs, changes nothing, and reports what would be right.

ok     haproxy 2.6.12-1+deb12u3 answers on /run/haproxy/phoenix.sock
wrong  /run/haproxy/phoenix.sock has level operator: the agent needs `level admin` in haproxy.cfg
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import nats.errors

from phoenix.balance.feed import Listed
from phoenix.haproxy.runtime_api import GoneError, RuntimeApi
from phoenix.haproxy.settings import Settings
from phoenix.haproxy.slots import AnswerError, Reading
from schemas import subjects
from services.domain.exits import Exit
from services.runtime.broker import connect
from services.runtime.broker.client import Client
from services.runtime.log import message_of

DEADLINE_S: Final = 5.0
OLDEST: Final = (2, 4)  # `show servers state` with ports and checks as they are read here


class _Listing(msgspec.Struct, frozen=True):
    instances: tuple[Listed, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """`right`: what would be right, or how to get there; empty if all is well."""

    what: str
    right: str = ""

    def text(self) -> str:
        return f"wrong  {self.what}: {self.right}" if self.right else f"ok     {self.what}"


async def run(settings: Settings) -> int:
    """Print a line a finding; returns the exit code: USAGE if anything is wrong."""
    found = [*await _haproxy(settings), *await _broker(settings)]
    for finding in found:
        print(finding.text())
    return int(Exit.USAGE if any(finding.right for finding in found) else Exit.OK)


async def _haproxy(settings: Settings) -> list[Finding]:
    api = RuntimeApi(Path(settings.socket), settings.backend, settings.slots, settings.health_map)
    try:
        info, level = await api.ask("show info"), (await api.ask("show cli level")).strip()
    except GoneError as error:
        right = "HAProxy must run, `stats socket` in haproxy.cfg name this path, and this user be the socket's owner"
        return [Finding(str(error), right)]
    found = [_version(info, settings.socket)]
    if level != "admin":
        found.append(Finding(f"{settings.socket} has level {level}", "the agent needs `level admin` in haproxy.cfg"))
    try:
        return found + _slots(settings, await api.read())
    except AnswerError as error:
        return [
            *found,
            Finding(str(error), f"`backend` must name the backend in haproxy.cfg; it is {settings.backend}"),
        ]
    except GoneError as error:
        return [*found, Finding(str(error), "HAProxy has gone while it was looked at")]


def _version(info: str, socket: str) -> Finding:
    version = next((line.partition(": ")[2] for line in info.splitlines() if line.startswith("Version: ")), "")
    what = f"haproxy {version} answers on {socket}"
    numbers = version.split("-")[0].split(".")[:2]
    with contextlib.suppress(ValueError):
        if tuple(int(number) for number in numbers) >= OLDEST:
            return Finding(what)
    return Finding(what, f"it must be {OLDEST[0]}.{OLDEST[1]} or newer")


def _slots(settings: Settings, reading: Reading) -> list[Finding]:
    name, slots = f"backend {settings.backend}", reading.slots
    if not slots:
        right = f"`server-template {settings.slots} 1-64 …`, or another `slots` in this file"
        return [Finding(f"{name} has no server whose name begins with {settings.slots}", right)]
    unchecked = [slot.name for slot in slots if not slot.is_checked]
    if unchecked:
        right = "without `check` in default-server or server-template no instance gets requests"
        return [Finding(f"{name}: {len(unchecked)} of {len(slots)} slots have no health check", right)]
    free = sum(slot.ordered == "maint" for slot in slots)
    found = [Finding(f"{name} has {len(slots)} slots, {free} of them free")]
    if not reading.has_map:
        right = "`http-check send … uri-lf` of haproxy.cfg must use it, or no release may have another health path"
        found.append(Finding(f"{name} has no map {settings.health_map} of health paths", right))
    return found


async def _broker(settings: Settings) -> list[Finding]:
    if settings.nkey is not None and not os.access(settings.nkey, os.R_OK):
        return [Finding(f"{settings.nkey} cannot be read", f"the nkey of user {settings.user}, owned by this user")]
    if not await connect.answers(settings.nats_url):
        return [Finding(f"{settings.nats_url}: no broker answers there", "`nats_url` is the site's nats-server")]
    refusals: list[str] = []

    async def refused(error: Exception) -> None:
        refusals.append(message_of(error))

    client = Client()
    try:
        async with asyncio.timeout(DEADLINE_S):
            await client.connect(
                settings.nats_url,
                name=f"haproxy-{settings.department}-check",
                nkeys_seed=settings.nkey,
                inbox_prefix=subjects.inbox(settings.department, settings.user),
                allow_reconnect=False,
                error_cb=refused,
            )
            return [
                Finding(f"{settings.user} is known at {settings.nats_url}"),
                await _door(settings, client, refusals),
            ]
    except (nats.errors.Error, OSError, TimeoutError) as error:
        why = refusals[0] if refusals else str(error) or "no answer in time"
        return [Finding(f"{settings.nats_url}: {why}", f"a broker that knows {settings.user}'s key (`nkey`)")]
    finally:
        with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
            async with asyncio.timeout(DEADLINE_S):
                await client.close()


async def _door(settings: Settings, client: Client, refusals: list[str]) -> Finding:
    subject = subjects.request(settings.department, settings.user, "instance", "list")
    headers = {"Content-Type": "application/json"}
    try:
        answer = await client.request(subject, b"{}", timeout=DEADLINE_S / 2, headers=headers)
        listing = msgspec.json.decode(answer.data, type=_Listing)
    except (nats.errors.Error, TimeoutError) as error:
        why = refusals[0] if refusals else str(error) or "no answer"
        return Finding(
            f"instances not listed: {why}", f"{settings.user} must be a user of department {settings.department}"
        )
    except msgspec.DecodeError:
        told = answer.data.decode("utf-8", "replace")[:300]
        return Finding(f"instances not listed: {told}", f"{settings.department} must be a web department")
    number = len(listing.instances)
    return Finding(f"{settings.department} has {number} {'instance' if number == 1 else 'instances'}")
