"""Why a job that has ended is what it is: from the fold or, of one that was forgotten, from the history.  Its scheduler
remembers it no longer than it needs to.

Rules
  1. First how it ended, with exit code and time; of an array how many elements ended how.
  2. Then why its last attempt was closed, if a service or person decided that.
"""

from __future__ import annotations

from typing import Any

from schemas import reasons as because
from services.domain.custody.state import ENDED_EARLY
from services.monitor.views.times import plain


def explain(view: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Reasons; None of a job that is not over."""
    if view.get("ended_at") is None:
        return None
    end, counts = str(view["state"]), view.get("counts") or {}
    params: dict[str, Any] = {"end": end, "ended_at": view["ended_at"]}
    if counts:
        params["counts"] = [f"{counts[state]} {state.replace('_', ' ')}" for state in sorted(counts)]
    if view.get("exit_code") is not None and end not in (ENDED_EARLY, "completed") and not counts:
        params["exit"] = view["exit_code"]
    last = (view.get("attempts") or [{}])[-1]
    return [plain(because.Finished(**params)), *([last["why"]] if last.get("why") else [])]
