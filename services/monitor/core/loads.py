"""How busy web departments are, as last observed; and since when no signal reports it.

Rules
  1. Silent is whose number the scheduler holds for want of a signal (`signal_missing`).  Another demand in between, by a person
     or a timetable, ends that only until the scheduler reports again, which it does at once.
  2. Since: the last report of the load, as in `phoenix why`; without any, the last claim; without any signal,
     when that was missed first.  So the time stays the same, whatever else moves the number, until a signal arrives.
  3. A rate is a report of the load if it has a target, its own or the department's (`requests_per_instance`).
"""

from __future__ import annotations

import msgspec

from schemas import facts as f
from schemas.causes import Basis
from schemas.config import CloudConfig
from services.domain.custody.meta import Meta


class Load(msgspec.Struct, kw_only=True):
    """A web department's, as last observed.  `told_at`: the last word of how busy it is (rule 3)."""

    at: float
    utilisation: float | None = None
    requests_per_s: float | None = None
    claim: int | None = None  # instances
    told_at: float | None = None
    errors: float = 0.0  # the share of requests that were answered with 5xx


class State(msgspec.Struct, kw_only=True):
    """By department.  `unheard`: when a word was missed first, of those of whom there was none."""

    last: dict[str, Load] = {}
    silent: dict[str, float] = {}
    unheard: dict[str, float] = {}


def demanded(state: State, fact: f.DemandChanged, meta: Meta) -> None:
    """Rules 1 and 2.  `fact`: a web department's; of hosts alone it says nothing of signals."""
    if fact.basis is Basis.HOSTS:
        return
    if fact.basis is not Basis.SILENCE:
        state.silent.pop(fact.dept, None)
        return
    load = state.last.get(fact.dept)
    if load is None:
        state.silent[fact.dept] = state.unheard.setdefault(fact.dept, meta.at)
    else:
        state.silent[fact.dept] = load.at if load.told_at is None else load.told_at


def observed(state: State, fact: f.LoadObserved, meta: Meta, config: CloudConfig | None) -> None:
    state.unheard.pop(fact.dept, None)
    last = state.last.get(fact.dept) or Load(at=fact.end)
    if fact.end == fact.start:  # a moment: claims and sessions, which say nothing of the load
        state.last[fact.dept] = msgspec.structs.replace(last, at=fact.end, claim=fact.claim)
        return
    state.last[fact.dept] = Load(
        at=fact.end,
        utilisation=fact.utilisation,
        requests_per_s=fact.requests_per_s,
        claim=fact.claim,
        told_at=min(fact.end, meta.at) if _tells_load(fact, config) else last.told_at,
        errors=_errors(fact),
    )


def _errors(fact: f.LoadObserved) -> float:
    """An observation without answers is one without errors."""
    answered = sum(one.answered for one in fact.answers)
    return round(sum(one.errors for one in fact.answers) / answered, 4) if answered else 0.0


def _tells_load(fact: f.LoadObserved, config: CloudConfig | None) -> bool:
    """Rule 3."""
    department = config.department(fact.dept) if config is not None else None
    policy = department.web if department is not None else None
    target = fact.requests_per_instance or (policy.requests_per_instance if policy is not None else 0.0)
    return fact.utilisation is not None or (fact.requests_per_s is not None and target > 0)


def closed(state: State, dept: str) -> None:
    """The department is gone: its signal is no longer missed."""
    for known in (state.last, state.silent, state.unheard):
        known.pop(dept, None)
