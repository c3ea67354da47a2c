"""HAProxy by itself, without broker and load: its configuration, and what it makes of commands and checks."""

from __future__ import annotations

import asyncio
import getpass
from pathlib import Path
from typing import Any

import pytest

from phoenix.balance.feed import Listed
from phoenix.haproxy import check
from phoenix.haproxy.configuration import ConfigurationError, Front, render, site, wait_lua
from phoenix.haproxy.keeper import Keeper
from phoenix.haproxy.metrics import Counts
from phoenix.haproxy.settings import Settings
from phoenix.haproxy.slots import Slot
from phoenix.haproxy.table import Table
from tests.support.haproxy import Haproxy, checked, front
from tests.support.ports import free_port
from tests.support.until import until

ROOT = Path(__file__).resolve().parents[2]


def listed(port: int, *, unit: str = "web.1", health_path: str = "/healthz", **more: Any) -> Listed:
    address = f"127.0.0.1:{port}"
    return Listed(unit=unit, attempt=1, state="running", address=address, health_path=health_path, **more)


async def test_a_socket_that_may_not_command_is_told_and_nothing_else_is_made_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    haproxy = Haproxy(front(tmp_path), tmp_path)
    await haproxy.start(level="operator")
    try:
        settings = Settings(
            department="web",
            user="lb",
            socket=str(haproxy.front.socket),
            health_map=str(haproxy.front.health_map),
            nats_url="nats://127.0.0.1:1",
        )
        assert await check.run(settings) == 2
        assert "has level operator: the agent needs `level admin` in haproxy.cfg" in capsys.readouterr().out
        table, counts = Table(), Counts()
        table.audited([listed(8001)], asked_at=0.0, now=0.0)
        seen = await Keeper(haproxy.api, table, counts).look()
        assert seen is not None
        assert [slot.ordered for slot in seen.reading.slots] == ["maint"] * 6
        assert counts.commands == {("SetPath", "done"): 1, ("SetAddress", "refused"): 1}
    finally:
        await haproxy.kill()


async def test_a_check_that_began_for_the_last_instance_does_not_pass_for_the_next(tmp_path: Path) -> None:
    asked, slow = asyncio.Event(), False

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await asyncio.sleep(0.5 if slow else 0.0)  # longer than the slot needs to change hands
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    haproxy = Haproxy(front(tmp_path, slots=1), tmp_path)
    await haproxy.start()
    table = Table()
    keeper = Keeper(haproxy.api, table, Counts())

    async def slot() -> Slot:
        seen = await keeper.look()
        assert seen is not None
        return seen.reading.slots[0]

    async def serves() -> bool:
        return (await slot()).serves

    async def is_refused() -> bool:
        found = await slot()
        assert not (found.address == away and found.serves)
        return found.address == away and found.why.startswith("L4CON")

    try:
        table.audited([listed(server.sockets[0].getsockname()[1])], asked_at=0.0, now=0.0)
        await until(serves)
        successor = await Keeper(haproxy.api, Table(), Counts()).look()  # one who has not heard of any instance yet
        assert successor is not None
        assert [slot_.serves for slot_ in successor.reading.slots] == [True]
        slow = True
        asked.clear()
        await asked.wait()
        away = ("127.0.0.1", free_port())
        table.audited([listed(away[1], unit="web.2")], asked_at=2.0, now=2.0)
        await until(is_refused)
    finally:
        await haproxy.kill()
        server.close()


async def test_the_sites_configuration_is_the_rendered_one_and_haproxy_takes_it(tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "haproxy" / "haproxy.cfg").read_text()
    assert text == render(site()), "run python -m phoenix.haproxy.configuration > deploy/haproxy/haproxy.cfg"
    assert (ROOT / "deploy" / "haproxy" / "phoenix-wait.lua").read_text() == wait_lua()
    (tmp_path / "wait.lua").write_text(wait_lua())
    (tmp_path / "state").write_text("1\n")
    (tmp_path / "map").touch()
    for before, after in (
        ("/etc/haproxy/phoenix-wait.lua", str(tmp_path / "wait.lua")),
        ("/run/haproxy/phoenix.state", str(tmp_path / "state")),
        ("/var/lib/haproxy/phoenix-health.map", str(tmp_path / "map")),
        ("user haproxy", f"user {getpass.getuser()}"),
        (" group haproxy", ""),
        ("    chroot /var/lib/haproxy\n", ""),
    ):
        assert before in text
        text = text.replace(before, after)
    (tmp_path / "haproxy.cfg").write_text(text)
    assert await checked(tmp_path / "haproxy.cfg") == (0, "")


@pytest.mark.parametrize(
    "wrong",
    [
        {"backend": "web\n    stats socket /tmp/open"},
        {"health_map": Path("/run/a b")},
        {"health_map": Path("/run/a,b")},
        {"listen": "80"},
        {"slots": 0},
    ],
)
async def test_nothing_is_rendered_that_would_be_another_directive(tmp_path: Path, wrong: dict[str, Any]) -> None:
    paths = {name: tmp_path / name for name in ("socket", "state_file", "lua_file", "health_map")}
    values: dict[str, Any] = {"department": "web", "listen": ":80", **paths, **wrong}
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        render(Front(**values))
