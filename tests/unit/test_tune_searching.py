"""The search itself, of a department whose turnaround is a formula: what is told, left out, counted, and judged elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from phoenix.search import space
from phoenix.search.trials import Head, opened
from phoenix.tune.goals import parse
from phoenix.tune.searching import HELD_OUT_MAX, Budget, Found, judge, search

SPACE = space.loads("[axis]\nhpc.x = { from = 0, to = 100 }\nhpc.y = { from = 0, to = 100 }\n", lambda *_: None)
SIZED = space.loads("[axis]\ncluster.hosts = [10, 20]\nhpc.x = { from = 0, to = 9 }\n", lambda *_: None)


class Formula:
    """A `Bench`: turnaround is small at x = 30, y = 60, completed jobs are many where x is large."""

    name, against = "formula", "static"
    limits: tuple[Any, ...] = ()
    sizes: tuple[int, ...] = (10,)

    def __init__(self, worlds: Iterable[str] = (), odd: int = 1000) -> None:
        self.kinds, self.parts, self.notes, self.worlds = {"hpc": "batch"}, {}, [], tuple(worlds)
        self.odd = odd
        self.ran: list[tuple[dict[str, Any], str]] = []

    def legal(self, name: str, value: Any, beside: Mapping[str, Any]) -> str | None:
        return None

    def problem(self, values: Mapping[str, Any]) -> str | None:
        return "too much" if values.get("hpc.x", 0) > self.odd else None

    def run(self, values: Mapping[str, Any], world: str, metrics: Iterable[str]) -> dict[str, float | None]:
        self.ran.append((dict(values), world))
        x, y = values.get("hpc.x", 0), values.get("hpc.y", 60)
        return {"hpc.mean_turnaround_s": abs(x - 30) + abs(y - 60) + len(world), "hpc.completed": float(x)}

    def reference(self, world: str, metrics: Iterable[str]) -> dict[str, float | None]:
        return {"hpc.mean_turnaround_s": 50.0, "hpc.completed": 1.0}


def found(
    path: Path, bench: Formula, trials: int, of: space.Space = SPACE, *texts: str, held_out: bool = False
) -> Found:
    aims = parse(texts or ["min hpc.mean_turnaround_s"], bench.kinds, bench.against)
    with opened(path / "t.jsonl", Head(search="x", parts={})) as kept:
        result = search(bench, of, aims, kept, Budget(trials, None, 1, 1))
        if held_out:
            judge(result, kept, 1)
    return result


def mean(result: Found, last: int) -> float:
    return sum(each.result["hpc.mean_turnaround_s"] for each in result.trials[-last:]) / last


def test_a_search_that_goes_on_has_heard_of_what_was_before(tmp_path: Path) -> None:
    before = found(tmp_path, Formula(), 50)
    bench = Formula()
    after = found(tmp_path, bench, 58)
    assert len(bench.ran) == 8  # nothing of before
    assert after.trials[:50] == before.trials
    assert mean(after, 8) < 0.5 * mean(before, 50)


def test_points_whose_values_do_not_go_together_are_left_out_and_counted(tmp_path: Path) -> None:
    bench = Formula(odd=3)
    result = found(tmp_path, bench, 100, SIZED)
    assert len(result.trials) == 2 * 4
    assert len(result.refused) == 2 * 6
    assert set(result.refused.values()) == {"too much"}


def test_each_size_has_its_front_and_the_best_are_judged_with_the_own_settings(tmp_path: Path) -> None:
    both = ("min hpc.mean_turnaround_s", "max hpc.completed", "hpc.completed > static")
    bench = Formula(["a", "bb"])
    result = found(tmp_path, bench, 20, SIZED, *both, held_out=True)
    assert result.sizes() == [10, 20]
    assert [trial.point for trial in result.front(10)] == [{"cluster.hosts": 10, "hpc.x": 9}]
    assert result.own_result(20, "bb") == {"hpc.mean_turnaround_s": 32.0, "hpc.completed": 0.0}
    assert result.held_out(result.front(20)[0])["a"]["hpc.completed"] == 9.0
    assert len(bench.ran) == 20 + 3 * 2 + 2 * 2  # trials, own settings in three worlds, one point of each size in two
    assert set(result.references) == {"", "a", "bb"}


def test_of_a_long_front_the_best_in_each_aim_are_judged(tmp_path: Path) -> None:
    both = ("min hpc.mean_turnaround_s", "max hpc.completed")
    result = found(
        tmp_path, Formula(["a"]), 400, space.loads("[axis]\nhpc.x = { from = 0, to = 99 }\n", lambda *_: None), *both
    )
    assert len(result.front(None)) == 70
    judged = [trial.point["hpc.x"] for trial in result.judged(None)]
    assert judged[:2] == [30, 99]
    assert len(judged) == HELD_OUT_MAX


def test_sizes_have_as_many_trials_each_also_after_others(tmp_path: Path) -> None:
    sizes = space.loads("[axis]\nhpc.x = { from = 0, to = 99 }\ncluster.hosts = [10, 20, 30]\n", lambda *_: None)
    for trials in (5, 16, 30):
        result = found(tmp_path, Formula(), trials, sizes, "max hpc.completed", "hpc.completed > static")
        counts = [len(result.of_size(hosts)) for hosts in (10, 20, 30)]
        assert max(counts) - min(counts) <= 1
        assert sum(counts) == trials


@pytest.mark.parametrize("trials", [1, 7])
def test_there_are_as_many_trials_as_wanted(tmp_path: Path, trials: int) -> None:
    assert len(found(tmp_path, Formula(), trials).trials) == trials
    assert len(found(tmp_path, Formula(), trials).trials) == trials
