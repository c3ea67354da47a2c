"""Reasons that speak of a web department's releases, as sentences (see `told`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from schemas.units import count, span
from services.domain.text.params import Params
from services.domain.text.told_health import how


def deployed(p: Params) -> str | None:
    if "release" not in p:
        return None
    if p.get("user") == "configuration":
        return f"the configuration says otherwise what release {p['release']} runs"
    return f"{p['user'] or 'somebody'} has asked for release {p['release']}"


def complete(p: Params) -> str | None:
    if "instances" not in p:
        return None
    return f"no instance runs another one: {count(p.number('instances'), 'instance')} of release {p['release']}"


def failed(p: Params) -> str | None:
    if "failures" not in p:
        return None
    last = f": the last instance, {p['unit']}, {how(p)}" if p.get("unit") else ""
    then = f"release {p['back_to']} is wanted again" if "back_to" in p else "nothing more is started"
    return f"release {p['release']} was given up after {count(p.number('failures'), 'failure')}{last}; {then}"


def unblock_failed(p: Params) -> str | None:
    if "unit" not in p:
        return None
    again = "" if "back_to" in p else f"; to try the same again: phoenix scale {_department(p)} N"
    return f"`phoenix logs {p['unit']}` shows what it wrote; deploy one that runs{again}"


def errors(p: Params) -> str | None:
    """Of a release that is worse than the one before."""
    if "old_answered" not in p:
        return None
    before = f"release {p['back_to']} answered {_share(p, 'old_')} so: it is wanted again"
    return f"release {p['release']} answered {_share(p)} with 5xx or not at all within {span(p['over_s'])}; {before}"


def requests_fail(p: Params) -> str | None:
    if "errors" not in p:
        return None
    return f"release {p['release']} answered {_share(p)} with 5xx or not at all in the last {span(p['over_s'])}"


def _share(p: Params, of: str = "") -> str:
    """``100 % of its requests (230 of 230)``."""
    some, all_ = p.number(f"{of}errors"), p.number(f"{of}answered")
    percent = 100 * some / all_ if all_ else 0.0
    return f"{percent:.{0 if percent >= 10 or not percent else 1}f} % of its requests ({some} of {all_})"


def rolling(p: Params) -> str | None:
    if "others" in p:  # how far an update is
        here, others = p.number("instances"), count(p.number("others"), "other")
        paused = f"; {count(p.number('failures'), 'failure')} until now{_last(p)}" if p.number("failures") else ""
        return f"release {p['release']} takes the others' places: {count(here, 'instance')} of it, {others}{paused}{_fresh(p)}"
    return f"release {p['release']} is rolled out" if "release" in p else None


def _last(p: Params) -> str:
    return f", the last one: {p['unit']} {how(p)}" if p.get("unit") else ""


def unblock_rolling(p: Params) -> str | None:
    """Of one that is on its way, and whose instances fail."""
    if "others" not in p or not p.get("unit"):
        return None
    back = f"phoenix deploy {_department(p)} --undo"
    return f"`phoenix logs {p['unit']}` shows what it wrote; deploy one that runs, or go back: {back}"


def unblock_starting(p: Params) -> str | None:
    """Of instances whose health path answers, and not as it should."""
    if not p.get("answer"):
        return None
    unit = p.get("unit") or "INSTANCE"
    back = f"phoenix deploy {_department(p)} --undo"
    return f"`phoenix logs {unit}` shows what it writes; {back} goes back to what ran before"


def _department(p: Params) -> str:
    """Of the instance that it speaks of."""
    return str(p.get("unit") or "").rpartition(".")[0] or "DEPARTMENT"


def drained(p: Params) -> str | None:
    return f"{_followed(p)}, and its last session has ended" if "release" in p else None


def drain_timeout(p: Params) -> str | None:
    return f"{_followed(p)}; sessions were still open when its time to drain was over" if "release" in p else None


def _followed(p: Params) -> str:
    return f"release {p['release']} is rolled out"


def _fresh(p: Params) -> str:
    fresh = p.number("fresh")
    has = "has" if fresh == 1 else "have"
    return f"; {count(fresh, 'instance')} {has} served for less than {span(p['min_ready_s'])}" if fresh else ""


_NONE: Final = ", and none is free for it"
_RULE: Final = ' (surge = "idle")'


def stuck(p: Params) -> str | None:
    if "hosts" not in p:
        return None
    idle = "surge" in p
    most = ", as many as it may have" if "maximum" in p else f", and no other one is idle{_RULE}" if idle else _NONE
    held = f"{p['department']} holds {count(p.number('hosts'), 'host')}{most}"
    first = f"; with max_unavailable {p['max_unavailable']} no other instance may leave first" if "helps" in p else ""
    return f"release {p['release']} waits for {'an idle' if idle else 'a'} host for its next instance: {held}{first}"


def unblock_stuck(p: Params) -> str | None:
    if "hosts" not in p:
        return None
    host = "raise the maximum of the department" if "maximum" in p else "free a host"
    if "surge" in p:
        host = "wait: it goes on by itself as soon as a host is idle that no guarantee keeps"
    if "helps" not in p:
        return host
    return f"`phoenix deploy {p['department']} --max-unavailable {p['helps']}` goes on in the places that there are; or {host}"


_Told = Callable[[Any], str | None]
TELL: Final[dict[str, _Told]] = {
    "release_deployed": deployed,
    "release_complete": complete,
    "release_failed": failed,
    "release_errors": errors,
    "requests_fail": requests_fail,
    "roll_stuck": stuck,
    "rolling": rolling,
    "drained": drained,
    "drain_timeout": drain_timeout,
}
UNBLOCK: Final[dict[str, _Told]] = {
    "release_failed": unblock_failed,
    "rolling": unblock_rolling,
    "starting": unblock_starting,
    "roll_stuck": unblock_stuck,
}
