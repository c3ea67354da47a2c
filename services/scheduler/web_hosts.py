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

from schemas.custody import Custody
from schemas.custody_state import Host, Unit
from schemas.ids import sort_key
from services.scheduler.shape import Shape


class Picture:
    """The department's hosts by name, and its live instances without those that are being closed, by number."""

    def __init__(self, hosts: list[Host], instances: list[Unit]) -> None:
        self.hosts, self.instances = hosts, instances
        self._on: dict[str, list[Unit]] = {host.name: [] for host in hosts}
        for unit in instances:
            self._on[unit.hosts[0]].append(unit)

    def on(self, host: str) -> list[Unit]:
        return self._on[host]

    def busy(self, host: Host) -> bool:
        """An instance is on it, or a VM of one that drains (rule 4)."""
        return bool(self._on[host.name] or host.vms)

    def without(self, closed: list[Unit]) -> Picture:
        gone = {unit.id for unit in closed}  # a set for look-up only
        return Picture(self.hosts, [unit for unit in self.instances if unit.id not in gone])

    def split(self) -> tuple[list[Unit], list[Unit]]:
        """Instances on hosts that stay, and on cordoned ones."""
        leaving = [unit for host in self.hosts if host.cordoned is not None for unit in self._on[host.name]]
        if not leaving:
            return self.instances, []
        gone = {unit.id for unit in leaving}  # a set for look-up only
        return [unit for unit in self.instances if unit.id not in gone], leaving


def picture(custody: Custody, dept: str, closing: dict[str, None]) -> Picture:
    hosts = [custody.state.hosts[name] for name in sorted(custody.index.held.get(dept, ()))]
    names = sorted(custody.index.open.get(dept, ()), key=sort_key)
    units = [custody.state.units[name] for name in names if name not in closing]
    return Picture(hosts, [unit for unit in units if unit.live])


def surplus(seen: Picture, target: int) -> list[Unit]:
    """Instances to close (rules 1 and 2)."""
    stay, leave = seen.split()
    serving = sum(1 for unit in stay if unit.began_at is not None)
    closed = sorted(leave, key=_newest)[: max(0, serving + len(leave) - target)]
    counts = {host.name: len(seen.on(host.name)) for host in seen.hosts}
    starting = _emptying(counts, [unit for unit in stay if unit.began_at is None])
    for unit in starting:
        counts[unit.hosts[0]] -= 1
    order = starting + _emptying(counts, [unit for unit in stay if unit.began_at is not None])
    return closed + order[: max(0, len(stay) - target)]


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
    return max(0, target - len(seen.split()[0]))


def places(custody: Custody, seen: Picture, shape: Shape, per_host: int, count: int, now: float) -> list[str]:
    """Hosts for up to `count` new instances, one name for each (rule 3)."""
    usable = [host for host in seen.hosts if host.cordoned is None and host.quarantine_until <= now]
    held = {host.name: len(host.units) for host in usable}  # attempts being closed still have their room
    free = {host.name: _room(custody, host, shape, per_host) for host in usable}
    found: list[str] = []
    for name in sorted((name for name in free if free[name] > 0), key=lambda n: (-held[n], n)):  # unique: name
        found += [name] * min(free[name], count - len(found))
    return found


def _room(custody: Custody, host: Host, shape: Shape, per_host: int) -> int:
    if not custody.fits(host, shape.cores, shape.memory_mb, shape.exclusive):
        return 0
    by_cores = (host.cores - host.cores_used) // shape.cores if shape.cores else per_host
    by_memory = (host.memory_mb - host.memory_used_mb) // shape.memory_mb if shape.memory_mb else per_host
    return max(0, min(by_cores, by_memory, per_host - len(host.units)))


def useful(seen: Picture, shape: Shape) -> int:
    """Held hosts that can carry instances."""
    return sum(1 for host in seen.hosts if host.cordoned is None and not too_small(host, shape))


def too_small(host: Host, shape: Shape) -> bool:
    return host.cores < shape.cores or host.memory_mb < shape.memory_mb


def not_needed(seen: Picture, shape: Shape, claim: int, placed: list[str], now: float) -> list[str]:
    """Idle hosts to give back (rule 4).  `claim`: hosts wanted in all; `placed`: hosts that are getting an instance."""
    getting = dict.fromkeys(placed)
    idle = [host for host in seen.hosts if not seen.busy(host) and host.name not in getting]
    useless = {host.name: None for host in idle if host.cordoned is not None or host.quarantine_until > now}
    extra = max(0, len(seen.hosts) - len(useless) - claim)
    spare = sorted(
        (host for host in idle if host.name not in useless),
        key=lambda h: (
            not too_small(h, shape),  # 1. what holds no instance anyway
            h.name,  # 2. unique
        ),
    )
    return [*useless, *(host.name for host in spare[:extra])]


def on_notice(seen: Picture, count: int) -> list[str]:
    """`count` hosts to give back now (rule 5)."""
    order = sorted(
        seen.hosts,
        key=lambda h: (
            h.cordoned is None,  # 1. hosts that must go anyway
            len(seen.on(h.name)),  # 2. idle ones, then the fewest instances
            bool(h.vms),  # 3. nothing drains there
            min((_newest(unit) for unit in seen.on(h.name)), default=(False, 0)),  # 4. the newest instance
            h.name,  # 5. unique
        ),
    )
    return [host.name for host in order[:count]]
