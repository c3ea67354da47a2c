"""Meaning of the settings for leases of a batch department (`order = "leases"`); see `config.checks`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from schemas.config import BatchPolicy
from services.runtime.config.form import Path_, Problem, shown

RATE_MAX: Final = 1e6  # MiB/s: faster than any memory
DAY_S: Final = 86_400.0


def check(batch: BatchPolicy, path: Path_, label: str) -> Iterator[Problem]:
    def within(key: str, low: float, high: float, *, above: bool = False) -> Iterator[Problem]:
        value: float = getattr(batch.leases, key)
        if math.isnan(value) or not low <= value <= high or (above and value == low):
            right = f"should be {'more than' if above else 'at least'} {low:g} and at most {high:g}"
            yield Problem(path=(*path, "leases", key), found=shown(value), right=right, label=label)

    yield from within("alpha", 0.0, 1.0)
    for rate in ("suspend_mb_per_s", "resume_mb_per_s"):
        yield from within(rate, 0.0, RATE_MAX, above=True)
    yield from within("margin_s", 0.0, 3600.0)
    yield from within("lead_s", 0.0, 7 * DAY_S)
