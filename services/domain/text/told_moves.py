"""The same as `told` for why a job started or was stopped, and why a department may keep fewer hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from schemas.units import count, span
from services.domain.text.params import Params


def backfill(p: Params) -> str | None:
    if "gap_s" in p:
        return f"it fitted into a gap of {span(p['gap_s'])} without delaying job {p['head']}"
    if "head" in p:
        return f"it fitted beside the room that is kept for job {p['head']}"
    if "reserved" in p:
        return (
            f"it fitted in without delaying the {count(p.number('reserved'), 'job')} before it for which room is kept"
        )
    return None


def shortest_first(p: Params) -> str | None:
    return f"of the jobs that fitted it had the shortest time limit, {span(p['limit_s'])}" if "limit_s" in p else None


def walltime(p: Params) -> str | None:
    return f"it ran into its time limit of {span(p['walltime_s'])}" if "walltime_s" in p else None


def best_effort(p: Params) -> str | None:
    return f"it runs on what production leaves, in the turn of service {p['service']}" if p.get("service") else None


def made_way(p: Params) -> str | None:
    return f"it is best-effort, and job {p['job']} needed its room" if p.get("job") else None


def department_removed(p: Params) -> str | None:
    return f"department {p['department']} was removed from the configuration" if "department" in p else None


def replacement(p: Params) -> str | None:
    if "wait_s" in p:
        failed = count(p.number("failures"), "instance")
        return f"{failed} failed one after another: the next one starts in {span(p['wait_s'])}"
    return "it replaces an instance that was lost" if "instances" in p else None


def web_share(p: Params) -> str | None:
    others = p.names("departments") or p.names("department")  # the latter in old journals
    part = "their parts" if "," in others else "its part"
    return f"what is short for web is divided, and {others} had less than {part}" if others else None


def batch_share(p: Params) -> str | None:
    """Another one wants more, or this one less: the reason does not tell which."""
    return (
        f"the shares of batch departments have changed, and {p['department']} held {p['held']}" if "held" in p else None
    )


TELL: Final[dict[str, Callable[[Params], str | None]]] = {
    "backfill": backfill,
    "shortest_first": shortest_first,
    "walltime": walltime,
    "best_effort": best_effort,
    "preempted": made_way,
    "department_removed": department_removed,
    "replacement": replacement,
    "web_share": web_share,
    "batch_share": batch_share,
}
