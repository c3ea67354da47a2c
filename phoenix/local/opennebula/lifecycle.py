"""The virtual machine's life as data: what each transient state does, where it leads, and which history times it sets.

1. A transient state asks the hypervisor for one thing (`call`) and leaves by `ok` or by `fail`.
2. `enter`, `on_ok`, `on_fail` name history times to set to now (`last.rstime`); a leading `-` clears one. `prev` is
   the record before the last.
3. Whatever becomes RUNNING has no pending action: the last record's action is cleared.
4. `recover` 1 leaves by `ok`, 0 by `fail`, 2 asks again; from a failure state 1 and 2 go through the state that
   failed (`RETRY`).
Source: the recorded state-action matrix (oned 7.4.0), tests/conformance/recordings.
"""

from __future__ import annotations

from dataclasses import dataclass

from phoenix.local.opennebula.states import Action, Lcm, VmState

Target = tuple[VmState, Lcm]


def _active(lcm: Lcm) -> Target:
    return VmState.ACTIVE, lcm


def _still(state: VmState) -> Target:
    return state, Lcm.LCM_INIT


RUNNING = _active(Lcm.RUNNING)
PENDING = _still(VmState.PENDING)
DONE = _still(VmState.DONE)

TRANSFER_ERROR = "Error executing image transfer script: "
BOOT_ERROR = "DEPLOY: "


@dataclass(frozen=True, slots=True)
class Step:
    """One transient state.

    `error`: prefix of the ERROR attribute set on failure (None: none is set). `undo`: failure returns to the source
    host.
    """

    call: str
    ok: Target
    fail: Target
    enter: tuple[str, ...] = ()
    on_ok: tuple[str, ...] = ()
    on_fail: tuple[str, ...] = ()
    error: str | None = None
    undo: bool = False


_PROLOG = ("last.stime", "last.pstime")
_BOOT = ("last.rstime", "-last.retime")
_LEFT = ("prev.etime", "prev.retime")
_MOVED = (*_LEFT, "last.etime")

STEPS: dict[Lcm, Step] = {
    Lcm.LCM_INIT: Step("dispatch", _active(Lcm.PROLOG), PENDING),
    Lcm.PROLOG: Step(
        "transfer", _active(Lcm.BOOT), _active(Lcm.PROLOG_FAILURE), _PROLOG, ("last.petime",), error=TRANSFER_ERROR
    ),
    Lcm.PROLOG_RESUME: Step(
        "fetch",
        _active(Lcm.BOOT_STOPPED),
        _active(Lcm.PROLOG_RESUME_FAILURE),
        _PROLOG,
        ("last.petime",),
        error=TRANSFER_ERROR,
    ),
    Lcm.PROLOG_UNDEPLOY: Step(
        "fetch",
        _active(Lcm.BOOT_UNDEPLOY),
        _active(Lcm.PROLOG_UNDEPLOY_FAILURE),
        _PROLOG,
        ("last.petime",),
        error=TRANSFER_ERROR,
    ),
    Lcm.PROLOG_MIGRATE: Step(
        "fetch",
        _active(Lcm.BOOT_MIGRATE),
        _active(Lcm.PROLOG_MIGRATE_FAILURE),
        ("last.pstime",),
        ("last.petime",),
        error=TRANSFER_ERROR,
    ),
    Lcm.PROLOG_MIGRATE_POWEROFF: Step(
        "fetch",
        _still(VmState.POWEROFF),
        _active(Lcm.PROLOG_MIGRATE_POWEROFF_FAILURE),
        _PROLOG,
        ("last.petime", "last.retime"),
        error=TRANSFER_ERROR,
    ),
    Lcm.PROLOG_MIGRATE_SUSPEND: Step(
        "fetch",
        _still(VmState.SUSPENDED),
        _active(Lcm.PROLOG_MIGRATE_SUSPEND_FAILURE),
        _PROLOG,
        ("last.petime", "last.retime"),
        error=TRANSFER_ERROR,
    ),
    Lcm.PROLOG_MIGRATE_UNKNOWN: Step(
        "fetch",
        _active(Lcm.BOOT),
        _active(Lcm.PROLOG_MIGRATE_UNKNOWN_FAILURE),
        _PROLOG,
        ("last.petime",),
        error=TRANSFER_ERROR,
    ),
    Lcm.BOOT: Step("boot", RUNNING, _active(Lcm.BOOT_FAILURE), _BOOT, (), ("last.retime",), BOOT_ERROR),
    Lcm.BOOT_UNKNOWN: Step("boot", RUNNING, _active(Lcm.UNKNOWN), _BOOT, (), ("last.retime",), BOOT_ERROR),
    Lcm.BOOT_POWEROFF: Step("boot", RUNNING, _still(VmState.POWEROFF), _BOOT, (), ("last.retime",), BOOT_ERROR),
    Lcm.BOOT_SUSPENDED: Step("restore", RUNNING, _still(VmState.SUSPENDED), _BOOT, (), ("last.retime",)),
    Lcm.BOOT_STOPPED: Step(
        "restore", RUNNING, _active(Lcm.BOOT_STOPPED_FAILURE), _BOOT, (), ("last.retime", "last.etime")
    ),
    Lcm.BOOT_UNDEPLOY: Step(
        "boot", RUNNING, _active(Lcm.BOOT_UNDEPLOY_FAILURE), _BOOT, (), ("last.retime", "last.etime"), BOOT_ERROR
    ),
    Lcm.BOOT_MIGRATE: Step("restore", RUNNING, _active(Lcm.BOOT_MIGRATE_FAILURE), _BOOT, (), ("last.retime",)),
    Lcm.MIGRATE: Step("migrate", RUNNING, RUNNING, (), (*_LEFT, "last.rstime"), _MOVED, undo=True),
    Lcm.SAVE_MIGRATE: Step(
        "leave", _active(Lcm.PROLOG_MIGRATE), RUNNING, (), (*_LEFT, "last.stime"), _MOVED, undo=True
    ),
    Lcm.SAVE_SUSPEND: Step("save", _still(VmState.SUSPENDED), RUNNING, (), ("last.retime",)),
    Lcm.SAVE_STOP: Step("save", _active(Lcm.EPILOG_STOP), RUNNING, (), ("last.retime",)),
    Lcm.SHUTDOWN: Step("stop", _active(Lcm.EPILOG), RUNNING, (), ("last.retime",)),
    Lcm.SHUTDOWN_POWEROFF: Step("stop", _still(VmState.POWEROFF), RUNNING, (), ("last.retime",)),
    Lcm.SHUTDOWN_UNDEPLOY: Step("stop", _active(Lcm.EPILOG_UNDEPLOY), RUNNING, (), ("last.retime",)),
    Lcm.EPILOG: Step(
        "clean",
        DONE,
        _active(Lcm.EPILOG_FAILURE),
        ("last.estime",),
        ("last.eetime", "last.etime"),
        error=TRANSFER_ERROR,
    ),
    Lcm.EPILOG_STOP: Step(
        "stow",
        _still(VmState.STOPPED),
        _active(Lcm.EPILOG_STOP_FAILURE),
        ("last.estime",),
        ("last.eetime", "last.etime"),
        error=TRANSFER_ERROR,
    ),
    Lcm.EPILOG_UNDEPLOY: Step(
        "stow",
        _still(VmState.UNDEPLOYED),
        _active(Lcm.EPILOG_UNDEPLOY_FAILURE),
        ("last.estime",),
        ("last.eetime", "last.etime"),
        error=TRANSFER_ERROR,
    ),
    Lcm.CLEANUP_RESUBMIT: Step("cleanup", PENDING, PENDING),
}

# A failure state, and the step that failed.
RETRY: dict[Lcm, Lcm] = {
    step.fail[1]: lcm
    for lcm, step in STEPS.items()
    if step.fail[0] == VmState.ACTIVE and step.fail[1].name.endswith("_FAILURE")
}

# The bootings of RETRY: `recover` 1 believes the VM runs and does not go through the state again.
BOOTED = frozenset(failure for failure, lcm in RETRY.items() if STEPS[lcm].ok == RUNNING)


@dataclass(frozen=True, slots=True)
class Rule:
    """What an action does in a state: where the VM goes, and the action noted in its history (None: none)."""

    target: Target
    action: Action | None = None


_A = VmState.ACTIVE
_RUN, _UNK = RUNNING, _active(Lcm.UNKNOWN)


def _hard(soft: dict[Target, Rule], hard: Action, again: Lcm) -> dict[Target, Rule]:
    """The hard form of a stop: as the soft one where the VM runs, and once more while the soft one is under way."""
    rules = {state: Rule(rule.target, hard) if state in (_RUN, _UNK) else rule for state, rule in soft.items()}
    return {**rules, _active(again): Rule(_active(again), hard)}


_POWEROFF = {state: Rule(_active(Lcm.SHUTDOWN_POWEROFF), Action.POWEROFF) for state in (_RUN, _UNK)}
_UNDEPLOY = {
    **{state: Rule(_active(Lcm.SHUTDOWN_UNDEPLOY), Action.UNDEPLOY) for state in (_RUN, _UNK)},
    _still(VmState.POWEROFF): Rule(_active(Lcm.EPILOG_UNDEPLOY), Action.UNDEPLOY),
}
_KEPT = (VmState.POWEROFF, VmState.SUSPENDED, VmState.STOPPED, VmState.UNDEPLOYED)
_TERMINATE = {
    **{state: Rule(_active(Lcm.SHUTDOWN), Action.TERMINATE) for state in (_RUN, _UNK)},
    **{_still(state): Rule(_active(Lcm.EPILOG), Action.TERMINATE) for state in _KEPT},
    **{_still(state): Rule(DONE) for state in (VmState.PENDING, VmState.HOLD, VmState.CLONING)},
    **{_active(failure): Rule(_active(Lcm.CLEANUP_DELETE), Action.DELETE) for failure in RETRY},
    DONE: Rule(DONE),
}

# action → state → rule; what is not here is refused.
ACTIONS: dict[str, dict[Target, Rule]] = {
    "terminate": _TERMINATE,
    "terminate-hard": _hard(_TERMINATE, Action.TERMINATE_HARD, Lcm.SHUTDOWN),
    "poweroff": _POWEROFF,
    "poweroff-hard": _hard(_POWEROFF, Action.POWEROFF_HARD, Lcm.SHUTDOWN_POWEROFF),
    "undeploy": _UNDEPLOY,
    "undeploy-hard": _hard(_UNDEPLOY, Action.UNDEPLOY_HARD, Lcm.SHUTDOWN_UNDEPLOY),
    "hold": {PENDING: Rule(_still(VmState.HOLD))},
    "release": {_still(VmState.HOLD): Rule(PENDING)},
    "stop": {
        _RUN: Rule(_active(Lcm.SAVE_STOP), Action.STOP),
        _still(VmState.SUSPENDED): Rule(_active(Lcm.EPILOG_STOP), Action.STOP),
    },
    "suspend": {_RUN: Rule(_active(Lcm.SAVE_SUSPEND), Action.SUSPEND)},
    "resume": {
        _still(VmState.POWEROFF): Rule(_active(Lcm.BOOT_POWEROFF), Action.RESUME),
        _still(VmState.SUSPENDED): Rule(_active(Lcm.BOOT_SUSPENDED), Action.RESUME),
        _UNK: Rule(_active(Lcm.BOOT_UNKNOWN), Action.RESUME),
        _still(VmState.STOPPED): Rule(PENDING),
        _still(VmState.UNDEPLOYED): Rule(PENDING),
    },
    "reboot": {_RUN: Rule(_RUN)},
    "reboot-hard": {_RUN: Rule(_RUN)},
    "resched": {state: Rule(state) for state in (_RUN, _UNK, _still(VmState.POWEROFF))},
    "unresched": {state: Rule(state) for state in (_RUN, _UNK, _still(VmState.POWEROFF))},
}

DEPLOYABLE = frozenset({VmState.PENDING, VmState.HOLD, VmState.STOPPED, VmState.UNDEPLOYED})

# Where a migration begins: the state it leads to, cold and live.
MIGRATIONS: dict[Target, tuple[Lcm, Lcm]] = {
    _RUN: (Lcm.SAVE_MIGRATE, Lcm.MIGRATE),
    _UNK: (Lcm.PROLOG_MIGRATE_UNKNOWN, Lcm.PROLOG_MIGRATE_UNKNOWN),
    _still(VmState.POWEROFF): (Lcm.PROLOG_MIGRATE_POWEROFF, Lcm.PROLOG_MIGRATE_POWEROFF),
    _still(VmState.SUSPENDED): (Lcm.PROLOG_MIGRATE_SUSPEND, Lcm.PROLOG_MIGRATE_SUSPEND),
}

# How a deployed VM left its last host decides how it comes back.
PROLOG_AFTER = {
    Action.STOP: Lcm.PROLOG_RESUME,
    Action.UNDEPLOY: Lcm.PROLOG_UNDEPLOY,
    Action.UNDEPLOY_HARD: Lcm.PROLOG_UNDEPLOY,
}

HARD_ACTIONS = frozenset(
    {Action.TERMINATE_HARD, Action.POWEROFF_HARD, Action.UNDEPLOY_HARD, Action.POWEROFF_HARD_MIGRATE}
)

# Cold migration by its `type` argument: 0 save, 1 power off, 2 power off hard.
MIGRATE_TYPES = {0: Action.MIGRATE, 1: Action.POWEROFF_MIGRATE, 2: Action.POWEROFF_HARD_MIGRATE}

# What deleting closes in the history, by the state it is called in; otherwise only what has begun to run.
TRANSFERRING = frozenset(
    {
        Lcm.PROLOG,
        Lcm.PROLOG_FAILURE,
        Lcm.PROLOG_RESUME,
        Lcm.PROLOG_RESUME_FAILURE,
        Lcm.PROLOG_UNDEPLOY,
        Lcm.PROLOG_UNDEPLOY_FAILURE,
    }
)
CLEANING = frozenset(
    {
        Lcm.EPILOG,
        Lcm.EPILOG_FAILURE,
        Lcm.EPILOG_STOP,
        Lcm.EPILOG_STOP_FAILURE,
        Lcm.EPILOG_UNDEPLOY,
        Lcm.EPILOG_UNDEPLOY_FAILURE,
    }
)
MOVING = frozenset({Lcm.MIGRATE, Lcm.SAVE_MIGRATE})
