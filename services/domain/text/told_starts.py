"""The same as `told` for how attempts ended and how a job is started again: with OpenNebula's own words, where it said any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from schemas.units import count, iso, span
from services.domain.text.params import Params


def safe(p: Params) -> str:
    """What a job has saved by a checkpoint, and when."""
    if "safe_s" not in p:
        return ""
    of = f" ({p['percent']:g} % of it)" if isinstance(p.get("percent"), int | float) else ""
    return f"; its checkpoint of {span(p['checkpoint_ago_s'])} ago keeps {span(p['safe_s'])} of its work{of}"


def _refused(p: Params) -> str:
    """What OpenNebula said instead of allocating a VM."""
    return f"; OpenNebula refused it a VM ({p['refused']}): {p['refused_why']}" if p.get("refused_why") else ""


def before(words: str) -> Callable[[Params], str | None]:
    """Of a unit that waits again: how often its attempts ended without its doing, and why the last one did."""

    def told(p: Params) -> str | None:
        if "preempted" not in p:
            return None
        times = [
            f"{what} {'once' if number == 1 else f'{number} times'}"
            for what, number in (("preempted", p.number("preempted")), ("failed to run", p.number("failed")))
            if number
        ]
        goes_on = f"; what it did in {span(p['saved_s'])} is saved, and it goes on from there" if "saved_s" in p else ""
        told = f"it was {' and '.join(times)}, last because {words}{goes_on}{safe(p)}".replace("was failed", "failed")
        return f"{told}{_refused(p)}"

    return told


def _did_not_start(p: Params) -> str:
    """Why no VM of an attempt came to run."""
    if p.get("refused_why"):
        return f"OpenNebula refused it a VM ({p['refused']}): {p['refused_why']}"
    return f"its VM did not start: {str(p['vm']).rstrip('.')}" if p.get("vm") else "its machines did not start in time"


def _held_for_it(p: Params) -> str:
    if "preempted" in p or "failed" not in p:
        return ""
    return f"; {count(p.number('failed'), 'start')} in a row failed on hosts where other jobs start, so it is held"


def vm_ended(p: Params) -> str | None:
    words = f"its VM ended without a report ({p['vm']})" if p.get("vm") else "its VM ended without a report"
    if "began" in p:
        words = _did_not_start(p) if p.get("vm") else words
    return before(words)(p) or f"{words}{_held_for_it(p)}"


def boot_timeout(p: Params) -> str | None:
    told = before("its machines did not start in time")(p)
    if told is not None or "boot_timeout_s" not in p:
        return told
    if p.get("answer"):  # of an instance
        return f"it was not healthy within {span(p['boot_timeout_s'])}: {p['answer']}"
    return f"its machines did not start within {p['boot_timeout_s']:g} s{_refused(p)}{_held_for_it(p)}"


def start_failed(p: Params) -> str | None:
    """Of a unit that waits until it is started again."""
    if "in_s" not in p:
        return None
    starts = "its last start" if p.number("failed") == 1 else f"its last {p.number('failed')} starts"
    return f"{starts} failed, on {p.names('hosts')}: {_did_not_start(p)}; it is tried again in {span(p['in_s'])}"


def held(p: Params) -> str | None:
    if "failed" not in p:
        return "it is held"
    times = count(p.number("failed"), "start")
    return f"it is held: {times} in a row failed on hosts where other jobs start, the last because {_did_not_start(p)}"


def starting(p: Params) -> str | None:
    paused = ""
    if "paused_since" in p:
        paused = (
            f"; starts are paused in the whole cloud since {iso(p['paused_since'])}, because they fail on most hosts "
            f"({p['paused_why']}): one is tried every few seconds, and the first that succeeds lets all go"
        )
    if "hosts" not in p:
        return f"its machines are being started{paused}" if paused else None
    up = f"({p.number('vms_started')} of {p.number('vms')} are up)"
    again = ", and is asked again" if p.get("refused_why") else ""
    return f"its machines are being started on {p.names('hosts')} {up}{_refused(p)}{again}{paused}"


TELL: Final[dict[str, Callable[[Params], str | None]]] = {
    "host_lost": before("its host was lost"),
    "vm_ended": vm_ended,
    "not_saved": before("what it had saved was lost"),
    "boot_timeout": boot_timeout,
    "start_failed": start_failed,
    "held": held,
    "starting": starting,
}
