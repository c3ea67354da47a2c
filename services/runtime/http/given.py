"""Listening sockets that a process was given when it was started, as systemd gives them; the supervisor of an embedded cloud
does (`phoenix.local.supervisor_child`).

Theory of operation
  Whoever holds a listening socket has the port, whether or not the process that serves it runs.  So nobody else can take the
  port while the process is started again, and hear what is meant for it; and whoever connects meanwhile waits in the kernel's
  queue.

Rules
  1. `ADDRESSES` in the environment says which descriptor is which address, as it stands in the configuration.
  2. What was not given is bound by the process itself.
  3. A listener that was closed may be opened again: descriptors stay.  What this process starts does not get them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Final

import orjson

ADDRESSES: Final = "PHOENIX_LISTENERS"  # {"127.0.0.1:7480": 5}


def spelled(listeners: Mapping[tuple[str, int], socket.socket]) -> dict[str, str]:
    """For the environment of whoever is given them."""
    if not listeners:
        return {}
    return {ADDRESSES: orjson.dumps({f"{host}:{port}": it.fileno() for (host, port), it in listeners.items()}).decode()}


def given(host: str, port: int) -> socket.socket | None:
    """The socket for this address, which is the caller's to close; None: nobody has given one."""
    number = orjson.loads(os.environ.get(ADDRESSES, "{}")).get(f"{host}:{port}")
    if number is None:
        return None
    os.set_inheritable(number, False)
    return socket.socket(fileno=os.dup(number))
