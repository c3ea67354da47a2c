"""The instances that the department has now, according to the feed: what HAProxy's slots are to hold.

Rules
  1. An instance is wanted from its `attempt.began` (or the audit that lists it with an address) until it is closed.
  2. Draining is for ever: load that comes back starts a new instance.
  3. Two cannot listen at one address: the one that began there later displaces the earlier, which is over though its end has
     not arrived yet.
  4. An audit speaks of the moment at which it was asked: it removes nothing that came later, and brings back nothing closed.
  5. What an instance is asked for its health, and how many requests it may have at once, an audit says: mostly while it boots,
     before it has an address.
  6. Nothing is known before the first audit (`is_known`): what HAProxy holds then may well be right, and is left as it is.
Pure: times come in as arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from phoenix.balance.feed import Listed
from phoenix.haproxy.slots import Address, address_of
from schemas.releases import health_path_fits

CLOSED_REMEMBERED_MAX: Final = 10_000  # attempts; an audit that is older than that many closings does not exist

Key: TypeAlias = tuple[str, int, int]  # unit, attempt, rank


@dataclass(slots=True)
class Wanted:
    """One instance: rank `rank` of `attempt` of `unit`, listening at `address`.  `health_path`: "" if not told yet;
    `connections`: requests at once, 0 if not told."""

    unit: str
    attempt: int
    rank: int
    address: Address
    cores: float = 1.0
    draining: bool = False
    added_at: float = 0.0
    health_path: str = ""
    connections: int = 0

    @property
    def key(self) -> Key:
        return (self.unit, self.attempt, self.rank)


class Table:
    """Instances by unit, attempt and rank, in the order in which they came."""

    def __init__(self) -> None:
        self._wanted: dict[Key, Wanted] = {}
        self._closed: dict[tuple[str, int], None] = {}  # oldest first
        self._starting: dict[tuple[str, int], Listed] = {}  # of the last audit (rule 5)
        self.unusable: dict[Key, str] = {}  # address or health path of instances, if none that a server can be given
        self.is_known = False

    def all(self) -> list[Wanted]:
        return list(self._wanted.values())

    # ---------------------------------------------------------------------------------------------------- the feed's words

    def began(self, unit: str, attempt: int, addresses: Iterable[str | None], now: float) -> None:
        if (unit, attempt) in self._closed:
            return
        for rank, text in enumerate(addresses):
            key = (unit, attempt, rank)
            if not text or key in self._wanted:
                continue
            address = address_of(text)
            if address is None:
                self.unusable[key] = text
                continue
            self._displace(address)
            self._wanted[key] = wanted = Wanted(unit, attempt, rank, address, added_at=now)
            if (unit, attempt) in self._starting:
                self._tell(wanted, self._starting[unit, attempt])

    def draining(self, unit: str, attempt: int, until: float | None, now: float) -> None:  # noqa: ARG002  (the feed's table)
        for wanted in self._of(unit, attempt):
            wanted.draining = True

    def closed(self, unit: str, attempt: int, now: float) -> None:  # noqa: ARG002
        self._closed.setdefault((unit, attempt))
        while len(self._closed) > CLOSED_REMEMBERED_MAX:
            del self._closed[next(iter(self._closed))]
        for wanted in self._of(unit, attempt):
            del self._wanted[wanted.key]
        self.unusable = {key: text for key, text in self.unusable.items() if key[:2] != (unit, attempt)}

    def audited(self, listed: Sequence[Listed], asked_at: float, now: float) -> None:
        self.is_known = True
        open_ = [entry for entry in listed if not entry.is_over]
        named = {(entry.unit, entry.attempt) for entry in open_}
        for wanted in self.all():
            if (wanted.unit, wanted.attempt) not in named and wanted.added_at < asked_at:
                self.closed(wanted.unit, wanted.attempt, now)
        for key in [key for key in self.unusable if key[:2] not in named]:
            del self.unusable[key]
        for entry in open_:
            if not self._of(entry.unit, entry.attempt):
                self.began(entry.unit, entry.attempt, [entry.address], now)
            for wanted in self._of(entry.unit, entry.attempt):
                self._tell(wanted, entry)
        self._starting = {(entry.unit, entry.attempt): entry for entry in open_ if entry.state == "starting"}

    # --------------------------------------------------------------------------------------------------------------------

    def _of(self, unit: str, attempt: int) -> list[Wanted]:
        return [wanted for wanted in self._wanted.values() if (wanted.unit, wanted.attempt) == (unit, attempt)]

    def _tell(self, wanted: Wanted, entry: Listed) -> None:
        """Rule 5.  What is in a path goes into a command: admission has checked it, and so does its user here."""
        wanted.cores, wanted.connections = entry.cores, entry.connections
        wanted.draining = wanted.draining or entry.state == "draining"
        if entry.health_path is not None and health_path_fits(entry.health_path):
            wanted.health_path = entry.health_path
        elif entry.health_path is not None:
            self.unusable[wanted.key] = entry.health_path

    def _displace(self, address: Address) -> None:
        for wanted in self.all():
            if wanted.address == address:
                del self._wanted[wanted.key]
