"""What a grace of a job's own (`domain.grace`) costs whoever claims its hosts, as sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from schemas.units import count, some, span
from services.domain.text.params import Params

JOBS_SHOWN: Final = 5


def cost(p: Params) -> str:
    """Of a job that runs, or is submitted: with `claim_waits_s`; empty without."""
    if "claim_waits_s" not in p:
        return ""
    return f"a claim that takes its hosts may wait up to {_exact(p['claim_waits_s'])} for it"


def hosts_left(p: Params) -> str | None:
    if "hosts" not in p:
        return None
    hosts = p.number("hosts")
    when = f"in {span(p['in_s'])} at the latest" if p["in_s"] > 0 else "now"
    way = f"{count(hosts, 'host')} on the way {'is' if hosts == 1 else 'are'} clear {when}"
    return f"{way}: {have(p.get('jobs') or ())}"


def have(jobs: Iterable[str]) -> str:
    """Who has time to save."""
    names = list(dict.fromkeys(jobs))
    who = f"job {names[0]} has" if len(names) == 1 else f"jobs {some(names, JOBS_SHOWN)} have"
    return f"{who} until then to save (--grace)"


def saves(p: Params) -> str | None:
    if "in_s" not in p:
        return None
    left = f"another {span(p['in_s'])} at most to save (--grace {_exact(p['grace_s'])})"
    return f"it was told to end on {p.names('on')}, and has {left}"


def _exact(seconds: float) -> str:
    return f"{seconds:g}s" if seconds < 60 else span(seconds)


TELL: Final[dict[str, Callable[[Params], str | None]]] = {"hosts_left": hosts_left, "saves": saves}
