"""A command of tests.support.commands is as one that was started: its own words, environment, directory, streams, exit code."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import commands

CASES = (
    ["version"],
    ["queue"],
    ["queue", "--last"],
    ["no-such-command"],
    ["simulate", "--jobs-csv", "-", "--hosts", "1"],
    ["config", "check", "here.toml"],
)


@pytest.mark.parametrize("words", CASES, ids=" ".join)
def test_it_says_and_ends_as_one_that_was_started(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.toml").write_text("[[department]\n")
    env = dict(os.environ) | {"PHOENIX_DATA": str(tmp_path / "none"), "TZ": "Asia/Tokyo"}
    argv = [sys.executable, "-m", "phoenix.cli", *words]
    started = subprocess.run(argv, capture_output=True, text=True, env=env, input="no job\n", check=False)
    forked = commands.run(words, stdin="no job\n", env=env, timeout_s=60.0)
    assert (forked.returncode, forked.stdout, forked.stderr) == (started.returncode, started.stdout, started.stderr)


def test_who_takes_too_long_is_killed_and_others_do_not_wait_for_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("phoenix_u_0\n")
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as beside:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        env = dict(os.environ) | {"PHOENIX_URL": url, "PHOENIX_TOKEN_FILE": str(tmp_path / "token")}
        late = beside.submit(commands.run, ["queue"], stdin=None, env=env, timeout_s=3.0)
        asked, _ = silent.accept()
        with asked:
            assert commands.run(["version"], stdin=None, env=env, timeout_s=60.0).returncode == 0
            with pytest.raises(subprocess.TimeoutExpired):
                late.result()
            while asked.recv(4096):  # its end closes the connection
                pass


def test_who_gives_python_a_path_of_its_own_has_it(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('from the path')\n")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    done = commands.run(["version"], stdin=None, env=dict(os.environ) | {"PYTHONPATH": path}, timeout_s=60.0)
    assert done.stdout.startswith("from the path\nphoenix ")
