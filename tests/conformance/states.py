"""How a VM is brought into each recorded state: calls and steering, as data.

`vmm` on host 0 held is a hypervisor that hangs there; the recordings were made by making the driver wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.conformance.harness import RawClient

TEMPLATE = """NAME="t"
CPU="0.1"
VCPU="1"
MEMORY="64"
PHOENIX_JOB_ID="x"
CONTEXT=[ NETWORK="YES", START_SCRIPT_BASE64="ZWNobw==" ]
"""


@dataclass(frozen=True)
class Recipe:
    """`steps`.

    (`deploy`,), (`act`, action), (`migrate`, host), (`rule`, step, fields), (`down`,); `host`: where it is deployed.
    """

    steps: tuple[tuple[Any, ...], ...] = ()
    hold: bool = True
    host: int = 0


_DEPLOY = ("deploy",)
_HANG = ("rule", "vmm", {"host": 0, "hold": True})


def _acted(action: str, *before: tuple[Any, ...]) -> Recipe:
    return Recipe((_DEPLOY, *before, ("act", action)))


RECIPES: dict[str, Recipe] = {
    "PENDING": Recipe(hold=False),
    "HOLD": Recipe(),
    "ACTIVE/RUNNING": Recipe((_DEPLOY,)),
    "ACTIVE/PROLOG": Recipe((("rule", "transfer", {"hold": True}), _DEPLOY)),
    "ACTIVE/BOOT": Recipe((_HANG, _DEPLOY)),
    "ACTIVE/MIGRATE": Recipe((_DEPLOY, _HANG, ("migrate", 2))),
    "ACTIVE/SAVE_STOP": _acted("stop", _HANG),
    "ACTIVE/SAVE_SUSPEND": _acted("suspend", _HANG),
    "ACTIVE/SHUTDOWN": _acted("terminate", _HANG),
    "ACTIVE/SHUTDOWN_POWEROFF": _acted("poweroff", _HANG),
    "ACTIVE/SHUTDOWN_UNDEPLOY": _acted("undeploy", _HANG),
    "ACTIVE/EPILOG": _acted("terminate-hard", ("rule", "clean", {"hold": True})),
    "ACTIVE/EPILOG_STOP": _acted("stop", ("rule", "stow", {"hold": True})),
    "ACTIVE/UNKNOWN": Recipe((_DEPLOY, ("down",)), host=5),
    "ACTIVE/BOOT_FAILURE": Recipe((("rule", "boot", {"fail": "host000:t:dummy", "times": 1}), _DEPLOY)),
    "ACTIVE/PROLOG_FAILURE": Recipe((("rule", "transfer", {"fail": "lite: injected failure", "times": 1}), _DEPLOY)),
    "ACTIVE/EPILOG_FAILURE": _acted(
        "terminate-hard", ("rule", "clean", {"fail": "lite: injected failure", "times": 1})
    ),
    "POWEROFF": _acted("poweroff-hard"),
    "SUSPENDED": _acted("suspend"),
    "STOPPED": _acted("stop"),
    "UNDEPLOYED": _acted("undeploy-hard"),
    "DONE": _acted("terminate-hard"),
}


@dataclass
class Maker:
    """Makes VMs in recorded states; `rules` are those a VM's recipe set."""

    client: RawClient
    rules: list[int] = field(default_factory=list)

    async def _must(self, method: str, *arguments: Any) -> Any:
        answer = await self.client.call(method, *arguments)
        assert answer[0], (method, arguments, answer)
        return answer[1]

    async def make(self, state: str, template: str = TEMPLATE, host: int | None = None) -> int:
        """A new VM in that state."""
        recipe = RECIPES[state]
        vm: int = await self._must("one.vm.allocate", template, recipe.hold)
        await self.bring(vm, state, host)
        return vm

    async def bring(self, vm: int, state: str, host: int | None = None) -> None:
        """An allocated VM into that state."""
        recipe = RECIPES[state]
        self.rules.clear()
        for step in recipe.steps:
            await self._step(vm, recipe.host if host is None else host, step)
            await self.client.server.parts.settle()

    async def _step(self, vm: int, host: int, step: tuple[Any, ...]) -> None:
        kind = step[0]
        if kind == "deploy":
            await self._must("one.vm.deploy", vm, host, False, -1, "")
        elif kind == "act":
            await self._must("one.vm.action", step[1], vm)
        elif kind == "migrate":
            await self._must("one.vm.migrate", vm, step[1], True, False, -1, 0)
        elif kind == "rule":
            self.rules.append((await self.client.steer(op="rule", step=step[1], vm=vm, **step[2]))["rule"])
        elif kind == "down":
            await self.client.steer(op="host", host=host, down="probe died")
