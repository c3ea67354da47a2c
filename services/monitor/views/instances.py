"""The instances of web departments as people see them: each with its state, what it runs, where, and why it ended.

    booting → in-service ⇄ not-ready → draining → stopped
       ╰──────────┴────────────┴─────────────────→ failed

Rules
  1. `booting` from the placement, `in-service` from its `began`, `not-ready` while its guest or a load balancer reports it
     (`domain.readiness`), `draining` from `instance.draining`; an attempt whose VM
     or host was lost, or that was closed as failed, is `failed`, any other that is over `stopped`.
  2. Those that are gone are shown if they are asked for, the last `ENDED_MAX` of each department, newest first.
  3. `since`: when it came into the state that it is in.
"""

from __future__ import annotations

from typing import Any, Final

from schemas.facts import Disposal
from schemas.ids import instance_parts, is_instance
from services.domain import readiness
from services.domain.custody.state import Broken, Unit
from services.monitor.core.attempt import Attempt
from services.monitor.core.monitor import MonitorCore
from services.monitor.views.levels import Level, Levels
from services.monitor.views.times import iso, plain

_LOST: Final = (Broken.VM_ENDED, Broken.HOST_LOST)  # the other ways to break are the arbiter's and the holder's
ENDED_MAX: Final = 50  # as many as fit a screen or two


def instances(core: MonitorCore, levels: Levels, department: str | None, *, ended: bool) -> dict[str, Any]:
    """Of one department, or of all."""
    custody = core.custody
    config = custody.state.config
    names = [d.name for d in (config.departments if config else ()) if d.kind == "web" and department in (None, d.name)]
    found = []
    for name in names:
        live = sorted((u for u in custody.index.open.get(name, ()) if is_instance(u)), key=_number)
        found += [
            _row(core, custody.state.units[unit], levels.of(unit, custody.state.units[unit].attempt)) for unit in live
        ]
        if ended:
            found += [_row(core, unit, Level()) for unit in _ended(core, name)]
    return {"instances": found}


def _ended(core: MonitorCore, dept: str) -> list[Unit]:
    """Rule 2."""
    units = core.custody.state.units.values()
    over = [unit for unit in units if unit.dept == dept and unit.state == "final" and is_instance(unit.id)]
    return sorted(over, key=lambda unit: _number(unit.id), reverse=True)[:ENDED_MAX]


def _number(unit: str) -> int:
    return instance_parts(unit)[1]


def _row(core: MonitorCore, unit: Unit, level: Level) -> dict[str, Any]:
    attempts = core.state.attempts.get(unit.id, ())
    last = attempts[-1] if attempts else None
    words = core.state.levels.unready.get(unit.id)
    state = state_of(unit, last, bool(words))
    why = last.why if last is not None and state in ("stopped", "failed") else None
    return {
        "instance": unit.id,
        "department": unit.dept,
        "state": state,
        "release": unit.release,
        "attempt": unit.attempt,
        "host": unit.hosts[0] if unit.hosts else (last.hosts[0] if last is not None and last.hosts else None),
        "address": unit.addresses[0] if unit.addresses else None,
        "cores": unit.size.cores,
        "placed_at": iso(last.placed_at if last is not None else unit.placed_at),
        "since": iso(readiness.since(words) if words and state == "not-ready" else _since(unit, state, last)),
        "answer": readiness.answer(words) if words else None,
        "drains_until": iso(unit.drains_until) if state == "draining" else None,
        "sessions": level.sessions,
        "cpu": level.cpu,
        "memory_mb": level.memory_mb,
        "why": plain(why),
    }


def state_of(unit: Unit, last: Attempt | None, unready: bool = False) -> str:
    """Rule 1."""
    if unit.state == "open" and unit.broken is None:
        if unit.drains_until is not None:
            return "draining"
        return "booting" if unit.began_at is None else "not-ready" if unready else "in-service"
    failed = unit.broken in _LOST or (last is not None and last.disposal == Disposal.FAILED)
    return "failed" if failed else "stopped"


def _since(unit: Unit, state: str, last: Attempt | None) -> float | None:
    """Rule 3."""
    if state == "booting":
        return unit.placed_at
    if state == "in-service":
        return unit.began_at
    if state == "draining":
        return last.draining_at if last is not None else None
    return unit.ended_at if unit.ended_at is not None or last is None else last.ended_at
