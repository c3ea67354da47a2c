"""Something done in a process that is forked from this one, where everything is imported: recording, or a mutant's tests.

Rules
  1. The process says which test it begins (`t N`), at the end what came of it (one other line), and ends.
  2. Each test has CPU for ten times as long as it took, and some seconds: a mutant that never ends is killed by that, however
     busy the machine.  One that waits for ever is killed after `SILENT_S`.
  3. Nothing comes out: what its tests print goes nowhere.
"""

from __future__ import annotations

import os
import resource
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NoReturn

CPU_S: Final = 2.0
CPU_TIMES: Final = 10.0
MEMORY_BYTES: Final = 1 << 30  # beyond what it has from its parent
SILENT_S: Final = 600.0  # of one test, however busy the machine
_READ_BYTES: Final = 1 << 20

Say = Callable[[str], None]


class Child:
    """As its parent sees it."""

    def __init__(self, does: Callable[[Say], str]) -> None:
        self._end, told = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _run(does, told)
        os.close(told)
        self._heard = bytearray()
        self._last = time.monotonic()

    def fileno(self) -> int:
        return self._end

    def hear(self) -> str | None:
        """The last line, once it has ended: "" of a process that said nothing at all; None while it goes on."""
        part = os.read(self._end, _READ_BYTES)
        self._last = time.monotonic()
        self._heard += part
        if part:
            return None
        os.waitpid(self.pid, 0)
        lines = self._heard.decode().splitlines()
        return lines[-1] if lines else ""

    def kill_if_silent(self) -> None:
        if time.monotonic() - self._last > SILENT_S:
            self.kill()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def each(children: Iterator[tuple[str, Callable[[Say], str]]], workers: int) -> Iterator[tuple[str, str]]:
    """What each said last, by its name, as they end; so many at a time.  Who stops listening ends those that run."""
    running = selectors.DefaultSelector()
    try:
        while True:
            while len(running.get_map()) < workers and (following := next(children, None)):
                name, does = following
                running.register(Child(does), selectors.EVENT_READ, name)
            if not running.get_map():
                return
            for key, _ in running.select(1.0):
                if (last := key.fileobj.hear()) is not None:  # type: ignore[union-attr]
                    running.unregister(key.fd)  # before it is closed: other children have it too
                    os.close(key.fd)
                    yield key.data, last
            for key in running.get_map().values():
                key.fileobj.kill_if_silent()  # type: ignore[union-attr]
    finally:
        for key in running.get_map().values():
            key.fileobj.kill()  # type: ignore[union-attr]
            os.waitpid(key.fileobj.pid, 0)  # type: ignore[union-attr]


def allow_cpu(seconds: float) -> None:
    """SIGPROF ends this process when it has had as much."""
    signal.setitimer(signal.ITIMER_PROF, CPU_S + CPU_TIMES * seconds)


def _run(does: Callable[[Say], str], told: int) -> NoReturn:
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # who presses Ctrl-C means the parent
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

        def say(line: str) -> None:
            left = memoryview(line.encode() + b"\n")
            while left:
                left = left[os.write(told, left) :]

        say(does(say))
    except BaseException as error:
        os.write(told, f"! {type(error).__name__}: {error}".replace("\n", " ").encode() + b"\n")
    finally:
        os._exit(0)
