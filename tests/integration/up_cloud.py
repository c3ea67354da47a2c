"""A cloud for tests: started by the command line in a directory of its own, and surely gone afterwards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
import xmlrpc.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from services.runtime.config.file import load
from tests.support import forked

DEADLINE_S = 60.0
ASK_S = 0.1
REST = 5.0  # times as long as the question took


class Cloud:
    """`phoenix` on one data directory."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def run(
        self, *words: str, stdin: str | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        given = self.environment() | (env or {})
        return forked.run([*words], stdin=stdin, env=given, timeout_s=DEADLINE_S + 20)

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PHOENIX_")}
        return kept | {"PHOENIX_DATA": str(self.data)}

    def ok(self, *words: str, env: dict[str, str] | None = None) -> str:
        done = self.run(*words, env=env)
        assert done.returncode == 0, f"phoenix {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.ok(*words, "--json"))

    def status(self) -> dict[str, Any]:
        """What `phoenix status --json` says, healthy or not."""
        return dict(json.loads(self.run("status", "--json").stdout))

    def pids(self) -> set[int]:
        """Every process whose arguments name this directory."""
        found = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    if str(self.data).encode() in (entry / "cmdline").read_bytes():
                        found.add(int(entry.name))
                except OSError:
                    continue
        return found

    def close(self) -> None:
        """Stop it however it is, and leave no process."""
        self.run("down", "--hard")
        until(lambda: not self.pids(), "a process is left")


def steer(cloud: Cloud, **fields: Any) -> dict[str, Any]:
    """Tell the dummy hypervisor of a cloud that was started with `--steering` what to do (`methods_steer`)."""
    config = load(cloud.data / "phoenix.toml").opennebula
    with xmlrpc.client.ServerProxy(config.endpoint) as server:
        answered: Any = server.phoenix.dummy.steer(config.auth_file.read_text().strip(), json.dumps(fields))
    ok, answer, *_ = answered
    assert ok, answer
    return dict(json.loads(answer))


@contextmanager
def signpost() -> Iterator[Path]:
    """A file, not yet there, where jobs may look: they continue until it is made.  A test's own directory is closed to them."""
    directory = Path(tempfile.mkdtemp(prefix="phoenix-signpost-"))
    directory.chmod(0o755)
    try:
        yield directory / "enough"
    finally:
        shutil.rmtree(directory)


def until(true: Callable[[], Any], otherwise: str, within_s: float = DEADLINE_S) -> Any:
    """Ask until it is true; AssertionError after the deadline.  A question is mostly a process, so a rest follows."""
    deadline = time.monotonic() + within_s
    while True:
        began = time.monotonic()
        if found := true():
            return found
        assert time.monotonic() < deadline, otherwise
        time.sleep(max(ASK_S, REST * (time.monotonic() - began)))
