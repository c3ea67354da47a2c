"""The folds of a small world: what the journal's end says, for every service at once, as a number that can be compared.

Theory of operation
  A *land* is the fold of one journal by custody and by all cores that have nothing but the journal (admission, provisioner,
  schedulers).  Journals that lead to the same bytes are the same land, however they came there.  What a message makes of a
  land, and what each writer decides on it, is worked out once, on cores that were loaded from the land's bytes: so each step
  of a world is a restart from a snapshot, too.

What the bytes leave out, because no core decides on it
  positions, counts of void facts and of facts folded, since when a host or a leader is what it is, when a unit ended, and the
  order in which dicts were filled (house rule 10: no decision depends on it).  Times are as they are: a world's clock moves
  only by its own action, so that two orders of the same events at one time give the same bytes.

What is checked for each new land
  `check()` of custody and of each core; a seizure only above the quota, or of a drained host when it is due (C4); the cores
  that lived through the message decide what those loaded from their bytes decide (C6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from schemas import facts as f
from schemas.config import CloudConfig
from schemas.envelope import Envelope, decode, encode
from schemas.facts import Fact
from services.admission.core.admission import AdmissionCore
from services.domain.custody import preconditions
from services.domain.custody.check import check
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.meta import Meta
from services.provisioner.core.provisioner import ProvisionerCore
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.web.core import WebCore

EXECUTOR: Final = "executor"
_encoder: Final = msgspec.msgpack.Encoder()


class Violation(AssertionError):
    """Something that must be true is not."""


class Message(NamedTuple):
    """An envelope, as far as it matters: who says what, when."""

    writer: str
    at: float
    facts: tuple[Fact, ...]


class UnitView(NamedTuple):
    dept: str
    state: str
    attempt: int
    live: bool
    began: bool
    nodes: int
    cancelled: bool
    final: str | None


@dataclass(frozen=True)
class Land:
    """`cores`: their dumps, by writer.  `drafts`, `wakes` are filled as they are asked for, by the clock."""

    custody: bytes
    cores: tuple[bytes, ...]
    hosts: dict[str, tuple[str, str | None]]  # name -> state, department
    units: dict[str, UnitView]
    at: float
    demands: dict[str, int]
    drafts: dict[float, dict[str, tuple[Fact, ...]]]
    wakes: dict[float, float]
    steps: dict[int, int]


class Numbers:
    """Values as small numbers: equal values, equal numbers."""

    def __init__(self) -> None:
        self.of: dict[Any, int] = {}
        self.values: list[Any] = []

    def number(self, key: Any, value: Any = None) -> int:
        found = self.of.get(key)
        if found is None:
            found = self.of[key] = len(self.values)
            self.values.append(key if value is None else value)
        return found


def normalise(custody: Custody) -> None:
    """Leave out what no core decides on (see above)."""
    state = custody.state
    state.position = state.index = 0
    state.voids = {}
    for host in state.hosts.values():
        host.since = 0.0
        host.units, host.vms = dict(sorted(host.units.items())), dict(sorted(host.vms.items()))
    for unit in state.units.values():
        unit.ended_at = None
        unit.allocated = dict(sorted(unit.allocated.items()))
    for leader in state.leaders.values():
        leader.since, leader.instance = 0.0, ""
    for name in ("hosts", "units", "vms", "quotas", "demands", "leaders", "finals", "instance_last", "closed"):
        setattr(state, name, dict(sorted(getattr(state, name).items())))


def pack(custody: Custody) -> bytes:
    """The custody's bytes without the configuration, which all lands share."""
    config, custody.state.config = custody.state.config, None
    data = custody.dump()
    custody.state.config = config
    return data


def feed(custody: Custody, cores: list[Any], message: Message, judge: Callable[[Fact, Custody], None]) -> list[Meta]:
    """One message, fact by fact: custody first, then the cores."""
    metas = []
    for index, fact in enumerate(message.facts):
        judge(fact, custody)
        void = fold_fact(custody, fact, 0, index, message.writer, message.at)
        broken = tuple(custody.newly_broken)
        meta = Meta(
            position=0,
            index=index,
            writer=message.writer,
            at=custody.state.at,
            void=void,
            broken=broken,
            unsaved=tuple(custody.newly_unsaved),
        )
        for core in cores:
            core.apply(fact, meta)
        metas.append(meta)
    return metas


def judge(fact: Fact, custody: Custody) -> None:
    """C4."""
    if isinstance(fact, f.HostSeized) and preconditions.host_seized(custody, fact, "provisioner") is None:
        held, quota = custody.held(fact.dept), custody.quota(fact.dept).hosts
        if held <= quota and not custody.state.hosts[fact.host].drain_due(custody.state.at):
            raise Violation(f"{fact.host} is seized though {fact.dept} holds {held} of {quota}")


def no_judge(_fact: Fact, _custody: Custody) -> None:
    return


class Lands:
    def __init__(self, config: CloudConfig) -> None:
        self.config = config
        self.names = Numbers()
        self.messages = Numbers()
        self.writers: list[str] = ["admission", "provisioner"]
        self.kinds: list[tuple[type, str]] = [(AdmissionCore, ""), (ProvisionerCore, "")]
        for dept in config.departments:
            self.writers.append(f"scheduler.{dept.name}")
            self.kinds.append((BatchCore if dept.kind == "batch" else WebCore, dept.name))
        self._custody = Custody()
        self.first = self._land(Custody(), None)

    def __getitem__(self, number: int) -> Land:
        land: Land = self.names.values[number]
        return land

    def message(self, writer: str, at: float, facts: tuple[Fact, ...]) -> int:
        """The number of an envelope; what is sent is what its bytes say."""
        data = encode(Envelope(id="m", writer=writer, epoch=1, at=at, facts=facts))
        found = self.messages.of.get(data)
        if found is not None:
            return found
        received = decode(data, writer)
        return self.messages.number(data, Message(writer, at, received.facts))  # type: ignore[arg-type]

    def said(self, message: int) -> Message:
        found: Message = self.messages.values[message]
        return found

    # ---------------------------------------------------------------------------------------------------------- folding

    def step(self, number: int, message: int) -> int:
        """The land after the message."""
        steps = self[number].steps
        found = steps.get(message)
        if found is None:
            custody, cores = self.load(number)
            feed(custody, cores, self.said(message), judge)
            found = steps[message] = self._land(custody, cores)
        return found

    def load(self, number: int) -> tuple[Custody, list[Any]]:
        """Cores that have just been restarted from their snapshots."""
        land = self[number]
        custody = self._custody  # one for all: nobody keeps what was loaded before
        custody.load(land.custody)
        if custody.state.rules:
            custody.state.config = self.config
        cores = self._cores(custody)
        for core, data in zip(cores, land.cores, strict=True):
            core.load(data)
        return custody, cores

    def _cores(self, custody: Custody) -> list[Any]:
        return [kind(custody, dept) if dept else kind(custody) for kind, dept in self.kinds]

    def _land(self, custody: Custody, lived: list[Any] | None) -> int:
        cores = lived or self._cores(custody)
        normalise(custody)
        cores[1]._state.facts = 0  # the provisioner's count of facts makes its dump tell how far it is
        packed, dumps = pack(custody), tuple(core.dump() for core in cores)
        key = (packed, dumps)
        if key in self.names.of:
            return self.names.of[key]
        problems = check(custody) + [problem for core in cores for problem in core.check()]
        if problems:
            raise Violation("; ".join(problems))
        state = custody.state
        land = Land(
            packed,
            dumps,
            {h.name: (h.state, h.dept) for h in state.hosts.values()},
            {
                u.id: UnitView(
                    u.dept, u.state, u.attempt, u.live, u.began_at is not None, u.nodes, u.cancelled, u.final
                )
                for u in state.units.values()
            },
            state.at,
            dict(state.demands),
            {},
            {},
            {},
        )
        number = self.names.number(key, land)
        alive = self._drafts(cores, state.at)
        if alive != self.drafts(number, state.at):
            raise Violation("a restarted core decides otherwise than the one that lived")
        return number

    # --------------------------------------------------------------------------------------------------------- deciding

    def drafts(self, number: int, clock: float) -> dict[str, tuple[Fact, ...]]:
        """What each writer says at this time."""
        land = self[number]
        now = max(clock, land.at)
        found = land.drafts.get(now)
        if found is None:
            _, cores = self.load(number)
            found = land.drafts[now] = self._drafts(cores, now)
            land.wakes[now] = min(core.wake_at() for core in cores)
        return found

    def _drafts(self, cores: list[Any], now: float) -> dict[str, tuple[Fact, ...]]:
        said = ((writer, tuple(core.decide(now))) for writer, core in zip(self.writers, cores, strict=True))
        return {writer: facts for writer, facts in said if facts}

    def wake_at(self, number: int, clock: float) -> float:
        self.drafts(number, clock)
        return self[number].wakes[max(clock, self[number].at)]
