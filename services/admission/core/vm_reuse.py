"""Which VM may wait for another job, and which job it is given.  Pure: from custody and configuration.

Rules
  1. A VM stays after a job on one node that ended with 0 while its attempt was live, if its department keeps VMs warm, has
     fewer of them waiting than it may have, and keeps the host: held, neither cordoned nor in quarantine.
  2. `vm.parked` is written in one envelope with the report, so that no reader sees the VM as one whose job is over.  A guest
     that asks for its next job without that is parked then, once.
  3. Which job follows is the executor's decision (`vm.allocated` of the VM for another attempt).  It is looked at again here:
     where VMs belong to one user, no other user's job gets one, regardless of which guest bound it.
  4. In doubt the answer is "gone": a VM too few costs a boot, a job in wrong hands cannot be taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from schemas import facts as f
from schemas.config import Warm
from schemas.facts import Fact
from services.admission.core.admission import AdmissionCore
from services.domain.custody.state import Vm


def settings(core: AdmissionCore, dept: str) -> Warm | None:
    """None where no VM is kept warm."""
    config = core.custody.state.config
    department = None if config is None else config.department(dept)
    batch = None if department is None else department.batch
    return None if batch is None or batch.warm.idle_s <= 0 else batch.warm


def parked(core: AdmissionCore, vm: Vm | None, now: float, drafted: Sequence[Fact]) -> list[Fact]:
    """The fact by which `vm`, whose job has just completed, waits for another one; none where it may not (rule 1)."""
    if vm is None or vm.parked_at is not None:
        return []
    unit = core.custody.state.units[vm.unit]
    warm = settings(core, unit.dept)
    if warm is None or unit.nodes != 1 or unit.attempt != vm.attempt or not _keeps(core, vm.host, unit.dept, now):
        return []
    drafted_too = sum(1 for fact in drafted if isinstance(fact, f.VmParked))
    if _waiting(core, unit.dept) + drafted_too >= warm.vms_max:
        return []
    return [f.VmParked(unit=vm.unit, attempt=vm.attempt, rank=vm.rank)]


def _keeps(core: AdmissionCore, name: str, dept: str, now: float) -> bool:
    host = core.custody.state.hosts.get(name)
    if host is None or host.state != "held" or host.dept != dept:
        return False
    return host.cordoned is None and host.quarantine_until <= now


def _waiting(core: AdmissionCore, dept: str) -> int:
    custody = core.custody
    return sum(len(vms) for host, vms in custody.index.parked.items() if _holder(core, host) == dept)


def _holder(core: AdmissionCore, name: str) -> str | None:
    host = core.custody.state.hosts.get(name)
    return None if host is None else host.dept


def may_park_late(core: AdmissionCore, vm: Vm) -> bool:
    """True of a VM whose job has completed, and that does not wait yet (rule 2)."""
    unit = core.custody.state.units[vm.unit]
    return unit.final == "completed" and vm.parked_at is None


def following(
    core: AdmissionCore, unit: str, attempt: int, rank: int, now: float
) -> Vm | Literal["wait", "park", "gone"]:
    """What the guest of this name does next: the VM that it has become; wait; be parked first; power off."""
    custody = core.custody
    taken = custody.taken_over(unit, attempt, rank)
    if taken is not None:
        return taken if custody.live(taken.unit, taken.attempt) and _may_have(core, unit, taken.unit) else "gone"
    vm = custody.bound(unit, attempt, rank)
    if vm is None:
        return "gone"
    if vm.parked_at is None:
        return "park" if may_park_late(core, vm) else "gone"
    known = custody.state.units[vm.unit]
    stays = settings(core, known.dept) is not None and _keeps(core, vm.host, known.dept, now)
    return "wait" if stays else "gone"


def _may_have(core: AdmissionCore, before: str, after: str) -> bool:
    """Rule 3."""
    one, other = core.job(before), core.job(after)
    if one is None or other is None or one.dept != other.dept:
        return False
    warm = settings(core, one.dept)
    return one.user == other.user or (warm is not None and warm.share == "department")
