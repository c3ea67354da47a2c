"""The journal of a simulated cloud: in memory, one custody fold for all cores at the same position.

Theory of operation
  In production each service folds custody for itself; here all cores read the same prefix at the same time, so they share one
  fold.  Nothing else is different: every fact goes through `Custody.apply`, then through each core's `apply`, in journal order,
  void ones marked void.  `verify` replays a kept journal through separate folds and compares the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from schemas.envelope import FACTS_MAX
from schemas.facts import Fact
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.meta import Meta

Reader: TypeAlias = Callable[[Fact, Meta], None]


class Entry(NamedTuple):
    """One envelope."""

    writer: str
    at: float
    facts: tuple[Fact, ...]


class Journal:
    """`readers` get each fact after custody, in the order in which they joined."""

    def __init__(self, *, keep: bool = False) -> None:
        self.custody = Custody()
        self.readers: list[Reader] = []
        self.kept: list[Entry] | None = [] if keep else None
        self.position = 0
        self.facts = 0
        self.void = 0

    def append(self, writer: str, facts: Sequence[Fact], at: float) -> None:
        """Write what `writer` says at `at`, in envelopes of at most FACTS_MAX facts, and let all readers fold it."""
        if len(facts) > FACTS_MAX:
            for first in range(0, len(facts), FACTS_MAX):
                self.append(writer, facts[first : first + FACTS_MAX], at)
            return
        custody, readers = self.custody, self.readers
        self.position = position = self.position + 1
        self.facts += len(facts)
        if self.kept is not None:
            self.kept.append(Entry(writer, at, tuple(facts)))
        for index, fact in enumerate(facts):
            void = fold_fact(custody, fact, position, index, writer, at)
            broken = tuple(custody.newly_broken) if custody.newly_broken else ()
            unsaved = tuple(custody.newly_unsaved) if custody.newly_unsaved else ()
            at_now = custody.state.at
            meta = Meta(
                position=position, index=index, writer=writer, at=at_now, void=void, broken=broken, unsaved=unsaved
            )
            if void is not None:
                self.void += 1
            for read in readers:
                read(fact, meta)
