"""Signs of life of admission: since when it has been alive without a gap, and when last."""

from __future__ import annotations

from services.scheduler.edge.reports import Signs

GAP_S = 2.0
LOOK_S = 0.5


def heard(revisions: list[int | None], now: float, signs: Signs | None = None) -> tuple[float, float]:
    """Since when, and when last, after one look each half second."""
    signs = Signs(GAP_S) if signs is None else signs
    for number, revision in enumerate(revisions):
        signs.look(revision, now + number * LOOK_S)
    return signs.since, signs.last


def test_a_lease_that_is_renewed_is_a_sign() -> None:
    assert heard([1, 2, 3, 4], 100.0) == (100.5, 101.5)  # what was there at the first look may be old


def test_a_lease_that_stands_still_is_none() -> None:
    assert heard([7] * 100, 100.0) == (0.0, 0.0)


def test_a_lease_that_nobody_holds_is_none() -> None:
    assert heard([None] * 100, 100.0) == (0.0, 0.0)


def test_after_a_gap_it_begins_anew() -> None:
    signs = Signs(GAP_S)
    assert heard([1, 2, 3], 100.0, signs) == (100.5, 101.0)
    assert heard([3] * 4, 101.5, signs) == (100.5, 101.0)
    assert heard([4, 5], 103.5, signs) == (103.5, 104.0)


def test_a_look_that_fails_is_no_gap_by_itself() -> None:
    assert heard([1, None, 2, None, 3], 100.0) == (101.0, 102.0)


def test_an_attempt_that_began_is_a_sign_of_that_moment() -> None:
    signs = Signs(GAP_S)
    signs.note(99.0)
    assert heard([1, 2], 100.0, signs) == (99.0, 100.5)
    signs.note(99.0)  # the same one, at the next look
    assert (signs.since, signs.last) == (99.0, 100.5)
