"""When a job starts, and how sure that is (`services.scheduler.lookahead.start_estimate`), as sentences.

at 2026-02-03T04:05:06Z at the latest, in 12m05s: room is kept for it; web may claim 3 hosts of the department
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from schemas.units import count, iso, seconds, span
from services.domain.text.params import Params

PLANNED: Final = "planned"
CANNOT_SAY: Final = "cannot_say"
MARKS: Final = {PLANNED: "", "by_walltimes": "~"}  # in a column


def _claimable(p: Params) -> str:
    if not p.number("claimable"):
        return ""
    return f"; web may claim {p.number('claimable')} of the department's hosts before that"


def reserved(p: Params) -> str | None:
    return f"room is kept for it{_claimable(p)}"


def by_walltimes(p: Params) -> str | None:
    jobs = p.number("ends")
    after: list[str] = p.get("after") or []
    found = []
    if jobs == 1:
        found.append("the attempt that ends before runs to its time limit")
    elif jobs:
        found.append(f"the {jobs} attempts that end before run to their time limits")
    if len(after) == 1:
        found.append(f"job {after[0]} ends as it should")
    elif after:
        found.append(f"jobs {p.names('after')} end as they should")
    found.append("nothing comes that goes first")
    return f"that holds if {', '.join(found)}, and no host is taken away{_claimable(p)}"


def too_far(p: Params) -> str | None:
    if "ahead_s" not in p:
        return None
    ended = count(p.number("ends"), "attempt")
    return f"it is further ahead than is looked: {ended} end until then, in {span(p['ahead_s'])} by their time limits"


def starts(told: Mapping[str, Any], now: float, sentence: Callable[[object], str]) -> str:
    """`told`: a `Foreseen` as JSON; `sentence`: of a reason."""
    why, at = sentence(told["because"]), seconds(told.get("start_at"))
    if at is None:
        ended = "also when all that runs now has ended, " if told["because"]["code"] == "waits_for_hosts" else ""
        return f"nobody can say: {ended}{why}"
    latest = " at the latest" if told["sure"] == PLANNED else ""
    where = f", on {', '.join(told['hosts'])}" if told.get("hosts") and len(told["hosts"]) <= 4 else ""
    return f"at {iso(at)}{latest}, in {span(at - now)}{where}: {why}"


TELL: Final[dict[str, Callable[[Params], str | None]]] = {
    "reserved": reserved,
    "by_walltimes": by_walltimes,
    "too_far": too_far,
}
