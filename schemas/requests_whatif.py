"""What a job would wait for, were it submitted: the answer to `job.whatif` (`schemas.requests` has the rules)."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from schemas.reasons import Reason
from schemas.requests_base import Message
from schemas.start_estimate import Sure
from schemas.times import TimeText

Field = Literal["walltime_s", "nodes", "exclusive", "best_effort", "quality"]


class Forecast(Message, frozen=True, kw_only=True):
    """When and where a job would start.  `start_at`: when; null: unknown; `hosts`: where, as far as that is
    known; `sure`: how sure that is; `why`: what the time depends on."""

    start_at: TimeText | None
    hosts: tuple[str, ...] = ()
    sure: Sure
    why: Reason


class Variant(Message, frozen=True, kw_only=True):
    """The same job with one field of the request changed.  `field`: the field; `value`: its value in this variant;
    `forecast`: when the job would start then."""

    field: Field
    value: str | float | bool
    forecast: Forecast


class Foretold(Message, frozen=True, kw_only=True):
    """When a job would start; nothing was submitted.  `at`: the time for which this was computed; `now`: it
    would start at once; `units`: 1, or the number of array elements; `nodes`: number of hosts; `cores`: cores on each host;
    `memory_mb`: memory on each host, in MiB; `gpus`: GPUs on each host; `walltime_s`: time limit, in seconds; `quality`:
    quality of service; empty: none; `claim_waits_s`: of a job with a grace time of its own, how long a department that claims
    one of its hosts may have to wait, in seconds; `forecast`: when it would start; of an array, its first element; `last`: of
    an array, when its last element would start; `variants`: changed requests that would start earlier."""

    department: str
    at: TimeText
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
