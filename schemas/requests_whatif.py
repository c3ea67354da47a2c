"""What a job would wait for, were it submitted: the answer to `job.whatif` (`schemas.requests` has the rules)."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from schemas.reasons import Reason
from schemas.requests_base import Message
from schemas.start_estimate import Sure

Field = Literal["walltime_s", "nodes", "exclusive", "best_effort", "quality"]


class Forecast(Message, frozen=True, kw_only=True):
    """`start_at`: UTC seconds; null if unknown.  `hosts`: where, as far as that is known.  `why`: what it hangs on."""

    start_at: float | None
    hosts: tuple[str, ...] = ()
    sure: Sure
    why: Reason


class Variant(Message, frozen=True, kw_only=True):
    """The same job, but for one field of the request: what it would be, and when it would start then."""

    field: Field
    value: str | float | bool
    forecast: Forecast


class Foretold(Message, frozen=True, kw_only=True):
    """Nothing was submitted.  `at`: for when this was asked; `now`: it would start at once.  Of an array: `forecast` is of its
    first element, `last` of its last one.  `variants`: what would start earlier."""

    ok: Literal[True] = True
    department: str
    at: float
    now: bool
    units: int = 1
    nodes: int
    cores: int
    memory_mb: int
    gpus: int = 0
    walltime_s: float
    quality: str = ""
    claim_waits_s: float | UnsetType = UNSET  # as `requests.Submitted` has it
    forecast: Forecast
    last: Forecast | None = None
    variants: tuple[Variant, ...] = ()
