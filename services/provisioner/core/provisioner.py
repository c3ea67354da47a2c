"""The arbiter: who holds which host.  Only the provisioner grants and seizes; the holder releases; the executor clears.

Theory of operation
  `decide` compares levels: what each department may keep (`targets`) with its quota in the journal and with what it holds.  It
  never counts what is in flight, so two claims at once, a withdrawn claim or a lost message need no rule of their own
  (PROTOCOL.md, Provisioner).  Its stages are quotas that change (`quotas`), free hosts that are granted (`grants`), and hosts
  that are seized (`seizures`).  Having had nothing to say, it rests until a level moves or time alone may say something.

Rules
  1. A department that the configuration does not name has target 0: its hosts come back by notice and seizure.
  2. It must never grant a host that is not free in its own view, nor seize below a quota.
  3. Where one batch department has whatever is left, what it asks for and what it holds changes no target.
  4. Accepted leases are followed for `config.apply` alone (`leases`): they change no decision.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from schemas import facts as f
from schemas.config import CloudConfig
from schemas.envelope import FACTS_MAX
from services.domain.core import Stage, last_moment
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.sharing.credit import CONCERNS as CREDITED
from services.domain.sharing.host_ownership import usable
from services.provisioner.core import grants, quotas, seizures, turns
from services.provisioner.core.leases import KINDS as OF_LEASES
from services.provisioner.core.leases import Late, concerned, note
from services.provisioner.core.state import State
from services.provisioner.core.targets import Division, Targets

# Kinds after which the targets may be others.
_LEVELS: Final = dict.fromkeys(
    (
        f.DemandChanged,
        f.ConfigAdopted,
        f.HostCordoned,
        f.HostUncordoned,
        f.HostQuarantined,
        f.HostLost,
        f.HostRemoved,
        f.HostDescribed,
    )
)
# Kinds after which there may be something to grant, and the targets are others only if the number of usable hosts is …
_MOVES: Final = dict.fromkeys((f.HostCleared, f.HostGranted, f.HostReleased, f.HostSeized))
# … or if two batch departments share the idle hosts: then placements and ends count, too.
_OCCUPYING: Final = dict.fromkeys((f.UnitPlaced, f.AttemptClosed, f.AttemptReported, f.VmEnded, f.DepartmentClosed))
_HEEDED: Final = frozenset((*CREDITED, *OF_LEASES, *_LEVELS, *_MOVES, *_OCCUPYING, f.QuotaChanged))


@dataclass(slots=True)
class Said:
    """What a decision has to say so far.  `moved`: departments whose quotas change with it."""

    config: CloudConfig
    division: Division
    facts: list[f.Fact] = field(default_factory=list)
    moved: dict[str, None] = field(default_factory=dict)


class Adopted(NamedTuple):
    """A configuration: its batch departments, and whether contracts make something of what one needs or holds."""

    config: CloudConfig | None
    batch: tuple[str, ...]
    lends: bool


class ProvisionerCore:
    VERSION = 3  # 2: what is wanted if idle, 3: leases; a first start reads it from the journal

    def __init__(self, custody: Custody) -> None:
        self.custody = custody
        self._state = State()
        self.targets = Targets(custody, self._state)
        self._stages: list[Stage[Said]] = [self._change_quotas, self._grant, self._seize_drained, self._seize_overdue]
        self._quiet_until = 0.0  # derived: nothing to say before that time, unless something moves
        self._decided_at = 0.0  # `now` of the last decision that was worked out
        self._adoption = Adopted(None, (), False)

    # -------------------------------------------------------------------------------------------------------- folding

    def apply(self, fact: f.Fact, meta: Meta) -> None:
        self._state.facts += 1
        kind = type(fact)
        if meta.void is not None or kind not in _HEEDED:
            return
        if kind in CREDITED:
            self._state.credits.note(self.custody, fact, meta.at)
        if kind in OF_LEASES:
            note(self._state.leases, self.custody, fact)
        if isinstance(fact, f.DemandChanged):
            self._state.demanded(fact)
        if self._one_batch():
            self._apply_simply(kind, fact)
        elif kind in _LEVELS or kind in _MOVES or kind in _OCCUPYING:
            self._stir()
            turns.follow(self._state.waiting, self.custody, fact, meta)
        elif kind is f.QuotaChanged:
            self._quiet_until = 0.0

    def _apply_simply(self, kind: type, fact: f.Fact) -> None:
        """Rule 3."""
        if kind in _LEVELS:
            if isinstance(fact, f.DemandChanged) and fact.dept in self._adoption.batch:
                return
            self._stir()
            if kind is f.ConfigAdopted:
                self._state.waiting.clear()
        elif kind in _MOVES or kind is f.QuotaChanged or (kind in _OCCUPYING and self.custody.index.apart):
            self._quiet_until = 0.0  # a cordoned host may be in use no more

    def _stir(self) -> None:
        """A level may have changed."""
        self.targets.forget()
        self._quiet_until = 0.0

    def _one_batch(self) -> bool:
        """Rule 3: no two departments ask for the idle hosts, and no contract makes anything of what one needs or holds."""
        config = self.custody.state.config
        if config is not self._adoption.config and config is not None:
            batch = tuple(d.name for d in config.departments if d.kind == "batch")
            self._adoption = Adopted(config, batch, bool(config.lending))
        adopted = self._adoption
        return config is not None and len(adopted.batch) < 2 and not adopted.lends and not self._state.if_idle

    def dump(self) -> bytes:
        return msgspec.msgpack.encode(self._state)

    def load(self, data: bytes) -> None:
        self._state = msgspec.msgpack.decode(data, type=State)
        self.targets = Targets(self.custody, self._state)
        self._quiet_until = 0.0

    def late_leases(self, config: CloudConfig, now: float) -> list[Late]:
        """Each accepted lease that `config` would not keep."""
        return concerned(self.custody, self._state.leases, config, now)

    def check(self) -> list[str]:
        state, now = self.custody.state, max(self._decided_at, self.custody.state.at)
        count, total = usable(self.custody, state.at), sum(self.targets.at(state.at).wanted.values())
        count += sum(hosts for hosts, _ in self.targets.beside().values())
        found = [f"targets add up to {total} of {count} usable hosts"] if total > count else []
        found += [f"{name} has a negative quota" for name, quota in state.quotas.items() if quota.hosts < 0]
        fresh, mine = self._fresh(), self.targets.at(now)
        theirs = fresh.targets.at(now)
        if (mine.wanted, mine.firm) != (theirs.wanted, theirs.firm):
            found.append(f"targets are {mine.wanted} and should be {theirs.wanted}")
        if now < self._quiet_until:
            found += [f"it is quiet though it has to say {fact}" for fact in fresh.decide(now)]
            then = last_moment(now, self._quiet_until)
            found += [f"it is quiet beyond {then} though it has to say {fact}" for fact in self._fresh().decide(then)]
        return found

    def _fresh(self) -> ProvisionerCore:
        """A core of the same state."""
        fresh = ProvisionerCore(self.custody)
        fresh.load(self.dump())
        return fresh

    # ------------------------------------------------------------------------------------------------------- deciding

    def decide(self, now: float) -> list[f.Fact]:
        config = self.custody.state.config
        if config is None or now < self._quiet_until:
            return []
        self._decided_at = now
        said = Said(config, self.targets.at(now))
        for stage in self._stages:
            if stage(said, now):
                break
        if not said.facts:
            self._quiet_until = self.wake_at()
        return said.facts[:FACTS_MAX]

    def wake_at(self) -> float:
        due = [quota.next_due() for quota in self.custody.state.quotas.values()]  # custody drops those that are met
        due += seizures.drained(self.custody).values()
        return min([*due, self.targets.division.until])

    # --------------------------------------------------------------------------------------------------------- stages

    def _change_quotas(self, said: Said, now: float) -> bool:
        changed = quotas.changes(self.custody, self._state, said.config, said.division, now)
        said.facts += changed
        said.moved |= dict.fromkeys(fact.dept for fact in changed)
        return False

    def _grant(self, said: Said, now: float) -> bool:
        if self.custody.index.by_state["free"]:
            said.facts += grants.granted(self.custody, self._state, said.config, said.division.wanted, now)
        return False

    def _seize_drained(self, said: Said, now: float) -> bool:
        if self.custody.index.apart:
            said.facts += seizures.overdue_drained(self.custody, now)
        return False

    def _seize_overdue(self, said: Said, now: float) -> bool:
        """Of departments that have not just had another notice."""
        for name, quota in sorted(self.custody.state.quotas.items()):
            if quota.lowerings and name not in said.moved:
                said.facts += seizures.overdue(self.custody, name, now)
        return False
