"""Ways to break one rule of the protocol at a time, which chaos must notice: rule -> what is changed.

Each entry is a list of (owner, attribute, what it is instead), to be set with `monkeypatch`.  Where the protocol has a second
wall (custody's verdict behind a writer's care), the entry takes both down: with one of them standing, nothing can happen.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from schemas import facts as f
from schemas.ids import parse_vm_tag
from services.admission.core.admission import AdmissionCore
from services.domain.core import NEVER
from services.domain.custody import effects, fold, preconditions
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Void
from services.executor.core import allocations as launches_module
from services.executor.core.allocations import Allocations
from services.executor.core.calls import Call, Deploy, Terminate
from services.executor.core.executor import ExecutorCore
from services.executor.core.host_reconciler import HostReconciler
from services.executor.core.ledger import Ledger, LedgerState
from services.executor.core.vm_reconciler import VmReconciler
from services.provisioner.core import turns
from services.provisioner.core.provisioner import ProvisionerCore, Said
from services.scheduler.core.batch.close_ended import CloseEnded
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.state.limits import Limits
from tests.simulation.chaos import Chaos
from tests.simulation.chaos_node import Message, Node
from tests.support.mutants import without_precondition

_closings, _grant, _calls, _want = (
    CloseEnded._closings, ProvisionerCore._grant, VmReconciler.calls, Ledger._want
)  # fmt: skip
_ended, _post_init, _send, _termination = Ledger._ended, Node.__post_init__, Chaos.send, VmReconciler._termination


def _forgets_what_is_doomed(core: ExecutorCore) -> bytes:
    return msgspec.msgpack.encode(LedgerState(rooms=core.ledger.state.rooms))


def _seizes_within_quota(custody: Custody, fact: f.HostSeized, _writer: str) -> Void | None:
    return preconditions._not_held(custody, fact.host, fact.dept)


def _clears_at_once(_desk: HostReconciler, host: Any, _now: float) -> list[f.Fact]:
    return [f.HostCleared(host=host.name)]


def _seizes_what_is_not_due(core: ProvisionerCore, said: Said, _now: float) -> bool:
    for name in [name for name in sorted(core.custody.state.quotas) if name not in said.moved]:
        said.facts += [f.HostSeized(host=host, dept=name) for host in list(core.custody.index.held.get(name, ()))[:1]]
    return False


def _forgets_broken_attempts(stage: CloseEnded, now: float) -> list[f.AttemptClosed]:
    broken = stage.view.custody.index.broken.get(stage.view.dept, {})
    return [fact for fact in _closings(stage, now) if fact.unit not in broken]


def _grants_what_drains(core: ProvisionerCore, said: Said, now: float) -> bool:
    states = core.custody.index.by_state
    free = states["free"]
    states["free"] = {**free, **states["draining"]}
    try:
        return _grant(core, said, now)
    finally:
        states["free"] = free


def _deploys_before_it_is_journaled(vm_reconciler: VmReconciler, now: float, limit: int) -> list[Call]:
    """X1: as soon as the allocation is answered."""
    made = _calls(vm_reconciler, now, limit)
    for key, fact in vm_reconciler.allocations.allocated.items():
        host = vm_reconciler.custody.state.hosts.get(fact.host)
        if host is not None and key not in vm_reconciler.observed_vms:
            made.append(Deploy(key, fact.vm, fact.host, host.one_id))
    return made


def _starts_again(ledger: Ledger, fact: f.VmEnded, meta: Any) -> None:
    """X2: what is gone is started once more."""
    _ended(ledger, fact, meta)
    unit = ledger.custody.state.units.get(fact.unit)
    if unit is not None and unit.attempt == fact.attempt and unit.state == "open":
        unit.allocated[fact.attempt] = 0
        broken, unit.broken = unit.broken, None
        _want(ledger, unit)
        unit.broken = broken


def _always_soft(vm_reconciler: VmReconciler, key: str, now: float) -> Terminate | None:
    """X4: `kill_by` is forgotten."""
    made = _termination(vm_reconciler, key, now)
    return None if made is None else Terminate(made.key, made.vm, False)


def _takes_others_for_its_own(tag: str) -> Any:
    found = parse_vm_tag(tag)
    return None if found is None else ("c1", *found[1:])


def _asks_the_broker_what_to_expect(chaos: Chaos, node: Node) -> bool:
    """S1, second half: the sequence is asked from the server, not that of the last own envelope applied."""
    before = list(chaos.flying)
    said = _send(chaos, node)
    last = chaos.last.get(node.writer, 0)
    for index, message in enumerate(chaos.flying):
        if message not in before:
            chaos.flying[index] = Message(
                message.writer, last, message.id, message.data, message.epoch, message.drafted_at
            )
    return said


def _leads_at_once(node: Node) -> None:
    """S3: decides before it has said so, and before it has folded to the end."""
    _post_init(node)
    node.leads = True


MUTANTS: Final[dict[str, list[tuple[Any, str, Any]]]] = {
    # custody
    "a unit is placed on hosts that are not held": [(preconditions, "_no_place", lambda *_: None)],
    "a department is seized within its quota": [
        (fold, "TABLE", without_precondition(f.HostSeized, _seizes_within_quota)),
        (ProvisionerCore, "_seize_overdue", _seizes_what_is_not_due),
    ],
    "a host is granted before it is released": [
        (ProvisionerCore, "_grant", _grants_what_drains),
        (fold, "TABLE", without_precondition(f.HostGranted)),
    ],
    "exit 0 after SIGTERM is a success": [(preconditions, "_stops_on_term", lambda *_: False)],
    # schedulers and provisioner
    "a victim is forgotten": [(CloseEnded, "_closings", _forgets_broken_attempts)],
    "walltime is ignored": [(Limits, "overdue", lambda *_: [])],
    "wide jobs of two departments share the idle hosts": [(turns, "whose", lambda *_: ("", NEVER))],
    "a batch core rests though something has happened": [(BatchCore, "_stir", lambda *_: None)],
    "the provisioner rests though something has happened": [(ProvisionerCore, "_apply_simply", lambda *_: None)],
    "a removed department is not closed": [(AdmissionCore, "decide", lambda *_: [])],
    "nobody is seized, though a removed department's scheduler is gone": [
        (ProvisionerCore, "_seize_overdue", lambda *_: False)
    ],
    # executor
    "X1: deployed before it is journaled": [(VmReconciler, "calls", _deploys_before_it_is_journaled)],
    "X2: what has ended starts again": [
        (Ledger, "_ended", _starts_again),
        (effects, "_break", lambda *_: None),
    ],
    "X3: a VM starts where another one is ending": [(Ledger, "has_room", lambda *_: True)],
    "X3: an attempt starts beside its predecessor": [(Ledger, "older_open", lambda *_: False)],
    "X4: nothing is ended hard": [(VmReconciler, "_termination", _always_soft)],
    "X4: a VM that will not die is waited for": [(VmReconciler, "_watch_stuck", lambda *_: None)],
    "X5: a host is cleared before its VMs are gone": [(HostReconciler, "_clear", _clears_at_once)],
    "X6: VMs of others are taken for its own": [(launches_module, "parse_vm_tag", _takes_others_for_its_own)],
    "X6: what is ours and unknown is left": [(Allocations, "_adopt_or_end", lambda *_: None)],
    # shells
    "S1: the expected sequence is asked from the broker": [(Chaos, "send", _asks_the_broker_what_to_expect)],
    "S2: the broker does not fence": [(Chaos, "fenced", False)],
    "S3: a new leader decides at once": [(Node, "__post_init__", _leads_at_once)],
    "S6: nobody looks at the clock": [(Node, "skew_max_s", 1e9)],
    "S9: a snapshot forgets which VMs must end": [(ExecutorCore, "dump", _forgets_what_is_doomed)],
}
