"""The range of a setting, beside its field, with the sentence that documents it.  Pure.

Theory of operation
  `port: Annotated[int, between(0, 65_535, "port that the command listens on")] = 0` says a field's range and meaning in one
  place: the schema documents show both, and `outside` finds every value of a message that is out of its range.

Rules
  1. Decoding refuses no value (there is neither `ge` nor `le` of msgspec): a configuration is journaled, and a journal that was
     written under another range must still fold.  What accepts a configuration calls `outside` and reports every problem.
  2. None is in every range; NaN is in none.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import inspect

_RANGE: Final = "range"  # in `Meta.extra`


class Range(msgspec.Struct, frozen=True):
    """low (<) value (≤) high; `open_low`: low itself is not allowed; `open_high`: nor is high.  `why`: the reason, if
    a person who is refused should know it."""

    low: float
    high: float
    open_low: bool = False
    open_high: bool = False
    why: str = ""

    def holds(self, value: float) -> bool:
        if math.isnan(value):
            return False
        above = value > self.low if self.open_low else value >= self.low
        return above and (value < self.high if self.open_high else value <= self.high)

    @property
    def right(self) -> str:
        low = f"{'more than' if self.open_low else 'at least'} {self.low:.12g}"
        high = f"{'less than' if self.open_high else 'at most'} {self.high:.12g}"
        return f"should be {low} and {high}" + (f": {self.why}" if self.why else "")

    @property
    def schema(self) -> dict[str, float]:
        """As JSON Schema says it."""
        low, high = ("exclusiveMinimum" if self.open_low else "minimum"), "maximum"
        return {low: self.low, "exclusiveMaximum" if self.open_high else high: self.high}


def about(description: str) -> msgspec.Meta:
    """The sentence of a setting of any value."""
    return msgspec.Meta(description=description)


def between(
    low: float, high: float, description: str, *, open_low: bool = False, open_high: bool = False, why: str = ""
) -> msgspec.Meta:
    """The sentence of a setting, and its range."""
    allowed = Range(low, high, open_low, open_high, why)
    return msgspec.Meta(description=description, extra_json_schema=allowed.schema, extra={_RANGE: allowed})


def positive(high: float, description: str, why: str = "") -> msgspec.Meta:
    """More than 0."""
    return between(0, high, description, open_low=True, why=why)


def outside(message: msgspec.Struct) -> Iterator[tuple[tuple[str | int, ...], float, Range]]:
    """Every value in `message` that is out of its range: where it is, what it is, and what is allowed."""
    for name, found in _fields(type(message)):
        yield from _outside(found, getattr(message, name), (name,))


@functools.cache
def _fields(cls: type[msgspec.Struct]) -> tuple[tuple[str, inspect.Type], ...]:
    found: Any = inspect.type_info(cls)
    return tuple((field.name, field.type) for field in found.fields)


def _outside(found: inspect.Type, value: Any, path: tuple[str | int, ...]) -> Iterator[Any]:
    if isinstance(found, inspect.Metadata):
        allowed: Range | None = (found.extra or {}).get(_RANGE)
        if allowed is None:
            yield from _outside(found.type, value, path)
        elif value is not None and not allowed.holds(value):
            yield path, value, allowed
    elif isinstance(found, inspect.UnionType):
        for one in found.types:
            yield from _outside(one, value, path)
    elif isinstance(value, msgspec.Struct):
        for where, wrong, right in outside(value) if isinstance(found, inspect.StructType) else ():
            yield (*path, *where), wrong, right
    elif isinstance(found, inspect.DictType) and isinstance(value, Mapping):
        for key, each in value.items():
            yield from _outside(found.value_type, each, (*path, key))
    elif isinstance(found, inspect.VarTupleType) and isinstance(value, Sequence):
        for place, each in enumerate(value):
            yield from _outside(found.item_type, each, (*path, place))
