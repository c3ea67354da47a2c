"""How many instances a web department should have, and why: the rule's number within the bounds.  Pure functions of the state.

Rules
  1. How many instances the load wants is the rule's (`policies/scale_*`): by default the paper's threshold (III-C).
  2. Between `instances_min` and `instances_max`, and what the department's `maximum` of hosts can carry.
  3. A person's `exact` number overrides rule 1 and the minimum, a person's `minimum` raises the minimum, until its time has
     passed.  Nothing overrides the maximum.
  4. No signal for `signal_timeout_s` though instances are in service: the number is held.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from schemas import facts as f
from schemas.config import Department, WebPolicy
from schemas.reasons import Code, Reason, because
from services.scheduler.policies import scale_target, scale_threshold
from services.scheduler.policies.scale import Heard, Memory, Rule
from services.scheduler.web_load import Sample
from services.scheduler.web_state import State

RULES: Final[dict[str, Rule]] = {"threshold": scale_threshold.RULE, "target-tracking": scale_target.RULE}

Number = tuple[int, Reason]


class Situation(NamedTuple):
    """What a number is decided on.  `most`: instances that there may be (rule 2); `missing`: rule 4."""

    state: State
    policy: WebPolicy
    memory: Memory
    most: int
    missing: bool
    now: float


def most(department: Department, policy: WebPolicy, per_host: int) -> int:
    """Rule 2: instances that there may be."""
    if department.maximum is None:
        return policy.instances_max
    return min(policy.instances_max, department.maximum * per_host)


def remembered(state: State) -> Memory:
    return Memory(state.samples, state.track)


def heard(state: State, fact: f.LoadObserved, policy: WebPolicy) -> Memory:
    """What the rule remembers, with this observation in it."""
    observed = Heard(Sample(fact.start, fact.end, fact.utilisation), state.serving, state.since)
    return RULES[policy.rule].follow(remembered(state), observed, policy)


def desired(at: Situation) -> Number:
    """The number of instances that should be, and why."""
    state, policy, most = at.state, at.policy, at.most
    word = state.until is None or at.now < state.until
    if word and state.exact is not None:
        return min(state.exact, most), because(Code.SCALED_BY_PERSON, exact=state.exact, maximum=most)
    least, asked = policy.instances_min, state.minimum if word else None
    current = least if state.target is None else state.target
    wanted, reason = _by_load(at, current)
    if asked is not None and asked > max(wanted, least):
        return min(asked, most), because(Code.SCALED_BY_PERSON, minimum=asked, maximum=most)
    if wanted < least or state.target is None:
        return min(least, most), because(Code.AT_MINIMUM, minimum=least)
    return (most, because(Code.AT_MAXIMUM, maximum=most)) if wanted > most else (wanted, reason)


def _by_load(at: Situation, current: int) -> Number:
    """Rules 1 and 4."""
    serving = at.state.serving
    if at.missing:
        return current, because(Code.SIGNAL_MISSING, timeout_s=at.policy.signal_timeout_s, instances=serving)
    return RULES[at.policy.rule].wanted(at.memory, serving, current, at.policy)
