"""The invariants of the custody fold, as code: `check()` of PROTOCOL.md for what the journal alone can show.

Called after every step in tests, sampled in production.  What concerns running VMs is checked where the world is visible.
"""

from __future__ import annotations

from schemas.dimensions import words
from schemas.size import total
from services.domain.custody.custody import Custody
from services.domain.custody.state import Host, Index, Unit


def check(custody: Custody) -> list[str]:
    """Every broken invariant as a sentence; empty if all hold."""
    state = custody.state
    problems = [p for host in state.hosts.values() for p in _host(custody, host)]
    problems += [p for unit in state.units.values() for p in _unit(custody, unit)]
    for key, vm in state.vms.items():
        if not state.units[vm.unit].allocated.get(vm.attempt, 0) >> vm.rank & 1:
            problems.append(f"VM {key} is open but was never counted as allocated")
    problems += [f"{unit} is remembered as final but is not" for unit in state.finals if not _is_final(custody, unit)]
    if not problems and not _same_index(custody.index, Index.of(state)):
        problems.append("the indexes differ from the records")
    return problems


def _is_final(custody: Custody, name: str) -> bool:
    unit = custody.state.units.get(name)
    return unit is not None and unit.state == "final" and unit.vms_open == 0


def _host(custody: Custody, host: Host) -> list[str]:
    units = [custody.state.units[name] for name in host.units]
    found = []
    if (host.state == "held") != (host.dept is not None and host.name in custody.index.held.get(host.dept, {})):
        found.append(f"host {host.name} is {host.state} but indexed otherwise")
    for unit in units:
        if not unit.live or host.name not in unit.hosts:
            found.append(f"host {host.name} counts {unit.id}, which is not live there")
        if host.state != "held" or host.dept != unit.dept:
            found.append(f"live attempt {unit.id}/{unit.attempt} on host {host.name}, which {unit.dept} does not hold")
    if host.used != total(unit.size for unit in units):
        found.append(f"host {host.name} counts {words(host.used)} used, its live attempts differ")
    if host.exclusive and len(units) != 1:
        found.append(f"host {host.name} is exclusive with {len(units)} live attempts")
    return found


def _unit(custody: Custody, unit: Unit) -> list[str]:
    found = []
    if (unit.state == "final") != (unit.final is not None):
        found.append(f"{unit.id} is {unit.state} with end {unit.final}")
    if (unit.state == "open") != bool(unit.hosts):
        found.append(f"{unit.id} is {unit.state} with hosts {unit.hosts}")
    if unit.live:
        missing = [h for h in unit.hosts if unit.id not in custody.state.hosts[h].units]
        if missing:
            found.append(f"{unit.id} is live on {missing}, which do not count it")
    if unit.vms_open != sum(1 for vm in custody.state.vms.values() if vm.unit == unit.id):
        found.append(f"{unit.id} counts {unit.vms_open} open VMs wrongly")
    if unit.cancelled and unit.state == "pending":
        found.append(f"{unit.id} is cancelled and still pending")
    return found


def _same_index(a: Index, b: Index) -> bool:
    def plain(index: Index) -> list[object]:
        nested = (index.by_state, index.held, index.occupied, index.open, index.broken)
        shown: list[object] = [{k: sorted(v) for k, v in view.items() if v} for view in nested]
        shown += [{k: sorted(v) for k, v in view.items()} for view in (index.parked, index.saved)]
        return [*shown, sorted(index.apart), index.vm_ids, index.known_as, index.was]

    return plain(a) == plain(b)
