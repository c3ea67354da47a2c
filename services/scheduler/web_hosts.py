"""Instances on hosts: which to close, where to place, which hosts to give back.  Pure functions over one picture.

Rules
  1. An instance on a cordoned host is replaced before it is closed: the host goes back when enough others are in service.
  2. Too many: those not yet in service go first, then those on the host with the fewest (it may become empty), then the newest.
  3. Too few: the host with the most instances that still has room, so that as few hosts as possible are in use; then by name.
  4. An idle host that cannot be used now (cordoned, in quarantine) goes back at once, an idle one beyond the claim too.  Idle
     is a host without instances and without open VMs: what drains there would be killed within `grace_s` if the host went.
  5. On notice go cordoned hosts first, then idle ones, then those where something drains, then the ones with the fewest
     instances, the newest first, then by name.
"""

from __future__ import annotations

from itertools import chain, islice

from schemas.custody_state import Host, Unit
from schemas.ids import sort_key
from services.scheduler.web_holdings import Holdings, too_small


class Picture:
    """What the department holds without the instances that are being closed (`gone`)."""

    def __init__(self, held: Holdings, gone: dict[str, None]) -> None:
        self.held, self.gone = held, gone
        self._left: dict[str, int] = {}  # hosts of those that are gone -> instances left there
        self._idle: list[str] | None = None
        for name in gone:
            host = held.live[name]
            left = self._left.get(host)
            self._left[host] = (len(held.host(host).units) if left is None else left) - 1

    @property
    def count(self) -> int:
        """Instances."""
        return len(self.held.live) - len(self.gone)

    def on(self, host: str) -> list[Unit]:
        """Instances there, by number."""
        return [unit for unit in self.held.on(host) if unit.id not in self.gone]

    def idle(self) -> list[str]:
        """Hosts without instances and without open VMs (rule 4), by name."""
        if self._idle is None:
            emptied = [name for name, left in self._left.items() if not left and not self.held.host(name).vms]
            self._idle = sorted([*self.held.idle, *emptied])
        return self._idle

    def without(self, closed: list[Unit]) -> Picture:
        return Picture(self.held, self.gone | {unit.id: None for unit in closed}) if closed else self

    def leaving(self) -> list[Unit]:
        """Instances on cordoned hosts."""
        if not self.held.cordoned:
            return []
        return [unit for name in sorted(self.held.cordoned) for unit in self.on(name)]

    def instances(self) -> list[Unit]:
        """By number."""
        units = self.held.custody.state.units
        return [units[name] for name in self.held.live if name not in self.gone]


def surplus(seen: Picture, target: int) -> list[Unit]:
    """Instances to close (rules 1 and 2)."""
    held, leave = seen.held, seen.leaving()
    if not leave and seen.count <= target:
        return []
    if not leave and not seen.gone and len(held.live) == len(held.hosts) - len(held.idle) - len(held.draining):
        return _last(held, len(held.live) - target)
    goes = dict.fromkeys(unit.id for unit in leave)
    stay = [unit for unit in seen.instances() if unit.id not in goes]
    serving = sum(1 for unit in stay if unit.began_at is not None)
    closed = sorted(leave, key=_newest)[: max(0, serving + len(leave) - target)]
    counts: dict[str, int] = {}
    for unit in seen.instances():
        counts[unit.hosts[0]] = counts.get(unit.hosts[0], 0) + 1
    starting = _emptying(counts, [unit for unit in stay if unit.began_at is None])
    for unit in starting:
        counts[unit.hosts[0]] -= 1
    order = starting + _emptying(counts, [unit for unit in stay if unit.began_at is not None])
    return closed + order[: max(0, len(stay) - target)]


def _last(held: Holdings, count: int) -> list[Unit]:
    """Rule 2 where each host carries one instance: those not in service, then the newest."""
    serving = (name for name in reversed(held.live) if name not in held.starting)
    units = held.custody.state.units
    return [units[name] for name in islice(chain(reversed(held.starting), serving), count)]


def _emptying(counts: dict[str, int], units: list[Unit]) -> list[Unit]:
    """In an order that empties one host after another: fewest instances first, then the newest (unique)."""
    on: dict[str, list[Unit]] = {}
    for unit in sorted(units, key=_newest):
        on.setdefault(unit.hosts[0], []).append(unit)
    hosts = sorted(on, key=lambda host: (counts[host], _newest(on[host][0])))
    return [unit for host in hosts for unit in on[host]]


def _newest(unit: Unit) -> tuple[bool, int]:
    """Not in service first, then the highest number (unique)."""
    return unit.began_at is not None, -sort_key(unit.id)[0]


def shortage(seen: Picture, target: int) -> int:
    """Instances to place.  Those on cordoned hosts do not count."""
    return max(0, target - (seen.count - len(seen.leaving())))


def places(held: Holdings, count: int, now: float) -> list[str]:
    """Hosts for up to `count` new instances, one name for each (rule 3).  Attempts being closed still have their room."""
    hosts = [held.host(name) for name in held.roomy]
    usable = [host for host in hosts if host.cordoned is None and host.quarantine_until <= now]
    found: list[str] = []
    for host in sorted(usable, key=lambda h: (-len(h.units), h.name)):  # unique: name
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
    spare = sorted(
        (host for host in idle if host.name not in useless),
        key=lambda h: (
            not too_small(h, seen.held.shape),  # 1. what holds no instance anyway
            h.name,  # 2. unique
        ),
    )
    return [*useless, *(host.name for host in spare[:extra])]


def on_notice(seen: Picture, count: int) -> list[str]:
    """`count` hosts to give back now (rule 5)."""

    def key(host: Host) -> tuple[bool, int, bool, tuple[bool, int], str]:
        units = seen.on(host.name)
        return (
            host.cordoned is None,  # 1. hosts that must go anyway
            len(units),  # 2. idle ones, then the fewest instances
            bool(host.vms),  # 3. nothing drains there
            min(map(_newest, units), default=(False, 0)),  # 4. the newest instance
            host.name,  # 5. unique
        )

    order = sorted((seen.held.host(name) for name in seen.held.hosts), key=key)
    return [host.name for host in order[:count]]
