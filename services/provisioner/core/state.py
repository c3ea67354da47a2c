"""What the provisioner remembers beside custody."""

from __future__ import annotations

import msgspec

from schemas import facts as f
from services.domain.custody.custody import Custody
from services.domain.sharing.credit import Credits
from services.provisioner.core.leases import Lease


class State(msgspec.Struct, kw_only=True):
    """`facts` makes a dump tell how far it is; `waiting`: batch department -> since when it lacks hosts and places nothing."""

    facts: int = 0
    waiting: dict[str, float] = {}
    prefers: dict[str, tuple[str, ...]] = {}  # department -> constraints of its jobs that wait
    needs: dict[
        str, tuple[dict[str, int], ...]
    ] = {}  # department -> sizes that their demand names (`dimensions.named`)
    if_idle: dict[str, int] = {}  # web department -> hosts that it wants beside its demand, if they are idle
    credits: Credits = msgspec.field(default_factory=Credits)
    leases: dict[str, Lease] = {}  # accepted ones with a time of their own that are not over

    def demanded(self, fact: f.DemandChanged) -> None:
        self.prefers.pop(fact.dept, None)
        self.needs.pop(fact.dept, None)
        self.if_idle.pop(fact.dept, None)
        if fact.prefer:
            self.prefers[fact.dept] = fact.prefer
        if fact.sizes:
            self.needs[fact.dept] = fact.sizes
        if fact.if_idle:
            self.if_idle[fact.dept] = fact.if_idle

    def demand(self, custody: Custody, name: str) -> int:
        """In all, with what is wanted only if it is idle."""
        return custody.state.demands.get(name, 0) + self.if_idle.get(name, 0)
