"""What accounting remembers beside its sums: levels since when, open attempts, and what a late success may take back.

Times are whole milliseconds since 1970 unless they end in `_s`.  Everything is bounded by what custody holds: hosts,
open attempts, units that are not over.
"""

from __future__ import annotations

import msgspec

from schemas.size import NOTHING, Size
from services.domain.core import NEVER
from services.monitor.core import goodput
from services.monitor.core.buckets import Buckets, Site


class Levels(msgspec.Struct, array_like=True):
    """What a department has, and since when it has not been added up."""

    since: int = 0
    held: int = 0
    occupied: int = 0
    draining: int = 0
    own: int = 0
    noticed: int = 0
    size: Size = NOTHING  # of held hosts together
    apart: int = 0  # of the held hosts, those that are cordoned


class Whereabouts(msgspec.Struct, array_like=True):
    """A host as it was counted."""

    state: str
    dept: str
    size: Size


class Work(msgspec.Struct, array_like=True):
    """Core-milliseconds of a unit that are not lost while it may continue.  `risked`: ran in attempts that were suspended;
    `kept`: saved by checkpoints."""

    risked: int = 0
    kept: int = 0


class Run(msgspec.Struct, array_like=True):
    """An open attempt.  `size`: on all its hosts together; `saved_at`: its last checkpoint; `before`: what the unit's
    earlier attempts did for it."""

    key: str
    since: int
    size: Size
    best_effort: bool
    before: Work
    began_at: int | None = None
    saved_at: int | None = None
    broken_at: int | None = None
    settled: int = 0  # core-milliseconds that it had used at `since`

    def risked(self, now: int) -> int:
        """Core-milliseconds that are lost if it has to be run again (`accounting`, rule 3)."""
        if self.began_at is None:
            return self.before.risked
        end = now if self.broken_at is None else self.broken_at
        since = self.began_at if self.saved_at is None else max(self.began_at, self.saved_at)
        return self.before.risked + self.size.cores * max(0, end - since)

    def save(self, now: int) -> None:
        """A checkpoint: what came before is lost only if the unit is killed."""
        self.before, self.saved_at = Work(0, self.before.kept + self.risked(now)), now


class Loss(msgspec.Struct, array_like=True):
    """What a unit's last attempt lost, until the next one begins or the unit ends: until it is placed a late success takes it
    back, and a checkpoint all the while.  `to`: to whom, in equal parts; empty: to a failure."""

    key: str
    at: int
    amount: int
    to: tuple[str, ...]

    def parts(self) -> list[Loss]:
        """One for each to whom it was lost, or the loss itself; together they are all of it, to the millisecond."""
        if len(self.to) < 2:
            return [self]
        each, over = divmod(self.amount, len(self.to))
        return [Loss(self.key, self.at, each + (n < over), (one,)) for n, one in enumerate(self.to)]


class News:
    """What the last fact brought to light, for the history: hours that are over, and losses (unit, loss, 1 or -1: taken back).
    No part of the state."""

    def __init__(self) -> None:
        self.hours: list[Buckets] = []
        self.losses: list[tuple[str, Loss, int]] = []

    def clear(self) -> None:
        if self.hours or self.losses:
            self.hours, self.losses = [], []


class State(msgspec.Struct, kw_only=True):
    """`began_at`: time of the first fact, milliseconds; `at`: of the last one."""

    began_at: int | None = None
    at: int = 0
    book: Buckets = msgspec.field(default_factory=Buckets)
    fresh: Buckets = msgspec.field(
        default_factory=Buckets
    )  # measured since the last full hour, and not in the book yet
    levels: dict[str, Levels] = {}
    site: Site = msgspec.field(default_factory=Site)  # levels, not sums
    site_since: int = 0
    hosts: dict[str, Whereabouts] = {}
    runs: dict[str, Run] = {}  # by unit
    work: dict[str, Work] = {}  # of units that wait for their next attempt
    losses: dict[str, Loss] = {}
    claimants: dict[str, tuple[str, ...]] = {}  # department -> for whom its quota was lowered last
    usable: int = 0
    own: dict[str, int] = {}
    goodput: goodput.State = msgspec.field(default_factory=goodput.State)
    own_until: float = NEVER  # UTC seconds: when a window opens or closes
