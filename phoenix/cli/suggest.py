"""Close matches for what was mistyped."""

from __future__ import annotations

from collections.abc import Iterable


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word nearest to `word`, or None if nothing is near."""
    import difflib  # only on the way to an error message

    matches = difflib.get_close_matches(word, sorted(set(known)), n=1, cutoff=0.6)
    return matches[0] if matches else None


def hint(word: str, known: Iterable[str], listing: str = "") -> str:
    """`did you mean 'queue'?`, or else what there is."""
    names = sorted(set(known))
    near = closest(word, names)
    if near is not None:
        return f"did you mean {near!r}?"
    if listing:
        return listing
    return f"there is: {', '.join(names)}" if names else ""
