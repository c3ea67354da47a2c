"""A number of things as people read it."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """`1 host`, `3 hosts`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
