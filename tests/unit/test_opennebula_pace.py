"""The pace of a real oned: lanes and connections.  Only lower bounds of time are asserted: a busy machine is never too fast."""

from __future__ import annotations

import asyncio
import xmlrpc.client

import pytest

from phoenix.local.opennebula import pace
from phoenix.local.opennebula.server import OpenNebula
from phoenix.local.opennebula.settings import Settings
from phoenix.local.opennebula.states import Lcm, VmState
from phoenix.local.opennebula.testing import running_server
from tests.conformance.harness import RawClient

VMS = 12


async def _launch(client: RawClient) -> list[int]:
    ids = []
    for _ in range(VMS):
        answer = await client.call("one.vm.allocate", "CPU=0.1\nMEMORY=16", True)
        ids.append(answer[1])
    for vm in ids:
        assert (await client.call("one.vm.deploy", vm, 0, True, -1, ""))[0]
    await client.server.parts.settle()
    return ids


async def test_launches_and_ends_leave_their_lanes_at_their_rates() -> None:
    async with running_server(2, settings=Settings(pace=True)) as server:
        loop, client = asyncio.get_running_loop(), RawClient(server)
        began = loop.time()
        ids = await _launch(client)
        launched_s = loop.time() - began
        assert [server.store.vms[vm].lcm for vm in ids] == [Lcm.RUNNING] * VMS
        assert launched_s >= VMS / pace.LAUNCHED_PER_S
        began = loop.time()
        for vm in ids:
            await client.call("one.vm.action", "terminate-hard", vm)
        await server.parts.settle()
        assert loop.time() - began >= VMS / pace.ENDED_PER_S
        assert all(server.store.final_vms[vm].state == VmState.DONE for vm in ids)
        await client.close()


async def test_one_that_was_overtaken_while_it_waited_never_boots() -> None:
    async with running_server(2, settings=Settings(pace=True)) as server:
        client = RawClient(server)
        vm = (await client.call("one.vm.allocate", "CPU=0.1\nMEMORY=16", True))[1]
        states: list[int] = []
        server.machine.listeners.append(lambda changed: states.append(changed.lcm))
        assert server.machine.pace is not None
        before_it = [
            asyncio.ensure_future(server.machine.pace.before("boot")) for _ in range(30 * int(pace.LAUNCHED_PER_S))
        ]
        await asyncio.sleep(0)  # they are in the lane: half a minute, until when it waits
        await client.call("one.vm.deploy", vm, 0, True, -1, "")
        await client.call("one.vm.recover", vm, 3)
        await server.parts.settle()
        assert Lcm.BOOT in states
        assert Lcm.RUNNING not in states
        for one in before_it:
            one.cancel()
        await client.close()


def _request(server: OpenNebula) -> bytes:
    body = xmlrpc.client.dumps((server.session,), "one.system.version").encode()
    return f"POST /RPC2 HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def test_silent_connections_keep_everybody_else_waiting() -> None:
    async with running_server(1, settings=Settings(pace=True)) as server, asyncio.timeout(30):
        silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(pace.CONNECTIONS_MAX)]
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)  # the kernel took it: the backlog
        writer.write(_request(server))
        door = server._door
        assert door is not None
        while len(door.connections) < pace.CONNECTIONS_MAX:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(door.connections) == pace.CONNECTIONS_MAX
        assert server.store.requests == 0
        silent[3][1].close()
        answer = await reader.read()  # to the end: the connection carries one call
        assert b"7.4.0" in answer
        for _, other in [*silent, (reader, writer)]:
            other.close()


async def test_a_silent_connection_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "SILENT_S", 0.01)
    async with running_server(1, settings=Settings(pace=True)) as server, asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        assert await reader.read() == b""
        writer.close()


async def test_without_it_a_connection_carries_many_calls() -> None:
    async with running_server(1) as server, asyncio.timeout(30):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for _ in range(2):
            writer.write(_request(server))
            assert b"200 OK" in await reader.readline()
            while b"</methodResponse>" not in await reader.readline():
                pass
        writer.close()
