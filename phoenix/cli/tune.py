"""`phoenix tune`: a search for settings under which an experiment does better, and whether they do so elsewhere.

Everything is imported when it is needed: `--help` must not wait for the simulator, or for Optuna.

Exit codes: 0 done; 1 a run failed, or no trial keeps every limit; 2 a file or an option is wrong; 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from phoenix.cli import files
from phoenix.cli.errors import FAILED, OK, CliError, usage
from phoenix.cli.parser import at_least_zero, count, worded
from phoenix.cli.units import parse_time_s

if TYPE_CHECKING:  # the simulator is imported when something is simulated
    from phoenix.tune.bench import Bench
    from phoenix.tune.bench_journal import Journal
    from phoenix.tune.searching import Found

TRIALS: Final = 100
SINCE: Final = "24h"
_OF_JOURNAL: Final = ("since", "until", "config", "unknown", "propose")
_OF_CLOUD: Final = ("jobs", "web", "on")
HELP: Final = """examples:
  phoenix tune --experiment phoenix-cloud --space space.toml --out trials.jsonl \\
    --goal "min hpc.mean_turnaround_s" "max hpc.completed" "hpc.completed > static"
  phoenix tune --experiment site.toml --space space.toml --out t.jsonl --goal "min hpc.p95_wait_s" --for 30m
  the same again with --holdout logs seeds=2-4      the best, judged on what they were not tuned on
  the same again with --plot figures                frontier of turnaround, completed jobs and lost work
  phoenix tune --journal --since 7d --holdout 14d..7d --space space.toml --out t.jsonl \\
    --goal "min hpc.p95_wait_s" "hpc.completed >= present" --propose tuned.toml
                                                    the past of the running cloud; what would change in it

A goal is "min METRIC", "max METRIC", or a limit: "hpc.p95_wait_s <= 2h".  The same command continues with its file's trials;
--trials counts all of them.  docs/howto/tune.md describes the space and the report."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--experiment", metavar="phoenix-cloud|FILE.toml", help="what is simulated")
    what.add_argument("--journal", action="store_true", help="the past of the running cloud, played again")
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
        help="judge the best there: logs, seeds=2-4, F.swf; of a file: seeds=2-4, OTHER.toml; of a journal: 14d..7d",
    )
    parser.add_argument("--plot", type=files.named, metavar="DIR", help="the frontier, as SVG and PNG")
    parser.add_argument(
        "--jobs", type=files.named, metavar="F.swf", help="phoenix-cloud: a job log instead of SDSC Blue's"
    )
    parser.add_argument(
        "--web", type=files.named, metavar="F.csv", help="phoenix-cloud: requests per minute of your own"
    )
    parser.add_argument(
        "--on", metavar="WORLD", help='phoenix-cloud: tune on this one of the other worlds: "KTH-SP2 1"'
    )
    journal = parser.add_argument_group("with --journal")
    journal.add_argument("--since", metavar="WHEN", help=f"24h, 7d, or a date (default: {SINCE})")
    journal.add_argument("--until", metavar="WHEN", help="likewise (default: now)")
    journal.add_argument(
        "--config", type=files.named, metavar="FILE", help="the configuration in force (default: the cloud's here)"
    )
    journal.add_argument("--unknown", choices=("longest", "shortest"), help="as of phoenix whatif (longest)")
    journal.add_argument(
        "--propose", type=files.named, metavar="FILE", help="write the configuration with the best settings"
    )
    parser.add_argument("--workers", type=count, metavar="N", help="processes (default: one for each core)")


def run(args: argparse.Namespace) -> int:
    from phoenix.cli.simulate import caught

    return caught(_run, args, "the experiment or the space has problems")


def _run(args: argparse.Namespace) -> int:
    from phoenix.search import space as spaces
    from phoenix.search import trials as kept
    from phoenix.simulate import places
    from phoenix.tune import goals as wanted
    from phoenix.tune import report, searching

    _check(args)
    places.check_file("--out", args.out)
    if args.propose is not None:
        places.check_file("--propose", args.propose)
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
    for note in dict.fromkeys(bench.notes):
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
        print(f"phoenix: drawn: {args.plot / 'frontier.svg'}, and as .png", file=sys.stderr)
    print(report.as_json(found) if args.json else report.told(found), end="")
    if args.propose is not None:
        _propose(args, found)
    return OK if any(found.front(hosts) for hosts in found.sizes()) else FAILED


def _check(args: argparse.Namespace) -> None:
    """An option that would do nothing is an error."""
    if not args.journal and (given := [name for name in _OF_JOURNAL if getattr(args, name) is not None]):
        raise usage(f"--{given[0]} is for --journal", "phoenix tune --help shows what belongs together")
    is_file = args.experiment is not None and args.experiment.endswith(".toml")
    if (args.journal or is_file) and (given := [name for name in _OF_CLOUD if getattr(args, name) is not None]):
        raise usage(f"--{given[0]} is for phoenix-cloud", "an experiment file names its inputs, and so does a journal")


def _bench(args: argparse.Namespace) -> Bench:
    from phoenix.simulate.experiments import benches
    from phoenix.tune import bench_file

    if args.journal:
        return _journal(args)
    if args.experiment in (found := benches()):
        made: Bench = import_module(found[args.experiment]).bench(args.jobs, args.web, args.holdout, args.on)
        return made
    if not args.experiment.endswith(".toml"):
        names = "".join(f"{name}, " for name in found)
        raise usage(f"--experiment {args.experiment}: should be {names}or an experiment file, FILE.toml")
    return bench_file.File(Path(args.experiment), args.holdout)


def _plot(directory: Path, found: Found) -> None:
    from phoenix.simulate import plots
    from phoenix.tune.plot import frontier

    figure = frontier(found)
    for ending in ("svg", "png"):
        plots.save(figure, directory / f"frontier.{ending}")


# ------------------------------------------------------------------------------------------------------------ the journal


def _journal(args: argparse.Namespace) -> Journal:
    """Each period is read from the monitor, once."""
    from phoenix.cli import cloud, whatif_replay
    from phoenix.cli.period import instant
    from phoenix.tune import bench_journal

    now = time.time()
    until = now if args.until is None else instant("--until", args.until, now)
    own = bench_journal.Period(instant("--since", args.since or SINCE, now), until)
    others = [bench_journal.period_of("--holdout", word, now) for word in args.holdout]
    bench_journal.check(own, others, now)
    client = cloud.find(args).operator()
    file = args.config or Path(cloud.describe(cloud.data_dir(args))["config"])
    pasts = [whatif_replay.past_of(client, period.since, period.until) for period in (own, *others)]
    notes = [note for past in pasts for note in whatif_replay.of_period(past, replaced=True)]
    return bench_journal.Journal(file, pasts, args.unknown or "longest", notes)


def _propose(args: argparse.Namespace, found: Found) -> None:
    """What would change: as `phoenix config diff` says it, and as a file for `phoenix config apply`."""
    from phoenix.tune.bench_journal import Journal
    from phoenix.tune.goals import HOSTS
    from services.runtime.config.file import loads
    from services.runtime.config.text import diff

    bench, best = found.bench, found.best()
    assert isinstance(bench, Journal)
    why = "no trial keeps every limit" if best is None else "nothing is better than what is in force"
    if best is None or not found.aims.better(best.result, found.own_result(best.point.get(HOSTS), "")):
        print(f"phoenix: {why}: {args.propose} is not written", file=sys.stderr)
        return
    text = bench.proposed(found.space.with_fixed(best.point))
    changes = diff(bench.cloud, loads(text, args.propose.name, bench.file.absolute().parent).cloud)
    try:
        args.propose.write_text(text)
    except OSError as error:
        raise CliError(FAILED, f"{args.propose} cannot be written: {error.strerror}") from error
    if not args.json:
        head = f"{args.propose} has the settings of trial {best.number}.  What would change:"
        last = f"To put it in force: phoenix config apply {args.propose}"
        print("\n".join(["", head, *(f"  {change}" for change in changes or ["nothing"]), last]))
