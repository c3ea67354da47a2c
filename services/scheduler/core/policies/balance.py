"""Which machines move to which hosts while they run, so that no host is crowded beside one that is almost idle.

Source: I. Farfán Estrada, MSc thesis, CIC-IPN 2012 ("Thiao"), section 4.2.2: the busiest host is paired with the idlest, the
next one with the next; one VM of each pair moves; no host is left without VM.  Its thresholds of 0.75 and 0.25 stand in its
code and are used by nothing there; memory, cost and hysteresis it does not have.  Here they are what the rules are about.

Theory of operation
  `plan` is a function of the observed use of hosts and of what runs there; it changes nothing and remembers nothing.  A host's
  use is divided among its machines by their cores: no machine is measured by itself.  The caller drops the observed use of both
  hosts of each move (`rebalance`): until they have been observed again they take no part.

Rules
  1. A machine moves only from a host above `high` to one below `low`.  Between the two nothing is done: that is the band.
  2. A host has at most one move in a pass, as source or as target (but see 8); in all there are at most half as many moves as
     hosts.
  3. No host is emptied: a host with a single machine keeps it (but see 8).
  4. The target has room for the machine's cores and memory as for any job, and uses at most 60 % afterwards: the share below
     which hosts may have more VMs at all (4.2.1), so that it will not be a source next.
  5. What a move costs is the time that its memory takes over the wire.  It is at most `cost_max_s`, and the job has at least
     `worth` times as long to go.
  6. Of a host's machines one moves whose move brings the host into the band; of those the cheapest.
  7. A job moves at most `moves_max` times.  The shares of a host's use are a guess: a machine that uses far more than its cores
     say would make each of its hosts a source in turn.
  8. Only with `power_saving`, and only while no host is above `high`: a host below `low` gives all its machines to busier ones
     that stay within 60 %, or none.  Nothing goes to an empty host, so with each pass there are fewer hosts in use.
  9. A host whose use is unknown takes no part.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from schemas.config import Balance
from schemas.ids import sort_key
from schemas.size import Size

FULL_ENOUGH: Final = 0.60  # rule 4
MOVES_MAX: Final = 16  # in one pass: they all go over the same wire


class Machine(NamedTuple):
    """A job of one node that may move.  `left_s`: of its time limit; `moved`: how often it has been."""

    unit: str
    size: Size
    left_s: float
    moved: int = 0


class Load(NamedTuple):
    """A host.  `utilisation`: share of its cores in use; `units`: live attempts on it, `machines`: those that may move."""

    name: str
    utilisation: float
    size: Size
    free: Size
    units: int
    machines: tuple[Machine, ...] = ()

    def use(self, machine: Machine) -> float:
        """The machine's part of the utilisation."""
        used = self.size.cores - self.free.cores
        return self.utilisation * machine.size.cores / used if used > 0 else 0.0

    def beside(self, machine: Machine, source: Load) -> Load:
        """This host with the machine that came from `source`."""
        return self._replace(
            utilisation=self.utilisation + source.use(machine) * source.size.cores / max(1, self.size.cores),
            free=self.free.minus(machine.size),
            units=self.units + 1,
            machines=(*self.machines, machine),
        )


class Move(NamedTuple):
    """`before`, `after`: what the source is seen to use, and the target is expected to."""

    unit: str
    source: str
    target: str
    cost_s: float
    before: float
    after: float


def plan(hosts: Iterable[Load], rules: Balance) -> list[Move]:
    """The moves of one pass, in the order of their sources."""
    known = sorted(hosts, key=_by_load)
    most = min(MOVES_MAX, len(known) // 2)  # rule 2
    moves = _relieve(known, rules, most)
    if rules.power_saving and not any(host.utilisation > rules.high for host in known):
        moves = _gather(known, rules, most)
    return moves


def cost_s(machine: Machine, rules: Balance) -> float:
    """Rule 5."""
    return machine.size.memory_mb / rules.mb_per_s


def _by_load(host: Load) -> tuple[float, str]:
    return host.utilisation, host.name  # 1. the idlest first; 2. name, unique


def _relieve(known: list[Load], rules: Balance, most: int) -> list[Move]:
    """Rules 1 to 6.  The busiest host has the idlest that has room."""
    cold = [host for host in known if host.utilisation < rules.low]
    found: list[Move] = []
    for source in reversed(known):
        if source.utilisation <= rules.high or len(found) == most:
            break
        if source.units < 2:  # rule 3
            continue
        for target in cold:
            machine = _chosen(source, target, rules)
            if machine is not None:
                cold.remove(target)
                found.append(_move(machine, source, target, rules))
                break
    return found


def _chosen(source: Load, target: Load, rules: Balance) -> Machine | None:
    """Rules 4 to 6."""
    may = [
        machine for machine in source.machines if _worth(machine, rules) and _has_room(source, target, machine, rules)
    ]
    return min(may, key=lambda machine: _price(source, machine, rules), default=None)


def _price(source: Load, machine: Machine, rules: Balance) -> tuple[object, ...]:
    return (
        source.utilisation - source.use(machine) > rules.high,  # 1. one that brings the host into the band
        cost_s(machine, rules),  # 2. the cheapest
        source.use(machine),  # 3. the smallest
        sort_key(machine.unit),  # 4. unique
    )


def _worth(machine: Machine, rules: Balance) -> bool:
    """Rules 5 and 7."""
    cost = cost_s(machine, rules)
    return machine.moved < rules.moves_max and cost <= rules.cost_max_s and machine.left_s >= rules.worth * cost


def _has_room(source: Load, target: Load, machine: Machine, rules: Balance) -> bool:
    """Rule 4."""
    if not machine.size.fits_in(target.free):
        return False
    return target.beside(machine, source).utilisation <= min(FULL_ENOUGH, rules.high)


def _move(machine: Machine, source: Load, target: Load, rules: Balance) -> Move:
    after = target.beside(machine, source).utilisation
    return Move(machine.unit, source.name, target.name, cost_s(machine, rules), source.utilisation, after)


# -------------------------------------------------------------------------------------------------------- power saving


def _gather(known: list[Load], rules: Balance, most: int) -> list[Move]:
    """Rule 8.  `known`: the idlest first."""
    now = {host.name: host for host in known}
    found: list[Move] = []
    changed: dict[str, None] = {}
    for place, source in enumerate(known):
        if source.utilisation >= rules.low:
            break
        if not source.units or len(source.machines) < source.units or source.name in changed:
            continue
        moves, then = _emptied(source, [now[host.name] for host in known[place + 1 :]], rules)
        if moves and len(found) + len(moves) <= most:
            found += moves
            now.update(then)
            changed |= {source.name: None, **dict.fromkeys(then)}
    return found


def _largest_first(machine: Machine) -> tuple[tuple[int, ...], tuple[int, int, str]]:
    return tuple(-amount for amount in machine.size), sort_key(machine.unit)  # 1. by size; 2. unique


def _emptied(source: Load, busier: list[Load], rules: Balance) -> tuple[list[Move], dict[str, Load]]:
    """Where all machines of the host go, the largest first, and what their targets are then; nothing if one has no place."""
    then: dict[str, Load] = {}
    moves: list[Move] = []
    for machine in sorted(source.machines, key=_largest_first):
        hosts = [then.get(host.name, host) for host in reversed(busier) if host.units]
        target = next((host for host in hosts if _has_room(source, host, machine, rules)), None)
        if target is None or not _worth(machine, rules):
            return [], {}
        moves.append(_move(machine, source, target, rules))
        then[target.name] = target.beside(machine, source)
    return moves, then
