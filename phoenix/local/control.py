"""The supervisor's socket: DATA/run/control.sock (mode 0600), one JSON line asked, JSON lines answered.

    {"op": "status"}                        -> {"ok": true, …}
    {"op": "down", "hard": false}           -> {"progress": …}* {"ok": true}
    {"op": "apply", "text": …, "name": …, "base": …, "accept_late_leases": false, "dry_run": false}
                                            -> {"progress": …}* {"ok": true, "changes": […], "late_leases": […], "position": n}

Rules
  1. A process that may open the file may command the cloud: there is no other check, so the file is for its owner only.
  2. An answer ends with the line that has `ok`; `error` then has what was wrong.
  3. The socket is addressed through its directory's descriptor: a socket's path is limited to 107 bytes, a data directory's
     is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import orjson

from phoenix.local.stack_layout import Layout

REQUEST_MAX_BYTES: Final = 8 << 20  # a configuration of a thousand departments is about half a megabyte
ANSWER_S: Final = 60.0  # between two lines of an answer: stopping a stuck child takes longest
Handler = Callable[[dict[str, Any]], AsyncIterator[dict[str, Any]]]


class NotRunningError(Exception):
    """The socket has no listener."""


class Control:
    """The server side.  `handler` yields progress, then one answer with `ok`."""

    def __init__(self, layout: Layout, handler: Handler) -> None:
        self._layout = layout
        self._handler = handler
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._layout.socket.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _short_path(self._layout) as path:
            listener.bind(path)
        os.chmod(self._layout.socket, 0o600)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=REQUEST_MAX_BYTES)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._layout.socket.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                line = await reader.readline()
            try:
                request = orjson.loads(line)
            except ValueError as error:
                writer.write(orjson.dumps({"ok": False, "error": f"not JSON: {error}"}) + b"\n")
                return
            async for answer in self._handler(request):
                writer.write(orjson.dumps(answer) + b"\n")
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            return  # the other side is gone or sends nonsense: there is no one to answer
        finally:
            with contextlib.suppress(OSError):
                writer.close()


def call(layout: Layout, request: dict[str, Any], told: Callable[[str], None] = lambda _text: None) -> dict[str, Any]:
    """Ask the supervisor; progress goes to `told`.  Raises `NotRunningError` if there is none or it went away."""
    for answer in _lines(layout, request):
        if "ok" in answer:
            return answer
        told(str(answer.get("progress", "")))
    raise NotRunningError(f"the supervisor of {layout.data} went away")


def _lines(layout: Layout, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ANSWER_S)
        try:
            with _short_path(layout) as path:
                connection.connect(path)
            connection.sendall(orjson.dumps(request) + b"\n")
            with connection.makefile("rb") as stream:
                for line in stream:
                    yield orjson.loads(line)
        except (OSError, ValueError) as error:
            raise NotRunningError(f"no supervisor answers in {layout.data}: {error}") from error


@contextlib.contextmanager
def _short_path(layout: Layout) -> Iterator[str]:
    """Rule 3."""
    descriptor = os.open(layout.run, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{layout.socket.name}"
    finally:
        os.close(descriptor)
