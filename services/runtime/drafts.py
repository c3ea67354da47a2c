"""Drafting: which facts go into the next envelope, and what becomes of them when they come back.

Rules
  1. An envelope holds at most FACTS_MAX facts and BYTES_MAX bytes.  What `decide` returned beyond that is dropped: decide is
     level-triggered and returns it again.  A proposal that does not fit waits for the next envelope; one that can never fit
     is refused.
  2. Proposals and decided facts share envelopes.  Proposals come first; decided facts that were crowded out come first the next
     time, and only then, so neither starves.
  3. A proposal without facts is answered with the envelope, if one is drafted: an earlier proposal in it may be the reason
     for having none (the same request twice), and that one is not stored yet.
  4. While the journal is nearly full, what begins or changes something is refused (`journal.headroom`).
  5. The same fact void VOIDS_MAX times within MEMORY own envelopes is a defect that repetition does not cure (S4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from schemas.envelope import BYTES_MAX, FACTS_MAX, Envelope, encode, fact_size
from schemas.facts import Fact, begins, kind_of
from services.domain.custody.meta import Meta
from services.domain.exits import Exit, Stop
from services.domain.refusal import Refused
from services.runtime.journal.append import Parcel
from services.runtime.journal.headroom import Room
from services.runtime.proposals import Outcome, Proposal

CAUSE_MAX: Final = 256  # characters: the causes of many proposals in one envelope
VOIDS_MAX: Final = 5  # PROTOCOL S4, n
MEMORY: Final = 64  # own envelopes after which a void fact is forgotten


@dataclass(slots=True, eq=False)
class Draft:
    """One envelope before and on its way.  `shares`: each proposal with the span of its facts."""

    facts: list[Fact] = field(default_factory=list)
    causes: dict[str, None] = field(default_factory=dict)
    shares: list[tuple[Proposal, int, int]] = field(default_factory=list)
    bytes: int = 0
    crowded: bool = False  # decided facts were left out for want of room
    parcel: Parcel | None = None

    def has_room(self, count: int, size: int) -> bool:
        return len(self.facts) + count <= FACTS_MAX and self.bytes + size <= BYTES_MAX

    def add_decided(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            size = fact_size(fact)
            if size > BYTES_MAX:
                raise Stop(
                    Exit.FAILED, f"decide returned a {kind_of(fact)} of {size} bytes; at most {BYTES_MAX} can be stored"
                )
            if not self.has_room(1, size):
                self.crowded = True
                return
            self.facts.append(fact)
            self.bytes += size

    def add_proposals(self, waiting: deque[Proposal], now: float, position: int, room: Room | None = None) -> None:
        """Compose what waits, in order, until one does not fit.  `room`: of a journal that is nearly full."""
        proposed: list[Fact] = []
        while waiting:
            proposal = waiting[0]
            if proposal.answer.done():  # its caller has given up
                waiting.popleft()
                continue
            facts = _compose(proposal, now, proposed)
            if facts is not None and room is not None and any(map(begins, facts)):
                proposal.answer.set_exception(room.refuse())
                facts = None
            if facts is not None:
                size = sum(map(fact_size, facts))
                if not self.has_room(len(facts), size):
                    return
                self._share(proposal, facts, size)
                proposed += facts
            waiting.popleft()
        self._answer_empty(position)

    def _share(self, proposal: Proposal, facts: list[Fact], size: int) -> None:
        start = len(self.facts)
        self.facts += facts
        self.bytes += size
        self.shares.append((proposal, start, len(self.facts)))
        if proposal.cause:
            self.causes[proposal.cause] = None

    def _answer_empty(self, position: int) -> None:
        if not self.facts:
            for proposal, _, _ in self.shares:
                proposal.answer.set_result(Outcome([], position))
            self.shares.clear()

    def seal(self, *, id: str, writer: str, epoch: int, at: float, position: int) -> Parcel:
        """The envelope as bytes.  `position`: what was folded; the cause of what no request led to."""
        cause = " ".join(self.causes)[:CAUSE_MAX] or str(position)
        facts = tuple(self.facts)
        envelope = Envelope(id=id, writer=writer, epoch=epoch, at=at, cause=cause, facts=facts)
        self.parcel = Parcel(id, encode(envelope))
        return self.parcel

    def came_back(self, seen: list[tuple[Fact, Meta]], position: int) -> None:
        for proposal, start, stop in self.shares:
            if not proposal.answer.done():
                proposal.answer.set_result(Outcome(seen[start:stop], position))

    def refuse(self, error: Refused) -> None:
        for proposal, _, _ in self.shares:
            if not proposal.answer.done():
                proposal.answer.set_exception(error)


def _compose(proposal: Proposal, now: float, drafted: Sequence[Fact]) -> list[Fact] | None:
    """The proposal's facts; None if it was answered with an error instead."""
    try:
        facts = proposal.compose(now, drafted)
    except Exception as error:  # a defect in one request's composition is that request's error, not that of all
        proposal.answer.set_exception(error)
        return None
    if len(facts) > FACTS_MAX or sum(map(fact_size, facts)) > BYTES_MAX:
        text = (
            f"this request makes {len(facts)} facts; at most {FACTS_MAX} facts and {BYTES_MAX} bytes fit into one step"
        )
        proposal.answer.set_exception(Refused("limit", text))
        return None
    return facts


class VoidStreaks:
    """Counts own facts that come back void again and again."""

    def __init__(self) -> None:
        self._streaks: dict[bytes, tuple[int, int]] = {}  # identity -> times in a row, own envelope of the last one
        self._envelopes = 0

    def note(self, seen: list[tuple[Fact, Meta]]) -> None:
        """One own envelope came back.  Raises `Stop` at VOIDS_MAX."""
        self._envelopes += 1
        for fact, meta in seen:
            if meta.void is None and not self._streaks:
                continue
            key = identity(fact)
            if meta.void is None:
                self._streaks.pop(key, None)
                continue
            times = self._streaks.get(key, (0, 0))[0] + 1
            self._streaks[key] = (times, self._envelopes)
            if times >= VOIDS_MAX:
                raise Stop(
                    Exit.STUCK, f"{kind_of(fact)} {key.decode()} came back void ({meta.void}) {times} times in a row"
                )
        oldest = self._envelopes - MEMORY
        if self._streaks and self._envelopes % MEMORY == 0:
            self._streaks = {k: v for k, v in self._streaks.items() if v[1] > oldest}


_NAMING: Final = ("host", "hosts", "unit", "job", "elements", "attempt", "rank", "dept")


def identity(fact: Fact) -> bytes:
    """What a fact is about, without its reasons and times: two with equal identity are "the same fact" of S4."""
    about = {name: getattr(fact, name) for name in _NAMING if hasattr(fact, name)}
    return msgspec.json.encode({"kind": kind_of(fact), **about})
