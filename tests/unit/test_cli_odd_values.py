"""Odd values in every place where a person may put one: a sentence and a documented exit code, never a stack trace."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from phoenix.cli import checkpoint, launch
from phoenix.cli.__main__ import main
from phoenix.cli.commands import VARIABLES
from phoenix.cli.errors import MEANINGS
from phoenix.client import retries
from phoenix.local import stack_config, stack_ports, stack_settings
from phoenix.local.stack_layout import CONTENT, layout, write_private
from schemas.ids import is_department
from tests.support.odd import BYTES, NO_WORDS, TEXTS

ROOT = Path(__file__).parents[2]

COMMANDS = (["status"], ["queue"], ["down"], ["submit", "--wrap", "true"], ["cancel", "1"], ["hosts"], ["doctor"])
CODES = set(MEANINGS)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PHOENIX_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(retries, "PAUSES_S", (0.01,))  # for a door that is never there


def ended(argv: list[str], capsys: pytest.CaptureFixture[str]) -> int:
    """Its exit code; whatever it raises fails the test, as it would be a stack trace."""
    try:
        code = main(argv)
    except SystemExit as end:  # argparse, of --help alone
        code = int(end.code or 0)
    said = capsys.readouterr()
    assert code in CODES, (argv, code)
    assert not NO_WORDS.search(said.err), (argv, said.err)
    assert "a bug" not in said.out + said.err
    assert code == 0 or said.err.startswith("phoenix"), (argv, said.err)
    return code


@pytest.mark.parametrize("value", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("variable", VARIABLES)
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


def test_every_variable_that_is_read_is_among_them() -> None:
    """In a job's script other variables count: `test_in_a_job_odd_variables_are_told`."""
    of_jobs = {ROOT / "phoenix" / "cli" / name for name in ("launch.py", "checkpoint.py")}
    read = {
        name
        for package in ("cli", "client", "simulate", "load", "whatif", "doctor")
        for file in sorted({*(ROOT / "phoenix" / package).rglob("*.py")} - of_jobs)
        for name in re.findall(r"""environ(?:\.get\(|\[)["'](\w+)""", file.read_text())
    }
    assert read == set(VARIABLES)


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


FILES = (  # what a file of input is read by
    ["config", "check", "FILE"],
    ["doctor", "--config", "FILE"],
    ["whatif", "--config", "FILE", "--since", "1h"],
    ["submit", "FILE"],
    ["lease", "create", "FILE", "--immediate", "--duration", "1h"],
    ["bill", "--prices", "FILE"],
    ["load", "http://127.0.0.1:1", "--peak", "1", "--for", "1s", "--shape", "FILE"],
    ["simulate", "FILE"],
    ["simulate", "intergrid", "--log", "FILE"],
    ["simulate", "policies", "--jobs", "FILE"],
    ["simulate", "phoenix-cloud", "--jobs", "FILE"],
    ["simulate", "phoenix-autoscale", "--web", "FILE"],
)


@pytest.mark.parametrize("words", FILES, ids=" ".join)
def test_an_odd_file_of_input_is_told(words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    argv = [str(odd) if word == "FILE" else word for word in words]
    for name, content in BYTES.items():
        odd.write_bytes(content)
        assert ended(argv, capsys) != 0, name
    for make in (a_directory, a_loop):
        odd.unlink()
        make(odd)
        assert ended(argv, capsys) != 0, make
        if odd.is_dir():
            odd.rmdir()
            odd.touch()


@pytest.fixture
def in_a_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """`launch` and `checkpoint` run where no main program has looked at what they are given.  The token's file."""
    (tmp_path / "token").write_text("x" * 43)
    for name, value in {"URL": "http://127.0.0.1:1", "ID": "c/hpc/1", "TOKEN_FILE": str(tmp_path / "token")}.items():
        monkeypatch.setenv(f"PHOENIX_{name}", value)
    return tmp_path / "token"


def refusal(act: Callable[[], object]) -> str:
    """What it says, if it is refused; whatever else it raises fails the test."""
    try:
        act()
    except launch.LaunchError as error:
        text = str(error)
    else:
        text = ""
    assert not NO_WORDS.search(text)
    return text


@pytest.mark.parametrize("variable", ["URL", "ID", "TOKEN_FILE", "NTASKS", "NNODES"])
def test_in_a_job_odd_variables_are_told(variable: str, monkeypatch: pytest.MonkeyPatch, in_a_job: Path) -> None:
    for name, value in TEXTS.items():
        if name != "NUL":  # no environment can hold it
            monkeypatch.setenv(f"PHOENIX_{variable}", value)
            assert bool(refusal(lambda: launch.channel("launch"))) or variable in ("ID", "NTASKS", "NNODES"), name
            refusal(lambda: launch.parse(["true"]))


@pytest.mark.parametrize("content", BYTES.values(), ids=BYTES)
def test_in_a_job_an_odd_token_file_is_told(content: bytes, in_a_job: Path) -> None:
    in_a_job.write_bytes(content)
    told = refusal(lambda: launch.channel("launch"))
    assert told == ("" if content == BYTES["number"] else f"{in_a_job} holds no token")


@pytest.mark.parametrize("value", TEXTS.values(), ids=TEXTS)
def test_in_a_job_odd_words_are_told(value: str) -> None:
    for words in (["-n", value], [f"-n{value}"], [f"--ntasks={value}"]):
        refusal(lambda words=words: launch.parse([*words, "true"]))  # type: ignore[misc]
    for option in ("--percent", "--progress"):
        refusal(lambda option=option: checkpoint.parse([option, value]))  # type: ignore[misc]
