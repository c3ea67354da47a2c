"""What a job and its attempts have used, as JSON: CPU seconds, and the most memory in MiB.

Rules
  1. The journal counts; of an attempt without such a fact yet, its guests' last report (`so_far`: the figures may still
     grow, even for a moment after the attempt's end).
  2. What no source has reported is null, and not 0.
  3. A job's CPU time is that of all its attempts of which it is known, its memory that of the one that needed most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from schemas.measures import JobMeasured
from schemas.units import seconds
from services.monitor.core.attempt import Attempt, note, own_cpu_s
from services.monitor.views.times import iso

Said: TypeAlias = Callable[[str, int], JobMeasured | None]  # of an attempt of a unit


def of_attempts(unit: str, attempts: Sequence[Attempt], said: Said) -> list[dict[str, Any]]:
    """Of each attempt."""
    words = [said(unit, each.attempt) if each.cpu_seconds is None else None for each in attempts]
    known = [_told(each, word) for each, word in zip(attempts, words, strict=True)]
    return [
        {
            "cpu_seconds": own_cpu_s(known, each),
            "max_rss_mb": each.max_rss_mb,
            "so_far": word is not None,
            "ranks_heard": each.ranks_heard,
            "heard_at": iso(each.heard_at),
        }
        for each, word in zip(known, words, strict=True)
    ]


def of_job(attempts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Rule 3.  `attempts`: with what each has used."""
    cpu = [each["cpu_seconds"] for each in attempts if each["cpu_seconds"] is not None]
    peaks = [each["max_rss_mb"] for each in attempts if each["max_rss_mb"] is not None]
    return {
        "cpu_seconds": round(sum(cpu), 3) if cpu else None,
        "max_rss_mb": max(peaks, default=None),
        "so_far": any(each["so_far"] for each in attempts),
    }


def _told(attempt: Attempt, word: JobMeasured | None) -> Attempt:
    if word is None:
        return attempt
    told = replace(attempt, ranks_heard=word.ranks, heard_at=seconds(word.heard_at))
    note(told, word.cpu_seconds, word.max_rss_mb)
    return told
