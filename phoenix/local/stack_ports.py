"""Ports of an embedded cloud: chosen once, kept across restarts where they are still free.

Rules
  1. Ports lie below the range from which the kernel gives ports to outgoing connections: none of those can take ours while
     the cloud is down.
  2. A kept port that somebody else has meanwhile is chosen anew; the new one is kept.
  3. Two clouds that start at the same moment take different ports: each claims by binding, in an order of its own.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

import orjson

from phoenix.local.stack_layout import write_private

FIRST: Final = 20_000
LAST: Final = 31_999  # Linux gives outgoing connections 32768 and above
TRIES_MAX: Final = 1000


class NoPortError(Exception):
    """No free port was found."""


class Ports:
    """Ports by name."""

    def __init__(self, path: Path, host: str = "127.0.0.1") -> None:
        self._path = path
        self._host = host
        self._kept: dict[str, int] = orjson.loads(path.read_bytes()) if path.exists() else {}
        self._given: dict[str, int] = {}

    def of(self, name: str) -> int:
        """The port of `name`: the kept one if it is free, else another.  Raises `NoPortError`."""
        if name not in self._given:
            kept = self._kept.get(name)
            free = kept is not None and kept not in self._given.values() and is_free(kept, self._host)
            self._given[name] = kept if free and kept is not None else self._choose()
        return self._given[name]

    def is_ours(self, port: int | None) -> bool:
        """True if this cloud has once chosen that port itself."""
        return port in self._kept.values() or port in self._given.values()

    def save(self) -> None:
        self._kept |= self._given
        write_private(self._path, orjson.dumps(self._kept, option=orjson.OPT_INDENT_2))

    def _choose(self) -> int:
        taken = {*self._kept.values(), *self._given.values()}
        for _ in range(TRIES_MAX):
            port = random.SystemRandom().randint(FIRST, LAST)
            if port not in taken and is_free(port, self._host):
                return port
        raise NoPortError(f"no free port between {FIRST} and {LAST} on {self._host}")


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free for a server
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
