"""What runs leave on disk and on the terminal: CSV of jobs, the JSON document, tables, plots that are equal each time."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from phoenix.cli.errors import FAILED, USAGE, CliError
from phoenix.simulate import plots
from phoenix.simulate.plots_style import means
from phoenix.simulate.report import (
    JOB_COLUMNS,
    Run,
    as_json,
    beats,
    document,
    pareto,
    run_of,
    write_jobs_csv,
    write_json,
)
from phoenix.simulate.tables import WIDTH, detail_tables, duration, host_hours, ratio, runs_table, share
from phoenix.simulate.workload import JobRecord, Outcome, WebRecord


def outcome(label: str = "dynamic", *, hosts: int = 8, completed: int = 3, each_s: float = 100.0) -> Outcome:
    """Jobs one after the other, one that was killed, and a web department that is short for a while."""
    jobs = [
        JobRecord(
            number=n,
            department="hpc",
            user="ann",
            submit_s=float(n),
            run_s=each_s,
            nodes=1,
            cores=1,
            start_s=n * each_s,
            last_start_s=n * each_s,
            end_s=(n + 1) * each_s,
            end="completed",
            ran_node_s=each_s,
        )
        for n in range(1, completed + 1)
    ]
    jobs.append(
        JobRecord(
            number=completed + 1,
            department="hpc",
            user='bob, "the builder"',
            submit_s=0.5,
            run_s=900.0,
            nodes=2,
            cores=1,
            start_s=0.5,
            last_start_s=0.5,
            end_s=200.25,
            end="killed",
            preempted=1,
            ran_node_s=399.5,
            lost_node_s=399.5,
        )
    )
    return Outcome(
        label=label,
        hosts=hosts,
        window_s=1000.0,
        host_cores=1,
        jobs=jobs,
        web=[
            WebRecord(
                department="web", levels=[(0.0, 1, 1), (200.0, 4, 2), (260.0, 4, 4), (700.0, 1, 1)], load=[(0.0, 0.7)]
            )
        ],
        held=[(0.0, "hpc", hosts - 1), (0.0, "web", 1), (200.0, "hpc", hosts - 4), (200.0, "web", 4)],
        running=[(0.5, "hpc", 2), (200.25, "hpc", 1)],
        wall_s=0.5,
        facts=42,
    )


def sweep() -> tuple[Run, list[Run]]:
    static = run_of(outcome("static", completed=3), configuration="static", nodes=12)
    runs = [
        run_of(
            outcome(f"{reading} {nodes}", hosts=nodes, completed=count, each_s=each_s),
            configuration="dynamic",
            on_reclaim=reading,
            policy=policy,
        )
        for reading, policy, nodes, count, each_s in [
            ("kill", "smallest", 8, 2, 90.0),
            ("requeue", "smallest", 8, 4, 110.0),
            ("requeue", "youngest", 8, 4, 120.0),
            ("kill", "smallest", 10, 4, 80.0),
            ("requeue", "youngest", 10, 5, 70.0),
        ]
    ]
    return static, runs


# -------------------------------------------------------------------------------------------------------------------- CSV


def test_every_job_of_every_run_is_a_row_that_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "jobs.csv"
    assert write_jobs_csv(path, [outcome("a"), outcome("b", completed=1)]) == 6
    assert path.read_bytes().count(b"\r\n") == 7
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == JOB_COLUMNS
    assert [(row["run"], row["label"], row["number"]) for row in rows][3:5] == [("1", "a", "4"), ("2", "b", "1")]
    killed = rows[3]
    assert killed["user"] == 'bob, "the builder"'
    assert (killed["end"], float(killed["end_s"]), killed["requeued"]) == ("killed", 200.25, "0")
    assert (rows[0]["turnaround_s"], rows[0]["wait_s"], rows[0]["bounded_slowdown"]) == ("199", "99", "1.99")


def test_what_is_not_known_is_an_empty_field(tmp_path: Path) -> None:
    waiting = JobRecord(number=1, department="hpc", user="", submit_s=0.1, run_s=1.0, nodes=1, cores=1)
    write_jobs_csv(tmp_path / "jobs.csv", [Outcome(label="", hosts=1, window_s=10.0, host_cores=1, jobs=[waiting])])
    with (tmp_path / "jobs.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["start_s"], row["turnaround_s"], row["submit_s"], row["end"]) == ("", "", "0.1", "unfinished")


# ------------------------------------------------------------------------------------------------------------------- JSON


def test_the_document_holds_what_the_experiment_promises(tmp_path: Path) -> None:
    static, runs = sweep()
    write_json(tmp_path / "runs.json", document("phoenix-cloud", [static, *runs], caveat="generated"))
    read = json.loads((tmp_path / "runs.json").read_text(encoding="utf-8"))
    assert (read["experiment"], read["caveat"], len(read["runs"])) == ("phoenix-cloud", "generated", 6)
    first = read["runs"][0]
    promised = ("configuration", "nodes", "on_reclaim", "completed", "killed", "requeued", "unfinished", "wall_s")
    assert [first[name] for name in promised] == ["static", 12, None, 3, 1, 0, 0, 0.5]
    assert first["mean_turnaround_s"] == first["metrics"]["total"]["turnaround_s"]["mean"] == 298.0
    assert msgspec.convert(first, Run) == static


def test_equal_runs_are_equal_text() -> None:
    assert as_json(document("x", sweep()[1])) == as_json(document("x", sweep()[1]))


# ------------------------------------------------------------------------------------------------------------------ files


def test_what_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(CliError, match=r"jobs\.csv cannot be written: ") as error:
        write_jobs_csv(tmp_path / "file" / "jobs.csv", [outcome()])
    assert (error.value.code, bool(error.value.hint)) == (FAILED, True)


def test_a_file_that_fails_half_way_leaves_the_old_one_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("old", encoding="utf-8")

    def runs() -> object:
        yield outcome()
        raise RuntimeError("the next run fails")

    with pytest.raises(RuntimeError):
        write_jobs_csv(path, runs())  # type: ignore[arg-type]
    assert path.read_text(encoding="utf-8") == "old"
    assert os.listdir(tmp_path) == ["jobs.csv"]


# ----------------------------------------------------------------------------------------------------------- what is best


def test_better_is_better_in_both() -> None:
    static, runs = sweep()
    assert [run.label for run in runs if beats(run, static)] == ["kill 10", "requeue 10"]
    assert not beats(static, static)


def test_the_frontier_keeps_what_nothing_of_its_size_beats() -> None:
    _, runs = sweep()
    assert [(run.nodes, run.completed, run.policy) for run in pareto(runs)] == [
        (8, 4, "smallest"),
        (8, 2, "smallest"),
        (10, 5, "youngest"),
    ]
    assert pareto(list(reversed(runs))) == pareto(runs)


# ----------------------------------------------------------------------------------------------------------------- tables


def test_units_are_those_that_a_person_would_say() -> None:
    assert [duration(each) for each in (None, 0.25, 412.4, 9999.0, 11556.0)] == [
        "-",
        "0.25 s",
        "412 s",
        "9,999 s",
        "3.21 h",
    ]
    assert [ratio(each) for each in (None, 1.274, 1204.4)] == ["-", "1.27", "1,204"]
    assert (share(0.7691), host_hours(360.0), host_hours(4.3e6)) == ("76.9 %", "0.1 h", "1,194 h")


def test_the_table_of_runs_is_aligned_and_says_who_is_better() -> None:
    static, runs = sweep()
    lines = runs_table([static, *runs], reference=static, legend=False).splitlines()
    assert (
        " ".join(lines[0].split())
        == "RUN NODES RECLAIM JOBS DONE KILLED TURNAROUND WAIT SLOWDOWN USEFUL LOST SHORT BETTER"
    )
    assert [line.split()[-1] for line in lines[1:]] == ["-", "no", "no", "no", "yes", "yes"]
    end = lines[0].index("DONE") + len("DONE")
    assert [line[:end].rsplit(" ", 1)[1] for line in lines[1:]] == ["3", "2", "4", "4", "4", "5"]


def test_what_became_of_jobs_has_a_column_as_soon_as_any_run_has_one() -> None:
    some = outcome("some")
    for job, end in zip(some.jobs, ("refused", "timeout", "failed"), strict=False):
        job.end = end  # type: ignore[assignment]
    table = runs_table([run_of(each, configuration="dynamic") for each in (outcome("none"), some)])
    heads, none, row = (line.split() for line in table.splitlines()[:3])
    told = {head: (none[place], row[place]) for place, head in enumerate(heads) if place < 8}
    assert {head: told[head] for head in ("JOBS", "DONE", "KILLED", "REFUSED", "TIMEOUT", "FAILED")} == {
        "JOBS": ("4", "4"),
        "DONE": ("3", "0"),
        "KILLED": ("1", "1"),
        "REFUSED": ("0", "1"),
        "TIMEOUT": ("0", "1"),
        "FAILED": ("0", "1"),
    }
    assert "REFUSED     jobs that" in table


def test_no_table_is_wider_than_a_terminal() -> None:
    big = outcome("a label that goes on and on and on and on and on", hosts=123456)
    for job in big.jobs:
        job.preempted, job.ran_node_s = 99999, 9e9
        job.lost_node_s = 8e9
    big.jobs.append(msgspec.structs.replace(big.jobs[0], end="unfinished", end_s=None))
    big.jobs += [msgspec.structs.replace(big.jobs[0], end=end) for end in ("refused", "timeout", "failed")]
    big.web[0].levels = [(0.0, 10**6, 0)]
    run = run_of(big, configuration="dynamic", on_reclaim="requeue", policy="smallest-shortest-spared")
    for table in (runs_table([run], reference=run), detail_tables(run)):
        assert max(map(len, table.splitlines())) <= WIDTH
    assert runs_table([]) == "No runs."


def test_one_run_in_detail_tells_jobs_hosts_and_web() -> None:
    told = detail_tables(run_of(outcome(), configuration="dynamic"))
    for words in (
        "hpc         turnaround",
        "DEPARTMENT  SUBMITTED  COMPLETED  KILLED",
        "web              4       4    0.033 h    4.800 %",
        "hosts moved:",
    ):
        assert words in told


# ------------------------------------------------------------------------------------------------------------------ plots

FIGURES: dict[str, Callable[[], object]] = {
    "hosts": lambda: plots.hosts_over_time(outcome(), caption="generated"),
    "web": lambda: plots.web_consumption(outcome()),
    "sweep": lambda: plots.sweep_plot(sweep()[1], reference=sweep()[0], caption="generated"),
    "preemption": lambda: plots.preemption_plot(sweep()[1]),
    "frontier": lambda: plots.frontier(sweep()[1], reference=sweep()[0]),
    "distributions": lambda: plots.distributions([outcome("one"), outcome("two", completed=9)]),
    "scaling": lambda: plots.scaling_comparison([outcome("one"), outcome("two")], between=(100.0, 600.0)),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_plot_is_the_same_bytes_each_time(name: str, tmp_path: Path) -> None:
    for place in ("first", "second"):
        plots.save(FIGURES[name](), tmp_path / f"{place}.svg")  # type: ignore[arg-type]
    first = (tmp_path / "first.svg").read_bytes()
    assert first.startswith(b"<?xml")
    assert b"<dc:date>" not in first
    assert first == (tmp_path / "second.svg").read_bytes()


def test_a_png_is_the_same_bytes_each_time_also_after_the_svg(tmp_path: Path) -> None:
    figure = plots.frontier(sweep()[1], reference=sweep()[0])
    for name in ("first.png", "between.svg", "second.png"):
        plots.save(figure, tmp_path / name)
    first = (tmp_path / "first.png").read_bytes()
    assert first.startswith(b"\x89PNG")
    assert first == (tmp_path / "second.png").read_bytes()


def test_plots_of_nothing_are_empty_and_no_error(tmp_path: Path) -> None:
    nothing = Outcome(label="none", hosts=1, window_s=10.0, host_cores=1)
    figures = [plots.hosts_over_time(nothing), plots.web_consumption(nothing), plots.distributions([nothing])]
    figures += [
        plots.sweep_plot([]),
        plots.preemption_plot([]),
        plots.frontier([]),
        plots.scaling_comparison([nothing]),
    ]
    for place, figure in enumerate(figures):
        plots.save(figure, tmp_path / f"{place}.svg")


def test_a_plot_of_another_kind_is_refused_with_what_would_do(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="no plot that can be made") as error:
        plots.save(plots.preemption_plot(sweep()[1]), tmp_path / "plot.gif")
    assert error.value.code == USAGE
    assert ".svg" in error.value.hint


def test_an_area_shows_the_mean_of_each_interval() -> None:
    assert means([(0.0, 2.0), (5.0, 4.0), (10.0, 0.0)], [0.0, 10.0, 20.0]) == [3.0, 0.0]
    assert means([(5.0, 4.0)], [0.0, 10.0, 20.0]) == [2.0, 4.0]


def test_matplotlib_is_loaded_only_to_draw() -> None:
    code = "import sys, phoenix.simulate.plots, phoenix.simulate.tables; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=200, check=False).returncode == 0
