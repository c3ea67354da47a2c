"""Which point a search tries next: the grid, random points, or those of Optuna; and that it can be gone on with."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from itertools import islice
from typing import Any

import pytest

from phoenix.search import choose, space
from phoenix.search.choose import Drawn, Grid, Modelled, chooser, new_points
from phoenix.search.space import Point, Space, key

SPACE = space.loads(
    """
[axis]
kind = ["flat", "steep"]
x = { from = 0, to = 100 }
y = { from = 0.0, to = 1.0 }
lean = { from = 1.0, to = 1000.0, log = true, when = { kind = "steep" } }
""",
    lambda *_: None,
)
SMALL = space.loads('[axis]\nkind = ["flat", "steep"]\nx = { from = 1, to = 5 }\n', lambda *_: None)


def score(point: Point) -> float:
    """Small at x = 20 of `steep`, lean near 1."""
    return float(abs(point["x"] - 20) + (50 if point["kind"] == "flat" else point["lean"] / 100))


def tried(found: Any, count: int, known: Iterable[Point] = (), over: float = 101) -> list[Point]:
    """Points asked for one after the other, each told before the next; limits: x is at most `over`."""
    points = []
    for point in islice(new_points(found, SPACE, 1, {key(each) for each in known}), count):
        found.tell(point, [score(point)], [point["x"] - over])
        points.append(point)
    return points


def of(points: Space, most: int) -> type:
    return type(chooser(points, 1, 1, 1, most))


def test_a_space_that_is_small_enough_is_searched_whole() -> None:
    found = chooser(SMALL, 1, 0, 1, 10)
    assert isinstance(found, Grid)
    asked = list(new_points(found, SMALL, 1, {key({"kind": "flat", "x": 3})}))
    assert len(asked) == 9
    assert {"kind": "flat", "x": 3} not in asked
    assert asked != sorted(asked, key=key)  # everywhere a little
    assert "all of the 10 points" in found.about
    assert of(SMALL, 9) is Modelled
    assert of(SPACE, 10**9) is Modelled


def test_without_optuna_points_are_drawn_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    found = chooser(SPACE, 1, 0, 7, 10)
    assert isinstance(found, Drawn)
    assert "phoenix-cloud[tune]" in found.about
    assert tried(found, 5) == tried(Drawn(SPACE, 7), 5) != tried(Drawn(SPACE, 8), 5)


def test_random_points_of_a_space_that_is_all_known_come_to_an_end() -> None:
    assert len(list(new_points(Drawn(SMALL, 1), SMALL, 1, set()))) == 10


def test_optuna_gets_nearer_than_chance() -> None:
    modelled = tried(Modelled(SPACE, 1, 0, 1), 60)
    drawn = tried(Drawn(SPACE, 1), 60)
    late = slice(30, None)
    assert sum(map(score, modelled[late])) < 0.5 * sum(map(score, drawn[late]))
    assert all(("lean" in point) == (point["kind"] == "steep") for point in modelled)
    assert len({key(point) for point in modelled}) == 60


def test_the_same_seed_asks_for_the_same() -> None:
    assert tried(Modelled(SPACE, 1, 1, 3), 15) == tried(Modelled(SPACE, 1, 1, 3), 15)


def test_optuna_keeps_limits() -> None:
    kept, free = (tried(Modelled(SPACE, 1, 1, 1), 60, over=most) for most in (10, 101))
    assert sum(point["x"] <= 10 for point in kept[20:]) > 1.5 * sum(point["x"] <= 10 for point in free[20:])


def test_optuna_goes_on_from_trials_of_before() -> None:
    before = tried(Drawn(SPACE, 1), 60)
    resumed = Modelled(SPACE, 1, 1, 61)
    for point in before:
        resumed.tell(point, [score(point)], [0.0])
    found = tried(resumed, 20, before)
    assert not {key(point) for point in found} & {key(point) for point in before}
    assert sum(map(score, found)) / 20 < 0.7 * sum(map(score, before)) / 60


def test_points_under_way_at_once_differ_and_what_failed_is_no_point_again() -> None:
    found = Modelled(SMALL, 1, 0, 1)
    asked = list(new_points(found, SMALL, 1, set()))  # nothing is told: all are under way
    assert len({key(point) for point in asked}) == len(asked) == 10
    for point in asked:
        found.tell(point, None, ())
    assert choose.UNSCORED > 1e15
