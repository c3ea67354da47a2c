"""What is kept of a flood of signals until somebody looks."""

from __future__ import annotations

from services.runtime.signal_line import KEPT_BYTES, KEPT_MAX, Message, Newest


def message(number: int, size: int = 0) -> Message:
    return Message(b"%d" % number + b" " * size, "", float(number))


def test_all_that_came_is_handed_on_once_by_subject_the_oldest_first() -> None:
    newest = Newest()
    for number in range(4):
        newest.put("ab"[number % 2], message(number))
    assert newest.take() == [("a", (message(0), message(2)), 0), ("b", (message(1), message(3)), 0)]
    assert newest.take() == []


def test_of_a_flood_the_newest_are_kept_and_the_others_counted() -> None:
    newest = Newest()
    newest.put("quiet", message(0))
    for number in range(100_000):
        newest.put("loud", message(number))
    (quiet, loud) = newest.take()
    assert quiet == ("quiet", (message(0),), 0)
    assert [one.at for one in loud.messages] == list(range(100_000 - KEPT_MAX, 100_000))
    assert loud.folded == 100_000 - KEPT_MAX


def test_large_ones_are_kept_as_far_as_there_is_room() -> None:
    newest = Newest()
    for number in range(4):
        newest.put("a", message(number, KEPT_BYTES // 3))
    newest.put("b", message(9, KEPT_BYTES))
    ((_, kept, folded), (_, none, too_large)) = newest.take()
    assert ([one.at for one in kept], folded) == ([2.0, 3.0], 2)
    assert (none, too_large) == ((), 1)
