"""What an embedded OpenNebula keeps: across a clean stop, across kill -9, and as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from phoenix.local.opennebula.__main__ import main
from phoenix.local.opennebula.states import HostState, Lcm, VmState
from phoenix.local.opennebula.testing import running_server
from tests.unit.test_opennebula_server import TEMPLATE, call, started, state

# A server of its own is up, or gone, within this even on a busy machine.
PROCESS_S = 60.0


async def test_restart_keeps_what_was_and_stops_what_ran(tmp_path: Path) -> None:
    async with running_server(hosts=2, data_dir=tmp_path) as server:
        ran, ended = await started(server), await started(server, 1)
        held = (await call(server, "one.vm.allocate", TEMPLATE, True))[1]
        await call(server, "one.vm.action", "terminate", ended)
        await call(server, "one.user.allocate", "ann", "pw", "", [])
        await call(server, "one.host.status", 1, 1)
        await server.parts.settle()
    async with running_server(hosts=3, data_dir=tmp_path) as server:
        assert state(server, ran) == (VmState.POWEROFF, Lcm.LCM_INIT)
        assert state(server, held) == (VmState.HOLD, Lcm.LCM_INIT)
        assert state(server, ended) == (VmState.DONE, Lcm.LCM_INIT)
        assert server.store.vm(ran).user_template.get("PHOENIX_ID") == "c/u/1/0"
        assert server.store.vm(ran).history[-1].retime
        assert [host.state for host in server.store.hosts.values()] == [
            HostState.MONITORED,
            HostState.DISABLED,
            HostState.MONITORED,
        ]
        assert (await call(server, "one.system.version", session="ann:pw"))[0]
        assert (await call(server, "one.vm.allocate", TEMPLATE, True))[1] > held
        assert (await call(server, "one.vm.action", "resume", ran))[0]
        await server.parts.settle()
        assert state(server, ran) == (VmState.ACTIVE, Lcm.RUNNING)


async def test_transient_states_after_a_restart(tmp_path: Path) -> None:
    held = {}
    async with running_server(data_dir=tmp_path, steering=True) as server:
        assert server.steering is not None
        for step, action in (
            ("transfer", ""),
            ("boot", ""),
            ("shutdown", "terminate"),
            ("clean", "terminate"),
            ("save", "suspend"),
        ):
            vm = (await call(server, "one.vm.allocate", TEMPLATE, True))[1]
            server.steering.add(step, vm_id=vm, hold=True)
            await call(server, "one.vm.deploy", vm, 0)
            await server.parts.settle()
            if action:
                await call(server, "one.vm.action", action, vm)
                await server.parts.settle()
            held[step] = vm
    async with running_server(data_dir=tmp_path) as server:
        assert {step: state(server, vm) for step, vm in held.items()} == {
            "transfer": (VmState.ACTIVE, Lcm.PROLOG_FAILURE),
            "boot": (VmState.POWEROFF, Lcm.LCM_INIT),
            "shutdown": (VmState.DONE, Lcm.LCM_INIT),
            "clean": (VmState.DONE, Lcm.LCM_INIT),
            "save": (VmState.POWEROFF, Lcm.LCM_INIT),
        }


async def test_a_cut_last_line_is_left_out(tmp_path: Path) -> None:
    async with running_server(data_dir=tmp_path) as server:
        first = await started(server)
    with (tmp_path / "vms.jsonl").open("ab") as file:
        file.write(b'{"id": 77, "name": "cu')
    async with running_server(data_dir=tmp_path) as server:
        assert state(server, first)[0] == VmState.POWEROFF
        assert 77 not in server.store.vms


async def test_damaged_pools_are_named(tmp_path: Path) -> None:
    (tmp_path / "pools.json").write_bytes(b"{")
    with pytest.raises(ValueError, match=r"pools\.json"):
        async with running_server(data_dir=tmp_path):
            pass


@contextmanager
def process(data: Path, auth: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The server as a process; gives its URL."""
    port_file = data.with_suffix(".port")
    port_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "phoenix.local.opennebula", "--port", "0", "--port-file", str(port_file)]
    command += ["--data", str(data), "--auth-file", str(auth), "--hosts", "2"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + PROCESS_S
        while not port_file.exists():
            assert running.poll() is None, running.stdout and running.stdout.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield running, f"http://127.0.0.1:{port_file.read_text().strip()}/RPC2"
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate()


def _ask(url: str, method: str, *arguments: Any) -> Any:
    answer: Any = getattr(xmlrpc.client.ServerProxy(url), method)("oneadmin:s3cret", *arguments)
    assert answer[0], answer
    return answer[1]


def test_kill_reuses_no_id_and_sigterm_is_clean(tmp_path: Path) -> None:
    auth, data = tmp_path / "auth", tmp_path / "data"
    auth.write_text("oneadmin:s3cret\n")
    auth.chmod(0o600)
    with process(data, auth) as (running, url):
        given = [_ask(url, "one.vm.allocate", TEMPLATE, True) for _ in range(3)]
        running.send_signal(signal.SIGKILL)
        running.wait(PROCESS_S)
    with process(data, auth) as (running, url):
        assert _ask(url, "one.vm.allocate", TEMPLATE, True) > max(given)
        assert "s3cret" not in Path(f"/proc/{running.pid}/cmdline").read_text()
        running.send_signal(signal.SIGTERM)
        output = running.communicate(timeout=PROCESS_S)[0]
    assert running.returncode == 0
    assert b"s3cret" not in output
    assert b"Traceback" not in output
    kept = b"".join(path.read_bytes() for path in data.iterdir())
    assert b"s3cret" not in kept


def test_auth_file_that_others_can_read_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    auth = tmp_path / "auth"
    auth.write_text("oneadmin:x")
    os.chmod(auth, 0o644)
    assert main(["--auth-file", str(auth), "--port", "0"]) == 2
    assert "chmod 600" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["--rule=no", '--rule={"step": "fly"}', "--delay=fly=1", "--delay=boot=x"])
def test_wrong_steering_is_named(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--port", "0", wrong]) == 2
    assert capsys.readouterr().err.startswith("phoenix opennebula: ")
