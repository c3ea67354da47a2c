"""The five sittings in which the session of calls was recorded: what each began with, and what happened beside the calls that
are compared.

`before` and `after` name what happens around a case: what was made or renamed by calls that are not compared, hosts that were
probed, drivers that were slow (a recorded answer shows a transient state) or failed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.conformance.states import TEMPLATE

Action = tuple[str, dict[str, Any]]


def steer(**fields: Any) -> Action:
    """Steer."""
    return "steer", fields


def hold(name: str, step: str, **fields: Any) -> Action:
    """Make a step wait, under a name."""
    return "hold", {"name": name, "step": step, "hold": True, **fields}


def release(name: str) -> Action:
    """Let it go."""
    return "release", {"name": name}


def fail(step: str) -> Action:
    """The next such step fails."""
    return steer(op="rule", step=step, fail="host000:t:dummy", times=1)


def made(state: str, template: str = TEMPLATE, host: int | None = None) -> Action:
    """A VM that the recording does not show being made."""
    return "made", {"state": state, "template": template, "host": host}


def named(host: int, name: str) -> Action:
    """A host has another name than when it was made."""
    return "named", {"host": host, "name": name}


@dataclass(frozen=True)
class Sitting:
    """Cases from `first` to `last` (numbers), on a fresh server with `hosts`.

    `hardware_of` names the case that shows what its hosts are.
    """

    name: str
    first: int
    last: int
    hosts: int
    hardware_of: str
    start: tuple[Action, ...] = ()
    before: dict[str, tuple[Action, ...]] = field(default_factory=dict)
    after: dict[str, tuple[Action, ...]] = field(default_factory=dict)


_SMALL = 'NAME="{}"\nCPU=1\nMEMORY=128'
_BARE = 'NAME="bare"\nCPU=0.1\nMEMORY=64'
_NINE = TEMPLATE.replace('CPU="0.1"', 'CPU="9"')

_FAILURES = {
    "400_fail_deploy": "boot",
    "401_fail_poweroff": "shutdown",
    "402_fail_poweroff_hard": "cancel",
    "403_fail_terminate": "shutdown",
    "404_fail_terminate_hard": "cancel",
    "405_fail_undeploy": "shutdown",
    "406_fail_undeploy_hard": "cancel",
    "407_fail_suspend": "save",
    "408_fail_stop": "save",
    "409_fail_resume_suspended": "restore",
    "410_fail_resume_poweroff": "boot",
    "411_fail_deploy_stopped": "restore",
    "412_fail_deploy_undeployed": "boot",
    "413_fail_migrate_live": "migrate",
    "414_fail_migrate_cold_save": "save",
    "415_fail_migrate_cold_restore": "restore",
    "416_fail_reboot": "reboot",
    "417_fail_reboot_hard": "reset",
}
_RUN = "ACTIVE/RUNNING"
_FAILING_FROM = ["HOLD", *[_RUN] * 8, "SUSPENDED", "POWEROFF", "STOPPED", "UNDEPLOYED", *[_RUN] * 5]

SITTINGS = (
    Sitting(
        "calls",
        1,
        219,
        3,
        "051_host_info",
        before={
            "074_host_info_disabled": (named(3, "newhost2"),),
            "079_host_info_enabled_8s": (steer(op="probe", host=3),),
            "125_vm_allocate_lowercase": (made("HOLD", _SMALL.format("tmp")),),
            "160_vm_deploy": (hold("dispatch", "dispatch", vm=0),),
        },
        after={"161_vm_info_right_after_deploy": (release("dispatch"),)},
    ),
    Sitting(
        "actions",
        300,
        345,
        2,
        "",
        start=(
            made("PENDING"),
            made("PENDING"),
            made(_RUN),
            made("POWEROFF"),
            made("SUSPENDED"),
            made("STOPPED"),
            made("UNDEPLOYED"),
            made("HOLD"),
            made(_RUN),
            made("HOLD", _BARE),
            made("HOLD", _NINE),
            made(_RUN, host=1),
        ),
        before={
            "304_suspend": (("call", {"method": "one.vm.action", "args": ("resume", 0)}),),
            "325_terminate": (steer(op="usage"),),
        },
    ),
    Sitting(
        "failures",
        400,
        436,
        6,
        "421_host_info_error",
        start=(
            *(made(state) for state in _FAILING_FROM),
            made(_RUN, host=3),
            made("POWEROFF", host=3),
            made("SUSPENDED", host=3),
            made(_RUN, host=3),
            made("HOLD"),
            made("HOLD"),
        ),
        before={
            **{case: (fail(step),) for case, step in _FAILURES.items()},
            "424_hostpool_monitoring": (),
            "426_host_info_recovered": (steer(op="host", host=3),),
            "428_statevm_poweroff": (made(_RUN, host=3), made(_RUN, host=3), made(_RUN, host=4)),
            "431_host_info_zombies": (),
            "432_vm_terminate_on_offline_host": (
                made(_RUN, host=5),
                ("call", {"method": "one.host.status", "args": (5, 2)}),
            ),
            "435_host_disable_with_vm": (made(_RUN, host=2),),
        },
    ),
    Sitting(
        "users",
        500,
        616,
        4,
        "",
        before={
            "539_vm_allocate_volatile": (made("HOLD"),),
            "557_vm_sched_req": (made("HOLD"), made("HOLD")),
        },
    ),
    Sitting("tokens", 720, 729, 2, ""),
)
