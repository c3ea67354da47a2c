"""The agent's configuration file: what is wrong is said with file and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from phoenix.haproxy.settings import SettingsError, load

ROOT = Path(__file__).resolve().parents[2]


def written(directory: Path, text: str) -> Path:
    file = directory / "agent.toml"
    file.write_text(text)
    return file


def test_the_sites_file_has_every_setting_and_its_default(tmp_path: Path) -> None:
    site = load(ROOT / "deploy" / "haproxy" / "phoenix-haproxy.toml")
    least = load(written(tmp_path, 'department = "web"\nuser = "web-lb"\nnkey = "/etc/phoenix/web-lb.nk"\n'))
    assert site == least
    text = (ROOT / "deploy" / "haproxy" / "phoenix-haproxy.toml").read_text()
    named = {line.partition(" = ")[0].removeprefix("# ") for line in text.splitlines() if " = " in line}
    assert named == set(site.__struct_fields__)


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    found = load(written(tmp_path, 'department = "web"\nuser = "lb"\nsocket = "run/s"\nnkey = "lb.nk"\n'))
    assert (found.socket, found.nkey) == (str(tmp_path / "run/s"), str(tmp_path / "lb.nk"))
    assert found.account().inbox_prefix == "_INBOX_web.lb"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("", "missing required field `user`"),
        ('user = "lb"\nlook_interval = 1.0', "unknown field `look_interval`"),
        ('user = "lb"\nlook_interval_s = "often"', "`$.look_interval_s`"),
        ('user = "lb"\nlook_interval_s = 0.01', "look_interval_s is 0.01; it must be from 0.05 to 10 seconds"),
        ('user = "lb"\nsignal_interval_s = nan', "signal_interval_s is nan"),
        ('user = "lb"\nold_process_s = -1.0', "old_process_s is -1"),
        ('user = "lb"\nbackend = "web; shutdown"', "backend is 'web; shutdown'"),
        ('user = "lb"\nslots = ""', "slots is ''"),
        ('user = "lb"\nmetrics = "9131"', "it must be HOST:PORT"),
        ("user = lb", "Invalid value"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, line: str, what: str) -> None:
    file = written(tmp_path, f'department = "web"\n{line}\n')
    with pytest.raises(SettingsError) as error:
        load(file)
    assert str(error.value).startswith(str(file))
    assert what in str(error.value)


def test_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load(tmp_path / "missing.toml")
