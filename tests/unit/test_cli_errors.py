"""Whatever is mistyped gets a sentence, a close match and exit code 2; a cloud that is not there exit code 3; never a trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from phoenix.cli.__main__ import main
from phoenix.cli.commands import BY_NAME, COMMANDS

MISTYPED = [
    (["quue"], "did you mean 'queue'?"),
    (["sbatch", "job.sh"], "there is no command 'sbatch'"),
    (["queue", "--jsn"], "did you mean --json?"),
    (["queue", "--state", "runing"], "did you mean 'running'?"),
    (["show", "seventeen"], "'seventeen' is no job"),
    (["show"], "JOB"),
    (["cancel", "17", "0"], "'0' is no job"),
    (["hosts", "cordn", "h1"], "did you mean 'cordon'?"),
    (["hosts", "cordon"], "which host"),
    (["hosts", "cordon", "h1"], "give a reason"),
    (["scale", "web"], "give one of"),
    (["scale", "web", "x"], "'x' is not a number"),
    (["scale", "web", "3", "--auto"], "--auto goes alone"),
    (["scale", "web", "3", "--for", "soon"], "is no time"),
    (["signal", "web", "90"], "is no utilisation"),
    (["signal", "web", "1e308"], "'1e308' is no utilisation: write 0.9 for 90 %; at most 10"),
    (["signal", "web", "--requests", "1e308"], "'1e308' is too large: a number below 1e+18 is wanted"),
    (["submit", "--mem", "999999999G", "--wrap", "true"], "is too much memory: at most 64T"),
    (["usage", "--since", "99999999d"], "--since: '99999999d' is too long: at most 100000d"),
    (["output", "17", "--attempt", "x"], "'x' is not a number above 0"),
    (["signal", "web"], "give one of VALUE, --requests or --claim"),
    (["signal", "web", "0.9", "--claim", "5"], "give one of VALUE, --requests or --claim"),
    (["signal", "web", "--claim", "5", "--target", "9"], "--target goes with --requests"),
    (["signal", "web", "--claim", "many"], "'many' is not a number"),
    (["signal", "web", "0.9", "--for", "soon"], "is no time"),
    (["submit"], "submit what?"),
    (["submit", "/nowhere/job.sh"], "No such file"),
    (["submit", "--wrap", "x", "job.sh"], "not both"),
    (["submit", "--wrap", " "], "--wrap has no command"),
    (["submit", "-n", "0", "--wrap", "x"], "not a number above 0"),
    (["config", "aply", "x.toml"], "did you mean 'apply'?"),
    (["config", "check", "/nowhere.toml"], "there is no such file"),
    (["bill", "--since", "1969-01-01", "--until", "1969-01-05"], "is too long ago, or too long"),
    (["bill", "--since", "2000-01-01"], "is too long ago, or too long"),
    (["bill", "--since", "2999-01-01"], "--since 2999-01-01 is to come"),
    (["policies", "shwo", "easy"], "did you mean 'show'?"),
    (["policies", "show"], "which policy?"),
    (["policies", "check", "fcfs", "--examples", "0"], "not a number above 0"),
    (["policies", "show", "eazy"], "did you mean 'easy'?"),
    (["policies", "--kind", "orders"], "did you mean 'order'?"),
    (["completion", "tcsh"], "not a shell known here"),
    (["up", "--hypervisor", "kvm"], "'kvm' is not one of process, dummy"),
    (["up", "--hosts", "none"], "not a number above 0"),
]


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory without a cloud, and no environment that names one."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("PHOENIX_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(("argv", "told"), MISTYPED)
def test_mistyped(argv: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err


def test_where_a_directory_is_named_the_file_in_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file, told in (("", "there is no .toml in it"), ("site.toml", "site.toml"), ("phoenix.toml", "phoenix.toml")):
        (tmp_path / file).touch()
        assert main(["config", "check", str(tmp_path)]) == 2
        assert capsys.readouterr().err.rstrip().endswith(told)


@pytest.mark.parametrize(
    "argv", [["queue"], ["show", "1"], ["events"], ["submit", "--wrap", "true"], ["status"], ["down"], ["cancel", "1"]]
)
def test_no_cloud_there(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 3
    assert "phoenix: " in capsys.readouterr().err


def test_status_as_json_says_that_nothing_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--json"]) == 3
    assert '"running": false' in capsys.readouterr().out


def test_a_remote_cloud_needs_a_token(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PHOENIX_URL", "http://127.0.0.1:1")
    assert main(["queue"]) == 4
    assert "PHOENIX_TOKEN_FILE" in capsys.readouterr().err


def test_a_remote_cloud_that_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("very-secret\n")
    monkeypatch.setenv("PHOENIX_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("PHOENIX_TOKEN_FILE", str(tmp_path / "token"))
    assert main(["queue"]) == 3
    assert main(["queue", "--as", "alice"]) == 2
    assert "very-secret" not in capsys.readouterr().err


def test_help_names_every_command_and_every_command_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    for command in COMMANDS:
        assert command.name in overview
        if command.name in ("launch", "checkpoint"):  # inside a job: they parse for themselves
            continue
        with pytest.raises(SystemExit) as ended:
            main([command.name, "--help"])
        assert ended.value.code == 0
        assert f"phoenix {command.name}" in capsys.readouterr().out.split("examples:")[1]


def test_options_of_every_command_may_stand_before_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--data", str(tmp_path / "elsewhere"), "queue"]) == 3
    assert "elsewhere" in capsys.readouterr().err


def test_reads_import_nothing_heavy() -> None:
    """`phoenix queue` has to start fast: what it imports is what costs."""
    code = (
        "import sys\nfrom phoenix.cli.__main__ import main\nmain(['queue'])\n"
        "print([m for m in ('aiohttp', 'nats', 'rich', 'asyncio', 'http.client', 'msgspec', 'ssl') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == "[]"


def test_every_read_takes_json() -> None:
    assert {name for name, command in BY_NAME.items() if not command.reads} == {
        "up",
        "down",
        "snapshots",
        "top",
        "launch",
        "checkpoint",
        "completion",
    }


def test_a_cloud_without_users_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").mkdir()
    about = {"users": [], "http_url": "http://127.0.0.1:1", "departments": {"hpc": "batch"}}
    (tmp_path / "run" / "cloud.json").write_text(json.dumps(about))
    assert main(["--data", str(tmp_path), "queue"]) == 4
    assert "this cloud has no users" in capsys.readouterr().err
