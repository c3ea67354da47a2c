"""The states in which a job stays, as admission names them."""

from __future__ import annotations

from typing import Final

GOOD: Final = ("completed", "ended_early")
MIXED: Final = "ended"  # of an array that the history alone remembers, whose elements ended in different ways
FINAL: Final = frozenset((*GOOD, "failed", "cancelled", "timeout", "killed", MIXED))
