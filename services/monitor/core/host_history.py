"""The last decision on each host, and on each department's demand and quota: what `why` shows of them.

Rules
  1. The facts themselves are kept, with their reasons; sentences are made where they are shown.
  2. Bounded: `STEPS_MAX` of a host that is known, one demand and one quota of a department that is not closed.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from schemas import facts as f
from services.domain.core import Handlers
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta

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
    """Folds valid facts alone, after custody has."""

    def __init__(self, custody: Custody, state: State) -> None:
        self.custody, self.state = custody, state
        self.handlers: Handlers = {
            **dict.fromkeys(_OF_HOSTS, self._host),
            f.HostRemoved: self._removed,
            f.DemandChanged: self._demand,
            f.QuotaChanged: self._quota,
            f.DepartmentClosed: self._closed,
        }

    def _host(self, fact: Any, meta: Meta) -> None:
        host = self.custody.state.hosts.get(fact.host)
        steps = self.state.hosts.setdefault(fact.host, [])
        steps.append(Step(meta.at, meta.position, (host.dept if host else None) or "", fact))
        del steps[:-STEPS_MAX]

    def _removed(self, fact: f.HostRemoved, _meta: Meta) -> None:
        self.state.hosts.pop(fact.host, None)

    def _demand(self, fact: f.DemandChanged, meta: Meta) -> None:
        self.state.demands[fact.dept] = Step(meta.at, meta.position, fact.dept, fact)

    def _quota(self, fact: f.QuotaChanged, meta: Meta) -> None:
        self.state.quotas[fact.dept] = Step(meta.at, meta.position, fact.dept, fact)

    def _closed(self, fact: f.DepartmentClosed, _meta: Meta) -> None:
        for known in (self.state.demands, self.state.quotas):
            known.pop(fact.dept, None)
