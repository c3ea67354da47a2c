"""A command of tests.support.forked is as one that was started: its own words, environment, directory, streams, exit code."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support import forked

Silent = tuple[socket.socket, dict[str, str]]
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
    done = forked.run(words, stdin="no job\n", env=env, timeout_s=60.0)
    assert (done.returncode, done.stdout, done.stderr) == (started.returncode, started.stdout, started.stderr)


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Silent]:
    """A door that does not answer, and the environment of who asks there."""
    (tmp_path / "token").write_text("phoenix_u_0\n")
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.settimeout(60.0)
        url = f"http://127.0.0.1:{door.getsockname()[1]}"
        yield door, dict(os.environ) | {"PHOENIX_URL": url, "PHOENIX_TOKEN_FILE": str(tmp_path / "token")}


def test_who_takes_too_long_is_killed_and_others_do_not_wait_for_it(silent: Silent) -> None:
    door, env = silent
    with ThreadPoolExecutor(1) as beside:
        late = beside.submit(forked.run, ["queue"], stdin=None, env=env, timeout_s=3.0)
        asked, _ = door.accept()
        with asked:
            assert forked.run(["version"], stdin=None, env=env, timeout_s=60.0).returncode == 0
            with pytest.raises(subprocess.TimeoutExpired):
                late.result()
            while asked.recv(4096):  # its end closes the connection
                pass


def test_it_can_be_stopped_and_killed_as_any_process(silent: Silent) -> None:
    door, env = silent
    process = forked.start("phoenix.cli", ["queue"], env=env)
    asked, _ = door.accept()
    with asked:
        process.send_signal(signal.SIGSTOP)
        assert process.poll() is None
        process.kill()
        assert (process.wait(60.0), process.poll()) == (-signal.SIGKILL, -signal.SIGKILL)
        process.send_signal(signal.SIGKILL)  # it is gone: as of `Popen`, nothing


def test_who_gives_python_a_path_of_its_own_has_it(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('from the path')\n")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    done = forked.run(["version"], stdin=None, env=dict(os.environ) | {"PYTHONPATH": path}, timeout_s=60.0)
    assert done.stdout.startswith("from the path\nphoenix ")
