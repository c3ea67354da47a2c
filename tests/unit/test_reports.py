"""Signs of life of admission: who had ended before it has been alive for a while has been heard."""

from __future__ import annotations

from services.scheduler.reports import REPORT_S, Signs

GAP_S = 2.0
LOOK_S = 0.5


def until(signs: Signs, revisions: list[int | None], now: float) -> float | None:
    """The last answer to one look each half second."""
    found = None
    for number, revision in enumerate(revisions):
        found = signs.look(revision, now + number * LOOK_S)
    return found


def test_admission_that_renews_its_lease_is_heard_after_a_while() -> None:
    looks = int(REPORT_S / LOOK_S) + 2
    assert until(Signs(GAP_S), list(range(looks - 1)), 100.0) is None
    assert until(Signs(GAP_S), list(range(looks)), 100.0) == 100.0 + LOOK_S  # its first renewal that was seen


def test_a_lease_that_stands_still_is_no_sign() -> None:
    assert until(Signs(GAP_S), [7] * 100, 100.0) is None


def test_a_lease_that_nobody_holds_is_none() -> None:
    assert until(Signs(GAP_S), [None] * 100, 100.0) is None


def test_after_a_gap_it_begins_anew() -> None:
    signs = Signs(GAP_S)
    assert until(signs, list(range(20)), 100.0) is not None
    assert signs.look(20, 200.0) is None
    assert until(signs, list(range(21, 41)), 200.5) == 200.5 + 19 * LOOK_S - REPORT_S


def test_a_look_that_fails_is_no_gap_by_itself() -> None:
    looks = [number if number % 2 else None for number in range(20)]
    assert until(Signs(GAP_S), looks, 100.0) is not None
