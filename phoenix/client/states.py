"""The states in which a job stays, as admission names them."""

from __future__ import annotations

from typing import Final

GOOD: Final = ("completed", "ended_early")
FINAL: Final = frozenset((*GOOD, "failed", "cancelled", "timeout", "killed"))
