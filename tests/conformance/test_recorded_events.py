"""What the hook manager publishes on ZeroMQ: the topics, and the XML in base64, of every recorded case.

State events come in the recorded order; a call's own event is published when it is answered, which a real server's
threads interleave with them.
"""

from __future__ import annotations

import asyncio
import base64
import re
from typing import Any

import pytest
import zmq
import zmq.asyncio
from lxml import etree

from phoenix.local.opennebula import render
from phoenix.local.opennebula.model import Vm
from phoenix.local.opennebula.server import OpenNebula
from phoenix.local.opennebula.settings import Settings
from phoenix.local.opennebula.testing import running_server
from tests.conformance.harness import RawClient, difference, load, tree
from tests.support.until import until

CASES = {case["case"].removeprefix("70_events_"): case for case in load("events")}

DEADLINE_S = 30.0

_E = 'NAME="e"\nCPU=0.1\nMEMORY=64\nPHOENIX_JOB_ID="e1"'
_E2 = 'NAME="e2"\nCPU=0.1\nMEMORY=64'

# The calls behind the recorded events, in an order in which each finds what it needs.
CALLS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "vm_allocate": ("one.vm.allocate", (_E, True)),
    "vm_deploy": ("one.vm.deploy", (0, 0, False, -1, "")),
    "vm_update": ("one.vm.update", (0, 'A="1"', 1)),
    "vm_info_api": ("one.vm.info", (0, False)),
    "vm_poweroff": ("one.vm.action", ("poweroff-hard", 0)),
    "vm_action_error": ("one.vm.action", ("poweroff-hard", 0)),
    "vm_terminate": ("one.vm.action", ("terminate-hard", 0)),
    "host_disable": ("one.host.status", (1, 1)),
    "host_enable": ("one.host.status", (1, 0)),
    "host_update": ("one.host.update", (1, 'Q="1"', 1)),
    "host_allocate": ("one.host.allocate", ("hx", "dummy", "dummy", -1)),
    "host_delete": ("one.host.delete", (2,)),
    "auth_fail": ("one.vm.info", (0, False)),
    "hook_vm_allocate": ("one.vm.allocate", (_E2, True)),
    "hook_vm_deploy": ("one.vm.deploy", (1, 0, False, -1, "")),
}

_HARDWARE = ("PCI_DEVICES", "NUMA_NODES", "MONITORING", "DATASTORES")


class Subscriber:
    """A subscriber that knows when it is connected and when an answer's events have all arrived."""

    def __init__(self, server: OpenNebula, prefix: bytes = b"EVENT") -> None:
        self.server = server
        self.context = zmq.asyncio.Context()
        self.socket = self.context.socket(zmq.SUB)
        self.socket.subscribe(prefix)
        self.socket.subscribe(b"MARK")
        self.socket.connect(f"tcp://127.0.0.1:{server.events.port}")

    async def until_marked(self, mark: str) -> list[tuple[str, str]]:
        """The events before a mark that is published now, and again until it is seen."""
        events: list[tuple[str, str]] = []
        async with asyncio.timeout(DEADLINE_S):
            self.server.events.publish([f"MARK {mark}"], "")
            while True:
                if not await self.socket.poll(100):
                    self.server.events.publish([f"MARK {mark}"], "")
                    continue
                topic, payload = await self.socket.recv_multipart()
                if topic.decode() == f"MARK {mark}":
                    return events
                if topic.startswith(b"EVENT"):
                    events.append((topic.decode(), base64.b64decode(payload).decode()))

    def close(self) -> None:
        """Disconnect."""
        self.socket.close(linger=0)
        self.context.term()


def _without_hardware(xml: str) -> Any:
    root = etree.fromstring(xml)
    for name in _HARDWARE:
        for element in list(root.iter(name)):
            if element.getparent() is not None and element.getparent().tag in ("HOST", "HOST_SHARE"):
                for child in list(element):
                    element.remove(child)
                element.text = None
    for host in root.iter("HOST"):
        for child in list(host.find("TEMPLATE")):
            if child.tag not in ("IM_MAD", "VM_MAD", "RESERVED_CPU", "RESERVED_MEM", "TOTALCPU", "TOTALMEMORY", "Q"):
                host.find("TEMPLATE").remove(child)
    return tree(root)


def _sorted_by_kind(events: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """States first, calls behind; each in its order."""
    return sorted(events, key=lambda event: event[0].startswith("EVENT API"))


def _differences(case: dict[str, Any], events: list[tuple[str, str]]) -> list[str]:
    recorded = [(event["topic"], base64.b64decode(event["payload_b64"]).decode()) for event in case["events"]]
    expected, actual = _sorted_by_kind(recorded), _sorted_by_kind(events)
    topics = [topic for topic, _ in expected], [topic for topic, _ in actual]
    if topics[0] != topics[1]:
        return [f"topics: expected {topics[0]}, got {topics[1]}"]
    found = [
        difference(_without_hardware(one), _without_hardware(other))
        for (_, one), (_, other) in zip(expected, actual, strict=True)
    ]
    return [text for text in found if text]


async def _play(server: OpenNebula, client: RawClient, subscriber: Subscriber) -> list[str]:
    await subscriber.until_marked("connected")
    wrong: list[str] = []
    for name, (method, arguments) in CALLS.items():
        session = "oneadmin:wrong" if name == "auth_fail" else None
        answer = await client.call(method, *arguments, session=session)
        assert re.match(re.escape(str(answer[1])[:40]), str(CASES[name]["response_body"])), (name, answer)
        await server.parts.settle()
        if name == "host_allocate":
            await client.steer(op="probe", host=2)
        wrong += [f"{name}: {text}" for text in _differences(CASES[name], await subscriber.until_marked(name))]
    return wrong


async def test_recorded_events() -> None:
    assert sorted(CALLS) == sorted(CASES)
    settings = Settings(events_port=0, monitor_interval_s=None)
    async with running_server(2, steering=True, cores=8, memory_mb=16384, settings=settings) as server:
        client, subscriber = RawClient(server), Subscriber(server)
        try:
            wrong = await _play(server, client, subscriber)
        finally:
            subscriber.close()
            await client.close()
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong)
    print(f"\nrecorded events: {len(CASES)} compared, 0 not reproducible")


async def test_no_port_no_publisher() -> None:
    async with running_server(1) as server:
        assert server.events.port is None
        assert not server.events.enabled


async def test_what_nobody_has_subscribed_to_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    full = render.vm_full

    def vm_full(vm: Vm) -> str:
        made.append(f"{vm.state.name}/{vm.lcm.name}")
        return full(vm)

    monkeypatch.setattr(render, "vm_full", vm_full)
    settings = Settings(events_port=0, monitor_interval_s=None)
    async with running_server(1, steering=True, cores=8, memory_mb=16384, settings=settings) as server:
        client = RawClient(server)
        try:
            await client.call("one.vm.allocate", _E, True)
            assert made == []
            subscriber = Subscriber(server, b"EVENT STATE VM/ACTIVE/RUNNING/")
            await subscriber.until_marked("connected")
            for call in (("one.vm.deploy", 0, 0, False, -1, ""), ("one.vm.action", "terminate-hard", 0)):
                await client.call(*call)
                await server.parts.settle()
            assert [topic for topic, _ in await subscriber.until_marked("end")] == ["EVENT STATE VM/ACTIVE/RUNNING/0 "]
            assert made == ["ACTIVE/RUNNING"]
            subscriber.close()
            gone = "EVENT STATE VM/ACTIVE/RUNNING/1 "
            await until(lambda: not server.events.heard(gone), "the last subscriber's word ends with its connection")
        finally:
            await client.close()
