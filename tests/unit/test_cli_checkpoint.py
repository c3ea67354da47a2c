"""What `phoenix checkpoint` and `--signal` understand, without a job around them."""

from __future__ import annotations

from pathlib import Path

import pytest

from phoenix.cli import checkpoint, units
from phoenix.cli.launch import LaunchError
from tests.unit.test_cli_sbatch import request


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = tmp_path / "room" / "work"
    work.mkdir(parents=True)
    monkeypatch.setenv("PHOENIX_ROOM", str(tmp_path / "room"))
    monkeypatch.chdir(work)
    return work


@pytest.mark.parametrize(
    ("words", "names"), [(["a"], ["a"]), (["./a", "a", "b/./c"], ["a", "b/c"]), (["--", "-x"], ["-x"]), ([], [])]
)
def test_names(room: Path, words: list[str], names: list[str]) -> None:
    found = checkpoint.parse(words)
    assert found is not None
    assert found[0] == names


def test_names_are_of_the_jobs_directory_wherever_it_is_called(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (room / "sub").mkdir()
    monkeypatch.chdir(room / "sub")
    assert checkpoint.relative("a") == "sub/a"
    assert checkpoint.relative(str(room / "a")) == "a"
    monkeypatch.chdir("/")
    with pytest.raises(LaunchError, match="call `phoenix checkpoint` without files"):
        checkpoint.relative("a")
    with pytest.raises(LaunchError, match="not below"):
        checkpoint.relative(str(room / ".." / "token"))
    for name in ("a\nb", "a\x1b", "\x7f"):
        with pytest.raises(LaunchError, match="its name has control characters"):
            checkpoint.relative(str(room / name))


def test_outside_of_a_job_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("PHOENIX_ROOM", "PHOENIX_URL", "PHOENIX_ID", "PHOENIX_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert checkpoint.main([]) == 2
    assert checkpoint.main(["a"]) == 2
    assert "works only inside a job's script" in capsys.readouterr().err


def test_what_is_said_beside_the_files(room: Path) -> None:
    found = checkpoint.parse(["--percent", "40%", "--progress=step 4", "a"])
    assert found is not None
    assert {name: found[1][name] for name in ("percent", "progress")} == {"percent": 40.0, "progress": "step 4"}
    for wrong in (["--percent", "x"], ["--percent=-1"], ["--progress", "a\nb"], ["--progress", "x" * 201], ["-x"]):
        with pytest.raises(LaunchError):
            checkpoint.parse(wrong)


def test_a_door_that_is_not_there_is_given_up(
    room: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (room.parent / "token").write_text("a-secret")
    monkeypatch.setenv("PHOENIX_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("PHOENIX_ID", "cloud/1/1/0")
    monkeypatch.setenv("PHOENIX_TOKEN_FILE", str(room.parent / "token"))
    monkeypatch.setattr(checkpoint, "DEADLINE_S", 0.02)
    assert checkpoint.main([]) == checkpoint.UNREACHABLE
    said = capsys.readouterr().err
    assert "does not answer" in said
    assert "a-secret" not in said


@pytest.mark.parametrize(
    ("text", "number", "before_s", "script"),
    [
        ("USR1", 10, 60, False),
        ("SIGUSR1", 10, 60, False),
        ("usr2@120", 12, 120, False),
        ("B:TERM@5", 15, 5, True),
        ("10", 10, 60, False),
        ("B:10@0", 10, 0, True),
    ],
)
def test_signals(text: str, number: int, before_s: float, script: bool) -> None:
    assert units.parse_signal(text) == {"number": number, "before_s": before_s, "script": script}


@pytest.mark.parametrize(
    "text", ["", "B:", "@60", "NONE", "0", "65", "USR1@", "USR1@x", "USR1@70000", "X:USR1", "USR1 60"]
)
def test_what_is_no_signal_is_said_with_what_would_be_right(text: str) -> None:
    with pytest.raises(ValueError, match="write USR1"):
        units.parse_signal(text)


def test_a_scripts_line_and_the_command_line() -> None:
    script = "#!/bin/sh\n#SBATCH --signal=B:USR1@90\n"
    assert request(script)["signal"] == {"number": 10, "before_s": 90.0, "script": True}
    assert request(script, "--signal", "INT")["signal"] == {"number": 2, "before_s": 60.0, "script": False}
    assert request("#!/bin/sh\n")["signal"] is None
