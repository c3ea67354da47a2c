"""Since when hosts are empty, and which of them could be switched off: reported to people, without any action.

Source: I. Farfán Estrada, MSc thesis, CIC-IPN 2012, 2.5 and 4.2.1: a node that has had nothing to do for a while is a candidate
for power saving.  The site switches hosts off, and on again when they are wanted.

Rules
  1. Empty: free, or held by a department, with no live attempt and no VM journaled for it; a VM that waits for its next job is
     one.  What is draining, lost or absent is not empty: its state is unknown.
  2. Since: the journal's time of the fact after which it was so first.  A host that is granted while it is empty stays so.
  3. A candidate has been empty for `[power] idle_s`.  A cordoned one may be: it is even less wanted.  One in quarantine may
     not: a person has to see to it.
"""

from __future__ import annotations

from typing import Final

from schemas import facts as f
from schemas.config import Power
from services.domain.core import Handlers
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.domain.custody.state import Host


class Idle:
    """Keeps `since`: host -> when it became empty, of those that are."""

    def __init__(self, custody: Custody, since: dict[str, float]) -> None:
        self.custody, self.since = custody, since
        self._on: dict[str, dict[str, None]] = {}  # unit -> hosts that it may have left; rebuilt as it moves
        self.handlers: Handlers = dict.fromkeys(_CONCERNS, self._fold)
        for name, host in custody.state.hosts.items():
            self._note(name, host)

    def _fold(self, fact: f.Fact, meta: Meta) -> None:
        """After custody has folded it, and it is not void."""
        for name in self._concerned(fact, meta):
            host = self.custody.state.hosts.get(name)
            if host is not None and is_empty(host):
                self.since.setdefault(name, meta.at)
            else:
                self.since.pop(name, None)
                if host is not None:
                    self._note(name, host)

    def check(self) -> list[str]:
        empty = [name for name, host in self.custody.state.hosts.items() if is_empty(host)]
        return [] if sorted(empty) == sorted(self.since) else [f"empty are {sorted(empty)}, not {sorted(self.since)}"]

    def candidates(self, power: Power, now: float) -> list[str]:
        """Rule 3, by name."""
        hosts = self.custody.state.hosts
        return [name for name in sorted(self.since) if self.is_candidate(hosts[name], power, now)]

    def is_candidate(self, host: Host, power: Power, now: float) -> bool:
        since = self.since.get(host.name)
        if since is None or not power.idle_s or host.quarantine_until > now:
            return False
        return now - since >= power.idle_s

    def _concerned(self, fact: f.Fact, meta: Meta) -> dict[str, None]:
        """Hosts that may have become empty, or are not any more."""
        found: dict[str, None] = {}
        name = getattr(fact, "host", None)
        if isinstance(name, str):
            found[name] = None
        if isinstance(fact, f.UnitPlaced):
            found |= dict.fromkeys(fact.hosts)
        elif isinstance(fact, f.DepartmentClosed):
            found |= dict.fromkeys(self.custody.index.held.get(fact.dept, ()))
        units = (*meta.broken, fact.unit) if type(fact) in _OF_A_UNIT else meta.broken  # type: ignore[union-attr]
        for unit in units:
            found |= self._on.pop(unit, {})
        return found

    def _note(self, name: str, host: Host) -> None:
        """What is on the host may leave it."""
        vms = self.custody.state.vms
        for unit in (*host.units, *(vms[key].unit for key in host.vms)):
            self._on.setdefault(unit, {})[name] = None


_OF_A_UNIT = (f.UnitPlaced, f.AttemptClosed, f.AttemptReported, f.VmAllocated, f.VmEnded)
_OF_A_HOST = [kind for kind in f.FACTS if "host" in kind.__struct_fields__]
_CONCERNS: Final[tuple[type, ...]] = (
    *_OF_A_HOST,
    *_OF_A_UNIT,
    f.DepartmentClosed,
)  # all that breaks attempts among them


def is_empty(host: Host) -> bool:
    """Rule 1."""
    return host.state in ("free", "held") and not host.units and not host.vms
