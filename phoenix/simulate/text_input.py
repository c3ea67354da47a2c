"""Text files from outside, plain or compressed with gzip: their lines, or an error that says what is wrong and where.

It decides nothing about what the lines mean.  It must never let an exception of the operating system or of gzip through: who
reads a log meets a sentence with the file and the line.  Compression is recognised by the first two bytes, not by name, so that
a renamed or piped file is read as well.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

# big enough that reading costs nothing beside splitting, small enough to notice rubbish early
BLOCK_BYTES: Final = 1 << 20
LINE_BYTES_MAX: Final = 1 << 16  # the longest line of any log we know has under 400; beyond this it is no text
LINES_MAX: Final = 50_000_000  # 500 bytes of memory for each job: more would not fit into the machine that asks
GZIP: Final = b"\x1f\x8b"


class InputError(Exception):
    """What is wrong with something that a person gave; as text: `file:line: what`."""

    def __init__(self, what: str, path: Path | None = None, line: int | None = None) -> None:
        self.what, self.path, self.line = what, path, line
        where = f"{path}:{line}: " if line is not None else f"{path}: "
        super().__init__(what if path is None else where + what)


def lines(path: Path) -> Iterator[list[bytes]]:
    """The lines of a text file in blocks, without their ends; raises InputError whatever is wrong with the file."""
    number = 0
    try:
        for block in _blocks(path):
            number += len(block)
            if number > LINES_MAX:
                raise InputError(f"more than {LINES_MAX:,} lines; cut the log, or simulate a part of it", path, number)
            yield block
    except EOFError:
        raise InputError(
            "the compressed file ends too early: it was cut off; copy it again", path, number + 1
        ) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"the compressed file is damaged ({error}); copy it again", path, number + 1) from None
    except IsADirectoryError:
        raise InputError("is a directory; name a file", path) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", path) from None


def _blocks(path: Path) -> Iterator[list[bytes]]:
    rest, number = b"", 0
    for data in _bytes(path):
        *block, rest = (rest + data).split(b"\n")
        number += len(block)
        if len(rest) > LINE_BYTES_MAX or b"\0" in rest:
            raise InputError("this is no text file", path, number + 1)
        yield block
    if rest:
        yield [rest]


def _bytes(path: Path) -> Iterator[bytes]:
    with path.open("rb") as raw:
        compressed = raw.peek(2)[:2] == GZIP
        with gzip.GzipFile(fileobj=raw) if compressed else raw as stream:
            while data := stream.read(BLOCK_BYTES):
                yield data
