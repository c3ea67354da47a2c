"""HTTP/1.1 as far as a load generator needs it: the bytes of a request, and where an answer ends (RFC 9112).

Pure: bytes in, a verdict out.  Bodies are counted, not kept.

Rules
  1. An answer's body ends after Content-Length, with the last chunk, or with the connection; 204 and 304 have none.  1xx are
     skipped.
  2. A connection may be used again if the answer does not say `close`, is HTTP/1.1 and did not end with the connection, and
     nothing came after it.
  3. Whatever does not fit is `WireError`: an answer of that kind counts as malformed, never as served.
"""

from __future__ import annotations

from typing import Final

HEAD_BYTES_MAX: Final = 64 << 10
LINE_BYTES_MAX: Final = 1024  # of a chunk's size, with extensions


class WireError(Exception):
    """This is no HTTP/1.1 answer."""


def request(method: str, host: str, path: str, body: bytes, *, close: bool) -> bytes:
    """The bytes of a whole request; only a POST has the body."""
    body = body if method == "POST" else b""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "User-Agent: phoenix-load", "Accept: */*"]
    lines += [f"Content-Length: {len(body)}", "Content-Type: application/octet-stream"] if method == "POST" else []
    lines += ["Connection: close"] if close else []
    return "\r\n".join([*lines, "", ""]).encode() + body


class Answer:
    """Reads one answer.  `feed` until `done`; `ended` when the connection ends before."""

    __slots__ = ("_chunked", "_inbox", "_left", "_until_close", "done", "keep", "status")

    def __init__(self) -> None:
        self.status = 0
        self.keep = True
        self.done = False
        self._inbox = bytearray()
        self._left = 0  # bytes of body, or of this chunk with its line end, that are still to come
        self._chunked = False
        self._until_close = False

    def feed(self, data: bytes) -> None:
        """What has arrived.  Raises WireError."""
        self._inbox += data
        while not self.done and self.status == 0 and (end := self._inbox.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._inbox[:end])
            del self._inbox[: end + 4]
            self._read_head(head)
        if self.status == 0:
            if len(self._inbox) > HEAD_BYTES_MAX:
                raise WireError("the head is too long")
            return
        self._read_body()
        if self.done and self._inbox:
            self.keep = False  # rule 2: whose is it?

    def ended(self) -> bool:
        """The connection has ended; true if the answer is whole all the same (rule 1)."""
        if self._until_close:
            self.done, self.keep = True, False
        return self.done

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.split(b"\r\n")
        words = first.split(b" ", 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or len(words[1]) != 3 or not words[1].isdigit():
            raise WireError("no status line of HTTP/1")
        status = int(words[1])
        if 100 <= status < 200 and status != 101:
            return
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        self.status = status
        self.keep = words[0] == b"HTTP/1.1" and fields.get(b"connection", b"").lower() != b"close"
        self._read_length(fields)

    def _read_length(self, fields: dict[bytes, bytes]) -> None:
        if self.status in (204, 304):
            self.done = True
        elif b"transfer-encoding" in fields:
            self._chunked = fields[b"transfer-encoding"].lower() == b"chunked"
            if not self._chunked:
                raise WireError("a transfer coding that was not asked for")
        elif b"content-length" in fields:
            if not fields[b"content-length"].isdigit():
                raise WireError("Content-Length is no number")
            self._left = int(fields[b"content-length"])
        else:
            self._until_close = True

    def _read_body(self) -> None:
        if self._until_close:
            self._inbox.clear()
        while not self.done:
            taken = min(self._left, len(self._inbox))
            del self._inbox[:taken]
            self._left -= taken
            if self._left or (self._until_close):
                return
            if not self._chunked:
                self.done = True
            elif not self._next_chunk():
                return

    def _next_chunk(self) -> bool:
        """Read the size of the next chunk; false if it has not arrived yet."""
        end = self._inbox.find(b"\r\n")
        if end < 0:
            if len(self._inbox) > LINE_BYTES_MAX:
                raise WireError("the line of a chunk is too long")
            return False
        try:
            size = int(bytes(self._inbox[:end]).partition(b";")[0], 16)
        except ValueError:
            raise WireError("the size of a chunk is no number") from None
        if size:
            del self._inbox[: end + 2]
            self._left = size + 2
            return True
        if self._inbox[end + 2 : end + 4] == b"\r\n":  # trailers are not sent to one who did not ask (RFC 9110, 6.5.1)
            del self._inbox[: end + 4]
            self.done = True
            return True
        if len(self._inbox) >= end + 4:
            raise WireError("trailers that were not asked for")
        return False
