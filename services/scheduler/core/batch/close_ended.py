"""Attempts that must end whatever else is decided: broken ones, cancelled ones, those over a limit.

Rules
  1. Broken attempts are closed at once: preempted ones by `on_reclaim`, lost ones and ended VMs go back into the queue
     (`dispositions`).  A cancelled one is closed as cancelled, one over its walltime as timeout.
  2. An attempt that is more than one of these is closed once, for the first of them.
"""

from __future__ import annotations

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal
from schemas.ids import sort_key
from services.scheduler.core.batch.stage import Said
from services.scheduler.core.batch.view import View


class CloseEnded:
    def __init__(self, view: View) -> None:
        self.view = view

    def __call__(self, said: Said, now: float) -> bool:
        closings = self._closings(now)
        said.facts += closings
        said.closing |= dict.fromkeys(closing.unit for closing in closings)
        return False

    def next_moment(self, after: float) -> float:
        return self.view.limits.next_moment(after)

    def _closings(self, now: float) -> list[f.AttemptClosed]:
        view = self.view
        broken = sorted(view.custody.index.broken.get(view.dept, ()), key=sort_key)
        found = {name: view.dispositions.broken(name) for name in broken}
        for name in sorted(view.cancelling, key=sort_key):
            if name not in found:
                found[name] = view.dispositions.close(name, Disposal.CANCELLED, because.Cancelled())
        for limit in view.limits.overdue(now):
            if limit.unit not in found:
                found[limit.unit] = view.dispositions.overdue(limit)
        return list(found.values())
