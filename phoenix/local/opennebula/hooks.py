"""The hook manager: tells of state changes and calls, on ZeroMQ (`events`) and to the hooks that ask for them.

1. A state change is two events with one body: `EVENT VM <id>/<STATE>/<LCM> ` and `EVENT STATE VM/<STATE>/<LCM>/<id>
   `. A call that changes something is one, `EVENT API <method> <1|0>`; calls that only read and callers that could
   not be authenticated are none. The session is shown as `****`.
2. A hook runs its COMMAND only if that was allowed (`Settings.hook_commands`), only as a plain file name in
   `<data>/hooks`, without a shell, with a deadline and a bounded queue; what came of it is its log.
3. Without a port and without hooks an event costs two comparisons; what no subscriber has asked for and no hook matches is
   not written (a VM in full, twice an operation, was a fifth of all that the embedded server did).
"""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lxml import etree

from phoenix.local.opennebula import render
from phoenix.local.opennebula.errors import AUTHENTICATION, OneError
from phoenix.local.opennebula.model import Hook, Host, Image, Vm
from phoenix.local.opennebula.states import HostState, ImageState, Lcm, VmState

if TYPE_CHECKING:
    from phoenix.local.opennebula.server import OpenNebula

# A hook that takes longer is killed: it would hold back those behind it.
HOOK_S = 30.0
# Executions waiting; more are dropped, as oned does when its hook driver does not keep up.
QUEUE_MAX = 1_000
# Executions kept in a hook's log (oned's LOG_RETENTION).
LOG_MAX = 10

_ALLOCATED = {
    "one.vm.allocate": "VM",
    "one.host.allocate": "HOST",
    "one.image.allocate": "IMAGE",
    "one.template.instantiate": "VM",
}


class Hooks:
    """See the module."""

    def __init__(self, one: OpenNebula) -> None:
        self._one = one
        self._queue: asyncio.Queue[tuple[Hook, str]] = asyncio.Queue(QUEUE_MAX)
        self._task: asyncio.Task[None] | None = None
        self._executions = 0
        self.running = 0
        self.deleted: dict[str, str] = {}

    @property
    def active(self) -> bool:
        """Whether anybody wants to know."""
        return self._one.events.enabled or bool(self._one.store.hooks)

    async def close(self) -> None:
        """Stop running hooks."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # -- state changes -----------------------------------------------------------------------------

    def vm_changed(self, vm: Vm) -> None:
        """A VM entered a state."""
        if not self.active:
            return
        state, lcm = VmState(vm.state).name, Lcm(vm.lcm).name
        topics = self._topics("VM", vm.id, state, lcm)
        hooks = [hook for hook in self._hooks("VM") if _vm_matches(hook, state, lcm)]
        if not topics and not hooks:
            return
        xml = render.vm_full(vm)
        where = (
            f"<REMOTE_HOST>{render.text(vm.history[-1].host_name)}</REMOTE_HOST>" if vm.history else "<REMOTE_HOST/>"
        )
        body = f"<STATE>{state}</STATE><LCM_STATE>{lcm}</LCM_STATE><RESOURCE_ID>{vm.id}</RESOURCE_ID>{where}{xml}"
        self._state(topics, "VM", body)
        for hook in hooks:
            self._enqueue(hook, xml)

    def host_changed(self, host: Host) -> None:
        """A host entered a state."""
        if not self.active:
            return
        state, xml = HostState(host.state).name, self._host_xml(host)
        where = f"<REMOTE_HOST>{render.text(host.name)}</REMOTE_HOST>"
        body = f"<STATE>{state}</STATE>{where}<RESOURCE_ID>{host.id}</RESOURCE_ID>{xml}"
        self._state(self._topics("HOST", host.id, state, ""), "HOST", body)
        for hook in self._hooks("HOST"):
            if hook.template.get("STATE").upper() == state:
                self._enqueue(hook, xml)

    def image_changed(self, image: Image, xml: str) -> None:
        """An image entered a state."""
        if self.active:
            state = ImageState(image.state).name
            body = f"<STATE>{state}</STATE><RESOURCE_ID>{image.id}</RESOURCE_ID>{xml}"
            self._state(self._topics("IMAGE", image.id, state, ""), "IMAGE", body)

    def _topics(self, kind: str, number: int, state: str, lcm: str) -> list[str]:
        """Rule 1; those that somebody has subscribed to."""
        return self._one.events.heard(
            f"EVENT {kind} {number}/{state}/{lcm} ", f"EVENT STATE {kind}/{state}/{lcm}/{number} "
        )

    def _hooks(self, resource: str) -> list[Hook]:
        """Those on states of that kind."""
        hooks = self._one.store.hooks.values()
        return [hook for hook in hooks if hook.type == "state" and hook.template.get("RESOURCE").upper() == resource]

    def _state(self, topics: list[str], kind: str, body: str) -> None:
        message = f"<HOOK_MESSAGE><HOOK_TYPE>STATE</HOOK_TYPE><HOOK_OBJECT>{kind}</HOOK_OBJECT>{body}</HOOK_MESSAGE>"
        self._one.events.publish(topics, message)

    def _host_xml(self, host: Host) -> str:
        store = self._one.store
        return render.host(host, store.clusters[host.cluster_id], store.usage(host.id))

    # -- calls -------------------------------------------------------------------------------------

    def called(self, name: str, params: list[Any], outcome: str | int | bool | OneError) -> None:
        """A call that changes something was answered."""
        if isinstance(outcome, OneError) and outcome.code == AUTHENTICATION:
            return
        ok = not isinstance(outcome, OneError)
        topics = self._one.events.heard(f"EVENT API {name} {int(ok)}")
        hooks = [hook for hook in self._one.store.hooks.values() if hook.type == "api"]
        hooks = [hook for hook in hooks if ok and hook.template.get("CALL") == name]
        if not topics and not hooks:
            return
        values = ["****", *(int(value) if isinstance(value, bool) else value for value in params[1:])]
        answer: list[Any] = [str(ok).lower()]
        answer += (
            [outcome, 0]
            if not isinstance(outcome, OneError)
            else [f"[{name}] {outcome.text}", outcome.code, outcome.object_id]
        )
        extra = self._extra(name, outcome)
        info = (
            f"<RESULT>{int(ok)}</RESULT><PARAMETERS>{_parameters('IN', values)}{_parameters('OUT', answer)}</PARAMETERS>"
            f"<EXTRA>{extra}</EXTRA>"
        )
        call_info = f"<CALL_INFO>{info}</CALL_INFO>"
        message = f"<HOOK_MESSAGE><HOOK_TYPE>API</HOOK_TYPE><CALL>{name}</CALL>{call_info}</HOOK_MESSAGE>"
        self._one.events.publish(topics, message)
        for hook in hooks:
            self._enqueue(hook, call_info)

    def _extra(self, name: str, outcome: str | int | bool | OneError) -> str:
        if isinstance(outcome, OneError):
            return ""
        if name == "one.host.delete":
            return self.deleted.pop("HOST", "")
        kind, number = _ALLOCATED.get(name), int(outcome) if isinstance(outcome, int) else -1
        if kind == "VM":
            return render.vm_full(self._one.store.vm(number))
        if kind == "HOST":
            return self._host_xml(self._one.store.hosts[number])
        if kind == "IMAGE":
            image = self._one.store.images[number]
            return render.image(image, self._one.store.datastores[image.datastore_id])
        return ""

    # -- commands ----------------------------------------------------------------------------------

    def _enqueue(self, hook: Hook, xml: str) -> None:
        if not self._one.settings.hook_commands or self._one.settings.data_dir is None:
            return
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="hooks")
        if not self._queue.full():
            self.running += 1
            self._queue.put_nowait((hook, xml))

    async def _run(self) -> None:
        while True:
            hook, xml = await self._queue.get()
            try:
                await self._execute(hook, xml)
            finally:
                self.running -= 1

    async def _execute(self, hook: Hook, xml: str) -> None:
        assert self._one.settings.data_dir is not None
        path = self._one.settings.data_dir / "hooks" / Path(hook.template.get("COMMAND")).name
        encoded = base64.b64encode(etree.tostring(etree.fromstring(xml), pretty_print=True).strip()).decode()
        arguments = [
            encoded if word in ("$TEMPLATE", "$API") else word for word in hook.template.get("ARGUMENTS").split()
        ]
        code, out, err = await _command(path, arguments)
        command = render.text(" ".join([str(path), *arguments]))
        result = (
            f"<COMMAND>{command}</COMMAND><STDOUT>{base64.b64encode(out).decode()}</STDOUT>"
            f"<STDERR>{base64.b64encode(err).decode()}</STDERR><CODE>{code}</CODE>"
        )
        hook.log.append(
            f"<HOOK_EXECUTION_RECORD><HOOK_ID>{hook.id}</HOOK_ID><EXECUTION_ID>{len(hook.log)}</EXECUTION_ID>"
            f"<TIMESTAMP>{self._one.clock.second()}</TIMESTAMP><ARGUMENTS>{render.text(' '.join(arguments))}</ARGUMENTS>"
            f"<EXECUTION_RESULT>{result}</EXECUTION_RESULT></HOOK_EXECUTION_RECORD>"
        )
        del hook.log[:-LOG_MAX]


async def _command(path: Path, arguments: list[str]) -> tuple[int, bytes, bytes]:
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(str(path), *arguments, stdout=pipe, stderr=pipe)
    except OSError as error:
        return 255, b"", str(error).encode()
    try:
        out, err = await asyncio.wait_for(process.communicate(), HOOK_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        return 255, b"", f"killed after {HOOK_S:.0f} s".encode()
    return process.returncode or 0, out, err


def _vm_matches(hook: Hook, state: str, lcm: str) -> bool:
    on = hook.template.get("ON").upper()
    if on and on != "CUSTOM":
        return on in (state, lcm)
    return hook.template.get("STATE").upper() == state and hook.template.get("LCM_STATE", "LCM_INIT").upper() == lcm


def _parameters(kind: str, values: list[Any]) -> str:
    return "".join(
        f"<PARAMETER><POSITION>{position}</POSITION><TYPE>{kind}</TYPE><VALUE>{render.text(str(value))}</VALUE></PARAMETER>"
        for position, value in enumerate(values, 1)
    )
