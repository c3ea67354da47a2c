"""A TCP proxy between a client and its broker: the network's ways of failing, made on purpose.

`mute()`: what the broker says is swallowed, what the client says still arrives: answers get lost, deeds do not.
`hold_up()`: from a message on that holds a mark, what the client says is swallowed: it believes to have said it.
`cut()`: connections break and new ones are refused, until `heal()`.
"""

from __future__ import annotations

import asyncio
import contextlib


class Proxy:
    """Listens on `port` of the loopback and forwards to `target`."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._muted = False
        self._refusing = False
        self._mark, self._held = b"", asyncio.Event()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._drop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def mute(self) -> None:
        self._muted = True

    def hold_up(self, mark: bytes) -> asyncio.Event:
        """The event: the mark was said, and did not arrive."""
        self._mark, self._held = mark, asyncio.Event()
        return self._held

    def cut(self) -> None:
        self._refusing = True
        self._drop()

    def heal(self) -> None:
        """Everything passes again; connections that were muted have lost bytes, so they are broken."""
        self._muted = self._refusing = False
        self._mark = b""
        self._drop()

    def _drop(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, up_writer}
        for source, sink, down in ((reader, up_writer, False), (up_reader, writer, True)):
            task = asyncio.create_task(self._pump(source, sink, down))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, down: bool) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while data := await source.read(1 << 16):
                if not down and self._mark and self._mark in data:
                    self._held.set()
                swallowed = self._muted if down else bool(self._mark) and self._held.is_set()
                if not swallowed:
                    sink.write(data)
                    await sink.drain()
        sink.transport.abort()
        self._writers.discard(sink)
