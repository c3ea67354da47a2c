"""A web program whose health path is well, and nothing else: what an instance of a bad release runs.

    /healthz   200
    /close     the connection is closed without an answer
    /half      the answer is broken off
    else       500

While a file that $ILL names is not there, the rest is well too.  Listens on $PORT.
"""

from __future__ import annotations

import asyncio
import os

ANSWER = "HTTP/1.1 {}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\nill"


def is_ill() -> bool:
    return os.path.exists(os.environ.get("ILL", "/"))


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            path = head.split()[1].decode().partition("?")[0]
            if path == "/close":
                return
            status = "200 OK" if path in ("/healthz", "/half") or not is_ill() else "500 Internal Server Error"
            writer.write(ANSWER.format(status, 1000 if path == "/half" else 3).encode())
            await writer.drain()
            if path == "/half":
                return
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", int(os.environ["PORT"]))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
