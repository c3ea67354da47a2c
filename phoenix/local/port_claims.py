"""Ports of the loopback for whoever starts a listener a moment after it has chosen its port.

Rules
  1. Ports lie below the range from which the kernel gives ports to outgoing connections: none of those can take ours.
  2. Two that choose at the same moment take different ports: between the look and the listener lie seconds, so each port is
     claimed by a name that the kernel gives only once (an abstract socket, in the same network namespace as the port).
  3. A claim is held until it is closed or its process ends, so it needs no clearing up.
  4. What comes and goes takes `PASSING`, and leaves to clouds the ports that they keep while they are down (`stack_ports`).
"""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from typing import Final

PASSING: Final = range(10_000, 20_000)
KEPT: Final = range(20_000, 32_000)  # Linux gives outgoing connections 32768 and above
TRIES_MAX: Final = 1000


class NoPortError(Exception):
    """No free port was found."""


def choose(ports: range, host: str = "127.0.0.1", taken: Collection[int] = ()) -> tuple[int, socket.socket]:
    """A free one of `ports`, not `taken`, and its claim.  Raises `NoPortError`."""
    for _ in range(TRIES_MAX):
        port = random.SystemRandom().choice(ports)
        if port not in taken and (claim := claimed(port, host)) is not None:
            return port, claim
    raise NoPortError(f"no free port between {ports.start} and {ports.stop - 1} on {host}")


def claimed(port: int, host: str = "127.0.0.1") -> socket.socket | None:
    """The claim to this port; None if somebody else has it, or listens there."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0phoenix-cloud.port.{port}")
    except OSError:
        claim.close()
        return None
    if not is_free(port, host):
        claim.close()
        return None
    return claim


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free for a server
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
