"""`phoenix …` for tests that run many: each is a process of its own, forked from one that has the imports behind it.

A command that asks a question computes for 0.2 s, nearly all of it imports; forked it takes a tenth.  Everything else is as
after `python -m phoenix.cli`: its arguments, environment, directory, streams and exit code are its own, and it may live in
the background (`up --detach`).  Who gives Python itself something else (PYTHONPATH: a plug-in) has a process that is started.

The server begins with the first command of a test process and ends with it: `_serve` reads end of file then.  It imports what
it is asked for, so only the first of each kind takes longer.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

import orjson

ROOT: Final = Path(__file__).parents[2]
REQUEST_MAX_BYTES: Final = 1 << 17  # arguments and environment; a longer one is refused as it is sent
CODE: Final = b"%d\n"


def _python(env: Mapping[str, str]) -> dict[str, str]:
    """What Python reads as it starts."""
    return {name: value for name, value in env.items() if name.startswith(("PYTHON", "LC_", "LANG"))}


AT_FIRST: Final = _python(os.environ)
_server: socket.socket | None = None
_starting = threading.Lock()


def run(
    words: list[str], *, stdin: str | None, env: dict[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` of `phoenix` with those arguments."""
    if _python(env) != AT_FIRST:
        argv = [sys.executable, "-m", "phoenix.cli", *words]
        return subprocess.run(
            argv, input=stdin, capture_output=True, text=True, timeout=timeout_s, env=env, check=False
        )
    streams = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
    status, told = os.pipe()
    try:
        os.pwrite(streams[0], (stdin or "").encode(), 0)
        request = orjson.dumps({"words": words, "env": env, "cwd": os.getcwd()})
        socket.send_fds(_serving(), [request], [*streams, told])
        os.close(told)
        told = -1
        pid = int(_line(status))
        if not select.select([status], [], [], timeout_s)[0]:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(["phoenix", *words], timeout_s, *map(_content, streams[1:]))
        return subprocess.CompletedProcess(["phoenix", *words], int(_line(status)), *map(_content, streams[1:]))
    finally:
        for fd in (*streams, status, told):
            if fd >= 0:
                os.close(fd)


def _line(status: int) -> bytes:
    """The server writes a short one at once.  A server that has ended leaves none: ValueError of `int`."""
    found = b""
    while not found.endswith(b"\n") and (byte := os.read(status, 1)):
        found += byte
    return found


def _content(fd: int) -> str:
    return os.pread(fd, os.fstat(fd).st_size, 0).decode()


def _serving() -> socket.socket:
    global _server
    with _starting:
        if _server is None:
            _server, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with other:
                argv = [sys.executable, "-m", "tests.support.commands", str(other.fileno())]
                subprocess.Popen(argv, cwd=ROOT, env=AT_FIRST, stdin=subprocess.DEVNULL, pass_fds=[other.fileno()])
        return _server


# ------------------------------------------------------------------------------------------------------------- the server


def _serve(requests: socket.socket) -> None:
    """Two forks a command: the first one waits for the second, so that the server does not."""
    from phoenix.cli.__main__ import main
    from phoenix.cli.commands import BY_NAME

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who presses Ctrl-C means the tests, and the command that runs
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the first ones
    while True:
        data, fds, _, _ = socket.recv_fds(requests, REQUEST_MAX_BYTES, 4)
        if not data:
            return
        asked = orjson.loads(data)
        for name in asked["words"][:1]:
            if name in BY_NAME:
                import_module(f"phoenix.cli.{name}")
        gc.freeze()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if (pid := os.fork()) == 0:
                requests.close()
                _become(fds, **asked)
                sys.exit(main())
            _wait(pid, fds[-1])
        for fd in fds:
            os.close(fd)


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
    os.write(told, CODE % pid)
    os.write(told, CODE % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
