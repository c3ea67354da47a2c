"""`phoenix simulate svmsched`: static parts of a cluster against parts that short jobs may leave (the thesis' chapter 7).

Three settings as in its Fig. 7.3 to 7.5, many seeds, and the question that it leaves open: which threshold?  The order is
production's (`order = "svmsched"`); what is compared is in `rules`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from phoenix.plugin.simulation import OK, Meta, because, count, engine, files, interval, mean, render, report, sweep
from phoenix.plugin.simulation import facts as f
from phoenix_papers import region
from phoenix_papers.svmsched import rules
from phoenix_papers.svmsched import sweep as svmsched_sweep
from phoenix_papers.svmsched.rules import Run, Setting

HELP: Final = """Three services share a cluster.  Static (threshold 0): no service has more than its share.  Flexible: short
jobs may, where no job within a share can start.  Means over the seeds; a legend stands under the tables.  Jobs are
generated: no log is read.  As a whole about half a minute on two idle cores.

examples:
  phoenix simulate svmsched                       10 seeds, all thresholds
  phoenix simulate svmsched --seeds 30 --json     every run
  phoenix simulate svmsched --plots figures       which threshold?
  phoenix simulate svmsched --sweep docs/examples/svmsched-space.toml --for 15m --plots figures
                                                  in which workloads is the thesis' gain?

docs/reference/policies.md describes the order; the settings are those of R. Chakode's thesis (2012), Fig. 7.3 to 7.5."""

SEEDS: Final = 10
LEGEND: Final = """\
Means over the seeds; jobs are generated from the seed, no log is read.  THRESHOLD: seconds; a job with a limit up to it is
short and may borrow; 0: none may.  UTILISATION: what ran, of all cores until the last job ended.  GAIN: points of it more
than with 0, seed by seed, ± its 95 % interval.  IN-WINDOW: utilisation within a window that is the same for all thresholds.
MAKESPAN: seconds from the first submission to the last end.  BORROWED: starts above a service's share.
WAIT-…: seconds from submission to start, the service's mean."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=count, default=SEEDS, metavar="N", help=f"runs of each kind ({SEEDS})")
    region.add_arguments(parser)
    parser.add_argument(
        "--plots", type=files.named, metavar="DIR", help="what each threshold does, or the map of --sweep"
    )
    parser.add_argument("--workers", type=count, metavar="N", help="processes (default: one for each core)")


def run(args: argparse.Namespace) -> int:
    region.check_alone(args)
    if args.sweep is not None:
        return region.run(svmsched_sweep.study(), args, args.seeds)
    runs = simulated(range(1, args.seeds + 1), workers=args.workers)
    if args.plots is not None:
        plot(args.plots, runs)
    if args.json:
        print(report.as_json(document(runs)), end="")
    else:
        print(f"{told(runs)}\n\n{LEGEND}")
    return OK


def simulated(
    seeds: Sequence[int],
    settings: Sequence[Setting] = rules.SETTINGS,
    thresholds_s: Sequence[float] = rules.THRESHOLDS_S,
    workers: int | None = None,
) -> list[Run]:
    tasks = [
        sweep.Task(f"{setting.name} {threshold_s:g} s, seed {seed}", partial(_made, setting, threshold_s, seed))
        for setting in settings
        for threshold_s in thresholds_s
        for seed in seeds
    ]
    return sweep.run_all(tasks, title="svmsched", workers=workers)


def _made(setting: Setting, threshold_s: float, seed: int) -> Run:
    borrowed: list[str] = []

    def watch(fact: f.Fact, _meta: Meta) -> None:
        if isinstance(fact, f.UnitPlaced) and isinstance(fact.reason, because.Borrows):
            borrowed.append(fact.unit)

    outcome = engine.run(rules.scenario(setting, threshold_s, seed), watch=watch)
    return rules.measured(setting, threshold_s, seed, outcome, len(borrowed))


def document(runs: Sequence[Run]) -> dict[str, Any]:
    """For programs: every run."""
    return {"format": report.FORMAT, "experiment": "svmsched", "runs": [msgspec.to_builtins(each) for each in runs]}


def plot(directory: Path, runs: Sequence[Run]) -> None:
    """Which threshold?"""
    from phoenix.plugin.simulation import plots
    from phoenix_papers.svmsched import plot

    known = {(each.setting, each.threshold_s, each.seed): each for each in runs}
    settings, levels = (list(dict.fromkeys(which)) for which in zip(*((s, t) for s, t, _ in known), strict=True))
    seeds = list(dict.fromkeys(each.seed for each in runs))

    def gain(setting: str, level_s: float, seed: int) -> float:
        return 100 * (known[setting, level_s, seed].utilisation - known[setting, 0.0, seed].utilisation)

    def waits(setting: str, service: str) -> list[list[float]]:
        return [[known[setting, level_s, seed].wait_s[service] for seed in seeds] for level_s in levels]

    figure = plot.thresholds(
        [f"{level_s / 60:g}" for level_s in levels],
        {setting: [[gain(setting, level_s, seed) for seed in seeds] for level_s in levels] for setting in settings},
        {setting: {name: waits(setting, name) for name in runs[0].wait_s} for setting in settings},
        caption=f"means of {len(seeds)} seeds, bands from least to most; waits include the 15 s of a start",
    )
    for ending in ("svg", "png"):
        plots.save(figure, directory / f"thresholds.{ending}")


# ------------------------------------------------------------------------------------------------------------------ tables


def told(runs: Sequence[Run]) -> str:
    """For people: a table for each setting."""
    parts = []
    for setting in rules.SETTINGS:
        mine = [each for each in runs if each.setting == setting.name]
        if mine:
            about = f"{mine[0].jobs} jobs on {setting.cores} cores, {setting.submission.replace('_', ' ')}"
            parts.append(f"{setting.name} (Fig. {setting.figure}): {about}\n{_table(mine)}")
    return "\n\n".join(parts)


def _table(runs: Sequence[Run]) -> str:
    static = {each.seed: each for each in runs if each.policy == "static"}
    services = list(runs[0].wait_s)
    rows = []
    for threshold_s in dict.fromkeys(each.threshold_s for each in runs):
        mine = [each for each in runs if each.threshold_s == threshold_s]
        gains = [100 * (each.utilisation - static[each.seed].utilisation) for each in mine if each.seed in static]
        rows.append(
            (
                f"{threshold_s:g}",
                f"{100 * mean([each.utilisation for each in mine]):.1f} %",
                interval(gains, sign=True, digits=1) if threshold_s and gains else "",
                f"{100 * mean([each.window_utilisation for each in mine]):.1f} %",
                f"{mean([each.makespan_s for each in mine]):,.0f}",
                f"{mean([float(each.borrowed) for each in mine]):.1f}",
                *(f"{mean([each.wait_s[service] for each in mine]):,.0f}" for service in services),
            )
        )
    head = (
        "THRESHOLD",
        "UTILISATION",
        "GAIN",
        "IN-WINDOW",
        "MAKESPAN",
        "BORROWED",
        *(f"WAIT-{name.upper()}" for name in services),
    )
    return render(head, rows, right=" ".join(head))
