"""A connection to the broker that says whatever bytes it is given, with the rights of a credential."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from urllib.parse import urlsplit

import nkeys

ANSWER_S = 30.0


class Wire:
    """`errors`: what the broker has refused, as it says it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.errors: list[bytes] = []

    @classmethod
    async def open(cls, url: str, seed_file: Path) -> Wire:
        parts = urlsplit(url)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 20)
        info = json.loads((await reader.readline()).removeprefix(b"INFO "))
        told = proof(seed_file, info["nonce"]) | {"headers": True, "verbose": False, "protocol": 1}
        wire = cls(reader, writer)
        await wire.say(b"CONNECT " + json.dumps(told).encode() + b"\r\n")
        assert await wire.settled(), wire.errors
        return wire

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def settled(self) -> bool:
        """All that was said has been read by the broker; False if it has ended the connection over it."""
        try:
            async with asyncio.timeout(ANSWER_S):
                await self.say(b"PING\r\n")
                while (line := await self._reader.readline()) != b"PONG\r\n":
                    if not line:
                        return False
                    if line.startswith(b"-ERR"):
                        self.errors.append(line)
                    elif line == b"PING\r\n":
                        await self.say(b"PONG\r\n")
        except ConnectionError:
            return False
        return True

    def close(self) -> None:
        self._writer.close()


def proof(seed_file: Path, nonce: str) -> dict[str, object]:
    """That one has the key."""
    key = nkeys.from_seed(bytearray(seed_file.read_bytes().strip()))
    signed = base64.urlsafe_b64encode(key.sign(nonce.encode())).rstrip(b"=").decode()
    return {"nkey": bytes(key.public_key).decode(), "sig": signed}


def pub(subject: bytes, data: bytes = b"x", reply: bytes = b"") -> bytes:
    return b" ".join([b"PUB", subject, *([reply] if reply else []), str(len(data)).encode()]) + b"\r\n" + data + b"\r\n"


def hpub(subject: bytes, headers: bytes, data: bytes = b"x", reply: bytes = b"") -> bytes:
    sizes = [str(len(headers)).encode(), str(len(headers) + len(data)).encode()]
    return b" ".join([b"HPUB", subject, *([reply] if reply else []), *sizes]) + b"\r\n" + headers + data + b"\r\n"
