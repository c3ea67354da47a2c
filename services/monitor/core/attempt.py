"""One attempt of a unit, as the read model remembers it, and what the attempts of a unit have used.

Rules
  1. A guest counts from the beginning of its VM, so its report of an attempt that continued another contains what that one
     had used.  An attempt's own is what came since, as far as it is known how much there was before (`own_cpu_s`).
  2. What no source has reported is unknown, and not 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from schemas import facts as f
from schemas.reasons import Reason
from services.domain.custody.state import Broken


class Checkpoint(msgspec.Struct, kw_only=True):
    """What an attempt said was safe; `files` that the next one gets."""

    at: float
    files: int
    percent: float | None
    progress: str


class Attempt(msgspec.Struct, kw_only=True):
    attempt: int
    hosts: tuple[str, ...]
    placed_at: float
    reason: Reason | None = None
    began_at: float | None = None
    ended_at: float | None = None
    disposal: str | None = None
    why: Reason | None = None
    exit: int | None = None
    signal: int | None = None
    seconds: float | None = None
    cpu_seconds: float | None = None  # since its life began, as guests say it
    max_rss_mb: float | None = None
    note: str | None = None
    checkpoint: Checkpoint | None = None  # its last one
    draining_at: float | None = None  # of an instance: since when no new session goes there
    broken: Broken | None = None
    terminated: bool = False  # its guest had told its script to end
    life: int = 1  # the attempt with which what it continues with began
    ranks_heard: int | None = None  # whose figures these are, if no report says them; and when they were heard
    heard_at: float | None = None


def note(attempt: Attempt, cpu_seconds: float | None, max_rss_mb: float | None) -> None:
    """Guests have said so of the attempt; of two words the greater counts, since both are totals."""
    attempt.cpu_seconds = _most(attempt.cpu_seconds, cpu_seconds)
    attempt.max_rss_mb = _most(attempt.max_rss_mb, max_rss_mb)


def measured(attempt: Attempt, fact: f.AttemptMeasured) -> None:
    note(attempt, fact.cpu_seconds, fact.max_rss_mb)
    attempt.ranks_heard, attempt.heard_at = fact.ranks, fact.heard_at


def own_cpu_s(attempts: Sequence[Attempt], attempt: Attempt) -> float | None:
    """Rule 1.  `attempts`: of its unit, oldest first."""
    before = [a.cpu_seconds for a in attempts if a.life == attempt.life and a.attempt < attempt.attempt]
    had = max((cpu for cpu in before if cpu is not None), default=0.0)
    return None if attempt.cpu_seconds is None else round(max(0.0, attempt.cpu_seconds - had), 3)


def cpu_s(attempts: Sequence[Attempt]) -> float | None:
    """Of all of them that are known; None: of none."""
    found = [own for own in (own_cpu_s(attempts, attempt) for attempt in attempts) if own is not None]
    return round(sum(found), 3) if found else None


def _most(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)
