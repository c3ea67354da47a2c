"""Reasons that speak of a web department's releases, as sentences (see `told`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from phoenix.cli.params import Params
from phoenix.cli.units import count

_CAUSES: Final = {
    "vm_ended": "ended by itself",
    "boot_timeout": "did not come up in time",
    "unreachable": "was not reached by its load balancer",
}


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
    last = f": the last instance, {p['unit']}, {_CAUSES.get(str(p['cause']), p['cause'])}" if p.get("unit") else ""
    then = f"release {p['back_to']} is wanted again" if "back_to" in p else "nothing more is started"
    return f"release {p['release']} was given up after {count(p.number('failures'), 'failure')}{last}; {then}"


def unblock_failed(p: Params) -> str | None:
    if "unit" not in p:
        return None
    again = "" if "back_to" in p else "; to try the same again: phoenix scale DEPARTMENT N"
    return f"`phoenix logs {p['unit']}` shows what it wrote; deploy one that runs{again}"


def rolling(p: Params) -> str | None:
    if "others" in p:  # how far an update is
        here, others = p.number("instances"), count(p.number("others"), "other")
        paused = f"; {count(p.number('failures'), 'failure')} until now" if p.number("failures") else ""
        waits = f"; it waits for {count(p.number('short'), 'host')}" if p.number("short") else ""
        return (
            f"release {p['release']} takes the others' places: {count(here, 'instance')} of it, {others}{paused}{waits}"
        )
    return f"release {p['release']} is rolled out" if "release" in p else None


def unblock_rolling(p: Params) -> str | None:
    """Of one that needs more hosts than there are (docs/deploy.md, "How instances are replaced", 4)."""
    if not p.number("short"):
        return None
    return (
        "another host, or to let one drain before its successor serves: phoenix deploy DEPARTMENT --max-unavailable 1"
    )


_Told = Callable[[Any], str | None]
TELL: Final[dict[str, _Told]] = {
    "release_deployed": deployed,
    "release_complete": complete,
    "release_failed": failed,
    "rolling": rolling,
}
UNBLOCK: Final[dict[str, _Told]] = {"release_failed": unblock_failed, "rolling": unblock_rolling}
