"""The same as `told` for how instances of web departments are, and how they ended."""

from __future__ import annotations

from collections.abc import Callable
from signal import Signals
from typing import Final

from schemas.units import count, span
from services.domain.text.params import Params


def _ended(p: Params) -> str:
    wrote = f', and wrote last: "{p["said"]}"' if p.get("said") else ""
    if p.get("oom"):
        return f"was killed because its memory was full{wrote}"
    if p.number("signal"):
        return f"was killed by {_signal(p.number('signal'))}{wrote}"
    return f"ended with exit code {p['exit']}{wrote}"


def _signal(number: int) -> str:
    try:
        return f"signal {number} ({Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _not_healthy(p: Params) -> str:
    if not p.get("answer"):
        return "did not come up in time"
    within = f"within {span(p['boot_timeout_s'])}" if "boot_timeout_s" in p else "in time"
    return f"was not healthy {within}: {p['answer']}"


def _was_not_ready(p: Params) -> str:
    for_s = f" for {span(p['unreachable_s'])}" if "unreachable_s" in p else ""
    return f"was not ready{for_s}{': ' + str(p['answer']) if p.get('answer') else ''}"


_HOW: Final[dict[str, Callable[[Params], str]]] = {
    "vm_ended": lambda _: "ended by itself",
    "program_ended": _ended,
    "boot_timeout": _not_healthy,
    "not_ready": _was_not_ready,
    "unreachable": lambda _: "was not reached by its load balancer",
}


def how(p: Params) -> str:
    """What became of an instance that failed for `cause`: what follows its name."""
    told = _HOW.get(str(p["cause"]))
    return told(p) if told is not None else str(p["cause"])


def last_failed(p: Params) -> str | None:
    return f"the last instance that failed, {p['unit']}, {how(p)}" if "unit" in p else None


def program_ended(p: Params) -> str | None:
    return f"its program {_ended(p)}" if "exit" in p or "signal" in p or "oom" in p else None


def not_ready(p: Params) -> str | None:
    if "target" not in p:
        return f"it {_was_not_ready(p)}" if "unreachable_s" in p else None
    some, serves = p.number("not_ready"), p.number("instances")
    told = (
        f"{serves} of {count(p.number('target'), 'instance')} {'serves' if serves == 1 else 'serve'}; "
        f"{some} {'is' if some == 1 else 'are'} not ready: {'; '.join(map(str, p['answers']))}, for {span(p['for_s'])}"
    )
    if p.get("by"):
        return (
            f"{told}; {p.names('by')} alone says so, and by their guests' word all are ready: it may be the load balancer's "
            "own network, so they are kept"
        )
    return told if p["unreachable_s"] else f"{told}; none is replaced for it (unreachable_s = 0)"


def unblock_not_ready(p: Params) -> str | None:
    if "target" not in p:
        return None
    if p.get("by"):
        return "look whether the load balancer reaches their addresses (phoenix instances)"
    unit = p["units"][0] if p.get("units") else "INSTANCE"
    return f"`phoenix logs {unit}` shows what its program says; who is not ready for {span(p['unreachable_s'])} is replaced"


TELL: Final[dict[str, Callable[[Params], str | None]]] = {
    "not_ready": not_ready,
    "program_ended": program_ended,
    "last_failed": last_failed,
}
