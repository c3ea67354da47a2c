"""`phoenix simulate svmsched|intergrid --sweep`: what may vary, what is run, and what the seeds say of a claim."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pytest

from phoenix.cli.errors import CliError
from phoenix.search.space import ConfigError, loads
from phoenix.simulate import engine
from phoenix.simulate.intervals import verdict
from phoenix.simulate.workload import LogJob
from phoenix_papers import region
from phoenix_papers.intergrid import rules as intergrid_rules
from phoenix_papers.intergrid import sweep as intergrid_sweep
from phoenix_papers.study import Claim, Column, Region, Study, Told
from phoenix_papers.svmsched import experiment as svmsched
from phoenix_papers.svmsched import rules as svmsched_rules
from phoenix_papers.svmsched import sweep as svmsched_sweep

THIRDS = svmsched_rules.SETTINGS[0]
SPACE = """[fixed]
z = 1.5
[axis]
x = [1, 2]
y = { from = 0, to = 2, step = 1 }
"""


class Three(msgspec.Struct, frozen=True, kw_only=True):
    x: int = 1
    y: int = 0
    z: Annotated[float, msgspec.Meta(ge=1)] = 1.0
    rate: float = 40.0


def study(calls: list[tuple[dict[str, Any], int]]) -> Study:
    """x gains what it is, y costs it, and the seed moves it by 0.1 or less."""

    def measure(point: Mapping[str, Any], seed: int) -> dict[str, float]:
        calls.append((dict(point), seed))
        return {"gain": point["x"] - point["y"] + seed / 100, "size": float(point["x"])}

    return Study(
        name="small",
        parameters=Three,
        stated={"rate": "40 are stated"},
        measure=measure,
        columns=(Column("GAIN", "gain", 2),),
        claims=(Claim("MORE", "something is gained", lambda own: own["gain"]),),
        told=(Told("size is 2", "size", 1.5, 2.5),),
        level=lambda row: sum(row.measures["gain"]),
        level_label="gain",
    )


def swept(calls: list[tuple[dict[str, Any], int]], place: Path, text: str = SPACE, seeds: int = 3) -> Region:
    small = study(calls)
    return region.swept(small, loads(text, region.legal(small), gridded=True), place, seeds, workers=1)


# -------------------------------------------------------------------------------------------------------------- the space


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[axis]\nbust = [1, 2]",
            'space.toml:2: axis.bust: 1: should be a parameter of the workload; did you mean "burst"?',
        ),
        ("[axis]\nburst = [1, 0]", "space.toml:2: axis.burst: 0: should be a whole number from 1 to 100"),
        (
            "[axis]\nburst = [1]\nhosts = [6, 7]",
            "space.toml:3: axis.hosts: 7: should not be here: 6 hosts of 8 cores are stated",
        ),
        (
            "[fixed]\nstart_s = 1\n[axis]\nburst = [1]",
            "space.toml:2: fixed.start_s: 1: should not be here: 15.0 s are stated",
        ),
        ("[axis]\nspread_s = { from = 9, to = 3 }", "should be at most to, which is 3: the range is empty"),
        (
            '[fixed]\nagainst_the_source = ["burst"]\n[axis]\nburst = [1]',
            "should be a list of what the source states: hosts, threshold_s, short_part, best_effort, start_s",
        ),
    ],
)
def test_a_space_that_does_not_fit_is_refused_with_its_line(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(text, region.legal(svmsched_sweep.study()), gridded=True)
    assert told in str(caught.value)


def test_what_is_stated_varies_where_the_space_says_so() -> None:
    text = '[fixed]\nagainst_the_source = ["hosts"]\nstart_s = 15.0\n[axis]\nhosts = [6, 8]'
    space = loads(text, region.legal(svmsched_sweep.study()), gridded=True)
    assert [axis.name for axis in space.axes] == ["hosts"]


# --------------------------------------------------------------------------------------------------------------- the runs


def test_every_point_is_run_on_every_seed_and_what_the_file_has_is_not_run_again(tmp_path: Path) -> None:
    calls: list[tuple[dict[str, Any], int]] = []
    place = tmp_path / "trials"
    first = swept(calls, place)
    points = [{"z": 1.5, "x": x, "y": y} for x in (1, 2) for y in (0, 1, 2)]
    assert calls == [(point, seed) for point in points for seed in (1, 2, 3)]
    lines = place.read_text().splitlines(keepends=True)
    assert len(lines) == 7
    place.write_text("".join(lines[:-1]) + lines[-1][:9])  # killed while it wrote the last one
    del calls[:]
    again = swept(calls, place)
    assert [point for point, _ in calls] == [points[-1]] * 3
    assert again.rows == first.rows
    del calls[:]
    more = swept(calls, place, SPACE.replace("[1, 2]", "[1, 2, 3]"))
    assert {point["x"] for point, _ in calls} == {3}
    assert len(more.rows) == 9


def test_a_file_of_other_seeds_is_refused(tmp_path: Path) -> None:
    swept([], tmp_path / "trials")
    with pytest.raises(CliError, match="seeds: 3 there, 4 here"):
        swept([], tmp_path / "trials", seeds=4)


def test_what_is_over_time_is_left_to_the_next_time(tmp_path: Path) -> None:
    small = study([])
    space = loads(SPACE, region.legal(small), gridded=True)
    found = region.swept(small, space, tmp_path / "trials", 3, for_s=0.0, workers=1)
    assert (found.rows, found.total) == ([], 6)
    assert region.table(found, tmp_path / "trials").startswith("0 of 6 points of small are finished")
    assert region.table(found, tmp_path / "trials").endswith("The same command continues.")


# ------------------------------------------------------------------------------------------------------------ what is said


def test_what_the_seeds_say_of_a_claim() -> None:
    assert verdict([1.0, 2.0, 3.0, 2.0]) == "holds"
    assert verdict([-1.0, -2.0, -3.0, -2.0]) == "does not hold"
    assert verdict([1.0, -2.0, 3.0, -1.0]) == verdict([0.0, 0.0]) == verdict([1.0]) == "open"


def test_claims_and_figures_are_judged_by_the_mean_and_told_best_first(tmp_path: Path) -> None:
    found = swept([], tmp_path / "trials")
    assert [row.verdicts[0] for row in found.rows] == ["holds", "open", "does not hold", "holds", "holds", "open"]
    assert [row.agrees[0] for row in found.rows] == [False] * 3 + [True] * 3
    lines = region.table(found, tmp_path / "trials").splitlines()
    assert lines[0].split() == ["X", "Y", "GAIN", "MORE", "AGREES"]
    assert lines[1].split() == ["2", "0", "2.02", "±", "0.02", "yes", "1", "of", "1"]
    assert lines[6].split() == ["1", "2", "-0.98", "±", "0.02", "no", "0", "of", "1"]
    assert lines[9].split()[-6:] == ["3", "2", "1", "2", "of", "3"]
    assert lines[12].endswith("1.5 to 2.5  1 to 2      3")
    points = region.document(found)["points"]
    assert points[0]["measures"]["gain"] == [1.01, 1.02, 1.03]
    assert points[2]["claims"][0]["verdict"] == "does not hold"


def test_the_map_shows_what_holds_over_the_axes_that_are_named(tmp_path: Path) -> None:
    from phoenix_papers import region_plot

    found = swept([], tmp_path / "trials", SPACE + "rate = [40]\n")
    space = found.space
    assert region.map_axes(space, None) == ("x", "y")
    with pytest.raises(CliError, match="--map x,no names no two axes of the space") as caught:
        region.map_axes(space, "x,no")
    assert caught.value.hint == "there are: x, y, rate"
    figure = region_plot.region(found, region.map_axes(space, "y,x"))
    panel = figure.axes[0]
    assert [label.get_text() for label in panel.get_xticklabels()] == ["0", "1", "2"]
    assert [label.get_text() for label in panel.get_yticklabels()] == ["1", "2"]
    held = {(round(x), round(y)) for x, y in np.asarray(panel.lines[0].get_xydata())}
    assert held == {(0, 0), (0, 1), (1, 1)}
    assert len(panel.patches) == 3  # those of x = 2 agree


def test_the_front_leaves_a_file_a_document_and_a_map(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    space = tmp_path / "small.toml"
    space.write_text("[fixed]\nshortest_s = 900\n[axis]\nspread_s = [9000, 18000]\n")
    given: dict[str, Any] = {"seeds": 2, "workers": 1, "sweep": space, "trials": None, "for_s": None, "map": None}
    assert svmsched.run(argparse.Namespace(**given, plots=tmp_path, json=True)) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["points_total"] == len(found["points"]) == 2
    assert {"small.trials.jsonl", "svmsched-region.svg", "svmsched-region.png"} < {f.name for f in tmp_path.iterdir()}
    none_yet = given | {"for_s": 0.0, "trials": tmp_path / "others"}
    assert svmsched.run(argparse.Namespace(**none_yet, plots=tmp_path / "none", json=False)) == 0
    assert capsys.readouterr().out.startswith("0 of 2 points of svmsched are finished")
    assert not (tmp_path / "none").exists()
    with pytest.raises(CliError, match="--map belongs to a sweep"):
        svmsched.run(argparse.Namespace(**(given | {"sweep": None, "map": "a,b"}), plots=None, json=True))


# ---------------------------------------------------------------------------------------------------------- the workloads


def small_works(**given: Any) -> tuple[Any, ...]:
    return svmsched_rules.works(THIRDS._replace(workload=svmsched_rules.Workload(**given)), 3)


def test_parameters_of_svmsched_do_what_they_say() -> None:
    short = THIRDS.threshold_s
    assert len({work.submit_s for work in small_works(burst=16)}) <= 8  # 65, 19 and 12 jobs: 5 + 2 + 1 bursts
    assert [work.number for work in small_works(burst=16)] == list(range(1, 97))
    ones = small_works(short_one_core=1.0, one_core=0.0)
    assert all((work.cores == 1) == (work.run_s < short) for work in ones)
    assert {work.cores for work in small_works(one_core=0.0, four_of_wide=1.0)} == {4}
    narrow = small_works(low_one_core=1.0, one_core=0.0)
    assert all((work.cores == 1) == (work.service != "app1") for work in narrow)
    for part, count in ((1.0, 35), (0.0, 4), (0.5, 18)):
        brief = [work for work in small_works(short_app1=part) if work.run_s < short]
        assert (len(brief), sum(work.service == "app1" for work in brief)) == (35, count)
    assert min(work.run_s for work in small_works(shortest_s=900.0)) >= 900
    assert min(work.run_s for work in small_works(long_from=2.0) if work.run_s >= short) >= 2 * short
    near, far = (sum(work.run_s for work in small_works(long_skew=skew)) for skew in (3.0, 1.0))
    assert near < far
    assert all(work.best_effort for work in small_works(best_effort=1.0))
    assert not any(work.best_effort for work in small_works())


def test_a_peak_counts_who_has_ended_as_gone() -> None:
    outcome = engine.run(svmsched_rules.scenario(THIRDS, 0.0, 1))
    for record, (start_s, end_s, cores) in zip(
        outcome.jobs, ((0.0, 5.0, 4), (5.0, 9.0, 8), (6.0, 7.0, 1)), strict=False
    ):
        record.start_s, record.end_s, record.cores = start_s, end_s, cores
    del outcome.jobs[3:]
    assert svmsched_sweep.peak(outcome) == 9.0


def requests() -> tuple[LogJob, ...]:
    return tuple(
        LogJob(number=n + 1, submit_s=440_070.0 + 600 * n, run_s=600.0, processors=8 * 4 ** (n % 4), requested_s=1200.0)
        for n in range(8)
    )


def test_parameters_of_intergrid_do_what_they_say() -> None:
    def external(**given: Any) -> list[Any]:
        works = intergrid_rules.works(requests(), 1, intergrid_rules.Workload(**given))
        return [work for work in works if work.best_effort]

    assert {work.memory_mb // work.cores for work in external(memory_spread=0.0, memory=0.5)} == {512}
    assert {work.memory_mb // work.cores for work in external(memory_spread=2.0)} <= {256, 1024, 2048}
    assert [work.nodes * work.cores for work in external(processors=8.0)] == [1, 4, 16, 16] * 2
    assert [work.submit_s for work in external(pace=2.0)] == [300.0 * n for n in range(8)]
    assert [work.submit_s for work in external(begins_s=440_670.0)] == [0.0, *(600.0 * n for n in range(7))]
    assert {(work.run_s, work.walltime_s) for work in external(lengths=3.0)} == {(1800.0, 3600.0)}
    assert len(external(externals=5)) == 5
    assert len(intergrid_rules.works(requests(), 1, intergrid_rules.Workload(locals=2))) == 10


def test_the_paper_s_order_is_judged_on_all_four_policies() -> None:
    given = intergrid_sweep.study(requests())
    found = {name: [value] for name, value in given.measure({"lengths": 20.0}, 1).items()}
    row = region.judged(given, {}, found)
    assert row.differences[2] == [found["cp_overhead_s"][0] - found["mov_overhead_s"][0]]
    assert found["none_overhead_s"] == [0.0] < found["mwt_overhead_s"]
    assert found["mwt_on_time"] == [13.0]
    paper = {f"{policy}_{name}_s": [value] for policy, values in intergrid_rules.TABLE_II.items()
             for name, value in zip(("overhead", "wait", "makespan"), values, strict=True)}  # fmt: skip
    row = region.judged(given, {}, paper | {"none_on_time": [0.0]})
    assert all(row.agrees)
    assert all(each[0] >= 0 for each in row.differences)
    assert given.level(row) == 4
