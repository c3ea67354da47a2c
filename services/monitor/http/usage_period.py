"""Usage of a period: what memory has, with what the history has of older times and of single hours.

Rules
  1. The answers over HTTP and over NATS are made here: they are the same.
"""

from __future__ import annotations

from typing import Any

from services.monitor.core.accounting import Accounting
from services.monitor.history import reads
from services.monitor.history.file import History
from services.monitor.views.usage import By, Older, gaps, usage
from services.runtime.clock import Clock


async def usage_asked(
    accounting: Accounting, history: History, clock: Clock, by: By, department: str | None, since: float, until: float
) -> dict[str, Any]:
    """The answer of `views.usage`; UTC seconds."""
    older = [Older(*await history.ask(reads.collected, *gap)) for gap in gaps(accounting, since, until)]
    return usage(accounting, by, department, since, until, clock(), older)
