"""A number of things as people read it.  Pure, and apart from times (`schemas.sentences.units`), which cores may not know."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """`1 host`, `3 hosts`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
