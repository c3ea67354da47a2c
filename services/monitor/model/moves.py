"""The last that was decided of each host, and of each department's demand and quota: what `why` tells of them.

Rules
  1. The facts themselves are kept, with their reasons; sentences are made where they are shown.
  2. Bounded: `STEPS_MAX` of a host that is known, one demand and one quota of a department that is not closed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from schemas import facts as f
from schemas.custody import Custody
from schemas.meta import Meta

STEPS_MAX: Final = 8  # a day of a host that goes to and fro every three hours; `phoenix story` has all
_OF_HOSTS: Final = (
    f.HostGranted,
    f.HostReleased,
    f.HostSeized,
    f.HostLost,
    f.HostQuarantined,
    f.HostCordoned,
    f.HostUncordoned,
)
# Asked of every fact: isinstance takes ten times as long.
_CONCERNS: Final = frozenset({*_OF_HOSTS, f.HostRemoved, f.DemandChanged, f.QuotaChanged, f.DepartmentClosed})


class Step(msgspec.Struct, frozen=True, array_like=True):
    """A fact at its place; `department`: whose the host was, or whose it became."""

    at: float
    position: int
    department: str
    fact: f.Fact


class State(msgspec.Struct, kw_only=True):
    hosts: dict[str, list[Step]] = {}
    demands: dict[str, Step] = {}
    quotas: dict[str, Step] = {}


class Moves:
    def __init__(self, custody: Custody, state: State) -> None:
        self.custody, self.state = custody, state

    def apply(self, fact: f.Fact, meta: Meta) -> None:
        """After custody has folded it; of valid facts alone."""
        if type(fact) not in _CONCERNS:
            return
        if isinstance(fact, _OF_HOSTS):
            host = self.custody.state.hosts.get(fact.host)
            steps = self.state.hosts.setdefault(fact.host, [])
            steps.append(Step(meta.at, meta.position, (host.dept if host else None) or "", fact))
            del steps[:-STEPS_MAX]
        elif isinstance(fact, f.HostRemoved):
            self.state.hosts.pop(fact.host, None)
        elif isinstance(fact, f.DemandChanged):
            self.state.demands[fact.dept] = Step(meta.at, meta.position, fact.dept, fact)
        elif isinstance(fact, f.QuotaChanged):
            self.state.quotas[fact.dept] = Step(meta.at, meta.position, fact.dept, fact)
        elif isinstance(fact, f.DepartmentClosed):
            for known in (self.state.demands, self.state.quotas):
                known.pop(fact.dept, None)
