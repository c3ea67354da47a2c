"""Why a web department may keep fewer hosts than it wants: what batch guarantees keep, and what other web departments have.

The provisioner's rules (`services.provisioner.core.policies.phoenix`), told: after web's own guarantees those of the batch
departments are kept from web always, demanded or not, for batch as a whole; then web by priority, equals by weight.

Rules
  1. It is reported only where it binds: a web department may not keep what it wants (up to its maximum), and all that web does
     not have is kept.  Else something other is short: notice still runs, or a contract lends no more.
  2. Another web department has its hosts by `guarantee`, if it may keep no more than that; else by `priority`, if its own is
     higher, or by `weight`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from schemas.config import CloudConfig, Department
from services.domain.custody.custody import Custody
from services.domain.sharing.host_ownership import usable
from services.domain.sharing.lending import bounds


class Kept(msgspec.Struct, frozen=True):
    """`hosts` of `usable` ones, by the guarantees of `departments` (by name)."""

    hosts: int
    usable: int
    departments: tuple[str, ...]


class Share(msgspec.Struct, frozen=True):
    """That `department` may keep `hosts`, and by which rule."""

    department: str
    hosts: int
    rule: Literal["priority", "guarantee", "weight"]
    weight: float

    @property
    def text(self) -> str:
        """As a parameter of a reason has it."""
        return f"{self.department}:{self.hosts}:{self.rule}:{self.weight:g}"


class _Short(NamedTuple):
    """A web department that may keep fewer than it wants; `kept` is all that web does not have."""

    config: CloudConfig
    department: Department
    usable: int
    kept: int


def kept_from(custody: Custody, name: str, at: float) -> Kept | None:
    """What guarantees keep from web department `name` at `at`; None if it is not they that it lacks."""
    short = _short(custody, name, at)
    if short is None or short.kept <= 0:
        return None
    promised = [d.name for d in short.config.departments if d.kind == "batch" and _promised(d, at) > 0]
    return Kept(short.kept, short.usable, tuple(sorted(promised)))


def shares_of_others(custody: Custody, name: str, at: float) -> tuple[Share, ...]:
    """What other web departments may keep, by priority and name, if it is of that that web department `name` has too little."""
    short = _short(custody, name, at)
    if short is None:
        return ()
    others = [d for d in short.config.departments if d.kind == "web" and d.name != name]
    return tuple(
        Share(other.name, hosts, _rule(short.department, other, hosts, at), other.weight)
        for other in sorted(others, key=lambda d: (-d.priority, d.name))
        if (hosts := custody.quota(other.name).hosts) > 0
    )


def _short(custody: Custody, name: str, at: float) -> _Short | None:
    """Rule 1."""
    config = custody.state.config
    known = config.department(name) if config is not None else None
    if config is None or known is None or known.kind != "web":
        return None
    maximum, demand = bounds(known, at)[1], custody.state.demands.get(name, 0)
    wanted = demand if maximum is None else min(demand, maximum)
    count, promised = usable(custody, at), sum(_promised(d, at) for d in config.departments if d.kind == "batch")
    rest = count - sum(custody.quota(d.name).hosts for d in config.departments if d.kind == "web")
    if wanted <= custody.quota(name).hosts or rest > max(0, promised):
        return None
    return _Short(config, known, count, min(rest, promised))


def _rule(short: Department, other: Department, hosts: int, at: float) -> Literal["priority", "guarantee", "weight"]:
    """Rule 2."""
    if hosts <= _promised(other, at):
        return "guarantee"
    return "priority" if other.priority > short.priority else "weight"


def _promised(department: Department, at: float) -> int:
    guarantee, maximum = bounds(department, at)
    return guarantee if maximum is None else min(guarantee, maximum)
