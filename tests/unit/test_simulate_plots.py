"""Plots of runs that differ in their seeds alone: a mean and what spans them, never a zigzag or a lucky best."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phoenix.simulate import outputs, plots
from phoenix.simulate.outputs import Result
from phoenix.simulate.plots_runs import spread
from phoenix.simulate.report import Run, run_of
from phoenix.simulate.workload import JobRecord, Outcome, WebRecord


def made(policy: str, nodes: int, seed: int, done: int, each_s: float, *, killed: int = 0) -> Result:
    jobs = [
        JobRecord(
            number=n,
            department="hpc",
            user="ann",
            submit_s=0.0,
            run_s=each_s,
            nodes=1,
            cores=1,
            start_s=0.0,
            last_start_s=0.0,
            end_s=each_s,
            end="killed" if n <= killed else "completed",
        )
        for n in range(1, done + killed + 1)
    ]
    label = f"{policy} {nodes} seed {seed}"
    outcome = Outcome(label=label, hosts=nodes, window_s=1000.0, host_cores=1, jobs=jobs)
    outcome.web = [WebRecord(department="web", levels=[(0.0, 1, 1)])]
    return Result(run=run_of(outcome, configuration="dynamic", policy=policy), outcome=outcome)


RESULTS = [
    made("a", 8, 1, 2, 100.0, killed=1),
    made("a", 8, 2, 6, 300.0, killed=3),
    made("a", 10, 1, 4, 100.0),
    made("a", 10, 2, 8, 300.0),
    made("b", 8, 1, 5, 150.0, killed=2),
    made("b", 8, 2, 5, 150.0, killed=2),
]
RUNS: list[Run] = [result.run for result in RESULTS]


def lines(axes: Any) -> dict[str, list[tuple[float, float]]]:
    return {
        str(line.get_label()): [(float(x), float(y)) for x, y in line.get_xydata()]
        for line in axes.get_lines()
        if not str(line.get_label()).startswith("_")
    }


def test_the_values_at_each_x_are_a_mean_between_the_least_and_the_most() -> None:
    assert spread([(2, 5.0), (1, 4.0), (1, 1.0), (1, 4.0), (3, None)]) == [(1, 1.0, 3.0, 4.0), (2, 5.0, 5.0, 5.0)]


def test_a_sweep_has_one_point_for_each_size_however_many_seeds() -> None:
    axes: list[Any] = plots.sweep_plot(RUNS, series="policy").axes
    left, right = axes
    assert lines(left) == {"policy: a": [(8, 4), (10, 6)], "policy: b": [(8, 5)]}
    assert lines(right) == {"policy: a": [(8, 200), (10, 200)], "policy: b": [(8, 150)]}
    (spans,) = left.collections
    assert [[list(end) for end in bar] for bar in spans.get_segments()] == [[[8, 2], [8, 6]], [[10, 4], [10, 8]]]


def test_bars_of_seeds_do_not_hide_each_other() -> None:
    axes: Any = plots.preemption_plot(RUNS, series="policy").axes[0]
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == [2.0, 0.0, 2.0]
    assert len({round(bar.get_x(), 6) for bar in axes.patches}) == 3


def test_a_lucky_seed_makes_no_policy_the_best() -> None:
    """Seed 2 of a completes most, seed 1 is soonest; the means of b beat those of a in both."""
    axes: Any = plots.frontier(RUNS).axes[0]
    filled = [
        (float(line.get_xdata()[0]), float(line.get_ydata()[0]))
        for line in axes.get_lines()
        if line.get_marker() in ("o", "s") and line.get_markersize() == 8
    ]
    assert sorted(filled) == [(5.0, 150.0), (6.0, 200.0)]


def test_counts_have_whole_ticks() -> None:
    few = [made("a", 8, 1, 1, 10.0).run, made("a", 10, 1, 2, 10.0).run]
    left, _ = plots.sweep_plot(few, series="policy").axes
    web = plots.web_consumption(RESULTS[0].outcome or Outcome(label="", hosts=1, window_s=1.0, host_cores=1)).axes[0]
    for axes in (left, web):
        assert all(float(tick).is_integer() for tick in axes.get_yticks())


def test_a_plot_says_what_it_leaves_out_and_which_run_it_shows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    captions: dict[str, str] = {}

    def saved(figure: Any, path: Path) -> None:
        captions[path.name] = figure._supxlabel.get_text() if figure._supxlabel else ""

    monkeypatch.setattr(plots, "save", saved)
    outputs.plot(tmp_path, "x", RESULTS * 2, workers=1)
    assert captions["x-distributions.svg"] == "The first 8 of 12 runs; --run LABEL shows another one."
    assert captions["x-web.svg"] == "Run a 8 seed 1."
    assert captions["x-sweep.svg"] == "Means of 4 runs (seeds); bars span them."
    outputs.plot(tmp_path, "one", RESULTS[:1], workers=1)
    assert captions["one-web.svg"] == ""
