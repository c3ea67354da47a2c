"""`python -m phoenix.load.null_server`: answers everything at once with the same two bytes.  What is slow in front of it is the
generator.  It prints its port and serves until its stdin ends, so that it never outlives who has started it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final, cast

ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
HEAD_END: Final = b"\r\n\r\n"


class Null(asyncio.Protocol):
    """A request is what ends with an empty line: it serves the generator's GET, and no other client."""

    def __init__(self) -> None:
        self._inbox = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        *whole, self._inbox = (self._inbox + data).split(HEAD_END)
        self._transport.write(ANSWER * len(whole))


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Null, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(ended), sys.stdin)
    while await ended.read(4096):
        pass
    server.close()


if __name__ == "__main__":
    asyncio.run(_serve())
