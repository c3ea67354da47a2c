"""The NATS client of every program here: nats-py's, with its reading of the wire corrected.

What nats-py 2.16 does wrong: it finds the parts of a message's line by a pattern in which any white space ends a part; the
server ends parts at spaces alone, and lets every other byte into a subject.  So `PUB phoenix.request.hpc.ann.\\x0b7 …` chose
the subscription that received it, and a subject, a reply subject or a status line that is no UTF-8 ended the task that reads.

Rules
  1. A line ends at CR LF, its parts at single spaces, as the server writes them.
  2. What cannot be read is dropped and counted, and what comes after it is read.  No subscription receives it.
  3. A line that the protocol does not have, or one without end, is a broker that cannot be trusted: connect again.
  4. The subject at which a connection receives answers cannot be guessed (the library's numbers follow from one another).

This file replaces parts of the library that its makers may change: `VERSIONS` are those it was written for, and a test fails
with any other.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

from nats.aio import client as library
from nats.errors import ProtocolError
from nats.protocol import parser

from services.runtime import families_shell

VERSIONS: Final = ("2.16.0",)
TOKEN_BYTES: Final = 16
LINE_MAX: Final = 1 << 20  # the server's longest is INFO, which names all servers of a cluster

MALFORMED: Final = families_shell.NATS_MALFORMED.live(None)
_CRLF: Final = b"\r\n"
_MSG: Final = ord("M")
_STATUS: Final = re.compile(rb"NATS/1\.0( [^\r\n]*)?\r\n")


class Parser(parser.Parser):
    """Of one connection."""

    nc: Client
    _told: tuple[
        int, bytes, bytes, bool
    ]  # of the message that is coming: sid, subject, reply subject, whether they are text

    async def parse(self, data: bytes = b"") -> None:
        """Take what has come, and hand on what is complete."""
        buf = self.buf
        buf.extend(data)
        while buf:
            if self.state == parser.AWAITING_MSG_PAYLOAD:
                if len(buf) < self.needed + len(_CRLF):
                    return
                await self._message(bytes(buf[: self.needed]))
                continue
            end = buf.find(_CRLF)
            if end < 0:
                if len(buf) > LINE_MAX:
                    raise ProtocolError(f"nats: a line of more than {LINE_MAX} bytes")
                return
            line = bytes(buf[:end])
            del buf[: end + len(_CRLF)]
            if line.startswith((b"MSG ", b"HMSG ")):
                self._announced(line)
            else:
                await self._control(line)

    def _announced(self, line: bytes) -> None:
        """MSG subject sid [reply] size, or HMSG subject sid [reply] size_of_headers size."""
        try:
            if line[0] == _MSG:
                _, subject, sid, *reply, size = line.split(b" ")
                self.header_needed = 0
            else:
                _, subject, sid, *reply, headers, size = line.split(b" ")
                self.header_needed = int(headers)
            (answer,) = reply or (b"",)
            self._told = int(sid), subject, answer, is_text(line)
            self.needed = int(size)
        except ValueError:
            raise ProtocolError("nats: malformed MSG") from None
        if not 0 <= self.header_needed <= self.needed:
            raise ProtocolError("nats: malformed MSG")
        self.state = parser.AWAITING_MSG_PAYLOAD

    async def _message(self, taken: bytes) -> None:
        del self.buf[: self.needed + len(_CRLF)]
        self.state = parser.AWAITING_CONTROL_LINE
        sid, subject, reply, readable = self._told
        headers = taken[: self.header_needed]
        if not readable or (headers and not are_headers(headers)):
            MALFORMED.inc()
            return
        payload = taken[self.header_needed :] if headers else taken
        await self.nc._process_msg(sid, subject, reply, payload, headers)
        if self.nc.read_one is not None:
            await self.nc.read_one()

    async def _control(self, line: bytes) -> None:
        verb, _, rest = line.partition(b" ")
        if verb == parser.PING_OP:
            await self.nc._process_ping()
        elif verb == parser.PONG_OP:
            await self.nc._process_pong()
        elif verb == parser.ERR_OP:
            await self.nc._process_err(rest.decode(errors="backslashreplace").lower())
        elif verb == parser.INFO_OP:
            await self.nc._process_info(json.loads(rest))
        elif verb != parser.OK_OP:
            raise ProtocolError("nats: unknown protocol")


class Client(library.Client):
    """A connection; what it does is the library's.  `read_one`: awaited after each message that was read, before the next."""

    read_one: Callable[[], Awaitable[None]] | None = None

    def __init__(self) -> None:
        super().__init__()
        self._ps = Parser(self)

    async def connect(self, servers: str | list[str], **options: Any) -> None:  # type: ignore[override]
        """As the library's; rule 4."""
        prefix = options.get("inbox_prefix", library.DEFAULT_INBOX_PREFIX)
        options["inbox_prefix"] = own_inbox(prefix if isinstance(prefix, str) else prefix.decode())
        await super().connect(servers, **options)


def own_inbox(prefix: str) -> str:
    """A subject below `prefix` that cannot be guessed: 128 random bits."""
    return f"{prefix}.{secrets.token_hex(TOKEN_BYTES)}"


async def connected(servers: str | list[str], **options: Any) -> Client:
    """A connected client, with the options of `nats.connect`."""
    client = Client()
    await client.connect(servers, **options)
    return client


def is_text(part: bytes) -> bool:
    """Whether a subject can be had as text."""
    if part.isascii():
        return True
    try:
        part.decode()
    except UnicodeDecodeError:
        return False
    return True


def are_headers(block: bytes) -> bool:
    """Whether the library can read these: it takes the first line's status as text, and what follows it in one case as well."""
    first = _STATUS.match(block)
    if first is None or not block.endswith(b"\r\n\r\n"):
        return False
    return first[1] is None or is_text(block)
