"""Odd values in every place where a person may put one: a sentence and a documented exit code, never a stack trace."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from phoenix.cli.__main__ import main
from phoenix.cli.errors import MEANINGS
from phoenix.local import stack_config, stack_ports, stack_settings
from phoenix.local.stack_layout import CONTENT, layout, write_private
from schemas.ids import is_department

TEXTS = {
    "empty": "",
    "space": " ",
    "NUL": "a\0b",
    "no UTF-8": "caf\udce9",
    "Greek": "Αθήνα",
    "bidi": "a\u202eb",
    "huge": "9" * 5000,
    "negative": "-1",
    "zero": "0",
    "NaN": "nan",
    "infinite": "inf",
    "CRLF": "x\r\ny",
    "path": "../../x",
    "foo": "foo",
}
BYTES = {
    "empty": b"",
    "NUL": b"\0\0",
    "no UTF-8": b"caf\xe9",
    "Greek": "Αθήνα\n".encode(),
    "CRLF": b"one\r\ntwo\r\n",
    "huge": b"x" * (1 << 20),
    "list": b"[1, 2]",
    "number": b"NaN",
    "object": b'{"a": {"b": []}, "users": 7}',
}
UP_OPTIONS = (
    "--hosts",
    "--cores",
    "--memory-mb",
    "--hypervisor",
    "--balancer",
    "--services",
    "--core-share",
    "--isolate",
)
COMMANDS = (["status"], ["queue"], ["down"], ["submit", "--wrap", "true"], ["cancel", "1"], ["hosts"], ["doctor"])
CODES = set(MEANINGS)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PHOENIX_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def ended(argv: list[str], capsys: pytest.CaptureFixture[str], never: str = "Traceback") -> int:
    """Its exit code; whatever it raises fails the test, as it would be a stack trace.  `never`: what it must not say."""
    try:
        code = main(argv)
    except SystemExit as end:  # argparse, of --help alone
        code = int(end.code or 0)
    said = capsys.readouterr()
    assert code in CODES, (argv, code)
    assert never not in said.out + said.err
    assert "a bug" not in said.out + said.err
    assert code == 0 or said.err.startswith("phoenix"), (argv, said.err)
    return code


@pytest.mark.parametrize("value", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("option", UP_OPTIONS)
def test_up_refuses_an_odd_option(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The last word keeps an option that is taken from starting a cloud."""
    assert ended(["up", f"{option}={value}", "--config", "nowhere.toml"], capsys, never="nowhere.toml") == 2
    assert not Path(".phoenix").exists()


@pytest.mark.parametrize(
    "value", [text for text in TEXTS.values() if text], ids=[name for name in TEXTS if TEXTS[name]]
)
def test_up_refuses_an_odd_file_name(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(["up", "--config", value], capsys) == 2


@pytest.mark.parametrize("value", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("variable", ["PHOENIX_DATA", "PHOENIX_URL", "PHOENIX_USER", "PHOENIX_DEPARTMENT"])
def test_an_odd_variable_is_told(
    variable: str, value: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("x" * 43)
    monkeypatch.setenv("PHOENIX_TOKEN_FILE", str(tmp_path / "token"))
    if "\0" in value:
        return  # no environment can hold it
    monkeypatch.setenv(variable, value)
    for command in COMMANDS:
        assert ended(command, capsys) != 0, command


@pytest.mark.parametrize("content", BYTES.values(), ids=BYTES)
def test_an_odd_token_file_is_told(
    content: bytes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_bytes(content)
    monkeypatch.setenv("PHOENIX_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("PHOENIX_TOKEN_FILE", str(tmp_path / "token"))
    assert ended(["queue"], capsys) in (3, 4)


def a_file(path: Path) -> None:
    path.write_text("x")


def a_directory(path: Path) -> None:
    path.mkdir()


def a_loop(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize("make", [a_file, a_directory, a_loop])
@pytest.mark.parametrize("place", ["PHOENIX_DATA", "PHOENIX_TOKEN_FILE", "--data"])
def test_what_is_no_file_or_no_directory_is_told(
    make: Callable[[Path], None],
    place: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    make(tmp_path / "it")
    for command in COMMANDS:
        words = list(command)
        if place == "--data":
            words[:0] = ["--data", str(tmp_path / "it")]
        else:
            monkeypatch.setenv(place, str(tmp_path / "it"))
            if place == "PHOENIX_TOKEN_FILE":
                monkeypatch.setenv("PHOENIX_URL", "http://127.0.0.1:1")
        assert ended(words, capsys) != 0, command


@pytest.mark.parametrize("content", BYTES.values(), ids=BYTES)
@pytest.mark.parametrize("name", ["cloud.json", "lock", "control.sock", "processes.json"])
def test_an_odd_file_of_a_running_cloud_is_told(
    name: str, content: bytes, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    where = layout(tmp_path / ".phoenix")
    where.make()
    (where.run / name).write_bytes(content)
    for command in COMMANDS:
        assert ended(command, capsys) != 0, command


@pytest.mark.parametrize("content", BYTES.values(), ids=BYTES)
def test_up_tells_what_is_wrong_with_an_odd_configuration(
    content: bytes, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "site.toml").write_bytes(content)
    assert ended(["up", "--config", "site.toml"], capsys) == 1


@pytest.mark.parametrize("content", BYTES.values(), ids=BYTES)
def test_damaged_settings_and_ports_count_as_none(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    assert stack_settings.load(tmp_path / "file") == stack_settings.Settings()
    ports = stack_ports.Ports(tmp_path / "file")
    assert 0 < ports.of("http") <= 65535
    ports.release()


@pytest.mark.parametrize("make", [a_file, a_loop])
def test_up_on_what_is_no_directory_is_told(
    make: Callable[[Path], None], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    make(tmp_path / "it")
    assert ended(["up", "--data", str(tmp_path / "it")], capsys) == 1
    assert ended(["up", "--data", str(tmp_path / "it" / "below")], capsys) == 1


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "ports.json").mkdir()
    with pytest.raises(IsADirectoryError):
        write_private(tmp_path / "ports.json", b"{}")
    assert [path.name for path in tmp_path.iterdir()] == ["ports.json"]
    for name in (".settings.json.17", ".ports.json.17", ".phoenix.toml.17"):  # killed while it wrote
        assert any(Path(name).match(pattern) for pattern in CONTENT)


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("/srv/tour/.phoenix", "phoenix"),
        ("/srv/My Cloud", "my-cloud"),
        ("/", "phoenix"),
        ("/x/Αθήνα", "phoenix"),
        ("/srv/42", "phoenix"),
        ("/srv/" + "long-" * 20, "long-long-long-long"),
    ],
)
def test_a_cloud_that_nobody_named_has_a_name_of_its_own(directory: str, name: str) -> None:
    assert stack_config.own_name(Path(directory), "3fa9c1") == f"{name}-3fa9c1"
    assert is_department(f"{name}-3fa9c1")
