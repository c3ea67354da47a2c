"""Is the web core what its state says?  For tests, and for a service that checks itself.

Rules
  1. Every view is that of a core that has just loaded the same state, and so are the stages.
  2. It rests only if it would have nothing to say now, nor any time until it is woken.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from services.domain.core import last_moment
from services.scheduler.core.web import reports

if TYPE_CHECKING:
    from services.scheduler.core.web.core import WebCore


def check(core: WebCore, fresh: WebCore) -> list[str]:
    """What is wrong with `core`.  `fresh`: a core of the same state that has never rested."""
    state, custody = core.state, core.custody
    found = []
    if core.inventory.serving != state.serving:
        found.append(f"{core.inventory.serving} instances are in service, {state.serving} are counted")
    if fresh.inventory.as_data() != core.inventory.as_data():
        found.append("what the department holds differs from custody")
    if fresh.department != core.department:
        found.append("the department is configured otherwise")
    if fresh.packing.as_data() != core.packing.as_data():
        found.append("the capacities differ from custody")
    if fresh.packing.per_host != core.packing.per_host:
        found.append(f"a host carries {fresh.packing.per_host} instances, not {core.packing.per_host}")
    if [stage.__name__ for stage in fresh.stages] != [stage.__name__ for stage in core.stages]:
        found.append("the stages are those of another configuration")
    if any(a.end > b.start + 1e-5 for a, b in pairwise(state.samples)):
        found.append(f"samples overlap: {state.samples}")
    found += reports.check(state, custody.index.open.get(core.dept, {}), core.inventory)
    return found + _rests_wrongly(core, fresh)


def _rests_wrongly(core: WebCore, fresh: WebCore) -> list[str]:
    """Rule 2, now and at the last moment."""
    until = core.rests_until()
    if until is None:
        return []
    found = [] if not fresh.decide_anew(core.decided_at) else ["it rests though it has something to say"]
    if fresh.decide_anew(last_moment(core.decided_at, until)):
        found.append(f"it rests until {until} though it has something to say before")
    if core.wake() != until:
        found.append(f"it rests until {until} and should until {core.wake()}")
    return found
