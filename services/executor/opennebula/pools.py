"""A pool of VMs or hosts, read again and again: what has not changed since the last time is not parsed again.

Theory of operation
  An answer of `one.vmpool.info` is XML escaped within XML, about 1 KB a VM (of `one.hostpool.info` up to 8 KB a host).  To
  parse both layers costs 15 µs a VM, and an audit finds nearly every VM as it was.  So the escaped text is cut at the borders
  between VMs, and a piece that was in the last answer, byte for byte, means what it meant then.  Only new pieces are unescaped
  and parsed, together, as one small pool.

Rules
  1. Cutting is a guess: text of users within CDATA may look like a border.  It is believed only if the new pieces parse as
     exactly as many of them as there are pieces, each with the id that its piece begins with; else the whole answer is parsed
     as any other.  A piece that a false border made holds an open CDATA, so it neither parses by itself nor was ever kept.
  2. What is kept is the last answer alone: bounded by what one answer may be.
  3. No more than `MOST` in an answer: a larger one is no pool of ours, and would take gigabytes to read.
  4. One reader belongs to one poll at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from services.executor.opennebula.errors import Unreachable

T = TypeVar("T")
Decode = Callable[[bytes], list[Any]]
MOST: Final = 200_000  # twice the largest cloud that was measured
_TRUE, _TEXT, _TEXT_END = b"<boolean>1</boolean>", b"<string>", b"</string>"
_ESCAPED: Final = ((b"&lt;", b"<"), (b"&gt;", b">"), (b"&quot;", b'"'), (b"&apos;", b"'"), (b"&amp;", b"&"))  # & last


class PoolReader(Generic[T]):
    """`tag`: VM or HOST.  `decode`: an answer's three elements, whatever they are; `parse`: what a <tag>_POOL holds; both may
    raise `Unreachable`.  `id_of`: OpenNebula's id of one."""

    def __init__(self, tag: str, decode: Decode, parse: Callable[[bytes], list[T]], id_of: Callable[[T], int]) -> None:
        self._decode, self._parse, self._id_of = decode, parse, id_of
        self._one, self._one_plain = f"&lt;{tag}&gt;".encode(), f"<{tag}>".encode()
        self._open = f"&lt;{tag}_POOL&gt;&lt;{tag}&gt;".encode()
        self._close = f"&lt;/{tag}&gt;&lt;/{tag}_POOL&gt;".encode()
        self._border = f"&lt;/{tag}&gt;&lt;{tag}&gt;".encode()
        self._last: bytes | None = None  # not b"": an answer without content is no empty pool
        self._found: list[T] = []
        self._known: dict[bytes, T] = {}
        self.parsed = 0  # things that were parsed for the last answer

    def read(self, data: bytes) -> list[Any]:
        """The answer's three elements; a pool is the list of what it holds."""
        self.parsed = 0
        if data == self._last:
            return [True, self._found, 0]
        if data.count(self._one) + data.count(self._one_plain) > MOST:
            raise Unreachable(f"the pool has more than {MOST:,} entries")
        found = self._piecewise(data)
        if found is None:
            answer = self._decode(data)
            if not answer[0]:
                return answer
            self._known = {}
            found = self._parse(str(answer[1]).encode())
            self.parsed = len(found)
        self._last, self._found = data, found
        return [True, found, 0]

    def _piecewise(self, data: bytes) -> list[T] | None:
        """What the pool holds, if the answer can be cut; else None."""
        begin = data.find(_TEXT)
        end = data.find(_TEXT_END, begin)
        body = data[begin + len(_TEXT) : end] if begin >= 0 and _TRUE in data[:begin] else b""
        if not (body.startswith(self._open) and body.endswith(self._close)):
            return None
        pieces = body[len(self._open) : -len(self._close)].split(self._border)
        fresh = self._fresh([piece for piece in pieces if piece not in self._known])
        if fresh is None:
            return None
        known = self._known
        self._known = {piece: fresh[piece] if piece in fresh else known[piece] for piece in pieces}
        return list(self._known.values())

    def _fresh(self, pieces: list[bytes]) -> dict[bytes, T] | None:
        """What the new pieces mean; None if rule 1 is not met."""
        if not pieces:
            return {}
        try:
            found = self._parse(_unescaped(self._open + self._border.join(pieces) + self._close))
        except Unreachable:
            return None
        if len(found) != len(pieces):
            return None
        ids = map(self._id_of, found)
        if not all(p.startswith(b"&lt;ID&gt;%d&lt;/ID&gt;" % one) for p, one in zip(pieces, ids, strict=True)):
            return None
        self.parsed = len(found)
        return dict(zip(pieces, found, strict=True))


def _unescaped(text: bytes) -> bytes:
    for escaped, plain in _ESCAPED:
        text = text.replace(escaped, plain)
    return text
