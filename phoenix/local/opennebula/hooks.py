"""The hook manager: publishes state changes and calls on ZeroMQ (`events`).

1. A state change is two events with one body: `EVENT VM <id>/<STATE>/<LCM> ` and `EVENT STATE VM/<STATE>/<LCM>/<id>
   `. A call that changes something is one, `EVENT API <method> <1|0>`; calls that only read and callers that could
   not be authenticated are none. The session is shown as `****`.
2. Without a port an event costs one comparison; what no subscriber has asked for is not written (a VM in full, twice an
   operation, was a fifth of all that the embedded server did).
"""

from __future__ import annotations

from typing import Any

from phoenix.local.opennebula import render
from phoenix.local.opennebula.errors import AUTHENTICATION, OneError
from phoenix.local.opennebula.events import Events
from phoenix.local.opennebula.model import Host, Vm
from phoenix.local.opennebula.states import HostState, Lcm, VmState
from phoenix.local.opennebula.store import Store

_ALLOCATED = {
    "one.vm.allocate": "VM",
    "one.host.allocate": "HOST",
}


class Hooks:
    """See the module."""

    def __init__(self, store: Store, events: Events) -> None:
        self._store, self._events = store, events
        self.deleted: dict[str, str] = {}

    @property
    def active(self) -> bool:
        """Whether anybody wants to know."""
        return self._events.enabled

    # -- state changes -----------------------------------------------------------------------------

    def vm_changed(self, vm: Vm) -> None:
        """A VM entered a state."""
        if not self.active:
            return
        state, lcm = VmState(vm.state).name, Lcm(vm.lcm).name
        topics = self._topics("VM", vm.id, state, lcm)
        if not topics:
            return
        xml = render.vm_full(vm)
        where = (
            f"<REMOTE_HOST>{render.text(vm.history[-1].host_name)}</REMOTE_HOST>" if vm.history else "<REMOTE_HOST/>"
        )
        body = f"<STATE>{state}</STATE><LCM_STATE>{lcm}</LCM_STATE><RESOURCE_ID>{vm.id}</RESOURCE_ID>{where}{xml}"
        self._state(topics, "VM", body)

    def host_changed(self, host: Host) -> None:
        """A host entered a state."""
        if not self.active:
            return
        state, xml = HostState(host.state).name, self._host_xml(host)
        where = f"<REMOTE_HOST>{render.text(host.name)}</REMOTE_HOST>"
        body = f"<STATE>{state}</STATE>{where}<RESOURCE_ID>{host.id}</RESOURCE_ID>{xml}"
        self._state(self._topics("HOST", host.id, state, ""), "HOST", body)

    def _topics(self, kind: str, number: int, state: str, lcm: str) -> list[str]:
        """Rule 1; those that have subscribers."""
        return self._events.heard(
            f"EVENT {kind} {number}/{state}/{lcm} ", f"EVENT STATE {kind}/{state}/{lcm}/{number} "
        )

    def _state(self, topics: list[str], kind: str, body: str) -> None:
        message = f"<HOOK_MESSAGE><HOOK_TYPE>STATE</HOOK_TYPE><HOOK_OBJECT>{kind}</HOOK_OBJECT>{body}</HOOK_MESSAGE>"
        self._events.publish(topics, message)

    def _host_xml(self, host: Host) -> str:
        store = self._store
        return render.host(host, store.clusters[host.cluster_id], store.usage(host.id))

    # -- calls -------------------------------------------------------------------------------------

    def called(self, name: str, params: list[Any], outcome: str | int | bool | OneError) -> None:
        """A call that changes something was answered."""
        if isinstance(outcome, OneError) and outcome.code == AUTHENTICATION:
            return
        ok = not isinstance(outcome, OneError)
        topics = self._events.heard(f"EVENT API {name} {int(ok)}")
        if not topics:
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
        self._events.publish(topics, message)

    def _extra(self, name: str, outcome: str | int | bool | OneError) -> str:
        if isinstance(outcome, OneError):
            return ""
        if name == "one.host.delete":
            return self.deleted.pop("HOST", "")
        kind, number = _ALLOCATED.get(name), int(outcome) if isinstance(outcome, int) else -1
        if kind == "VM":
            return render.vm_full(self._store.vm(number))
        if kind == "HOST":
            return self._host_xml(self._store.hosts[number])
        return ""


def _parameters(kind: str, values: list[Any]) -> str:
    return "".join(
        f"<PARAMETER><POSITION>{position}</POSITION><TYPE>{kind}</TYPE><VALUE>{render.text(str(value))}</VALUE></PARAMETER>"
        for position, value in enumerate(values, 1)
    )
