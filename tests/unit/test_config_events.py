"""[opennebula] events: an address, `off`, or nothing."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from phoenix.local import stack, stack_config
from phoenix.local.opennebula.settings import Settings as OneSettings
from phoenix.local.opennebula.testing import running_server
from phoenix.local.stack_layout import layout
from phoenix.local.stack_ports import Ports
from phoenix.local.stack_settings import Settings
from services.runtime.config.file import ConfigError, loads

PLAIN = '[cloud]\nname = "c"\n[[department]]\nname = "hpc"\nkind = "batch"\n'


@pytest.mark.parametrize(
    ("events", "listens"),
    [
        ("", False),
        ("off", False),
        ("tcp://127.0.0.1:2101", True),
        ("ipc:///run/x", True),
        (f"ipc:///{'x' * 106}", True),
        ("tcp://[::1]:2101", True),
    ],
)
def test_what_may_be_written(events: str, listens: bool) -> None:
    config = loads(f'{PLAIN}[opennebula]\nevents = "{events}"\n', "phoenix.toml", Path())
    assert config.opennebula.listens is listens


@pytest.mark.parametrize(
    "events",
    [
        "127.0.0.1:2101",
        "http://127.0.0.1:2101",
        "tcp://127.0.0.1",
        "tcp://a:1/x",
        "tcp://:2101",
        "ipc://x",
        "tcp://u:p@a:1",
        "tcp://*:2101",
        "tcp://-:2101",
        "tcp://a b:2101",
        f"ipc:///{'x' * 107}",
    ],
)
def test_what_may_not(events: str) -> None:
    with pytest.raises(ConfigError) as error:
        loads(f'{PLAIN}[opennebula]\nevents = "{events}"\n', "phoenix.toml", Path())
    assert "events" in str(error.value)
    assert "should" in str(error.value)


@pytest.mark.parametrize(
    ("text", "external", "expected"),
    [
        ("", False, "ipc:///"),
        ('events = "off"', False, "off"),
        ('events = "tcp://127.0.0.1:2101"', False, "tcp://127.0.0.1:2101"),
        ('endpoint = "http://one:2633/RPC2"', True, ""),
    ],
)
def test_an_embedded_opennebula_publishes_unless_told_not_to(
    tmp_path: Path, text: str, external: bool, expected: str
) -> None:
    place = layout(tmp_path)
    place.make()
    config = stack_config.fill(
        loads(f"{PLAIN}[opennebula]\n{text}\n", "phoenix.toml", tmp_path),
        place,
        Ports(tmp_path / "ports.json"),
        external=external,
    )
    found = config.opennebula.events
    assert found.startswith(expected) if expected else not found
    if not external:
        argv = stack.opennebula(config, place, Settings()).argv
        assert ("--events" in argv) is config.opennebula.listens


def test_where_the_path_of_a_socket_file_would_be_too_long_there_are_none(tmp_path: Path) -> None:
    place = layout(tmp_path / ("d" * 120))
    place.make()
    config = stack_config.fill(loads(PLAIN, "phoenix.toml", tmp_path), place, Ports(tmp_path / "ports.json"))
    assert not config.opennebula.listens


async def test_only_its_owner_may_listen_to_an_embedded_opennebula(tmp_path: Path) -> None:
    path = tmp_path / "events.sock"
    async with running_server(1, settings=OneSettings(events=f"ipc://{path}")) as server:
        assert server.events.enabled
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.touch()  # the file of one that was killed
    async with running_server(1, settings=OneSettings(events=f"ipc://{path}")) as server:
        assert server.events.enabled
