"""A size: how much of each resource something needs, or offers.

Theory of operation
  What a rank needs of its host, what a host has, what is in use there and what is left are all one thing: a vector with a
  number for each dimension of `schemas.dimensions`.  On the wire it is flat (`cores`, `memory_mb`): `size_of` reads it from
  whatever has a field for each dimension, `Size.fields` writes it.

Rules
  1. Code that needs sizes as a whole uses this arithmetic; code that needs each dimension loops over the table of dimensions.
     Nothing else names two of them side by side.
  2. Numbers may be negative where something is taken from what is not there; what is negative holds nothing.
  3. The natural order compares cores, then memory, then GPUs: what best fit goes by among hosts that are alike otherwise.
  4. Placement calls this for each kind of host, so the arithmetic is written out, not looped: `tests/unit/test_size.py` holds
     that it counts every dimension of the table.  Most hosts of a wide job are empty or full: `NOTHING` makes no new tuple.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple

_new: Final = tuple.__new__  # twice as fast as calling the type


class Size(NamedTuple):
    """Of one host or rank.  `memory_mb`: MiB."""

    cores: int = 0
    memory_mb: int = 0
    gpus: int = 0

    def fits_in(self, room: Size) -> bool:
        return self.cores <= room.cores and self.memory_mb <= room.memory_mb and self.gpus <= room.gpus

    def fits_beside(self, used: Size, room: Size) -> bool:
        """True if `room` holds this in addition to what is used of it."""
        return (
            self.cores + used.cores <= room.cores
            and self.memory_mb + used.memory_mb <= room.memory_mb
            and self.gpus + used.gpus <= room.gpus
        )

    def plus(self, other: Size) -> Size:
        if self is NOTHING:
            return other
        return _new(Size, (self.cores + other.cores, self.memory_mb + other.memory_mb, self.gpus + other.gpus))

    def minus(self, other: Size) -> Size:
        if other is NOTHING:
            return self
        if other is self:
            return NOTHING
        return _new(Size, (self.cores - other.cores, self.memory_mb - other.memory_mb, self.gpus - other.gpus))

    def times(self, number: int) -> Size:
        return _new(Size, (number * self.cores, number * self.memory_mb, number * self.gpus))

    def most(self, other: Size) -> Size:
        """The larger of both, dimension by dimension."""
        return Size(max(self.cores, other.cores), max(self.memory_mb, other.memory_mb), max(self.gpus, other.gpus))

    def copies_in(self, room: Size) -> int | None:
        """How many of this size `room` holds, negative if less than nothing is left; None: it needs nothing, so there is no
        end."""
        found: int | None = None
        for each, there in zip(self, room, strict=True):
            if each:
                copies = there // each
                found = copies if found is None or copies < found else found
        return found

    def lacking_in(self, room: Size) -> Size:
        """What `room` is short of to hold this; nothing if it fits."""
        return self.minus(room).most(NOTHING)

    def fields(self) -> dict[str, Any]:
        """As the wire has it: field -> number."""
        return self._asdict()


FIELDS: Final = Size._fields  # as facts, requests and answers name the dimensions
NOTHING: Final = Size()
TAKEN: Final = Size(*(-1 for _ in FIELDS))  # of a host that one job has alone: not even what needs nothing fits
_read: Final = attrgetter(*FIELDS)


def size_of(flat: Any) -> Size:
    """Of a fact, a job or an answer: whatever has a field for each dimension."""
    return _new(Size, _read(flat))


def size_in(answer: Mapping[str, Any]) -> Size:
    """Of the table of an answer; a dimension that it does not have is 0."""
    return _new(Size, [answer.get(field) or 0 for field in FIELDS])


def total(sizes: Iterable[Size]) -> Size:
    """Of all together."""
    found = NOTHING
    for size in sizes:
        found = found.plus(size)
    return found
