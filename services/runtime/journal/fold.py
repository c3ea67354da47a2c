"""The fold of a journal: messages in, custody and core state out.  The same code for live, replay and rebuild.

Rules
  1. Custody first, then the core, in journal order; void facts reach the core marked void (S4).
  2. Garbage is void for every reader, counted; it counts for its subject's sequence (S10).
  3. An unknown kind is counted and skipped, unless custody would read it: then `Incompatible` leaves here (S8).
  4. `own_last` is the sequence of the last message *folded* on the own subject: what the next append expects (S1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final, NamedTuple

from schemas.envelope import Garbage, Received, UnknownFact, decode
from schemas.facts import Fact, kind_of
from schemas.subjects import JOURNAL
from services.domain.core import Core
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.meta import Meta

_PREFIX: Final = len(JOURNAL) + 1
CoreFactory = Callable[[Custody], Core]


class Stored(NamedTuple):
    """One message of the journal: stream sequence, subject, bytes, and the broker's time of storing it (UTC seconds)."""

    position: int
    subject: str
    data: bytes
    stored_at: float


class Fold:
    """State after `position`.  `garbage`, `unknown`, `applied` and `voided` count since this object was made."""

    __slots__ = (
        "applied",
        "core",
        "custody",
        "garbage",
        "listener",
        "own_last",
        "position",
        "unknown",
        "voided",
        "writer",
    )

    def __init__(self, writer: str | None, core_factory: CoreFactory) -> None:
        self.writer = writer
        self.custody = Custody()
        self.core = core_factory(self.custody)
        self.position = 0
        self.own_last = 0
        self.garbage = 0
        self.unknown = 0
        self.applied: defaultdict[type, int] = defaultdict(int)
        self.voided: dict[tuple[str, str], int] = {}
        self.listener: Callable[[Fact, Meta], None] | None = None  # told after each apply

    def reset(self, core_factory: CoreFactory) -> None:
        """Begin again from the start of the journal."""
        self.custody = Custody()
        self.core = core_factory(self.custody)
        self.position = self.own_last = 0

    def feed(self, message: Stored) -> tuple[Received | None, list[tuple[Fact, Meta]]]:
        """Fold one message; returns its envelope (None: garbage) and its facts with the metadata that the core received for
        each."""
        position = message.position
        writer = message.subject[_PREFIX:]
        self.position = position
        if writer == self.writer:
            self.own_last = position
        try:
            envelope = decode(message.data, writer)
        except Garbage:
            self.garbage += 1
            return None, []
        return envelope, self._apply(envelope, position, writer)

    def _apply(self, envelope: Received, position: int, writer: str) -> list[tuple[Fact, Meta]]:
        custody, core, counts = self.custody, self.core, self.applied
        seen: list[tuple[Fact, Meta]] = []
        for index, fact in enumerate(envelope.facts):
            void = fold_fact(custody, fact, position, index, writer, envelope.at)
            if type(fact) is UnknownFact:
                self.unknown += 1
                continue
            broken = tuple(custody.newly_broken) if custody.newly_broken else ()
            meta = Meta(
                position=position,
                index=index,
                writer=writer,
                at=custody.state.at,
                cause=envelope.cause,
                void=void,
                broken=broken,
                unsaved=tuple(custody.newly_unsaved) if custody.newly_unsaved else (),
            )
            core.apply(fact, meta)
            if self.listener is not None:
                self.listener(fact, meta)
            seen.append((fact, meta))
            if void is None:
                counts[type(fact)] += 1
            else:
                key = (kind_of(fact), void.value)
                self.voided[key] = self.voided.get(key, 0) + 1
        return seen
