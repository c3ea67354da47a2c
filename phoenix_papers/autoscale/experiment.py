"""`phoenix simulate phoenix-autoscale`: how well scaling rules follow a web load (the paper's §III-C).

The load is a person's own table (`--web`), else the World Cup trace if it is on this machine, else generated, and the output
says which.  Each rule runs through the web core of production; what is compared is in `rules`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from phoenix.plugin.simulation import (
    OK,
    Outcome,
    Series,
    count,
    duration,
    engine,
    files,
    host_hours,
    render,
    report,
    share,
    sweep,
    traces,
    usage,
    web_csv,
    web_model,
    whole,
)
from phoenix_papers.autoscale import compare, rules, trying
from phoenix_papers.autoscale.rules import Followed, Ideal, Load, Variant

HELP: Final = """The rule of the paper (one more above 80 % over 20 s, one fewer below 80 %·(n-1)/n) and target-tracking
with several pairs of windows, on the same load.  SHORT is below what keeps every instance at 80 %,
OVERLOAD is below the load itself.

examples:
  phoenix simulate phoenix-autoscale                                the World Cup trace, or a generated load
  phoenix simulate phoenix-autoscale --web load.csv --capacity 40   your requests; an instance serves 40 a second
  phoenix simulate phoenix-autoscale --try target=0.7,up=30,down=600
  phoenix simulate phoenix-autoscale --try target=0.8,turns=6,forecast=3,margin=0.1
  phoenix simulate phoenix-autoscale --try 'rule=threshold,down-limit=10% in 60s,schedule=daily 18:00-24:00 at least 6'
  phoenix simulate phoenix-autoscale --boot 30 --plots figures      instances need 30 s; plots as SVG and PNG
  phoenix simulate phoenix-autoscale --compare --busiest-day        over- and under-capacity, hosts moved

--try knows rule, threshold, window; target, up, down, tolerance; up-limit, down-limit, schedule (each again for
one more); forecast (days), margin, ahead; turns (an hour).  The simulated clock begins on a Monday, 00:00 UTC.
docs/reference/scaling.md describes the rules and these bounds, docs/reference/simulator-inputs.md the table and the public
trace."""

GENERATED_DAYS: Final = 14.0  # as long as the paper's trace
GENERATED_PEAK: Final = 1_000_000.0  # requests of the busiest minute: fine steps, whatever they are scaled to
PLOTTED: Final = (0, 1, 3)  # of the variants: more panels would be too low to read
ZOOM_S: Final = 6 * 3600.0  # around the busiest moment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--web", type=files.named, metavar="FILE.csv", help="requests or utilisation in each interval")
    parser.add_argument("--capacity", type=_positive, metavar="R", help="requests a second that one instance serves")
    parser.add_argument("--peak", type=count, metavar="N", help="else: instances of the busiest interval (64)")
    parser.add_argument(
        "--scale", type=_positive, metavar="F", help="multiply the load (2.22 for the paper's trace, else 1)"
    )
    parser.add_argument(
        "--compare", action="store_true", help="the paper's rule against target tracking: over- and under-capacity"
    )
    parser.add_argument("--busiest-day", action="store_true", help="only the day of the busiest moment")
    parser.add_argument("--boot", type=_seconds, metavar="S", help="until a new instance serves (0; --compare: 30)")
    parser.add_argument("--drain", type=_seconds, metavar="S", help="until one that goes has gone (0; --compare: 5)")
    parser.add_argument("--signal", type=_positive, metavar="S", help="from signal to signal (20; --compare: 1)")
    parser.add_argument(
        "--try", type=trying.variant, action="append", default=[], dest="tried", metavar="K=V,…", help=trying.HELP
    )
    parser.add_argument("--seed", type=whole, default=1, metavar="N", help="of the generated load (1)")
    parser.add_argument("--plots", type=files.named, metavar="DIR", help="plots, as SVG and PNG")
    parser.add_argument("--workers", type=count, metavar="N", help="processes (default: one for each core)")


def _positive(text: str) -> float:
    value = _seconds(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} should be more than 0")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} should be a number, 0 or more")
    return value


# -------------------------------------------------------------------------------------------------------------------- run


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """The load, and where it is from."""

    source: str
    generated: bool
    scale: float
    capacity_requests_per_s: float | None  # None: the table tells utilisation
    boot_s: float
    drain_s: float
    signal_s: float
    compare: bool
    window_s: float
    measured_from_s: float  # what is before is warm-up


class Result(msgspec.Struct, frozen=True):
    followed: Followed
    outcome: Outcome


def run(args: argparse.Namespace) -> int:
    given, load = _given(args)
    chosen = compare.VARIANTS if given.compare else rules.VARIANTS
    variants = _unique([*chosen, *args.tried])
    tasks = [sweep.Task(each.label, partial(_simulate, each, load, given)) for each in variants]
    results = sweep.run_all(tasks, title="phoenix-autoscale", workers=args.workers)
    ideal = rules.ideal_of(load, given.window_s)
    if args.plots is not None:
        plot(args.plots, given, load, results)
    runs = [result.followed for result in results]
    runs += compare.fixed(load, given.window_s, ideal) if given.compare else []
    if args.json:
        print(report.as_json(document(given, ideal, runs)), end="")
    else:
        print(told(given, ideal, runs))
    return OK


def _unique(variants: Sequence[Variant]) -> list[Variant]:
    return list({variant.label: variant for variant in variants}.values())


def _simulate(variant: Variant, load: Load, given: Given) -> Result:
    scenario = rules.scenario(variant, load, given.window_s, given.boot_s, given.drain_s, given.signal_s)
    outcome = engine.run(scenario)
    outcome.web[0].load = list(load)
    return Result(rules.followed(variant, load, outcome), outcome)


def _given(args: argparse.Namespace) -> tuple[Given, Load]:
    """Reads or makes the load.  InputError for a table that cannot be used."""
    series, source, generated = _series(args)
    public = args.web is None and not generated
    scale = args.scale if args.scale is not None else rules.SCALE if public else 1.0
    peak = args.peak if args.peak is not None else rules.PEAK
    if args.capacity is not None and args.peak is not None:
        raise usage("--capacity and --peak both say how much an instance serves", "name one of them")
    if peak > rules.PEAK_MAX:
        raise usage(f"--peak {peak}: at most {rules.PEAK_MAX:,}")
    capacity = None
    if series.unit == "requests":
        capacity = args.capacity if args.capacity is not None else rules.capacity_for(series, peak, scale)
    load = rules.load_of(series, capacity or 0.0, scale)
    window_s = series.end_s
    if args.busiest_day:
        load, window_s = compare.busiest_day(load)
    most = max(busy for _, busy in load)
    if most > rules.PEAK_MAX * rules.LEVEL:
        raise usage(
            f"the busiest interval keeps {most:,.0f} instances busy: too many to simulate", "a larger --capacity"
        )
    given = Given(
        source=source,
        generated=generated,
        scale=scale,
        capacity_requests_per_s=capacity,
        boot_s=args.boot if args.boot is not None else compare.BOOT_S if args.compare else 0.0,
        drain_s=args.drain if args.drain is not None else compare.DRAIN_S if args.compare else 0.0,
        signal_s=args.signal or (compare.SIGNAL_S if args.compare else rules.SIGNAL_S),
        compare=args.compare,
        window_s=window_s,
        measured_from_s=rules.measured_from(window_s),
    )
    return given, load


def _series(args: argparse.Namespace) -> tuple[Series, str, bool]:
    path: Path | None = args.web if args.web is not None else traces.find(traces.WORLD_CUP)
    if path is not None:
        return web_csv.read(path), path.name, False
    print(
        f"phoenix: no --web, and {traces.WORLD_CUP} is not there ({traces.looked_in()}): the load is generated "
        f"(seed {args.seed}); docs/reference/simulator-inputs.md says where the public trace is",
        file=sys.stderr,
    )
    series = web_model.generate(GENERATED_DAYS, GENERATED_PEAK, args.seed)
    return series, f"generated, seed {args.seed}", True


# ----------------------------------------------------------------------------------------------------------------- output


def document(given: Given, ideal: Ideal, runs: Sequence[Followed]) -> dict[str, Any]:
    """For `--json`."""
    return {
        "experiment": "phoenix-autoscale",
        "format": report.FORMAT,
        "input": msgspec.to_builtins(given),
        "level": rules.LEVEL,
        "ideal": msgspec.to_builtins(ideal),
        "runs": msgspec.to_builtins(list(runs)),
    }


_HEAD: Final = (
    "RULE",
    "CORR",
    "OFF-BY",
    "SHORT",
    "LONGEST",
    "OVERLOAD",
    "LONGEST",
    "USED",
    "OF-IDEAL",
    "CHANGES/H",
    "TURNS",
)


def told(given: Given, ideal: Ideal, runs: Sequence[Followed]) -> str:
    """For a person."""
    days = given.window_s / 86400.0
    capacity = given.capacity_requests_per_s
    serves = f"; an instance serves {capacity:.4g} requests/s" if capacity is not None else ""
    scaled = f" × {given.scale:g}" if given.scale != 1 else ""
    about = f"{given.boot_s:g} s until a new instance serves"
    if given.compare:
        about += f"; one that goes drains for {given.drain_s:g} s; a signal each {given.signal_s:g} s"
    first = f"{given.source}{scaled}, {days:.4g} days{serves}; {about}."
    second = (
        f"Ideal at {share(rules.LEVEL)}: {ideal.peak_instances} instances at the peak, {ideal.mean_instances:.1f} in the mean,"
        f" {host_hours(ideal.used_instance_s)}; the peak all the time: {host_hours(ideal.peak_all_the_time_instance_s)}."
    )
    warm = f" The first {given.measured_from_s / 3600:g} h are not measured." if given.measured_from_s else ""
    return f"{first}{warm}\n{second}\n\n{_table(given, ideal, runs)}"


def _table(given: Given, ideal: Ideal, runs: Sequence[Followed]) -> str:
    if given.compare:
        return compare.table(runs, ideal, given.window_s)
    return f"{render(_HEAD, [_row(run) for run in runs], right=' '.join(_HEAD[1:]))}\n\n{_MEANINGS}"


_MEANINGS: Final = """CORR, OFF-BY  correlation, and mean deviation in instances, of instances in service and the ideal
SHORT         instance-hours below the ideal (instances are above 80 %), and the longest stretch of it
OVERLOAD      instance-hours below the load itself (requests wait or are lost), and the longest stretch of it
USED          instance-hours in service, and their share of the ideal's; CHANGES/H: steps of their number in an hour
TURNS         most changes of direction within an hour"""


def _row(run: Followed) -> list[str]:
    return [
        run.label,
        "-" if run.correlation is None else f"{run.correlation:.4f}",
        f"{run.mean_deviation:.2f}",
        host_hours(run.short_instance_s),
        duration(run.longest_short_s),
        host_hours(run.overload_instance_s),
        duration(run.longest_overload_s),
        host_hours(run.used_instance_s),
        share(run.used_of_ideal),
        f"{run.changes_per_hour:.1f}",
        str(run.turns_in_an_hour_max),
    ]


def plot(directory: Path, given: Given, load: Load, results: Sequence[Result]) -> None:
    """Rules side by side over the whole window, and around the busiest moment."""
    from phoenix.plugin.simulation import plots

    places, known = (compare.PLOTTED, compare.VARIANTS) if given.compare else (PLOTTED, rules.VARIANTS)
    chosen = [results[place].outcome for place in places]
    chosen += [result.outcome for result in results[len(known) :]]
    busiest = max(load, key=lambda level: level[1])[0]
    since = math.floor(max(0.0, busiest - ZOOM_S / 2) / 3600.0) * 3600.0
    caption = f"Load: {given.source}, scaled by {given.scale:g}; a new instance serves after {given.boot_s:g} s."
    whole = plots.scaling_comparison(chosen, caption=caption)
    near = plots.scaling_comparison(
        chosen, between=(since, min(since + ZOOM_S, given.window_s)), title="The busiest hours", caption=caption
    )
    figures = {"autoscale": whole, "autoscale-peak": near}
    if given.compare:
        figures["autoscale-capacity"] = compare.plot([result.followed for result in results], caption)
    for name, figure in figures.items():
        for ending in ("svg", "png"):
            plots.save(figure, directory / f"{name}.{ending}")
