"""What the executor remembers beside custody, as a snapshot has it (`ledger`)."""

from __future__ import annotations

from typing import Final

import msgspec

from schemas.size import Size
from services.executor.core.lifecycle import Aim

MOVE_WAIT_S: Final = 1.0  # for the news of the new place, which comes with the closing or a few ms later
PAUSED: Final = "%starts"  # what VMs wait for while starts are paused: neither a key of custody nor a host
LINGER_S: Final = 2.0  # from the report to the guest's next call: its outputs are sent by then, and it calls at once


class Room(msgspec.Struct, array_like=True):
    """What one VM takes of its host."""

    size: Size
    exclusive: bool = False
    host: str = ""
    vm: int = -1


class Kept(msgspec.Struct, array_like=True):
    """`until`: for how long one that moves waits for its place, or one that waits for a job (UTC seconds)."""

    aim: Aim
    until: float


class Leaving(msgspec.Struct, array_like=True):
    """A VM that was bound to its attempt while it ran: `rooms` on hosts where it may be still, and when it is ended if it is
    (UTC seconds)."""

    rooms: list[Room]
    by: float


class Paused(msgspec.Struct, array_like=True):
    """Starts are paused since then (UTC seconds), because of this."""

    since: float
    why: str


class LedgerState(msgspec.Struct, kw_only=True):
    """`doomed`: key of an open VM -> when it is ended hard (UTC seconds); `kept`, `leaving`: as above; `rooms`: key of every
    open VM -> its room; `users`: unit -> whose it is, in departments whose warm VMs are their user's; `told`: host -> share of
    its cores in use, as `host.observed` said it last (`utilisation_reports`); `paused`: starts are (`site_fault`);
    `refusals`: unit -> attempt for which OpenNebula was reported to allocate no VM."""

    doomed: dict[str, float] = {}
    kept: dict[str, Kept] = {}
    leaving: dict[str, Leaving] = {}
    rooms: dict[str, Room] = {}
    users: dict[str, str] = {}
    told: dict[str, float] = {}
    paused: Paused | None = None
    refusals: dict[str, int] = {}
