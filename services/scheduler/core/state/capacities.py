"""What the cloud's usable hosts could hold if they were empty, by their capacity.  A view derived from custody.

Rules
  1. Usable is a host that is free, held or draining, and not cordoned: what a department may hope for.
  2. Ranks on a host are counted on the smallest kind of host that holds one (`demand`, rule 1).
  3. Only for shapes with a constraint is each host looked at; else kinds of hosts are.
"""

from __future__ import annotations

from typing import Final

from schemas.size import Size
from services.domain.constraints import satisfies
from services.domain.custody.custody import Custody
from services.domain.custody.state import Host
from services.scheduler.core.state.shape import Shape

USABLE: Final = ("free", "held", "draining")


class Capacities:
    """Usable hosts by capacity.  A view derived from custody."""

    def __init__(self, custody: Custody | None = None) -> None:
        self.custody = custody  # for labels
        self.of_host: dict[str, Size] = {}
        self.counts: dict[Size, int] = {}

    @classmethod
    def of(cls, custody: Custody) -> Capacities:
        found = cls(custody)
        for name in custody.state.hosts:
            found.update(custody, name)
        return found

    def update(self, custody: Custody, name: str) -> bool:
        """Host `name` may have changed; True if its capacity counts otherwise now."""
        host = custody.state.hosts.get(name)
        new, old = None, self.of_host.get(name)
        if host is not None and host.state in USABLE and host.cordoned is None:
            new = host.size
        if old == new:
            return False
        self.of_host.pop(name, None)
        if new is not None:
            self.of_host[name] = new
            self.counts[new] = self.counts.get(new, 0) + 1
        if old is not None:
            self.counts[old] -= 1
            if not self.counts[old]:
                del self.counts[old]
        return True

    def able(self, shape: Shape) -> int:
        """Usable hosts that could hold a rank of `shape` if they were empty."""
        if shape.constraint:
            return sum(1 for kind in self._meeting(shape.constraint) if _ranks(kind, shape) > 0)
        return sum(number for kind, number in self.counts.items() if shape.size.fits_in(kind))

    def ranks(self, shape: Shape) -> int:
        """Ranks of `shape` on the smallest kind of host that holds one; 0 if none does."""
        kinds = self._meeting(shape.constraint) if shape.constraint else self.counts
        return min((n for kind in kinds if (n := _ranks(kind, shape)) > 0), default=0)

    def _meeting(self, constraint: str) -> list[Size]:
        """What each usable host that satisfies it has."""
        if self.custody is None:
            return []
        hosts = self.custody.state.hosts
        return [kind for name, kind in self.of_host.items() if _meets(hosts[name], constraint)]


def _meets(host: Host, constraint: str) -> bool:
    return satisfies(host.name, host.cluster, host.labels, constraint)


def _ranks(kind: Size, shape: Shape) -> int:
    if shape.exclusive:
        return 1 if shape.size.fits_in(kind) else 0
    copies = shape.size.copies_in(kind)
    return (kind.cores or 1) if copies is None else copies
