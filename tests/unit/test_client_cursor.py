"""Where events are continued behind: exactly behind the last one, also where a connection was cut within a position."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from phoenix.client.answers import Event
from phoenix.client.errors import Invalid
from phoenix.client.following import Cursor


def event(id_: str) -> Event:
    position, index = map(int, id_.split("."))
    return Event(id=id_, position=position, index=index, at=datetime(2026, 1, 1, tzinfo=UTC), kind="job.held")


def taken(cursor: Cursor, *ids: str) -> list[str]:
    return [id_ for id_ in ids if cursor.takes(event(id_))]


def test_a_position_was_seen_as_a_whole() -> None:
    cursor = Cursor(7)
    assert cursor.resume() == 7
    assert taken(cursor, "7.0", "7.1", "8.0") == ["8.0"]


def test_behind_an_events_id_the_rest_of_its_position_is_asked_for() -> None:
    cursor = Cursor("7.1")
    assert cursor.resume() == 6
    assert taken(cursor, "7.0", "7.1", "7.2", "8.0") == ["7.2", "8.0"]


def test_what_was_cut_off_within_a_position_is_asked_for_again_and_seen_once() -> None:
    cursor = Cursor(0)
    assert taken(cursor, "7.0", "8.0", "8.1") == ["7.0", "8.0", "8.1"]
    assert cursor.resume() == 7
    assert taken(cursor, "8.0", "8.1", "8.2", "9.0") == ["8.2", "9.0"]


def test_after_a_silence_nothing_of_the_position_is_missing() -> None:
    cursor = Cursor(0)
    assert taken(cursor, "8.0") == ["8.0"]
    cursor.rest()
    assert cursor.resume() == 8
    assert taken(cursor, "8.0", "9.0") == ["9.0"]


def test_nothing_is_seen_twice_however_often_it_comes() -> None:
    cursor = Cursor(0)
    assert taken(cursor, *["1.0", "2.0", "2.1"] * 3) == ["1.0", "2.0", "2.1"]


@pytest.mark.parametrize("wrong", ["", "x", "-1", -1, "1.", "1.x", ".1", "1.0.0"])
def test_what_is_no_place_is_refused(wrong: int | str) -> None:
    with pytest.raises(Invalid, match="after") as caught:
        Cursor(wrong)
    assert caught.value.field == "after"
