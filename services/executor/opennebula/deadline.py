"""An HTTP answer with a deadline for all of it.

`http.client` has a time-out for each piece alone: an answer that comes byte by byte, a head without end, or `100 Continue`
again and again would keep its thread for ever.  Here a reader has what is left of the deadline, and no longer.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any


class _Pieces(io.RawIOBase):
    """What arrives at `source`, the unbuffered file of the socket."""

    def __init__(self, sock: socket.socket, source: io.RawIOBase, deadline: float) -> None:
        self._sock, self._source, self._deadline = sock, source, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the answer is too slow")
        if self._sock.fileno() >= 0:  # else its connection is closed, and the file has it still
            self._sock.settimeout(left_s)
        return self._source.readinto(buffer)

    def close(self) -> None:
        self._source.close()
        super().close()


class Answer(http.client.HTTPResponse):
    """`deadline`: monotonic seconds."""

    def __init__(self, sock: socket.socket, *given: Any, deadline: float, **named: Any) -> None:
        super().__init__(sock, *given, **named)
        source: Any = self.fp
        self.fp = io.BufferedReader(_Pieces(sock, source.detach(), deadline))
