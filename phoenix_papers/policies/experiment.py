"""`phoenix simulate policies`: every order with every order of victims, on windows of four logs beside the same web load.

What is compared, and how logs of different machines are made comparable, is in `rules`.  Orders and victims are those
that the product knows: a new one appears here by itself.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from phoenix.plugin.simulation import (
    OK,
    WebInput,
    amount,
    count,
    duration,
    files,
    host_hours,
    ratio,
    render,
    report,
    share,
    sweep,
    traces,
    usage,
    web_csv,
)
from phoenix_papers.phoenix_cloud.inputs import generated_web
from phoenix_papers.policies import rules
from phoenix_papers.policies.rules import Run, Window, mean

HELP: Final = """All orders, all victims, four public logs: two windows of each beside the World Cup's web load, on 160
hosts.  Means of the two windows; DONE is within the windows, turnaround and bounded slowdown (10 s) of all jobs,
LOST what has to be run again, PREEMPTED how often, DECISION one call of the core.

examples:
  phoenix simulate policies                                        some minutes on two cores
  phoenix simulate policies --orders easy fcfs --victims youngest-first
  phoenix simulate policies --jobs mine.swf.gz --hosts 200         a log of your own (its middle fortnight)
  phoenix simulate policies --plots figures --json > runs.json

A log has no seeds: what two windows do not agree on is noise, and the last table says how often they agree."""

FIRST: Final = "first-fit"  # orders are compared with the product's default
LEAST: Final = "smallest-shortest-spared"  # and so are victims


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jobs", type=files.named, nargs="+", default=[], metavar="F.swf", help="logs instead of the public ones"
    )
    parser.add_argument(
        "--web", type=files.named, metavar="F.csv", help="requests per minute instead of the World Cup's"
    )
    parser.add_argument("--hosts", type=count, default=rules.HOSTS, metavar="N", help=f"of the cloud ({rules.HOSTS})")
    parser.add_argument("--load", type=amount, default=rules.LOAD, metavar="L", help=f"offered ({rules.LOAD:g})")
    parser.add_argument("--orders", nargs="+", default=rules.orders(), metavar="ORDER", help="only these")
    parser.add_argument("--victims", nargs="+", default=rules.victims(), metavar="VICTIMS", help="only these")
    parser.add_argument("--plots", type=files.named, metavar="DIR", help="turnaround and work lost, as SVG and PNG")
    parser.add_argument("--workers", type=count, metavar="N", help="processes (default: one for each core)")


def run(args: argparse.Namespace) -> int:
    _known("--orders", args.orders, rules.orders())
    _known("--victims", args.victims, rules.victims())
    if not 0 < args.load < 10:
        raise usage(f"--load {args.load:g}: what is offered, as a part of the hosts that web leaves", "0.8 is 80 %")
    if args.hosts <= rules.WEB_PEAK:
        raise usage(f"--hosts {args.hosts}: web alone wants {rules.WEB_PEAK} at its peak", "name more")
    windows, notes = read(args.jobs, args.web, args.hosts, args.load)
    for note in notes:
        print(f"phoenix: {note}", file=sys.stderr)
    runs = simulated(windows, args.hosts, args.orders, args.victims, args.workers)
    if args.plots is not None:
        plot(args.plots, runs)
    if args.json:
        print(report.as_json(document(windows, runs)), end="")
    else:
        print(told(windows, runs))
    return OK


def _known(option: str, asked: Sequence[str], known: Sequence[str]) -> None:
    for name in asked:
        if name not in known:
            raise usage(f"{option} {name}: not known", f"one of {', '.join(known)}")


def read(jobs: Sequence[Path], web: Path | None, hosts: int, load: float) -> tuple[list[Window], list[str]]:
    """All windows, and what a person should know of them.  Raises InputError."""
    found, notes = rules.logs(jobs)
    path = web if web is not None else traces.find(traces.WORLD_CUP)
    if path is None:
        notes.append(f"{traces.WORLD_CUP} is not there ({traces.looked_in()}): a modelled web load stands in")
    series = generated_web() if path is None else web_csv.read(path)
    demand = WebInput(demand=web_csv.demand(series, rules.WEB_PEAK))
    return [window for name, log in found for window in rules.windows(name, log, demand, hosts, load)], notes


def simulated(
    windows: Sequence[Window], hosts: int, orders: Sequence[str], victims: Sequence[str], workers: int | None = None
) -> list[Run]:
    tasks = [
        sweep.Task(
            f"{window.log} {window.number}, {order}, {chosen}", partial(rules.made, window, hosts, order, chosen)
        )
        for window in windows
        for order in orders
        for chosen in victims
    ]
    return sweep.run_all(tasks, title="policies", workers=workers)


def document(windows: Sequence[Window], runs: Sequence[Run]) -> dict[str, Any]:
    """For programs: every window and every run."""
    about = [
        {
            "log": each.log,
            "window": each.number,
            "begin_s": each.begin_s,
            "span_s": each.span_s,
            "load_factor": each.factor,
            "jobs": len(each.works),
            "widest_job_nodes": max(work.nodes for work in each.works),
        }
        for each in windows
    ]
    told = [msgspec.to_builtins(each) for each in runs]
    return {"format": report.FORMAT, "experiment": "policies", "windows": about, "runs": told}


def plot(directory: Path, runs: Sequence[Run]) -> None:
    from phoenix.plugin.simulation import plots
    from phoenix_papers.policies import plot

    figure = plot.turnaround_and_loss(runs)
    for ending in ("svg", "png"):
        plots.save(figure, directory / f"policies.{ending}")


# ------------------------------------------------------------------------------------------------------------------ tables

_HEAD: Final = ("ORDER", "VICTIMS", "DONE", "TURNAROUND", "SLOWDOWN", "UTILISATION", "LOST", "PREEMPTED", "DECISION")
_RIGHT: Final = " ".join(_HEAD[2:])


def told(windows: Sequence[Window], runs: Sequence[Run]) -> str:
    """A table for each log, then how often the windows agree."""
    parts = []
    for log in dict.fromkeys(each.log for each in windows):
        spans = "; ".join(
            f"window {w.number}: {len(w.works):,} jobs from day {w.begin_s / 86400:.0f} in {w.span_s / 86400:.1f} days"
            for w in windows
            if w.log == log
        )
        parts.append(f"{log}: {spans}\n{render(_HEAD, _rows([r for r in runs if r.log == log]), right=_RIGHT)}")
    return "\n\n".join([*parts, *agreement(runs)])


def _rows(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for order, victims in dict.fromkeys((each.order, each.victims) for each in runs):
        mine = [each for each in runs if (each.order, each.victims) == (order, victims)]
        rows.append(
            (
                order,
                victims,
                f"{sum(each.completed for each in mine):,}",
                duration(mean([each.mean_turnaround_s for each in mine])),
                ratio(mean([each.mean_bounded_slowdown for each in mine])),
                share(mean([each.utilisation for each in mine])),
                host_hours(sum(each.lost_node_s for each in mine)),
                f"{sum(each.preempted for each in mine):,}",
                f"{mean([each.decision_us for each in mine]):,.0f} us",
            )
        )
    return rows


def agreement(runs: Sequence[Run]) -> list[str]:
    """In how many windows an order, or an order of victims, does better than the default, all else equal."""
    found = []
    by_order = _against(runs, "order", FIRST, ("mean_turnaround_s", "mean_bounded_slowdown"))
    if by_order:
        head = ("ORDER", "TURNAROUND", "SLOWDOWN")
        about = (
            f"Shorter than {FIRST}, with the same victims: in how many of the runs, and in how many windows on average"
        )
        found.append(f"{about}\n{render(head, by_order)}")
    by_victims = _against(runs, "victims", LEAST, ("lost_node_s", "preempted", "mean_turnaround_s"))
    if by_victims:
        about = f"Less than {LEAST}, with the same order: in how many of the runs, and in how many windows on average"
        found.append(f"{about}\n{render(('VICTIMS', 'LOST', 'PREEMPTED', 'TURNAROUND'), by_victims)}")
    return found


def _against(runs: Sequence[Run], field: str, base: str, values: Sequence[str]) -> list[tuple[str, ...]]:
    """Rows of a name and a cell for each value: how many runs, and windows in the mean, are below those of `base`."""
    rest: Callable[[Run], tuple[object, ...]] = lambda r: (r.log, r.window, r.victims if field == "order" else r.order)  # noqa: E731
    bases = {rest(each): each for each in runs if getattr(each, field) == base}
    rows: list[tuple[str, ...]] = []
    for name in dict.fromkeys(getattr(each, field) for each in runs):
        pairs = [(e, bases[rest(e)]) for e in runs if getattr(e, field) == name and rest(e) in bases]
        if name != base and pairs:
            rows.append((name, *(_cell(pairs, value) for value in values)))
    return rows


def _cell(pairs: Sequence[tuple[Run, Run]], value: str) -> str:
    differences: dict[tuple[str, int], list[float]] = {}
    for mine, other in pairs:
        differences.setdefault((mine.log, mine.window), []).append(getattr(mine, value) - getattr(other, value))
    runs = sum(each < 0 for by_window in differences.values() for each in by_window)
    windows = sum(mean(by_window) < 0 for by_window in differences.values())
    return f"{runs} of {len(pairs)}, {windows} of {len(differences)} windows"
