"""HAProxy's Runtime API over its stats socket (a unix socket of level `admin`): one command, one connection, one answer.

Rules
  1. A connection a command: the answer ends where the connection ends, so that no answer can be taken for another's, and a
     reload (which hands the socket to the next process) is nothing special.
  2. Each command has a deadline, connecting included: a stopped HAProxy accepts, and is silent.
  3. HAProxy answers nothing when it has executed a command, but for an address, where it says what has changed.  Any other
     answer is an error, and is reported in HAProxy's words.
  4. An answer has a limit, far above what the largest backend gives.
  5. A socket's path has 107 bytes at the most, a directory's may have more: then it is addressed through the directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from phoenix.haproxy.reconciler import Command, Server, SetAddress
from phoenix.haproxy.slots import Reading, paths_of, reading

# an idle HAProxy answers in a millisecond; one that starves for this long serves no request either
DEADLINE_S: Final = 2.0
ANSWER_MAX_BYTES: Final = 16 << 20  # a slot is about 600 bytes: some 25,000 of them
_CHUNK_BYTES: Final = 1 << 16
_PATH_MAX_BYTES: Final = 107  # of sockaddr_un, without the last byte


class GoneError(Exception):
    """HAProxy cannot be asked: no socket, no listener behind it, no answer in time.  The message names the socket."""


class RefusedError(Exception):
    """HAProxy has not executed the command; the message has the command and its answer."""


class RuntimeApi:
    """The socket of one HAProxy, and one backend of it, whose slots begin with `prefix`.  `health_map`: the map of their health
    paths, as haproxy.cfg names it."""

    def __init__(self, socket: Path, backend: str, prefix: str, health_map: str) -> None:
        self._socket = socket
        self._backend = backend
        self._prefix = prefix
        self._health_map = health_map

    async def ask(self, command: str) -> str:
        """The whole answer.  Raises `GoneError`."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await self._ask(command)
        except TimeoutError as error:
            raise GoneError(f"{self._socket}: no answer within {DEADLINE_S:g} s to {command!r}") from error
        except OSError as error:
            raise GoneError(f"{self._socket}: {error.strerror or error}") from error

    async def _ask(self, command: str) -> str:
        with _short(self._socket) as path:
            reader, writer = await asyncio.open_unix_connection(path)
        try:
            writer.write(f"{command}\n".encode())
            await writer.drain()
            found = bytearray()
            while chunk := await reader.read(_CHUNK_BYTES):
                found += chunk
                if len(found) > ANSWER_MAX_BYTES:
                    raise GoneError(f"{self._socket}: more than {ANSWER_MAX_BYTES} bytes in answer to {command!r}")
            return found.decode("utf-8", "replace")
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def read(self) -> Reading:
        """The backend now.  Raises `GoneError`, `AnswerError`."""
        state = await self.ask(f"show servers state {self._backend}")
        stat = await self.ask("show stat -1 6 -1")
        return reading(await self.ask("show info"), state, stat, self._backend, self._prefix, await self.paths())

    async def paths(self) -> dict[str, str] | None:
        """Of the health checks, by slot; None if haproxy.cfg has no such map.  Raises `GoneError`, `AnswerError`."""
        return paths_of(await self.ask(f"show map {self._health_map}"))

    async def tell(self, slot: str, command: Command) -> str:
        """Returns what was said to HAProxy.  Raises `GoneError`, `RefusedError`."""
        text = command.text(Server(self._backend, slot, self._health_map))
        answer = (await self.ask(text)).strip()
        if answer and not (isinstance(command, SetAddress) and _is_change(answer)):
            raise RefusedError(f"{text}: {answer}")
        return text


def _is_change(answer: str) -> bool:
    """``IP changed from 'a' to 'b', port changed from 'c' to 'd' by 'stats socket command'``; or no need to."""
    return "changed from" in answer or "no need to change" in answer


@contextlib.contextmanager
def _short(socket: Path) -> Iterator[str]:
    """Rule 5."""
    if len(os.fsencode(socket)) <= _PATH_MAX_BYTES:
        yield str(socket)
        return
    directory = os.open(socket.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{socket.name}"
    finally:
        os.close(directory)
