"""What one decision of the web core looks at: what is folded and held, at one moment, and the terms of the wanted release.

Rules
  1. The terms of a rolling update are those of the release that is wanted; release 0 has the department's.
  2. While releases have no say (`quiet`), nothing looks at all instances.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from schemas import facts as f
from schemas.config import WebPolicy
from schemas.ids import sort_key
from services.domain import readiness
from services.domain.custody.custody import Custody
from services.domain.custody.state import Unit
from services.scheduler.core.state.limits import Limits
from services.scheduler.core.web.inventory import Inventory
from services.scheduler.core.web.release import Roll, Seen, Terms
from services.scheduler.core.web.state import State


class Scene(NamedTuple):
    """`drain_s`: 0 where no instance waits for its sessions.  `roll`: as folded, or after the core's own word (`rolls`)."""

    custody: Custody
    dept: str
    policy: WebPolicy
    drain_s: float
    held: Inventory
    state: State
    limits: Limits
    roll: Roll
    now: float

    def unit(self, name: str) -> Unit:
        return self.custody.state.units[name]

    def request(self, number: int) -> f.ReleaseRequested | None:
        return self.custody.state.releases.get(self.dept, {}).get(number)

    @property
    def asked(self) -> int:
        """The newest request."""
        return self.custody.state.release_last.get(self.dept, 0)

    @property
    def quiet(self) -> bool:
        """Rule 2."""
        return is_quiet(self.roll, self.asked)

    @property
    def terms(self) -> Terms:
        """Rule 1."""
        bounds, policy = self.request(self.roll.wanted) or self.policy, self.policy
        ready_s = policy.min_ready_s if bounds.min_ready_s is None else bounds.min_ready_s
        return Terms.of(bounds.max_unavailable, bounds.max_surge, policy.start_failures_max, ready_s)

    @property
    def image(self) -> str:
        """What new instances boot."""
        asked = self.request(self.roll.wanted)
        return asked.content.image if asked is not None else self.policy.image

    def look(self, unit: Unit, stays: bool = True) -> Seen:
        words = self.state.unready.get(unit.id) if unit.began_at is not None else None
        unready_at, ready_at = readiness.since(words) if words else None, self.state.ready_at.get(unit.id, 0.0)
        number, leaves = sort_key(unit.id)[0], unit.drains_until is not None
        return Seen(unit.id, number, unit.release, unit.began_at, leaves, stays, unready_at, ready_at)

    def live(self) -> Iterator[Seen]:
        """All that are live, in no order that matters."""
        units = self.custody.state.units
        return (self.look(units[name]) for name in (*self.held.active, *self.held.draining))


def is_quiet(roll: Roll, asked: int) -> bool:
    """Releases have no say: instances come and go as if there were none.  `asked`: the newest request."""
    return roll.stage == "complete" and not roll.failures and asked <= roll.asked
