"""The record as the monitor sends it (`schemas.journal_record`), read line by line.

Rules
  1. A record without its last line is cut short: it is refused, not played.
  2. Form 1 is upgraded as it is read (`schemas.upgrade`), like the journal's.
  3. Facts that this version does not know are left out and counted; a line that is no line is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from schemas import upgrade
from schemas.facts import BY_KIND
from schemas.journal_record import FORMAT, Head, Line, Tail


class CutShort(Exception):
    """The record is not whole, or not of a form that this version reads.  The message says what is wrong."""


class _Loose(msgspec.Struct, frozen=True, kw_only=True):
    position: int
    at: float
    writer: str
    facts: tuple[msgspec.Raw, ...]


class _Kind(msgspec.Struct, frozen=True):
    kind: str


_head: Final = msgspec.json.Decoder(Head)
_line: Final = msgspec.json.Decoder(Line)
_loose: Final = msgspec.json.Decoder(_Loose)
_kind: Final = msgspec.json.Decoder(_Kind)
_tail: Final = msgspec.json.Decoder(Tail)


class Record:
    """Reads `lines`; `head` is there at once, `envelopes` and `unknown` count what `entries` has given."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = iter(lines)
        self.envelopes = self.unknown = 0
        try:
            self.head = _head.decode(next(self._lines, b""))
        except msgspec.DecodeError as error:
            raise CutShort(f"the record has no first line: {error}") from error
        if not 1 <= self.head.record <= FORMAT:
            raise CutShort(f"the record has form {self.head.record}; this version reads forms 1 to {FORMAT}")

    def entries(self) -> Iterator[Line]:
        """Every envelope in order.  Raises `CutShort` at the end of a record that is not whole (rule 1)."""
        for text in self._lines:
            if not text:
                continue  # the monitor says that it is at work
            if text.startswith(b'{"end"'):
                self._check(text)
                return
            self.envelopes += 1
            yield self._read(text)
        raise CutShort(f"the record broke off after {self.envelopes:,} envelopes: try again")

    def _read(self, text: bytes) -> Line:
        if self.head.record < FORMAT:
            return self._known(text)
        try:
            return _line.decode(text)
        except msgspec.ValidationError:
            return self._known(text)
        except msgspec.DecodeError as error:
            raise CutShort(f"line {self.envelopes + 1} of the record is no envelope: {error}") from error

    def _known(self, text: bytes) -> Line:
        """Rules 2 and 3."""
        try:
            loose = _loose.decode(text)
            known = [raw for raw in loose.facts if _kind.decode(raw).kind in BY_KIND]
            facts = tuple(upgrade.fact(msgspec.json.decode(raw), self.head.record) for raw in known)
        except msgspec.DecodeError as error:
            raise CutShort(f"line {self.envelopes + 1} of the record is no envelope: {error}") from error
        self.unknown += len(loose.facts) - len(facts)
        return Line(position=loose.position, at=loose.at, writer=loose.writer, facts=facts)

    def _check(self, text: bytes) -> None:
        try:
            told = _tail.decode(text)
        except msgspec.DecodeError as error:
            raise CutShort(f"the record's last line is not readable: {error}") from error
        if told.envelopes != self.envelopes:
            raise CutShort(f"the record has {self.envelopes:,} of {told.envelopes:,} envelopes: try again")
