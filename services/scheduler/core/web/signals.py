"""What a web department's signals ask for: CPU and requests as one utilisation, claims beside it, and what silence means.

    load.observed ─┬─ utilisation, requests/s over the target ──▶ what the scaling rule remembers
                   └─ claim ────────────────────────────────────▶ at least this many instances

Rules
  1. Requests/s with a target (the signal's, else the policy's `requests_per_instance`) are a utilisation: the rule's level ·
     rate / (target · n), n in service.  So target-tracking wants ceil(rate / target), and the threshold rule one more when each
     of the n has its target.  Of this and the CPU's the highest counts.
  2. A rate without a target, or with no instance in service, asks for nothing; nor do open sessions.
  3. A claim counts until `signal_timeout_s` after it was last observed: the number is the rule's, or the claim if that is more.
     Where no load is reported, the claim alone is the number.
  4. Load that was reported and no longer is, is missing: the number is held, and claims only raise it.  For LOAD_LOST_S: when a
     balancer dies, a claim of two must not be all that a rush gets, and a signal once sent by hand must not hold the number for
     ever.
  5. The users who reported the load are remembered, and named as long as the rule looks at it, except for the usual ones
     (`usual`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

import msgspec

from schemas.config import CloudConfig, Department, WebPolicy
from schemas.facts import AUTHORS_MAX, LoadObserved
from services.scheduler.core.policies import registry, scale_forecast
from services.scheduler.core.policies.scale import Heard, Memory, level
from services.scheduler.core.state.load import Sample
from services.scheduler.core.web.state import State

LOAD_LOST_S: Final = 3600.0  # time enough to call an operator, notified after `signal_timeout_s`
UTILISATION_MAX: Final = 1e6  # as in the fact


class Word(NamedTuple):
    """The load by an observation.  `rate` and `target` if it was reported in requests."""

    utilisation: float
    rate: float | None = None
    target: float | None = None


def word(fact: LoadObserved, serving: int, policy: WebPolicy) -> Word | None:
    """Rules 1 and 2."""
    cpu = None if fact.utilisation is None else Word(fact.utilisation)
    target = fact.requests_per_instance or policy.requests_per_instance
    if fact.requests_per_s is None or not target or not serving:
        return cpu
    share = fact.requests_per_s / (target * serving)
    asked = Word(min(level(policy) * share, UTILISATION_MAX), fact.requests_per_s, target)
    return asked if cpu is None or asked.utilisation >= cpu.utilisation else cpu


def remembered(state: State) -> Memory:
    return Memory(state.samples, state.track)


def observed(state: State, fact: LoadObserved, at: float, policy: WebPolicy) -> State:
    """The state with this observation in it.  A rule that is not here remembers nothing new (`registry`, rule 2)."""
    heard_at = max(state.heard_at, min(fact.end, at))
    told = word(fact, state.serving, policy)
    if told is None:
        if fact.claim is None:
            return state
        return msgspec.structs.replace(state, claim=fact.claim, claim_by=fact.claim_by, heard_at=heard_at)
    heard = Heard(
        Sample(fact.start, fact.end, told.utilisation), state.serving, state.since, counted=told.rate is not None
    )
    rule, memory = registry.RULES.get(policy.rule), remembered(state)
    memory = memory if rule is None else rule.follow(memory, heard, policy)
    return msgspec.structs.replace(
        state,
        claim=fact.claim,
        claim_by=fact.claim_by,
        heard_at=heard_at,
        load_at=heard_at,
        load_by=_authors(state.load_by, fact.load_by, heard_at),
        rate=told.rate,
        per_instance=told.target,
        samples=memory.samples,
        track=memory.track,
        past=scale_forecast.follow(state.past, heard),
    )


def _authors(known: dict[str, float], told: tuple[str, ...], at: float) -> dict[str, float]:
    """The last ones."""
    found = {**known, **dict.fromkeys(told, at)}
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0]))[:AUTHORS_MAX])


def authors(state: State, since_s: float, usual: Collection[str]) -> list[str]:
    """The users who reported the load in the last `since_s` of it, without the usual ones."""
    return sorted(user for user, at in state.load_by.items() if at >= state.load_at - since_s and user not in usual)


def usual(config: CloudConfig, department: Department) -> tuple[str, ...]:
    """Users who need not be named: the department's balancers, or the only user who could be one."""
    policy = department.web or WebPolicy()
    if policy.balancers:
        return policy.balancers
    own = [user for user in config.users if user.department == department.name]
    found = [user for user in own if user.role == "user"] or own
    return (found[0].name,) if len(found) == 1 else ()


def claim_of(fact: LoadObserved) -> LoadObserved:
    """Its claim, without the load."""
    return msgspec.structs.replace(fact, utilisation=None, requests_per_s=None)


def claimed(state: State, policy: WebPolicy, now: float) -> int | None:
    """Rule 3: the claim that counts."""
    return state.claim if now < state.heard_at + policy.signal_timeout_s else None


def load_known(state: State, now: float) -> bool:
    """Rule 4: load is reported, or was lately."""
    return state.load_at > 0 and now < state.load_at + LOAD_LOST_S


def missing_at(state: State, policy: WebPolicy, now: float) -> float:
    """When the number is to be held, if nothing more is reported."""
    heard_at = state.load_at if load_known(state, now) else state.heard_at
    return max(heard_at, state.serves_at) + policy.signal_timeout_s


def missing(state: State, policy: WebPolicy, now: float) -> bool:
    """Instances are in service, and no load is reported."""
    return state.serving > 0 and now >= missing_at(state, policy, now)


def lost_at(state: State) -> list[float]:
    """When rule 4 ends: a claim alone may be the number then."""
    return [state.load_at + LOAD_LOST_S] if state.load_at and state.claim is not None else []
