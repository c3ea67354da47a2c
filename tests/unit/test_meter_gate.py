"""The gate before the meter: what is not read, and whose trouble is told."""

from __future__ import annotations

from schemas.signal_drops import Drop
from services.scheduler.meter.signal_filter import BYTES_PER_S, SILENT_S, TELL_AFTER, TROUBLES_MAX, Gate
from tests.unit.test_web_meter import NOW, told


def test_what_cannot_be_read_is_told_with_what_is_wrong() -> None:
    gate = Gate()
    for _ in range(TELL_AFTER):
        gate.drop("cpu", Drop.MALFORMED, NOW, note="utilisation: a number")
    assert told(gate) == [f"{TELL_AFTER} cpu signals were dropped: they cannot be read (utilisation: a number)"]


def test_more_than_can_be_read_is_not_read() -> None:
    gate = Gate()
    size = BYTES_PER_S // 4
    assert [gate.affords("sessions", "lb", size, NOW) for _ in range(5)] == [True] * 4 + [False]
    assert gate.affords("cpu", "lb", 100, NOW)  # each signal by itself
    assert gate.affords("sessions", "wendy", size, NOW)  # and each user
    assert [gate.affords("sessions", "lb", size, NOW + 0.5) for _ in range(3)] == [True, True, False]
    assert not gate.affords("sessions", "lb", size, NOW - 3600)  # a clock that is set back
    assert gate.affords("sessions", "lb", size, NOW - 3599)


def test_what_is_folded_away_is_told_at_once_if_it_is_much_with_who_sent_it() -> None:
    gate = Gate()
    assert gate.drop("cpu", Drop.TOO_OFTEN, NOW, user="wendy", count=TELL_AFTER - 1) is None
    assert gate.drop("cpu", Drop.TOO_OFTEN, NOW, user="wendy", count=1000) is not None
    assert gate.drop("cpu", Drop.TOO_OFTEN, NOW, user="wendy", count=1000) is None, "it has been told"
    assert told(gate) == [f"{TELL_AFTER + 1999} cpu signals of user wendy were dropped: they come too often"]
    assert gate.dropped == {("cpu", "too_often"): TELL_AFTER + 1999}


def test_troubles_are_bounded() -> None:
    gate = Gate()
    for n in range(3 * TROUBLES_MAX):
        for _ in range(TELL_AFTER):
            gate.drop("cpu", Drop.LATE, NOW + n, source=str(n))
    assert len(gate.troubles(NOW + n)) == min(TROUBLES_MAX, SILENT_S + 1)
