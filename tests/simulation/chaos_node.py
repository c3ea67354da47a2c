"""A service of a simulated cloud: its fold, its core, one envelope outstanding; it can die at any moment.

The shell's rules as `services/runtime/engine.py` has them (S1, S3, S6), no broker: the driver decides when a node reads,
decides, sends, crashes and starts again.  What a node has sent is in the driver's hands, and may arrive long after its death or
never: then the node sends it again.  A node has the clock of its machine, which may be wrong by `offset` (S6): a candidate
compares it with the broker's before it writes, a leader looks for steps before each envelope and at the broker's time after.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from schemas import facts as f
from schemas.envelope import Envelope, encode
from schemas.facts import Fact
from schemas.subjects import journal
from services.domain.custody.check import check
from services.domain.custody.custody import Custody
from services.executor.core.executor import ExecutorCore
from services.runtime.clock import skew_s
from services.runtime.journal.fold import Fold, Stored
from services.runtime.journal.snapshots import Snapshot, restore, take


@dataclass(frozen=True)
class Message:
    """An envelope on its way; it is stored if `expected` is still the last sequence of its subject.  `drafted_at`: truly."""

    writer: str
    expected: int
    id: str
    data: bytes
    epoch: int = 0
    drafted_at: float = 0.0


@dataclass
class Node:
    """One process of the writer `writer`."""

    writer: str
    factory: Callable[[Custody], Any]
    instance: str
    fold: Fold = field(init=False)
    outstanding: str = ""
    leads: bool = False
    took_over: bool = False  # the executor: it has begun to look and to call
    proposals: list[Callable[[Custody, list[Fact]], list[Fact]]] = field(default_factory=list)
    sent: int = 0
    sending: Message | None = None  # what is outstanding
    sent_at: float = 0.0  # by its own clock
    offset: float = 0.0  # own clock - true time
    trusted: float | None = None  # the offset when the broker's time was asked for

    skew_max_s = 0.5  # as `schemas.config.Policy`

    def __post_init__(self) -> None:
        self.fold = Fold(self.writer, self.factory)

    @property
    def custody(self) -> Custody:
        return self.fold.custody

    @property
    def core(self) -> Any:
        return self.fold.core

    @property
    def read(self) -> int:
        return self.fold.position

    def start_from(self, snapshot: Snapshot | None) -> None:
        if snapshot is not None:
            restore(snapshot, self.fold)

    def snapshot(self) -> Snapshot:
        return take(self.writer, "j", self.fold)

    def follow(self, log: list[Stored], count: int, clock: float) -> None:
        """Read up to `count` messages.  `clock`: true time."""
        for message in log[self.read : self.read + count]:
            envelope, seen = self.fold.feed(message)
            assert envelope is not None, f"garbage at {message.position}"
            if message.subject != journal(self.writer):
                continue
            if envelope.id == self.outstanding:
                self.outstanding, self.sending = "", None
                if abs(skew_s(self.sent_at, clock + self.offset, message.stored_at)) > self.skew_max_s:
                    raise Deposed(self)  # S6, after the deed
                self.leads = self.leads or any(isinstance(fact, f.LeaderStarted) for fact, _ in seen)
            elif self.leads or self.outstanding:
                raise Deposed(self)

    def now(self, clock: float) -> float:
        """What decisions are given (S6)."""
        return max(clock + self.offset, self.custody.state.at)

    def refuse_skew(self) -> None:
        """S6, before the deed: a candidate asks the broker for its time, a leader looks for steps of its clock."""
        if self.trusted is None:
            if abs(self.offset) > self.skew_max_s:
                raise Deposed(self)
            self.trusted = self.offset
        elif abs(self.offset - self.trusted) > self.skew_max_s:
            raise Deposed(self)

    def draft(self, clock: float) -> Message | None:
        """The next envelope, if there is anything to say and none is outstanding."""
        if self.outstanding:
            return None
        self.refuse_skew()
        now = self.now(clock)
        epoch = self.custody.state.leaders[self.writer].epoch if self.writer in self.custody.state.leaders else 0
        if not self.leads:
            epoch += 1
            facts: list[Fact] = [f.LeaderStarted(epoch=epoch, instance=self.instance)]
        else:
            facts = []
            for compose in self.proposals:
                facts += compose(self.custody, facts)
            self.proposals.clear()
            facts += self.core.decide(now)
        if not facts:
            return None
        self.sent += 1
        self.outstanding = f"{self.instance}-{self.sent}"
        envelope = Envelope(id=self.outstanding, writer=self.writer, epoch=epoch, at=now, facts=tuple(facts))
        self.sent_at = clock + self.offset
        self.sending = Message(self.writer, self.expected(), self.outstanding, encode(envelope), epoch, clock)
        return self.sending

    def expected(self) -> int:
        """S1: the last own envelope *applied*."""
        return self.fold.own_last

    def problems(self) -> list[str]:
        return [f"{self.writer}: {problem}" for problem in [*check(self.custody), *self.core.check()]]

    @property
    def executor(self) -> ExecutorCore:
        assert isinstance(self.core, ExecutorCore)
        return self.core


class Deposed(Exception):
    """The node has seen an envelope of another process of its writer: it ends."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.instance)
        self.node = node
