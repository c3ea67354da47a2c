"""Why a web department has the instances and hosts that it has: read from the core's state, changing nothing.

Rules
  1. First why the number of instances is what it is; then what is short: hosts, and instances that are on their way.
     If guarantees of batch departments keep the hosts (`schemas.kept`), whose.
"""

from __future__ import annotations

from schemas.kept import kept_from
from schemas.reasons import Code, Reason, because
from services.scheduler.web import WebCore


def why(core: WebCore, now: float) -> list[Reason]:
    target, reason = core.desired(now)
    held, wanted = core.custody.held(core.dept), core.custody.state.demands.get(core.dept, 0)
    live, found = len(core.holdings.live), [reason]
    if wanted > held:
        kept = kept_from(core.custody, core.dept, now)
        by: dict[str, int | list[str]] = {}
        if kept is not None:
            by = {"kept": kept.hosts, "usable": kept.usable, "kept_by": list(kept.departments)}
        found.append(because(Code.WAITS_FOR_HOSTS, demand=wanted, held=held, short=wanted - held, **by))
    if live > core.state.serving:
        found.append(because(Code.STARTING, instances=live - core.state.serving))
    if live < target and now < core.state.retry_at:
        wait_s = round(core.state.retry_at - now, 3)
        found.append(because(Code.REPLACEMENT, failures=core.state.failures, wait_s=wait_s))
    found.append(because(Code.RUNNING, instances=core.state.serving, target=target))
    return found
