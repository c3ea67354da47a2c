"""Output that is saved to a file."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from phoenix.cli import output, waiting
from phoenix.cli.__main__ import main
from phoenix.cli.errors import CliError
from phoenix.cli.http import Response


def test_what_was_saved_is_not_replaced_by_nothing(tmp_path: Path) -> None:
    file = tmp_path / "phoenix-7.out"
    for data in (b"", b"hello", b"hello, again"):
        waiting._write(file, data, keeps=True)
        assert file.read_bytes() == data
    with pytest.raises(CliError, match=r"phoenix-7\.out is left as it is"):
        waiting._write(file, b"", keeps=True)
    assert file.read_bytes() == b"hello, again"
    waiting._write(file, b"", keeps=False)  # a job that was waited for, and printed nothing
    assert file.read_bytes() == b""


REMOVED = "removed 30d after the job's end, at 2026-02-03T04:05:06Z (store_keep_s), if there was any"


class Door:
    """Of a job of which nothing is there any more."""

    def fetch(self, _method: str, _path: str) -> Response:
        return Response(200, {"phoenix-offset": "0", "phoenix-end": "true", "phoenix-removed": REMOVED}, b"")

    def get(self, path: str) -> dict[str, Any]:
        return {"files": [], "removed": REMOVED} if path.endswith("/files") else {"job": {"job": "7", "units": []}}


@pytest.mark.parametrize(
    ("words", "out", "err"),
    [
        ([], "", f"phoenix: there is no output: {REMOVED}\n"),
        (["--follow"], "", f"phoenix: there is no output: {REMOVED}\n"),
        (["--save", "-"], "", f"phoenix: there is no output: {REMOVED}\n"),
        (["--files"], f"no files are kept: {REMOVED}\n", ""),
        (["--json"], {"job": "7", "stdout": "", "removed": REMOVED}, ""),
    ],
)
def test_what_the_cloud_has_removed_is_told(
    words: list[str], out: Any, err: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output.cloud, "find", lambda _args: SimpleNamespace(operator=Door))
    assert main(["output", "7", *words]) == 0
    said = capsys.readouterr()
    assert (json.loads(said.out) if isinstance(out, dict) else said.out, said.err) == (out, err)


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ({"state": "failed", "exit_code": 3}, "failed with exit code 3"),
        ({"state": "failed", "exit_code": 137, "attempts": [{"signal": 9}]}, "failed with signal 9 (SIGKILL)"),
        ({"state": "failed"}, "failed"),
        (
            {"state": "failed", "attempts": [{"why": {"code": "boot_timeout", "boot_timeout_s": 60.0}}]},
            "failed: its VMs did not start within 60 s",
        ),
        ({"state": "cancelled", "exit_code": 143}, "was cancelled"),
        ({"state": "cancelled", "attempts": [{"why": {"code": "cancelled"}}]}, "was cancelled"),
        ({"state": "timeout"}, "was ended at its time limit"),
        (
            {"state": "timeout", "attempts": [{"why": {"code": "walltime", "walltime_s": 60.0}}]},
            "was ended: it reached its time limit of 1m00s",
        ),
        ({"state": "killed"}, "was killed"),
        ({"state": "ended_early", "exit_code": 0}, "has ended early"),
        (
            {"state": "failed", "exit_code": 2, "counts": {"failed": 2, "ended_early": 1}},
            "has ended: 1 ended early, 2 failed",
        ),
    ],
)
def test_how_a_job_ended_has_its_code_its_signal_or_the_reason(job: dict[str, Any], said: str) -> None:
    assert waiting.how_it_ended(job) == said
