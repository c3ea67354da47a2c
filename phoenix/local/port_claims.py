"""Ports of the loopback for processes that start a listener a moment after they have chosen its port.

Rules
  1. Ports lie below the range from which the kernel gives ports to outgoing connections: none of those can take ours.
  2. Two that choose at the same moment take different ports: between the look and the listener lie seconds, so each port is
     claimed by a lock on one byte of a file.  No job can have that lock (`locks`).
  3. A claim is held until it is closed or its process ends, so it needs no clearing up.
  4. What comes and goes takes `PASSING`, and leaves to clouds the ports that they keep while they are down (`stack_ports`).
  5. Only root may take a port of `RESERVED`, unless the machine allows it (`is_roots`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import struct
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from phoenix.local.locks import NotClosedError, closed_directory

PASSING: Final = range(10_000, 20_000)
KEPT: Final = range(20_000, 32_000)  # Linux gives outgoing connections 32768 and above
# Unassigned in IANA's registry; below 512, where the C library looks for a port when a program of root's wants a reserved one.
RESERVED: Final = (*range(288, 308), *range(325, 333), *range(334, 344))
TRIES_MAX: Final = 1000
DIRECTORY: Final = "phoenix-ports"
UNPRIVILEGED: Final = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
_LOCK: Final = struct.Struct("hhqqi4x")  # struct flock: type, whence, start, length, pid

Claim = BinaryIO


class NoPortError(Exception):
    """No free port was found."""


def is_free(port: int, host: str) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free for a server
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def choose(
    ports: Sequence[int],
    host: str = "127.0.0.1",
    taken: Collection[int] = (),
    free: Callable[[int, str], bool] = is_free,
) -> tuple[int, Claim]:
    """A `free` one of `ports`, not `taken`, and its claim.  Raises `NoPortError`."""
    for _ in range(TRIES_MAX):
        port = random.SystemRandom().choice(ports)
        if port not in taken and (claim := claimed(port, host, free)) is not None:
            return port, claim
    raise NoPortError(f"no free port between {ports[0]} and {ports[-1]} on {host}")


def claimed(port: int, host: str = "127.0.0.1", free: Callable[[int, str], bool] = is_free) -> Claim | None:
    """The claim to this port; None if another process has it, or it is not `free`.  Raises `NoPortError` where nothing can be
    claimed."""
    try:
        claim = (closed_directory(DIRECTORY) / "claims").open("w+b", buffering=0)
    except NotClosedError as error:
        raise NoPortError(str(error)) from error
    try:
        # Of the open file, not of the process: two claims of one process exclude each other as well.
        fcntl.fcntl(claim, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, port, 1, 0))
    except BlockingIOError:
        claim.close()
        return None
    if not free(port, host):
        claim.close()
        return None
    return claim


def is_roots(port: int) -> bool:
    """Whether only root may listen there.  (In a container often every user may.)"""
    with contextlib.suppress(OSError, ValueError):
        return port < int(UNPRIVILEGED.read_text())
    return port < socket.IPPORT_RESERVED
