"""What is kept of one run: everything that a report or a plot says comes from here, and one can be reported again later.

Times are UTC seconds; `began_at` is the load's 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from phoenix.load.curve import Curve
from phoenix.load.results import Results
from phoenix.rush.setting import Setting, Variant


class Seen(msgspec.Struct, frozen=True):
    """From `at` on the load balancer sends to these instances (HOST:PORT)."""

    at: float
    addresses: tuple[str, ...]


class Machine(msgspec.Struct, frozen=True):
    """Mean of a second that ends at `at`: the share of all CPU time that was used, by anybody."""

    at: float
    busy: float


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The batch department during the load, in core-seconds of its hosts."""

    used_core_s: float
    lost_core_s: float  # of that, done again later because the host went to web
    preempted: int
    completed: int
    submitted: int


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """`capacity`: requests a second that one instance was measured to serve.  `events`: the cloud's, of the whole run, or from
    `events_since` on: the monitor keeps the newest 20,000.
    `cpu_s`: CPU seconds during the load by process of the cloud (and `phoenix load`); `wait_s`: seconds that they were ready
    to run and had no CPU."""

    setting: Setting
    variant: Variant
    curve: Curve
    capacity: float
    began_at: float
    ended_at: float
    load: Results
    seen: tuple[Seen, ...]
    machine: tuple[Machine, ...]
    cpu_s: dict[str, float]
    wait_s: dict[str, float] = {}
    batch: Batch
    timeline: tuple[tuple[float, dict[str, int]], ...]  # hosts by holder
    events: tuple[dict[str, Any], ...]
    events_since: float = 0.0


def save(recording: Recording, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(recording))


def load(path: Path) -> Recording:
    """msgspec.DecodeError or OSError if it is none."""
    return msgspec.json.decode(path.read_bytes(), type=Recording)
