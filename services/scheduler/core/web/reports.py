"""What balancers and guests have said of live instances: drained, ready or not, ended.  Which ones have the fewest sessions.

Rules
  1. What was said of an instance is forgotten when its attempt is closed or broken; how its program ended, when it is closed.
  2. An instance that does not drain has not drained, whatever is said of it.  Of one that is not in service yet its guest
     alone knows.
  3. The order of sessions counts until `signal_timeout_s` after it was observed.
"""

from __future__ import annotations

from schemas.facts import InstanceReported
from services.domain import readiness
from services.domain.custody.state import Unit
from services.scheduler.core.web.inventory import Inventory
from services.scheduler.core.web.state import State


def reported(
    state: State, fact: InstanceReported, unit: Unit, held: Inventory, at: float, unreachable_s: float
) -> bool:
    """True if it is one that counts (rule 2)."""
    name = fact.unit
    if unit.began_at is None and fact.by != "guest":
        return False
    if fact.state == "drained":
        if name not in held.draining:
            return False
        state.drained[name] = None
        return True
    if fact.state == "ended":
        state.ended[name] = fact
        return True
    before = name in state.unready
    readiness.reported(state.unready, fact, at, unreachable_s)
    if before and name not in state.unready:
        state.ready_at[name] = at
    return True


def forget(state: State, name: str) -> None:
    """Rule 1."""
    state.drained.pop(name, None)
    state.followed.pop(name, None)
    state.unready.pop(name, None)
    state.ready_at.pop(name, None)


def sessions(state: State, timeout_s: float, now: float) -> tuple[str, ...]:
    """Rule 3: the instances with the fewest sessions, the fewest first."""
    return state.quiet if now < state.quiet_at + timeout_s else ()


def check(state: State, live: dict[str, None], held: Inventory) -> list[str]:
    """Rules 1 and 2."""
    spoken = [*state.drained, *state.followed, *state.unready, *state.ready_at, *state.ended]
    found = [f"{name} is gone, and what was said of it is not" for name in spoken if name not in live]
    drains = {name for name in live if name in held.draining}
    found += [f"{name} has drained and does not drain" for name in state.drained if name not in drains]
    return found
