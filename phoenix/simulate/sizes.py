"""Numbers of hosts as an experiment file spells them: a list, or from, to and step.  Problems are reported as one clause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

SIZES_MAX: Final = 1000  # of one variant; more is a step that was forgotten
HOSTS_MAX: Final = 100_000  # as in the product's configuration
SPELLING: Final = "a list of numbers of hosts, or { from = 100, to = 200, step = 10 }"


class NoSizes(ValueError):
    """`str()`: what would be right."""


def sizes_of(raw: object) -> tuple[int, ...]:
    """The sizes, at least one.  Raises NoSizes."""
    sizes = _listed(raw)
    if not sizes:
        raise NoSizes(f"should be {SPELLING}: at least one")
    if len(sizes) > SIZES_MAX:
        raise NoSizes(f"should be at most {SIZES_MAX} sizes, these are {len(sizes):,}: take a larger step")
    twice = [size for place, size in enumerate(sizes) if size in sizes[:place]]
    if twice:
        raise NoSizes(f"should be different sizes: {twice[0]:,} is there twice")
    wrong = [size for size in sizes if not 1 <= size <= HOSTS_MAX]
    if wrong:
        raise NoSizes(f"should be 1 to {HOSTS_MAX:,} hosts: {wrong[0]:,} is not")
    return tuple(sizes)


def _listed(raw: object) -> Sequence[int]:
    try:
        if isinstance(raw, Mapping):
            return _span(msgspec.convert(dict(raw), dict[str, int], strict=True))
        return msgspec.convert(raw, tuple[int, ...], strict=True)
    except msgspec.ValidationError:
        raise NoSizes(f"should be {SPELLING}") from None


def _span(given: dict[str, int]) -> range:
    span = {"step": 1, **given}
    if set(span) != {"from", "to", "step"}:
        raise NoSizes(f"should be {SPELLING}")
    if span["step"] < 1:
        raise NoSizes(f"step should be 1 or more: {span['step']} never comes to an end")
    if span["from"] > span["to"]:
        raise NoSizes(f"from should be at most to: {span['from']:,} is more than {span['to']:,}")
    return range(span["from"], span["to"] + 1, span["step"])
