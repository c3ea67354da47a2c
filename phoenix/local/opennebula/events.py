"""What the hook manager publishes on ZeroMQ: two frames, a topic and the XML in base64. Off unless a port is configured.

1. A state event: `EVENT VM <id>/<STATE>/<LCM_STATE> ` and `EVENT HOST <id>/<STATE>/ `, with a trailing blank, as oned
   has it.
2. A call event: `EVENT API <method> <1 or 0>`, with the parameters in and out; the session is never shown.
3. Without a listener events are lost: it is a publisher, not a queue. So events without a subscriber need not be made:
   `heard` knows, since subscribers send their prefixes to the publisher (XPUB).
4. It shows whole templates, guests' tokens included, to every client. So an embedded cloud, whose jobs share the
   machine, publishes on a socket file that only its owner may open (`ipc://`); a port is for tests and for a machine
   of its own.
"""

from __future__ import annotations

import base64
import os
from typing import Any

import zmq

# A subscriber that does not read loses events beyond this; oned's publisher has ZeroMQ's default, too.
HIGH_WATER = 10_000

IPC = "ipc://"


class Events:
    """The publisher."""

    def __init__(self, bind: str, port: int | None, address: str = "") -> None:
        self._bind = bind
        self._port = port
        self._address = address
        self._context: Any = None
        self._socket: Any = None
        self._prefixes: tuple[bytes, ...] = ()  # what has subscribers
        self.port: int | None = None

    @property
    def enabled(self) -> bool:
        """Whether events are published."""
        return self._socket is not None

    async def start(self) -> None:
        """Bind; port 0 takes a free one (see `port`). Raises OSError."""
        if self._port is None and not self._address:
            return
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.XPUB)
        self._socket.setsockopt(zmq.SNDHWM, HIGH_WATER)
        self._socket.setsockopt(zmq.LINGER, 0)
        if self._address:
            self._socket.bind(self._address)
            if self._address.startswith(IPC):
                os.chmod(self._address.removeprefix(IPC), 0o600)
        elif self._port:
            self._socket.bind(f"tcp://{self._bind}:{self._port}")
            self.port = self._port
        else:
            self.port = int(self._socket.bind_to_random_port(f"tcp://{self._bind}"))

    def heard(self, *topics: str) -> list[str]:
        """Those of `topics` that have subscribers."""
        if self._socket is None:
            return []
        while self._socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
            self._subscribed(self._socket.recv(zmq.NOBLOCK))
        return [topic for topic in topics if topic.encode().startswith(self._prefixes)]

    def _subscribed(self, message: bytes) -> None:
        """A prefix that is new to the publisher, or that its last subscriber has given up or left behind."""
        if message[:1] == b"\1":
            self._prefixes += (message[1:],)
        elif message[:1] == b"\0":
            self._prefixes = tuple(prefix for prefix in self._prefixes if prefix != message[1:])

    def publish(self, topics: list[str], xml: str) -> None:
        """One event under each of `topics`; never waits."""
        if self._socket is not None:
            body = base64.b64encode(xml.encode())
            for topic in topics:
                self._socket.send_multipart([topic.encode(), body], flags=zmq.NOBLOCK)

    async def close(self) -> None:
        """Unbind."""
        if self._socket is not None:
            self._socket.close()
            self._context.term()
            self._socket = None
