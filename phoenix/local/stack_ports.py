"""Ports of an embedded cloud: chosen once, kept across restarts where they are still free.

Rules
  1. Ports lie below the range from which the kernel gives ports to outgoing connections: none of those can take ours while
     the cloud is down.
  2. A kept port that somebody else has meanwhile is chosen anew; the new one is kept.
  3. Two clouds that start at the same moment take different ports: between the look and the listener of a service lie seconds,
     so each port is claimed by a name that the kernel gives only once (an abstract socket, in the same network namespace as
     the port).  The claim is held until `release` or the end of the process, so it needs no clearing up.
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
        self._claims: list[socket.socket] = []

    def of(self, name: str) -> int:
        """The port of `name`: the kept one if it is free, else another.  Raises `NoPortError`."""
        if name not in self._given:
            kept = self._kept.get(name)
            ours = kept is not None and kept not in self._given.values() and self._claim(kept)
            self._given[name] = kept if ours and kept is not None else self._choose()
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
            if port not in taken and self._claim(port):
                return port
        raise NoPortError(f"no free port between {FIRST} and {LAST} on {self._host}")

    def _claim(self, port: int) -> bool:
        """Rule 3: True if the port is ours now."""
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0phoenix-cloud.port.{port}")
        except OSError:
            claim.close()
            return False
        if not is_free(port, self._host):
            claim.close()
            return False
        self._claims.append(claim)
        return True

    def release(self) -> None:
        """Give up every claim: the listeners have gone."""
        while self._claims:
            self._claims.pop().close()


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free for a server
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
