"""The commands that HAProxy needs, from what the department has and what HAProxy says of its slots.

It decides commands, from these two alone: no memory of what was ordered before, so that a lost command, a restart of either
side or a manual change at the socket is repaired by the next look.  The address is an instance's identity: HAProxy keeps it,
also across its reload, and knows no other.

    maint, another address ──▶ path, limit, weight, address ──▶ maint, its address ──▶ drain
      ──▶ drain, its address ──▶ health down, ready
    ready ──▶ drain (the instance drains: open requests end, no new ones) ──▶ maint (it is closed) ──▶ free

Rules
  1. One slot has one instance, and one instance one slot.
  2. An address is changed in maint only, and a slot gets ready only when HAProxy itself has reported that it has the address,
     and the health path of what the instance runs: each arrow above is a look of its own.
  3. Nothing serves before HAProxy has seen it healthy.  A server that leaves maint counts as up until its first check: so it
     leaves it to drain, is declared down there, and gets ready as one that is down; its next good check takes it up.
  4. A slot whose instance is wanted and does not drain never goes to maint.  Of two slots with its address (a person's hand)
     the later one drains first, and goes to maint when it has no request left.
  5. A draining instance that has no slot gets none: nothing of it goes through here.
  6. A slot is free in maint, when no health check is under way any more: one that began there before would pass for the next
     instance (seen so in 2.6); it ends within `timeout check`.  Among free ones, one that has the address already goes first,
     then the one with the fewest requests (those of an instance that was closed before they ended), then by name.
  7. Too many instances for the slots: the first to come have one, the rest wait (`waiting`), and it is reported.
  8. A slot without health checks gets nothing: rule 3 could not be kept (`unchecked`).
  9. One whose health path is not known yet gets no slot: it could pass for well where it is not asked.
 10. Path, limit and weight of a slot that has its instance are set again when they differ: a reload brings back those of
     haproxy.cfg, and the department may set others.  Without the map (`has_map`) paths are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from phoenix.haproxy.slots import Address, Slot
from phoenix.haproxy.table import Wanted

WEIGHT_MAX: Final = 256  # HAProxy's


@dataclass(frozen=True, slots=True)
class Server:
    """A slot as commands name it.  `health_map`: where its health path stands."""

    backend: str
    slot: str
    health_map: str

    def __str__(self) -> str:
        return f"{self.backend}/{self.slot}"


@dataclass(frozen=True, slots=True)
class SetAddress:
    address: Address

    def text(self, server: Server) -> str:
        return f"set server {server} addr {self.address[0]} port {self.address[1]}"


@dataclass(frozen=True, slots=True)
class SetWeight:
    weight: int

    def text(self, server: Server) -> str:
        return f"set server {server} weight {self.weight}"


@dataclass(frozen=True, slots=True)
class SetLimit:
    limit: int

    def text(self, server: Server) -> str:
        return f"set maxconn server {server} {self.limit}"


@dataclass(frozen=True, slots=True)
class SetPath:
    """`is_new`: the map has no entry yet; `set map` refuses then, and `add map` would make a second one else."""

    path: str
    is_new: bool

    def text(self, server: Server) -> str:
        return f"{'add' if self.is_new else 'set'} map {server.health_map} {server.slot} {self.path}"


@dataclass(frozen=True, slots=True)
class Drain:
    def text(self, server: Server) -> str:
        return f"set server {server} state drain"


@dataclass(frozen=True, slots=True)
class DeclareDown:
    def text(self, server: Server) -> str:
        return f"set server {server} health down"


@dataclass(frozen=True, slots=True)
class Ready:
    def text(self, server: Server) -> str:
        return f"set server {server} state ready"


@dataclass(frozen=True, slots=True)
class Maint:
    def text(self, server: Server) -> str:
        return f"set server {server} state maint"


Command = SetAddress | SetWeight | SetLimit | SetPath | Drain | DeclareDown | Ready | Maint


@dataclass(frozen=True, slots=True)
class Order:
    """Commands for one slot, in this order; one that fails ends the order."""

    slot: str
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """`holders`: the slot of each instance that has one.  `waiting`: those that have none for want of slots."""

    orders: tuple[Order, ...] = ()
    holders: dict[Address, Slot] = field(default_factory=dict)
    waiting: tuple[Wanted, ...] = ()
    unchecked: tuple[str, ...] = ()


def weight_of(cores: float) -> int:
    """Its share of the requests, by capacity."""
    return max(1, min(WEIGHT_MAX, round(cores)))


def plan(wanted: Sequence[Wanted], slots: Sequence[Slot], has_map: bool = True) -> Plan:
    """`wanted`: no address twice (rule 3 of the table), the first to come first.  `has_map`: health paths can be set."""
    usable = [slot for slot in slots if slot.is_checked]
    addresses = {one.address for one in wanted}
    holders = _holders(usable, addresses)
    held = {slot.name for slot in holders.values()}
    empty = [slot for slot in usable if slot.ordered == "maint"]
    free = [slot for slot in empty if not slot.is_checking]  # rule 6
    orders = [_retire(slot, addresses) for slot in usable if slot.name not in held]
    orders += [_keep(one, holders[one.address], has_map) for one in wanted if one.address in holders]
    homeless = [one for one in wanted if one.address not in holders and not one.draining and one.health_path]  # 5 and 9
    orders += [_prepare(one, slot, has_map) for one, slot in _given(homeless, free)]
    return Plan(
        orders=tuple(order for order in orders if order.commands),
        holders=holders,
        waiting=tuple(homeless[len(empty) :]),
        unchecked=tuple(slot.name for slot in slots if not slot.is_checked),
    )


def _holders(slots: Sequence[Slot], addresses: set[Address]) -> dict[Address, Slot]:
    """The slot of each address that has one: 1. a ready one; 2. by name."""
    found: dict[Address, Slot] = {}
    for slot in sorted(slots, key=lambda slot: (slot.ordered != "ready", slot.key)):
        if slot.ordered != "maint" and slot.address in addresses:
            found.setdefault(slot.address, slot)
    return found


def _given(homeless: Sequence[Wanted], free: Sequence[Slot]) -> Iterator[tuple[Wanted, Slot]]:
    """Rules 6 and 7: instances that already have an address go first, so that no other takes it away."""
    left = {slot.name: slot for slot in free}
    prepared = {slot.address: slot.name for slot in sorted(free, key=lambda slot: slot.key, reverse=True)}
    for one in homeless[: len(free)]:
        if one.address in prepared:
            yield one, left.pop(prepared[one.address])
    # 1. fewest requests; 2. by name
    others = sorted(left.values(), key=lambda slot: (slot.sessions, slot.key))
    yield from zip((one for one in homeless[: len(free)] if one.address not in prepared), others, strict=False)


def _retire(slot: Slot, addresses: set[Address]) -> Order:
    """A slot that no instance is to have: one that is closed, or one that has another slot (rule 4)."""
    if slot.ordered == "maint":
        return Order(slot.name, ())
    if slot.address not in addresses:
        return Order(slot.name, (Maint(),))
    if slot.ordered == "ready":
        return Order(slot.name, (Drain(),))
    return Order(slot.name, () if slot.sessions or slot.queued else (Maint(),))


def _set(one: Wanted, slot: Slot, has_map: bool) -> list[Command]:
    """Rule 10."""
    commands: list[Command] = []
    if has_map and one.health_path and slot.path != one.health_path:
        commands.append(SetPath(one.health_path, is_new=not slot.path))
    if one.connections and slot.limit != one.connections:
        commands.append(SetLimit(one.connections))
    if slot.weight != weight_of(one.cores):
        commands.append(SetWeight(weight_of(one.cores)))
    return commands


def _keep(one: Wanted, slot: Slot, has_map: bool) -> Order:
    """A slot that has its instance and is not in maint."""
    if one.draining:
        return Order(slot.name, (Drain(),) if slot.ordered == "ready" else ())
    commands = _set(one, slot, has_map)
    if slot.ordered == "drain":
        commands += [DeclareDown(), Ready()]  # rule 3
    return Order(slot.name, tuple(commands))


def _prepare(one: Wanted, slot: Slot, has_map: bool) -> Order:
    """A free slot on its way to an instance: address and path first, and drain when HAProxy has said that it has them (2)."""
    commands = _set(one, slot, has_map)
    if slot.address != one.address:
        commands.append(SetAddress(one.address))
    elif not any(isinstance(command, SetPath) for command in commands):
        commands.append(Drain())
    return Order(slot.name, tuple(commands))
