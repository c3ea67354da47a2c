"""The queue at load balancers: whose word counts, for how long, and when it is told."""

from __future__ import annotations

from schemas.signals import RequestsSignal
from services.scheduler.meter.meter import Meter
from services.scheduler.meter.queue import HELD_S, WAITED_S, Queue, Refused, Waiting
from tests.support.times import time_at

NOW = 1_000.0


def said(queue: int | None, source: str = "a") -> RequestsSignal:
    return RequestsSignal(rate=40.0, queue=queue, source=source)


def test_a_queue_is_told_when_it_has_stood_for_a_while() -> None:
    queue = Queue()
    for second in range(4):
        queue.take(said(10 + second), NOW + second, ("lb", ""))
        assert (queue.waiting(NOW + second) is None) == (second < WAITED_S)
    assert queue.waiting(NOW + 3) == Waiting(13, WAITED_S)
    queue.take(said(0), NOW + 4, ("lb", ""))
    assert queue.waiting(NOW + 4) is None
    queue.take(said(9), NOW + 5, ("lb", ""))
    assert queue.waiting(NOW + 7) is None  # it begins anew


def test_queues_of_several_add_up_and_a_word_does_not_hold_for_ever() -> None:
    queue = Queue()
    for second in range(5):
        queue.take(said(5, "a"), NOW + second, ("lb", "a"))
        queue.take(said(7, "b"), NOW + second, ("lb", "b"))
    assert queue.waiting(NOW + 4) == Waiting(12, 4.0)
    queue.take(said(None, "b"), NOW + 4, ("lb", "b"))
    assert queue.waiting(NOW + 4) == Waiting(5, 4.0)
    assert queue.waiting(NOW + 4 + HELD_S) is None
    queue.take(said(5), NOW + 60, ("lb", ""))
    assert queue.waiting(NOW + 60) is None  # nobody knows what was meanwhile


def test_the_meter_hands_on_what_it_takes() -> None:
    meter = Meter("web")
    for second in range(5):
        signal = RequestsSignal(rate=40.0, queue=3, at=time_at(NOW + second))
        meter.take(signal, NOW + second)
        meter.take(signal, NOW + second)  # out of order: dropped
    assert meter.queue.waiting(NOW + 4) == Waiting(3, 4.0)


def test_what_is_turned_away_is_told_by_itself() -> None:
    queue = Queue()
    for second in range(4):
        queue.take(RequestsSignal(rate=50.0, refused=12.25), NOW + second, ("lb", "a"))
        queue.take(RequestsSignal(rate=50.0, refused=12.25), NOW + second, ("lb", "b"))
        assert (queue.refused(NOW + second) is None) == (second < WAITED_S)
    assert queue.refused(NOW + 3) == Refused(24.5, WAITED_S)
    assert queue.waiting(NOW + 3) is None
    for source in "ab":
        queue.take(RequestsSignal(rate=20.0, refused=0.0), NOW + 4, ("lb", source))
    assert queue.refused(NOW + 4) is None
