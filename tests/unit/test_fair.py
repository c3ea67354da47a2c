"""Who has the host that two have an equal claim to."""

from __future__ import annotations

from services.domain.sharing.max_min import Part, fill


def test_at_the_same_level_it_goes_to_who_had_so_many_before_and_then_by_name() -> None:
    had = [Part("a", 1.0, 0, 9, had=0), Part("b", 1.0, 0, 9, had=1), Part("c", 1.0, 0, 9, had=1)]
    assert fill(had, 1) == {"a": 0, "b": 1, "c": 0}
    assert fill(had, 2) == {"a": 0, "b": 1, "c": 1}
    assert fill([part._replace(had=0) for part in had], 2) == {"a": 1, "b": 1, "c": 0}
