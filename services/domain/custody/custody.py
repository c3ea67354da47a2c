"""Custody: who holds which host, which attempt is live, and what is asked of that.

What a journal's facts make of it is `fold`.  Cores read it; only `fold.fold_fact` changes it.
"""

from __future__ import annotations

import msgspec

from schemas import facts as f
from schemas.config import Department
from schemas.dimensions import NEWEST, under
from schemas.ids import element_id
from schemas.size import Size, size_of
from services.domain.custody.state import FINALS_MAX, Host, Index, Quota, State, Unit, Vm, vm_key
from services.domain.specs import array

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(State)


class Custody:
    __slots__ = ("changed", "forgotten", "index", "newly_broken", "newly_unsaved", "state")

    def __init__(self) -> None:
        self.state = State()
        self.index = Index()
        self.newly_broken: list[str] = []  # by the fact folded last
        self.newly_unsaved: list[str] = []  # pending units of which it showed that a part of what they saved is lost
        self.changed: list[str] = []  # units that the fact folded last has held, let go or cancelled
        self.forgotten: list[str] = []  # final units that the fact folded last pushed out (`effects`, rule 3)

    def dump(self) -> bytes:
        return _encoder.encode(self.state)

    def load(self, data: bytes) -> None:
        self.state = _decoder.decode(data)
        self.index = Index.of(self.state)
        self.newly_broken, self.newly_unsaved, self.forgotten, self.changed = [], [], [], []

    def live(self, unit: str, attempt: int) -> bool:
        known = self.state.units.get(unit)
        return known is not None and known.attempt == attempt and known.live

    @property
    def departments(self) -> tuple[Department, ...]:
        """Of the configuration in force; none before there is one."""
        return self.state.config.departments if self.state.config is not None else ()

    def department(self, name: str) -> Department | None:
        return self.state.config.department(name) if self.state.config is not None else None

    def held(self, dept: str) -> int:
        """Hosts that `dept` holds."""
        return len(self.index.held.get(dept, ()))

    def quota(self, dept: str) -> Quota:
        return self.state.quotas.get(dept) or Quota()

    def cordoned(self, dept: str) -> list[str]:
        """The cordoned hosts that `dept` holds, beside its quota (PROTOCOL, host.cordoned).  Of a department that the
        configuration does not name: none, its hosts all go."""
        apart, hosts = self.index.apart, self.state.hosts
        if not apart or self.department(dept) is None:
            return []
        held = self.index.held.get(dept, {})
        return sorted(name for name in apart if name in held and hosts[name].cordoned is not None)

    def bound(self, unit: str, attempt: int, rank: int) -> Vm | None:
        """The open VM whose guest goes by this name: its own, or the one that it had before it was resumed elsewhere."""
        key = vm_key(unit, attempt, rank)
        return self.state.vms.get(self.index.known_as.get(key, key))

    def taken_over(self, unit: str, attempt: int, rank: int) -> Vm | None:
        """The open VM whose guest had this name before it took another job over, which it may not know yet."""
        return self.state.vms.get(self.index.was.get(vm_key(unit, attempt, rank), ""))

    def fits(self, host: Host, size: Size, exclusive: bool) -> bool:
        """True if an attempt of this size has room on `host` beside the live ones."""
        if host.exclusive or (exclusive and host.units):
            return False
        return size.fits_beside(host.used, host.size)

    def size(self, fact: f.HostDescribed | f.UnitPlaced) -> Size:
        """What the fact says, as far as it counts under the rules in force."""
        size, rules = size_of(fact), self.state.rules
        return size if rules >= NEWEST else under(size, rules)

    def elements(self, fact: f.OfArray) -> list[Unit]:
        """Those of the array's elements that the fact names and that are remembered.  Raises ValueError, `TooMany`."""
        units, named = self.state.units, array(fact.elements, FINALS_MAX)[0]
        return [unit for i in named if (unit := units.get(element_id(fact.job, i))) is not None]
