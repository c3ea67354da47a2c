"""Programs of ours that tests start again and again, forked from a process that has their imports behind it.

    done = run(["queue", "--json"], stdin=None, env=env, timeout_s=60.0)     # as `subprocess.run` of `phoenix queue --json`
    process = start("services.executor", ["--config", file])                  # as `subprocess.Popen` of `python -m …`

A command that asks a question computes for 0.1 s, a service that starts for 0.4 s, nearly all of it imports; forked they take
a fifth of that.  Everything else is as after `python -m`: each is a process of its own with arguments, environment, directory,
streams and exit code of its own, and what it starts may live on (`up --detach`).  Who gives Python itself something else
(PYTHONPATH: a plug-in) has a process that is started.

The server begins with the first program of a test process and ends with it: it reads end of file then.  It imports what it is
asked for, so only the first of each kind takes longer.
"""

from __future__ import annotations

import gc
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

import orjson

ROOT: Final = Path(__file__).parents[2]
PHOENIX: Final = "phoenix.cli"
REQUEST_MAX_BYTES: Final = 1 << 17  # arguments and environment; a longer one is refused as it is sent
LINE: Final = b"%d\n"


def _python(env: Mapping[str, str]) -> dict[str, str]:
    """What Python reads as it starts."""
    return {name: value for name, value in env.items() if name.startswith(("PYTHON", "LC_", "LANG"))}


AT_FIRST: Final = _python(os.environ)
_server: socket.socket | None = None
_starting = threading.Lock()


class Forked:
    """One of them, with what tests use of `subprocess.Popen`."""

    def __init__(self, status: int) -> None:
        self._status = status
        self._code: int | None = None

    @cached_property
    def pid(self) -> int:
        return int(self._line())

    def poll(self) -> int | None:
        if self._code is None and self._ended_within(0.0):
            self._code = int(self._line())
            os.close(self._status)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None and not self._ended_within(timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended_within(self, timeout: float | None) -> bool:
        return self.pid > 0 and bool(select.select([self._status], [], [], timeout)[0])

    def _line(self) -> bytes:
        """It comes whole.  A server that has ended leaves none: ValueError of `int`."""
        found = b""
        while not found.endswith(b"\n") and (byte := os.read(self._status, 1)):
            found += byte
        return found


def start(
    module: str,
    words: list[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    streams: tuple[int, int, int] = (0, 1, 2),
) -> Forked:
    """`python -m MODULE WORDS…`.  `streams`: descriptors of its standard input, output and error."""
    request = {"module": module, "words": words, "env": dict(os.environ if env is None else env), "cwd": str(cwd)}
    status, told = os.pipe()
    socket.send_fds(_serving(), [orjson.dumps(request)], [*streams, told])
    os.close(told)
    return Forked(status)


def run(
    words: list[str], *, stdin: str | None, env: dict[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """`phoenix WORDS…`, to its end."""
    argv = [sys.executable, "-m", PHOENIX, *words]
    if _python(env) != AT_FIRST:
        return subprocess.run(
            argv, input=stdin, capture_output=True, text=True, timeout=timeout_s, env=env, check=False
        )
    given, out, err = (os.memfd_create(name) for name in ("stdin", "stdout", "stderr"))
    try:
        os.pwrite(given, (stdin or "").encode(), 0)
        process = start(PHOENIX, words, env=env, cwd=Path.cwd(), streams=(given, out, err))
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        return subprocess.CompletedProcess(argv, code, _content(out), _content(err))
    finally:
        for fd in (given, out, err):
            os.close(fd)


def _content(fd: int) -> str:
    return os.pread(fd, os.fstat(fd).st_size, 0).decode()


def _serving() -> socket.socket:
    global _server
    with _starting:
        if _server is None:
            _server, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with other:
                argv = [sys.executable, "-m", "tests.support.forked", str(other.fileno())]
                subprocess.Popen(argv, cwd=ROOT, env=AT_FIRST, stdin=subprocess.DEVNULL, pass_fds=[other.fileno()])
        return _server


# ------------------------------------------------------------------------------------------------------------- the server


def _serve(requests: socket.socket) -> None:
    """Two forks a program: the first one waits for the second, so that the server does not."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who presses Ctrl-C means the tests, and the programs that run
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the first ones are not waited for
    while True:
        data, fds, _, _ = socket.recv_fds(requests, REQUEST_MAX_BYTES, 4)
        if not data:
            return
        asked = orjson.loads(data)
        _imported(asked["module"], asked["words"])
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if (pid := os.fork()) == 0:
                requests.close()
                _become(fds, asked["words"], asked["env"], asked["cwd"])
                del sys.modules[f"{asked['module']}.__main__"]  # it runs under another name
                runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)
                return
            _wait(pid, fds[-1])
        for fd in fds:
            os.close(fd)


def _imported(module: str, words: list[str]) -> None:
    import_module(f"{module}.__main__")
    if module == PHOENIX:
        from phoenix.cli.commands import BY_NAME

        for name in words[:1]:
            if name in BY_NAME:
                import_module(f"{module}.{name}")
    gc.freeze()


def _become(fds: list[int], words: list[str], env: dict[str, str], cwd: str) -> None:
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    for fd in fds:
        os.close(fd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(cwd)
    sys.argv[1:] = words


def _wait(pid: int, told: int) -> NoReturn:
    try:
        os.write(told, LINE % pid)
        os.write(told, LINE % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    finally:
        os._exit(0)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
