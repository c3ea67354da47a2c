"""A web program whose health path is well, and nothing else: what an instance of a bad release runs.

    /healthz   200
    /close     the connection is closed without an answer
    /half      the answer is broken off
    else       500

Listens on $PORT, or $PHOENIX_PORT.
"""

from __future__ import annotations

import asyncio
import os

ANSWER = "HTTP/1.1 {}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\nill"


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            path = head.split()[1].decode().partition("?")[0]
            if path == "/close":
                return
            status = {"/healthz": "200 OK", "/half": "200 OK"}.get(path, "500 Internal Server Error")
            writer.write(ANSWER.format(status, 1000 if path == "/half" else 3).encode())
            await writer.drain()
            if path == "/half":
                return
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main() -> None:
    port = int(os.environ.get("PORT") or os.environ["PHOENIX_PORT"])
    server = await asyncio.start_server(serve, os.environ.get("HOST", "127.0.0.1"), port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
