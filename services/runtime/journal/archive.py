"""The archive: what the broker no longer holds of the journal, in files that can be checked (PROTOCOL S5).

Theory of operation
  The journal grows for ever; the broker's disk does not.  Before the monitor purges a range, it writes it here, message by
  message as it was stored.  A fold from the beginning (a rebuild, a service without a snapshot) reads the archive and
  continues with the stream where it ends.

    archive/000000000001-000000004096.segment      gzip: a header, then a message after the other, all MessagePack
    archive/chain                                  a line for each segment: first, last, messages, SHA-256 of the file

  A segment's header holds the hash of the one before it, so that none can be exchanged, left out or put in without the chain
  telling; the chain's last line is what a purge relies on.

Rules
  1. A segment is whole or it is not there: written beside, synced, renamed; the chain's line comes after it, synced too.  A
     segment without a line was never finished, and is written again.
  2. Segments follow each other without a gap; what does not continue the archive is refused.
  3. Nothing is read that does not match its hash: `Broken` names the file and what is wrong with it.
  4. The archive is of one journal, by the stream's time of creation: another journal's messages never follow.  So the last
     segment is read before the first is added: positions alone would fit.
  5. It is never cut.  Files may lie elsewhere behind symbolic links; one that is not where the chain says is reported before
     the first message is read, not after an hour of folding.
"""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from services.runtime.journal.fold import Stored

VERSION: Final = 1
SEGMENT_MAX: Final = 4096  # messages: a few hundred KiB, read as one piece
CHAIN: Final = "chain"
FIRST: Final = "0" * 64  # the hash before the first segment's
_LEVEL: Final = 6  # of gzip: the journal shrinks to about a tenth, at some 50 MB/s


class Broken(Exception):
    """The archive cannot be relied on; the message says which file, and why."""


class Link(NamedTuple):
    """A line of the chain: the segment with messages `first` to `last`, `messages` of them, and its file's hash."""

    first: int
    last: int
    messages: int
    digest: str

    @property
    def file(self) -> str:
        return f"{self.first:012d}-{self.last:012d}.segment"


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    journal: str
    first: int
    last: int
    previous: str


class _Message(msgspec.Struct, frozen=True, array_like=True):
    position: int
    subject: str
    stored_at: float
    data: bytes


class _Segment(msgspec.Struct, frozen=True, kw_only=True):
    header: _Header
    messages: list[_Message]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Segment)


class Archive:
    """The archive in `directory`, of the journal that was created at `journal` (the stream's own word).  Making the object
    reads the chain.  Raises `Broken`, OSError."""

    def __init__(self, directory: Path, journal: str) -> None:
        self.directory, self.journal = directory, journal
        self.links = _read_chain(directory / CHAIN)
        self._trusted = not self.links  # that what follows may follow (rule 4)

    @property
    def end(self) -> int:
        """Position of the last message archived; 0: none is."""
        return self.links[-1].last if self.links else 0

    # ---------------------------------------------------------------------------------------------------------- writing

    def append(self, messages: Sequence[Stored]) -> None:
        """Keep `messages`, which follow what is here; on return they are on disk.  Raises `Broken`, OSError."""
        for begin in range(0, len(messages), SEGMENT_MAX):
            self._append(messages[begin : begin + SEGMENT_MAX])

    def trust_end(self) -> None:
        """Rule 4.  Raises `Broken`, OSError."""
        if not self._trusted:
            self._segment(self.links[-1], self.links[-2].digest if len(self.links) > 1 else FIRST)
            self._trusted = True

    def _append(self, messages: Sequence[Stored]) -> None:
        first, last = messages[0].position, messages[-1].position
        if first != self.end + 1 or any(b.position != a.position + 1 for a, b in pairwise(messages)):
            raise Broken(f"{self.directory}: messages {first} to {last} do not follow {self.end} without a gap")
        self.trust_end()
        header = _Header(
            version=VERSION,
            journal=self.journal,
            first=first,
            last=last,
            previous=self.links[-1].digest if self.links else FIRST,
        )
        kept = [_Message(m.position, m.subject, m.stored_at, m.data) for m in messages]
        content = gzip.compress(_encoder.encode(_Segment(header=header, messages=kept)), _LEVEL, mtime=0)
        link = Link(first, last, len(messages), hashlib.sha256(content).hexdigest())
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_synced(self.directory / link.file, content)
        _add_line(self.directory / CHAIN, f"{link.first} {link.last} {link.messages} {link.digest}\n".encode())
        self.links.append(link)

    # ---------------------------------------------------------------------------------------------------------- reading

    def read(self, after: int = 0) -> Iterator[Stored]:
        """Every archived message behind `after`, in order.  Raises `Broken`, at once if a segment is missing, else at the first
        that cannot be trusted."""
        self._refuse_missing([link for link in self.links if link.last > after])
        previous = FIRST
        for link in self.links:
            if link.last > after:
                for message in self._segment(link, previous):
                    if message.position > after:
                        yield Stored(message.position, message.subject, message.data, message.stored_at)
            previous = link.digest

    def some(self, positions: Collection[int]) -> Iterator[Stored]:
        """The archived messages at these positions, in order; only segments that hold one are read.  Raises `Broken`."""
        wanted, previous = sorted(set(positions)), FIRST
        for link in self.links:
            if any(link.first <= position <= link.last for position in wanted):
                for message in self._segment(link, previous):
                    if message.position in wanted:
                        yield Stored(message.position, message.subject, message.data, message.stored_at)
            previous = link.digest

    def verify(self) -> int:
        """Read everything; returns the number of messages.  Raises `Broken`."""
        return sum(1 for _ in self.read())

    def _refuse_missing(self, links: Sequence[Link]) -> None:
        """Rule 5."""
        missing = [link.file for link in links if not (self.directory / link.file).exists()]
        if missing:
            more = f", and {len(missing) - 1} more, the last of them {missing[-1]}," if len(missing) > 1 else ""
            where = self.directory / missing[0]
            raise Broken(
                f"{where}{more} is missing, though the chain names it: bring back what was moved, or a link to it"
            )

    def _segment(self, link: Link, previous: str) -> list[_Message]:
        self._refuse_missing([link])
        path = self.directory / link.file
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != link.digest:
            raise Broken(f"{path} is not the file that was written: its hash does not match the chain")
        found = _decoder.decode(gzip.decompress(content))
        header = found.header
        if header.version != VERSION:
            raise Broken(f"{path} has format {header.version}; this version reads {VERSION}")
        if header.journal != self.journal:
            raise Broken(
                f"{path} is of another journal (created {header.journal}, not {self.journal}): move its directory away"
            )
        if (header.first, header.last, header.previous) != (link.first, link.last, previous):
            raise Broken(f"{path} does not continue the segment before it")
        return found.messages


def _read_chain(path: Path) -> list[Link]:
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    links: list[Link] = []
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n") and number == len(lines):
            _cut(path, len(line))  # rule 1: the machine went down while it was written
            break
        links.append(_link(path, number, line, links[-1].last if links else 0))
    return links


def _link(path: Path, number: int, line: bytes, end: int) -> Link:
    words = line.decode("ascii", "replace").split()
    if len(words) != 4 or not all(word.isdecimal() for word in words[:3]) or len(words[3]) != 64:
        raise Broken(f"{path}:{number}: not a line of a chain: first, last, messages, SHA-256")
    link = Link(int(words[0]), int(words[1]), int(words[2]), words[3])
    if link.first != end + 1 or link.last < link.first or link.messages != link.last - link.first + 1:
        raise Broken(f"{path}:{number}: messages {link.first} to {link.last} do not follow {end} without a gap")
    return link


def _cut(path: Path, count: int) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - count)
        os.fsync(file.fileno())


def _add_line(chain: Path, line: bytes) -> None:
    with chain.open("ab") as lines:
        lines.write(line)
        lines.flush()
        os.fsync(lines.fileno())
    _sync_directory(chain.parent)


def _write_synced(path: Path, content: bytes) -> None:
    beside = path.with_suffix(".part")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
