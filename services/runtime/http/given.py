"""Listening sockets that a process was given when it was started, as systemd gives them; the supervisor of an embedded cloud
does (`phoenix.local.supervisor_child`).

Theory of operation
  The holder of a listening socket has the port, whether or not the process that serves it runs.  So no other process can take
  the port while the process restarts, and receive what is meant for it; and clients that connect meanwhile wait in the kernel's
  queue.

Rules
  1. `ADDRESSES` in the environment maps descriptors to addresses as they stand in the configuration.
  2. What was not given is bound by the process itself.  Several may be given for one address: a name has several addresses,
     and jobs reach another socket than the machine (`phoenix.local.network.namespace`).
  3. A listener that was closed may be opened again: descriptors stay.  What this process starts does not get them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Final

import orjson

ADDRESSES: Final = "PHOENIX_LISTENERS"  # {"127.0.0.1:7480": [5, 9]}


def spelled(listeners: Mapping[tuple[str, int], Sequence[socket.socket]]) -> dict[str, str]:
    """For the environment of the process that receives them."""
    if not listeners:
        return {}
    numbers = {f"{host}:{port}": [each.fileno() for each in found] for (host, port), found in listeners.items()}
    return {ADDRESSES: orjson.dumps(numbers).decode()}


def given(host: str, port: int) -> list[socket.socket]:
    """The sockets for this address, which are the caller's to close; none: none were passed."""
    numbers: list[int] = orjson.loads(os.environ.get(ADDRESSES, "{}")).get(f"{host}:{port}", [])
    for number in numbers:
        os.set_inheritable(number, False)
    return [socket.socket(fileno=os.dup(number)) for number in numbers]
