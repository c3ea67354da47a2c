"""Close matches for what was mistyped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_DIGITS: Final = "0123456789"


def same_but_numbers(word: str, known: Iterable[str]) -> list[str]:
    """The known words that differ from `word` in their last number alone, lowest number first: another number is no typing
    error to guess at."""
    stem = word.rstrip(_DIGITS)
    found = [name for name in sorted(set(known)) if name.rstrip(_DIGITS) == stem and name != stem]
    return sorted(found, key=lambda name: (int(name[len(stem) :]), name)) if stem != word else []


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word nearest to `word`, or None if nothing is near."""
    import difflib  # only on the way to an error message

    matches = difflib.get_close_matches(word, sorted(set(known)), n=1, cutoff=0.6)
    return matches[0] if matches else None


def hint(word: str, known: Iterable[str], listing: str = "") -> str:
    """`did you mean 'queue'?`, or else what there is."""
    names = sorted(set(known))
    numbered = same_but_numbers(word, names)
    if len(numbered) > 1:
        return f"there are {numbered[0]} to {numbered[-1]}, {len(numbered)} in all"
    near = closest(word, names)
    if near is not None:
        return f"did you mean {near!r}?"
    if listing:
        return listing
    return f"there is: {', '.join(names)}" if names else ""
