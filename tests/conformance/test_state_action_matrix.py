"""Every (state, action) that was recorded: is it allowed, what is answered, which states follow, what the history says.

A driver that was made to wait is let go only where the recording says that it came to an end while being watched (the
call was refused, or asked the driver again): a call that is accepted must lead to its states by itself.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from lxml import etree

from phoenix.local.opennebula.model import Vm
from phoenix.local.opennebula.server import OpenNebula
from phoenix.local.opennebula.states import Lcm, VmState
from phoenix.local.opennebula.testing import running_server
from tests.conformance.harness import RawClient, load
from tests.conformance.states import Maker

CASES = load("state-action-matrix")

# Cases that cannot be reproduced, with the reason. None.
EXCEPTIONS: dict[str, str] = {}

_TIMES = ("STIME", "ETIME", "PSTIME", "PETIME", "RSTIME", "RETIME", "ESTIME", "EETIME")
_SAME = ("SEQ", "HOSTNAME", "HID", "CID", "VM_MAD", "TM_MAD", "DS_ID", "PLAN_ID", "ACTION_ID", "ACTION", "UID", "GID")


def full_name(state: int, lcm: int) -> str:
    """A state as the recordings write it."""
    name = VmState(state).name
    return f"ACTIVE/{Lcm(lcm).name}" if name == "ACTIVE" else name


def stays(records: list[dict[str, str]]) -> list[dict[str, str]]:
    """History records with times as zero or set, and request ids as absent or given."""
    return [
        {**{name: record[name] for name in _SAME}, **{name: "0" if record[name] == "0" else "set" for name in _TIMES}}
        | {"REQUEST_ID": "-1" if record["REQUEST_ID"] == "-1" else "given"}
        for record in records
    ]


def history_of(xml: Any) -> list[dict[str, str]]:
    """The history records of a VM."""
    return [{field.tag: field.text or "" for field in record} for record in xml.iterfind("HISTORY_RECORDS/HISTORY")]


class Watch:
    """The states that VMs enter."""

    def __init__(self, server: OpenNebula) -> None:
        self.seen: dict[int, list[str]] = {}
        server.machine.listeners.append(self._note)

    def _note(self, vm: Vm) -> None:
        self.seen.setdefault(vm.id, []).append(full_name(vm.state, vm.lcm))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[tuple[RawClient, Watch]]:
    async with running_server(hosts=6, steering=True, cores=8, memory_mb=16384) as server:
        server.monitor.probe(server.store.hosts[0])
        client = RawClient(server)
        try:
            yield client, Watch(server)
        finally:
            await client.close()


def _expected_states(case: dict[str, Any]) -> list[str]:
    """The recorded sequence; a first event of the state the VM is in already is the late echo of how it got there."""
    names = [name for _, name in case["event_sequence_ms"]]
    return names[1:] if names and names[0] == case["initial_state"] else names


def _may_end_by_itself(case: dict[str, Any]) -> bool:
    return not case["response_ok"] or case["case"].endswith("recover-2-retry")


async def check(client: RawClient, watch: Watch, case: dict[str, Any]) -> list[str]:
    """What differs, in words."""
    maker = Maker(client)
    vm = await maker.make(case["initial_state"])
    recorded_vm = str(
        case["args"][1] if isinstance(case["args"][1], int) and case["method"] != "one.vm.action" else case["args"][2]
    )
    position = 2 if case["method"] == "one.vm.action" else 1
    arguments = [vm if index == position else value for index, value in enumerate(case["args"])][1:]
    watch.seen[vm] = []
    answer = await client.call(case["method"], *arguments)
    await client.server.parts.settle()
    expected = _expected_states(case)
    if watch.seen[vm] != expected and _may_end_by_itself(case):
        for rule in maker.rules:
            if rule in client.server.steering.rules:  # type: ignore[union-attr]
                await client.steer(op="release", rule=rule)
        await client.server.parts.settle()
    found = await _outcome(client, vm)
    wrong = _compare(case, answer, found, vm, recorded_vm)
    if watch.seen[vm] != expected:
        wrong.append(f"states: expected {expected}, got {watch.seen[vm]}")
    await client.steer(op="clear")
    await client.call("one.vm.recover", vm, 3)
    await client.server.parts.settle()
    if case["initial_state"] == "ACTIVE/UNKNOWN":
        await client.steer(op="host", host=5)
    return wrong


async def _outcome(client: RawClient, vm: int) -> Any:
    answer = await client.call("one.vm.info", vm, False)
    assert answer[0], answer
    return etree.fromstring(answer[1])


def _compare(case: dict[str, Any], answer: tuple[Any, ...], xml: Any, vm: int, recorded_vm: str) -> list[str]:
    wrong: list[str] = []

    def expect(what: str, expected: Any, actual: Any) -> None:
        if expected != actual:
            wrong.append(f"{what}: expected {expected!r}, got {actual!r}")

    body = case["response_body"]
    body = vm if case["response_ok"] else re.sub(rf"\bVM {recorded_vm}\b", f"VM {vm}", body)
    expect("ok", case["response_ok"], answer[0])
    expect("body", body, answer[1])
    expect("code", case["error_code"], answer[2])
    expect("extra", case["response_extra"], list(answer[3:]))
    expect("final state", case["final_state"], full_name(int(xml.findtext("STATE")), int(xml.findtext("LCM_STATE"))))
    expect("resched", case["resched"], xml.findtext("RESCHED"))
    expect("history", stays(case["history"]), stays(history_of(xml)))
    error = xml.findtext("USER_TEMPLATE/ERROR")
    expect("error", (case["user_template_error"] or "")[26:], (error or "")[26:])
    return wrong


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("state", sorted({case["initial_state"] for case in CASES}))
async def test_actions_in(state: str, world: tuple[RawClient, Watch]) -> None:
    client, watch = world
    failures: list[str] = []
    cases = [case for case in CASES if case["initial_state"] == state]
    for case in cases:
        wrong = await check(client, watch, case)
        if case["case"] in EXCEPTIONS:
            print(f"not reproduced: {case['case']}: {EXCEPTIONS[case['case']]}")
        elif wrong:
            failures.append(f"{case['case']}: " + "; ".join(wrong))
    assert not failures, f"{len(failures)} of {len(cases)}:\n" + "\n".join(failures)


def test_all_cases_are_covered() -> None:
    assert len(CASES) == 451
    assert len({case["case"] for case in CASES}) == 451
    print(
        f"\nstate-action matrix: {len(CASES) - len(EXCEPTIONS)} compared, {len(EXCEPTIONS)} not reproducible: {EXCEPTIONS}"
    )
