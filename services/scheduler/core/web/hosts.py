"""Instances on hosts: which to end, where to place, which hosts to give back.  Pure functions over one picture.

Rules
  1. An instance on a cordoned host stays, and counts; on a drained one it is replaced before it ends.  The host goes back when
     none is left on it: a drained one when enough others are in service, at its deadline at the latest.
  2. Too many: those not yet in service go first.  Then, while more hosts carry instances than are needed, those on the host
     with the fewest (then with the fewest sessions, then with the newest) go, so that it becomes empty; when no host can be
     saved, the instances with the fewest sessions, wherever they are; then the newest.  Instances that cannot be reached go
     before all others in service.
  3. Too few: the host with the most instances that still has room, so that as few hosts as possible are in use; then by name.
  4. An idle host that cannot be used now (cordoned, in quarantine) goes back at once, an idle one beyond the claim too.  Idle
     is a host without instances and without open VMs: what ends there would be killed within `grace_s` if the host went.
  5. On notice go hosts with the fewest active instances first (so what drains already continues to drain), idle ones first of
     all, then those that have drained soonest, then those with the fewest sessions, then with the newest instance, then by
     name.  Cordoned ones do not: no other department could use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, islice

from schemas.dimensions import scarcity
from schemas.ids import sort_key
from services.domain.custody.state import Host, Unit
from services.scheduler.core.web.inventory import Inventory, too_small

Ranks = Mapping[
    str, int
]  # instance -> its place among those with the fewest sessions; those that are not named come after them
Order = tuple[bool, int, int]


class Picture:
    """What the department holds without the instances that are being closed (`gone`), where those that begin to drain
    (`drained`) do so already."""

    def __init__(self, held: Inventory, gone: dict[str, None], drained: dict[str, None], ranks: Ranks) -> None:
        self.held, self.gone, self.drained, self.ranks = held, gone, drained, ranks
        self._left: dict[str, int] = {}  # hosts of those that are gone -> live instances left there
        self._idle: list[str] | None = None
        for name in gone:
            host = held.where(name)
            left = self._left.get(host)
            self._left[host] = (len(held.host(host).units) if left is None else left) - 1
        self._active_gone = sum(1 for name in gone if name in held.active)

    @property
    def count(self) -> int:
        """Active instances."""
        return len(self.held.active) - self._active_gone - len(self.drained)

    @property
    def draining(self) -> int:
        """Instances that drain, and take room that others could have: not on cordoned hosts."""
        held, gone = self.held, self.gone
        hosts = [held.where(name) for name in (*held.draining, *self.drained) if name not in gone]
        return sum(1 for host in hosts if host not in held.cordoned)

    def live_on(self, host: str) -> list[Unit]:
        """Live instances there, by number."""
        return [unit for unit in self.held.on(host) if unit.id not in self.gone]

    def on(self, host: str) -> list[Unit]:
        """Active instances there, by number."""
        return [unit for unit in self.live_on(host) if self._is_active(unit.id)]

    def _is_active(self, name: str) -> bool:
        return name in self.held.active and name not in self.gone and name not in self.drained

    def idle(self) -> list[str]:
        """Hosts without instances and without open VMs (rule 4), by name."""
        if self._idle is None:
            emptied = [name for name, left in self._left.items() if not left and not self.held.host(name).vms]
            self._idle = sorted([*self.held.idle, *emptied])
        return self._idle

    def without(self, closed: list[Unit], drained: list[Unit]) -> Picture:
        if not closed and not drained:
            return self
        gone, drains = dict.fromkeys(x.id for x in closed), dict.fromkeys(x.id for x in drained)
        return Picture(self.held, self.gone | gone, self.drained | drains, self.ranks)

    def leaving(self) -> list[Unit]:
        """Active instances on drained hosts."""
        if not self.held.drained:
            return []
        return [unit for name in self.held.drained for unit in self.on(name)]

    def apart(self) -> int:
        """Active instances that stay on cordoned hosts."""
        held = self.held
        return sum(len(self.on(name)) for name in held.cordoned if name not in held.drained) if held.cordoned else 0

    def instances(self) -> list[Unit]:
        """Active ones, by number."""
        units = self.held.custody.state.units
        return [units[name] for name in self.held.active if self._is_active(name)]

    def order(self, unit: Unit) -> Order:
        """The order in which they go: not in service, then the fewest sessions, then the highest number (unique)."""
        return unit.began_at is not None, self.rank(unit), -sort_key(unit.id)[0]

    def rank(self, unit: Unit) -> int:
        return self.ranks.get(unit.id, len(self.ranks))


def surplus(seen: Picture, target: int, per_host: int) -> list[Unit]:
    """Instances that are to end (rules 1 and 2)."""
    held, leave = seen.held, seen.leaving()
    if seen.count <= target:
        return []
    if not leave and not seen.gone and not seen.drained and len(held.active) == len(held.carrying):
        return _single(seen, len(held.active) - target)
    goes = dict.fromkeys(unit.id for unit in leave)
    stay = [unit for unit in seen.instances() if unit.id not in goes]
    serving = [unit for unit in stay if unit.began_at is not None]
    ended = sorted(leave, key=seen.order)[: max(0, len(serving) + len(leave) - target)]
    extra = max(0, len(stay) - target)
    starting = _emptying(seen, [unit for unit in stay if unit.began_at is None])[:extra]
    return [*ended, *starting, *_fewest(seen, serving, extra - len(starting), -(-target // per_host))]


def _single(seen: Picture, count: int) -> list[Unit]:
    """Rule 2 where each host carries one instance: none saves more hosts than another."""
    held, ranks = seen.held, seen.ranks
    quiet = (name for name in ranks if name in held.active and name not in held.starting)
    others = (name for name in reversed(held.active) if name not in held.starting and name not in ranks)
    units = held.custody.state.units
    return [units[name] for name in islice(chain(reversed(held.starting), quiet, others), count)]


def _emptying(seen: Picture, starting: list[Unit]) -> list[Unit]:
    """In an order that empties one host after another: fewest active instances first, then the newest (unique)."""
    on = _by_host(seen, starting)
    hosts = sorted(on, key=lambda host: (seen.held.carrying[host], seen.order(on[host][0])))
    return [unit for host in hosts for unit in on[host]]


def _fewest(seen: Picture, serving: list[Unit], count: int, needed: int) -> list[Unit]:
    """Rule 2 for those in service: `count` of them; `needed`: hosts that the remaining ones need."""
    if count <= 0:
        return []
    on = _by_host(seen, serving)

    def key(host: str) -> tuple[int, int, Order]:
        sessions = sum(map(seen.rank, on[host]))
        return len(on[host]), sessions, seen.order(on[host][0])  # fewest instances, fewest sessions, newest (unique)

    found: list[Unit] = []
    for host in sorted(on, key=key)[: max(0, len(on) - needed)]:
        found += on.pop(host)[: count - len(found)]
    rest = sorted((unit for units in on.values() for unit in units), key=seen.order)
    return [*found, *rest[: count - len(found)]]


def _by_host(seen: Picture, units: list[Unit]) -> dict[str, list[Unit]]:
    """Each host's in the order in which they go."""
    on: dict[str, list[Unit]] = {}
    for unit in sorted(units, key=seen.order):
        on.setdefault(unit.hosts[0], []).append(unit)
    return on


def shortage(seen: Picture, target: int) -> int:
    """Instances to place.  Those on drained hosts do not count."""
    return max(0, target - (seen.count - len(seen.leaving())))


def places(held: Inventory, count: int, now: float) -> list[str]:
    """Hosts for up to `count` new instances, one name for each (rule 3).  Attempts being closed still have their room."""
    hosts = [held.host(name) for name in held.roomy]
    usable = [host for host in hosts if host.cordoned is None and host.quarantine_until <= now]
    found: list[str] = []
    for host in sorted(usable, key=lambda h: (scarcity(h.size), -len(h.units), h.name)):  # unique: name
        if len(found) == count:
            break
        found += [host.name] * min(held.room(host), count - len(found))
    return found


def not_needed(seen: Picture, claim: int, placed: list[str], now: float) -> list[str]:
    """Idle hosts to give back (rule 4).  `claim`: hosts wanted in all; `placed`: hosts that are getting an instance."""
    if not seen.idle():
        return []
    getting = dict.fromkeys(placed)
    idle = [seen.held.host(name) for name in seen.idle() if name not in getting]
    useless = {host.name: None for host in idle if host.cordoned is not None or host.quarantine_until > now}
    extra = max(0, len(seen.held.hosts) - len(useless) - claim)
    if not extra:
        return list(useless)
    able = (host for host in idle if host.name not in useless)
    spare = sorted(able, key=lambda h: not too_small(h, seen.held.shape))  # what holds no instance anyway, then by name
    return [*useless, *(host.name for host in spare[:extra])]


def on_notice(seen: Picture, count: int) -> list[str]:
    """`count` hosts to give back (rule 5), in the order in which they go."""

    def key(host: Host) -> tuple[int, bool, float, int, Order, str]:
        active = seen.on(host.name)
        drains = [unit.drains_until for unit in seen.live_on(host.name) if unit.drains_until is not None]
        return (
            len(active),  # 1. the fewest active instances
            bool(host.units or host.vms),  # 2. nothing drains or ends there
            max(drains, default=0.0),  # 3. what drains there ends first
            sum(map(seen.rank, active)),  # 4. the fewest sessions
            min(map(seen.order, active), default=(False, 0, 0)),  # 5. the newest instance
            host.name,  # 6. unique
        )

    held, beside = seen.held, dict.fromkeys(seen.held.custody.cordoned(seen.held.dept))
    order = sorted((held.host(name) for name in held.hosts if name not in beside), key=key)
    return [host.name for host in order[:count]]
