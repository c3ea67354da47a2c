"""`phoenix tune`: a search for settings under which an experiment does better, and whether they do so elsewhere.

Everything is imported when it is needed: `--help` must not wait for the simulator, or for Optuna.

Exit codes: 0 done; 1 a run failed, or no trial keeps every limit; 2 a file or an option is wrong; 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from phoenix.cli import files
from phoenix.cli.errors import FAILED, OK, usage
from phoenix.cli.parser import at_least_zero, count, worded
from phoenix.cli.units import parse_time_s

if TYPE_CHECKING:  # the simulator is imported when something is simulated
    from phoenix.tune.bench import Bench
    from phoenix.tune.searching import Found

TRIALS: Final = 100
HELP: Final = """examples:
  phoenix tune --experiment phoenix-cloud --space space.toml --out trials.jsonl \\
    --goal "min hpc.mean_turnaround_s" "max hpc.completed" "hpc.completed > static"
  phoenix tune --experiment site.toml --space space.toml --out t.jsonl --goal "min hpc.p95_wait_s" --for 30m
  the same again with --holdout logs seeds=2-4      the best, judged on what they were not tuned on
  the same again with --plot figures                frontier of turnaround, completed jobs and lost work

A goal is "min METRIC", "max METRIC", or a limit: "hpc.p95_wait_s <= 2h".  The same command goes on with the trials of its file;
--trials counts all of them.  docs/tune.md describes the space and the report."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--experiment", required=True, metavar="phoenix-cloud|FILE.toml", help="what is simulated")
    parser.add_argument("--space", required=True, type=files.named, metavar="FILE", help="settings, and their values")
    parser.add_argument(
        "--goal", required=True, nargs="+", action="extend", metavar="GOAL", help="what is wanted; several: a frontier"
    )
    parser.add_argument(
        "--out", required=True, type=files.named, metavar="FILE", help="trials, one a line; gone on with"
    )
    parser.add_argument("--trials", type=count, metavar="N", help=f"in all (default {TRIALS}, with --for any number)")
    parser.add_argument(
        "--for", dest="for_s", type=worded(parse_time_s), metavar="TIME", help="begin no trial after so long: 30m"
    )
    parser.add_argument("--seed", type=at_least_zero, default=1, metavar="N", help="of what is random (1)")
    parser.add_argument(
        "--holdout",
        nargs="+",
        action="extend",
        default=[],
        metavar="WHAT",
        help="judge the best there: logs, seeds=2-4, F.swf; of a file: seeds=2-4, OTHER.toml",
    )
    parser.add_argument("--plot", type=files.named, metavar="DIR", help="the frontier, as SVG and PNG")
    parser.add_argument(
        "--jobs", type=files.named, metavar="F.swf", help="phoenix-cloud: a job log instead of SDSC Blue's"
    )
    parser.add_argument(
        "--web", type=files.named, metavar="F.csv", help="phoenix-cloud: requests per minute of your own"
    )
    parser.add_argument("--workers", type=count, metavar="N", help="processes (default: one for each core)")


def run(args: argparse.Namespace) -> int:
    from phoenix.cli.simulate import caught

    return caught(_run, args, "the experiment or the space has problems")


def _run(args: argparse.Namespace) -> int:
    from phoenix.search import space as spaces
    from phoenix.search import trials as kept
    from phoenix.simulate import places
    from phoenix.tune import aims as wanted
    from phoenix.tune import report, searching

    places.check_file("--out", args.out)
    if args.plot is not None:
        places.check_directory("--plot", args.plot)
    bench = _bench(args)
    aims = wanted.parse(args.goal, bench.kinds, bench.against, bench.limits)
    space = spaces.load(args.space, bench.legal)
    if len(bench.sizes) != 1 and wanted.HOSTS not in (*space.fixed, *(axis.name for axis in space.axes)):
        found_sizes = f"{len(bench.sizes)} sizes" if bench.sizes else "no number of hosts"
        raise usage(
            f"{args.experiment} has {found_sizes}", f"name one there, or make {wanted.HOSTS} an axis of the space"
        )
    for note in bench.notes:
        print(f"phoenix: {note}", file=sys.stderr)
    parts = {"space": kept.digest(space), **bench.parts, "goal": aims.asked()}
    many = searching.MANY if args.for_s is not None else TRIALS
    budget = searching.Budget(args.trials or many, args.for_s, args.seed, args.workers)
    with kept.opened(args.out, kept.Head(search=f"tune {bench.name}", parts=parts)) as trials:
        for note in trials.notes:
            print(f"phoenix: {note}", file=sys.stderr)
        found = searching.search(bench, space, aims, trials, budget)
        searching.judge(found, trials, args.workers)
    if args.plot is not None:
        _plot(args.plot, found)
    print(report.as_json(found) if args.json else report.told(found), end="")
    return OK if any(found.front(hosts) for hosts in found.sizes()) else FAILED


def _bench(args: argparse.Namespace) -> Bench:
    from phoenix.tune import bench_cloud, bench_file, worlds

    if args.experiment == bench_cloud.NAME:
        from phoenix.simulate.experiments.phoenix_cloud_inputs import read

        inputs = read(args.jobs, args.web)
        held_out, notes = worlds.held_out(args.holdout, inputs)
        found = bench_cloud.Cloud(inputs, held_out)
        found.notes += notes
        return found
    if not args.experiment.endswith(".toml"):
        raise usage(f"--experiment {args.experiment}: should be {bench_cloud.NAME}, or an experiment file, FILE.toml")
    for option in ("jobs", "web"):
        if getattr(args, option) is not None:
            raise usage(f"--{option} is for phoenix-cloud", "an experiment file names its inputs")
    return bench_file.File(Path(args.experiment), args.holdout)


def _plot(directory: Path, found: Found) -> None:
    from phoenix.simulate import plots
    from phoenix.tune.plot import frontier

    figure = frontier(found)
    for ending in ("svg", "png"):
        plots.save(figure, directory / f"frontier.{ending}")
