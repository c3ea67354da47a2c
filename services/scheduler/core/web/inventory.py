"""What a web department holds: its instances, and its hosts by what can be done with them.  A view derived from custody.

Theory of operation
  Every question of a decision (how many are active, which hosts are idle, where is room) is answered without looking at all
  hosts or instances: each is looked at when a fact changes it.  The view holds nothing that custody does not; `of` rebuilds it,
  and the core's `check` compares the two.

Rules
  1. A live instance is `active`, or it drains: then it takes room until its attempt is closed, and counts for nothing else.
     An instance leaves both when its attempt is closed or broken.  `active` is in the order of numbers: custody lets them
     only grow.
  2. An idle host has no live instance and no open VM.  A host where only VMs are left empties.
  3. A host has room if one more instance fits beside the live ones, whatever is cordoned or in quarantine now.
"""

from __future__ import annotations

from schemas.ids import sort_key
from services.domain.custody.custody import Custody
from services.domain.custody.state import Host, Unit
from services.scheduler.core.state.shape import Shape

Names = dict[str, None]


class Inventory:
    __slots__ = (
        "active",
        "carrying",
        "cordoned",
        "custody",
        "dept",
        "drained",
        "draining",
        "emptying",
        "hosts",
        "idle",
        "most",
        "quarantined",
        "roomy",
        "shape",
        "small",
        "starting",
    )

    def __init__(self, custody: Custody, dept: str, shape: Shape, most: int) -> None:
        """`shape` of an instance; `most` of them on one host."""
        self.custody, self.dept, self.shape, self.most = custody, dept, shape, most
        self.active: dict[str, str] = {}  # instance -> its host
        self.starting: Names = {}  # those of them that are not in service
        self.draining: dict[str, str] = {}  # instance that drains -> its host
        self.carrying: dict[str, int] = {}  # host with active instances -> how many
        self.hosts: Names = {}  # held ones
        self.idle: Names = {}
        self.emptying: Names = {}
        self.cordoned: Names = {}
        self.drained: Names = {}  # those of them that are to become empty
        self.quarantined: Names = {}  # their quarantine may be over
        self.small: Names = {}  # too small for an instance
        self.roomy: Names = {}

    @classmethod
    def of(cls, custody: Custody, dept: str, shape: Shape, most: int) -> Inventory:
        found = cls(custody, dept, shape, most)
        for name in custody.index.held.get(dept, ()):
            found.host_changed(name)
        for name in sorted(custody.index.open.get(dept, ()), key=sort_key):
            found.placed(name)
            if custody.state.units[name].began_at is not None:
                found.began(name)
        return found

    def as_data(self) -> tuple[object, ...]:
        """Equal for equal views."""
        apart = self.cordoned, self.drained, self.quarantined
        hosts = self.hosts, self.idle, self.emptying, *apart, self.small, self.roomy
        instances = list(self.active.items()), list(self.starting), self.draining, self.carrying
        return (*instances, self.shape, self.most, *hosts)

    # ------------------------------------------------------------------------------------------------------- following

    def host_changed(self, name: str) -> bool:
        """True if the department holds it, or held it until now."""
        host = self.custody.state.hosts.get(name)
        if host is None or host.state != "held" or host.dept != self.dept:
            return self._lost(name)
        _note(self.hosts, name, True)
        _note(self.idle, name, not host.units and not host.vms)
        _note(self.emptying, name, not host.units and bool(host.vms))
        _note(self.cordoned, name, host.cordoned is not None)
        _note(self.drained, name, host.drain)
        _note(self.quarantined, name, host.quarantine_until > 0)
        _note(self.small, name, too_small(host, self.shape))
        _note(self.roomy, name, self.room(host) > 0)
        return True

    def _lost(self, name: str) -> bool:
        if name not in self.hosts:
            return False
        for names in (
            self.hosts,
            self.idle,
            self.emptying,
            self.cordoned,
            self.drained,
            self.quarantined,
            self.small,
            self.roomy,
        ):
            names.pop(name, None)
        return True

    def placed(self, name: str) -> None:
        unit = self.custody.state.units[name]
        if not unit.live:
            return
        host = unit.hosts[0]
        if unit.drains_until is not None:
            self.draining[name] = host
        else:
            self.active[name] = host
            self.starting[name] = None
            self.carrying[host] = self.carrying.get(host, 0) + 1
        self.host_changed(host)

    def began(self, name: str) -> None:
        self.starting.pop(name, None)

    def drains(self, name: str) -> None:
        """It drains from now on, or by another time."""
        host = self._inactive(name)
        if host is not None:
            self.draining[name] = host

    def ended(self, name: str) -> None:
        """Its attempt is closed or broken."""
        host = self._inactive(name) or self.draining.pop(name, None)
        if host is not None:
            self.host_changed(host)

    def _inactive(self, name: str) -> str | None:
        """It is not active any more; its host, if it was."""
        host = self.active.pop(name, None)
        self.starting.pop(name, None)
        if host is not None:
            self.carrying[host] -= 1
            if not self.carrying[host]:
                del self.carrying[host]
        return host

    def vm_ended(self) -> bool:
        """A VM has ended somewhere; True if it may have been on a host that empties."""
        emptying = list(self.emptying)
        for name in emptying:
            self.host_changed(name)
        return bool(emptying)

    # --------------------------------------------------------------------------------------------------------- reading

    @property
    def serving(self) -> int:
        """Instances in service that do not drain."""
        return len(self.active) - len(self.starting)

    @property
    def useful(self) -> int:
        """Held hosts that can carry instances: neither cordoned nor too small."""
        return len(self.hosts) - len(self.small) - sum(1 for name in self.cordoned if name not in self.small)

    def host(self, name: str) -> Host:
        return self.custody.state.hosts[name]

    def where(self, name: str) -> str:
        """The host of a live instance."""
        return self.active.get(name) or self.draining[name]

    def on(self, host: str) -> list[Unit]:
        """Live instances there, by number."""
        units = self.custody.state.units
        return [units[name] for name in sorted(self.host(host).units, key=sort_key)]

    def room(self, host: Host) -> int:
        """How many more instances fit (rule 3)."""
        shape, most = self.shape, self.most
        if not self.custody.fits(host, shape.size, shape.exclusive):
            return 0
        copies = shape.size.copies_in(host.size.minus(host.used))
        return max(0, min(most if copies is None else copies, most - len(host.units)))


def too_small(host: Host, shape: Shape) -> bool:
    return not shape.size.fits_in(host.size)


def _note(names: Names, name: str, true: bool) -> None:
    if true:
        names[name] = None
    elif name in names:
        del names[name]
