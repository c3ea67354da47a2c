"""What instances answered between two signals, from counters that only grow, or begin anew."""

from __future__ import annotations

from phoenix.balance.answers import Counts, Growth
from phoenix.haproxy.flow import Flow
from phoenix.haproxy.reconciler import plan
from phoenix.haproxy.slots import Counters, Reading, Slot
from phoenix.haproxy.table import Wanted
from schemas.signals import SESSIONS_MAX


def counts(*told: tuple[str, int, int]) -> list[Counts]:
    return [Counts(unit, unit, answered, errors) for unit, answered, errors in told]


def test_counters_that_begin_at_0_are_told_from_the_first_look_on() -> None:
    growth = Growth(from_zero=True)
    assert growth.since(counts(("web.1", 10, 2), ("web.2", 0, 0))) == {"web.1": (10, 2)}
    assert growth.since(counts(("web.1", 10, 2), ("web.2", 4, 4))) == {"web.2": (4, 4)}
    assert growth.since(counts(("web.2", 9, 4))) == {"web.2": (5, 0)}
    assert growth.since([]) == {}


def test_counters_that_may_have_another_past_are_told_from_the_second_look_on() -> None:
    growth = Growth(from_zero=False)
    assert growth.since(counts(("web.1", 1000, 20))) == {}
    assert growth.since(counts(("web.1", 1010, 21), ("web.2", 5, 0))) == {"web.1": (10, 1)}
    assert growth.since(counts(("web.1", 3, 0), ("web.2", 6, 0))) == {"web.2": (1, 0)}, "it has begun anew"
    assert growth.since(counts(("web.1", 5, 0))) == {"web.1": (2, 0)}


def test_ranks_of_a_unit_are_one_instance() -> None:
    growth = Growth(from_zero=True)
    assert growth.since([Counts(0, "web.1", 3, 1), Counts(1, "web.1", 4, 0)]) == {"web.1": (7, 1)}


def test_no_more_than_a_signal_may_name() -> None:
    many = counts(*((f"web.{number}", 1, 0) for number in range(1, SESSIONS_MAX + 3)))
    assert len(Growth(from_zero=True).since(many)) == SESSIONS_MAX


def reading(pid: int, *told: tuple[int, int, int]) -> Reading:
    """Slots at ports, and what they have answered."""
    slots = tuple(
        Slot(f"phoenix{number}", ("127.0.0.1", port), "ready", True, True, 1, answered=answered, errors=errors)
        for number, (port, answered, errors) in enumerate(told, 1)
    )
    return Reading(pid, 1.0, slots, Counters(0, 0, 0, None, 0, 0))


def test_an_instances_answers_are_those_of_its_slot_while_it_has_it() -> None:
    flow = Flow("lb")
    one, two = (Wanted(f"web.{number}", 1, 0, ("127.0.0.1", 9000 + number)) for number in (1, 2))

    def told(found: Reading, *wanted: Wanted) -> dict[str, tuple[int, int]] | None:
        signal = flow.answers(wanted, plan(wanted, found.slots), found, 1.0)
        return dict(signal.instances) if signal is not None else None

    assert told(reading(7, (9001, 100, 0)), one) is None
    assert told(reading(7, (9001, 130, 30)), one) == {"web.1": (30, 30)}
    assert told(reading(7, (9002, 135, 35)), two) is None, (
        "another one has the slot: whose answers these are nobody knows"
    )
    assert told(reading(7, (9002, 140, 35)), two) == {"web.2": (5, 0)}
    assert told(reading(8, (9002, 150, 36)), two) is None, "another process"
    assert told(reading(8, (9002, 151, 37)), two) == {"web.2": (1, 1)}
