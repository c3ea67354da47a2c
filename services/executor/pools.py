"""A pool of VMs, read again and again: what has not changed since the last time is not parsed again.

Theory of operation
  An answer of `one.vmpool.info` is XML escaped within XML, about 1 KB a VM.  To parse both layers costs 15 µs a VM, and an
  audit finds nearly every VM as it was.  So the escaped text is cut at the borders between VMs, and a piece that was in the
  last answer, byte for byte, means what it meant then.  Only new pieces are unescaped and parsed, together, as one small pool.

Rules
  1. Cutting is a guess: text of users within CDATA may look like a border.  It is believed only if the new pieces parse as
     exactly as many VMs as there are pieces, each with the id that its piece begins with; else the whole answer is parsed as
     any other.  A piece that a false border made holds an open CDATA, so it neither parses by itself nor was ever kept.
  2. What is kept is the last answer alone: bounded by what one answer may be.
  3. One reader belongs to one poll at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from services.executor.calls import Sight
from services.executor.errors import Unreachable

Decode = Callable[[bytes], list[Any]]
Parse = Callable[[bytes], list[Sight]]
_OPEN: Final = b"&lt;VM_POOL&gt;&lt;VM&gt;"
_CLOSE: Final = b"&lt;/VM&gt;&lt;/VM_POOL&gt;"
_BORDER: Final = b"&lt;/VM&gt;&lt;VM&gt;"
_TRUE, _TEXT, _TEXT_END = b"<boolean>1</boolean>", b"<string>", b"</string>"
_ESCAPED: Final = ((b"&lt;", b"<"), (b"&gt;", b">"), (b"&quot;", b'"'), (b"&apos;", b"'"), (b"&amp;", b"&"))  # & last


class PoolReader:
    """`decode`: an answer's three elements, whatever they are; `parse`: the VMs of a VM_POOL.  Both may raise `Unreachable`."""

    def __init__(self, decode: Decode, parse: Parse) -> None:
        self._decode, self._parse = decode, parse
        self._last = b""
        self._sights: list[Sight] = []
        self._known: dict[bytes, Sight] = {}
        self.parsed = 0  # VMs that were parsed for the last answer

    def read(self, data: bytes) -> list[Any]:
        """The answer's three elements; a pool is its `Sight`s."""
        self.parsed = 0
        if data == self._last:
            return [True, self._sights, 0]
        found = self._piecewise(data)
        if found is None:
            answer = self._decode(data)
            if not answer[0]:
                return answer
            self._known = {}
            found = self._parse(str(answer[1]).encode())
            self.parsed = len(found)
        self._last, self._sights = data, found
        return [True, found, 0]

    def _piecewise(self, data: bytes) -> list[Sight] | None:
        """The VMs, if the answer can be cut; else None."""
        begin = data.find(_TEXT)
        end = data.find(_TEXT_END, begin)
        body = data[begin + len(_TEXT) : end] if begin >= 0 and _TRUE in data[:begin] else b""
        if not (body.startswith(_OPEN) and body.endswith(_CLOSE)):
            return None
        pieces = body[len(_OPEN) : -len(_CLOSE)].split(_BORDER)
        fresh = self._fresh([piece for piece in pieces if piece not in self._known])
        if fresh is None:
            return None
        known = self._known
        self._known = {piece: known.get(piece) or fresh[piece] for piece in pieces}
        return list(self._known.values())

    def _fresh(self, pieces: list[bytes]) -> dict[bytes, Sight] | None:
        """What the new pieces mean; None if rule 1 is not met."""
        if not pieces:
            return {}
        try:
            found = self._parse(_unescaped(_OPEN + _BORDER.join(pieces) + _CLOSE))
        except Unreachable:
            return None
        if len(found) != len(pieces):
            return None
        if not all(p.startswith(b"&lt;ID&gt;%d&lt;/ID&gt;" % s.vm) for p, s in zip(pieces, found, strict=True)):
            return None
        self.parsed = len(found)
        return dict(zip(pieces, found, strict=True))


def _unescaped(text: bytes) -> bytes:
    for escaped, plain in _ESCAPED:
        text = text.replace(escaped, plain)
    return text
