"""When a job starts, and how sure that is (`services.scheduler.lookahead.start_estimate`), as sentences.

at 2026-02-03T04:05:06Z at the latest, in 12m05s: room is kept for it; web may claim 3 hosts of the department
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from schemas.units import iso, seconds, span

PLANNED: Final = "planned"
CANNOT_SAY: Final = "cannot_say"
NEVER: Final = ("dependency_failed", "department_removed", "lease_over")  # reasons that no end of a job takes away
MARKS: Final = {PLANNED: "", "by_walltimes": "~"}  # in a column


def when_it_starts(told: Mapping[str, Any], now: float, sentence: Callable[[object], str]) -> str:
    """`told`: a `Foreseen` as JSON; `sentence`: of a reason."""
    why, at = sentence(told["because"]), seconds(told.get("start_at"))
    if at is None and told["because"]["code"] in NEVER:
        return "never, as it stands"  # why is the unit's first reason
    if at is None:
        ended = "also when all that runs now has ended, " if told["because"]["code"] == "waits_for_hosts" else ""
        return f"this cannot be predicted: {ended}{why}"
    latest = " at the latest" if told["sure"] == PLANNED else ""
    where = f", on {', '.join(told['hosts'])}" if told.get("hosts") and len(told["hosts"]) <= 4 else ""
    return f"at {iso(at)}{latest}, in {span(at - now)}{where}: {why}"
