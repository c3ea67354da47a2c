"""In which region of workloads does a claim hold?  `phoenix simulate NAME --sweep space.toml`.

A source claims a gain or an order, and does not tell its whole workload.  An experiment describes (`Study`) what the workload's
parameters are, which of them the source states, what it claims, and which other figures it tells.  Here every point of a
declared space is run on every seed, and each claim judged.

Rules
  1. A parameter that the source states is fixed: an axis for it, or another value, is refused, unless the space lists it in
     `against_the_source` of [fixed].
  2. A claim is a number a seed, at least 0 where it holds.  It holds at a point if the 95 % interval of its mean is above 0,
     does not hold if it is below, else it is open.
  3. A point agrees with a figure that the source tells if the mean over the seeds is within a band around it.
  4. A point is a row of the file of trials when all its seeds are done.  Points are known by every value that is set, so a
     space with more values continues with the same file.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import msgspec

from phoenix.plugin.simulation import (
    OK,
    Job,
    Point,
    Space,
    Verdict,
    evaluate,
    files,
    grid,
    interval,
    mean,
    parse_time_s,
    render,
    report,
    spread,
    suggestion,
    trials,
    usage,
    worded,
    words_of,
)
from phoenix.plugin.simulation import load_space as load
from phoenix_papers.study import Claim, Column, Measures, Region, Row, Study, Told

AGAINST: Final = "against_the_source"
ROWS_MAX: Final = 20  # of the table; --json has every point
WORDS: Final[dict[Verdict, str]] = {"holds": "yes", "does not hold": "no", "open": "open"}
LEGEND: Final = """\
A row a point: its axes, means over {seeds} seeds with 95 % intervals, and each claim: yes, if the interval of its mean is
above 0; no, if it is below; else open.  AGREES: with how many of the other figures that the source tells.  Best first."""


# -------------------------------------------------------------------------------------------------------------- arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sweep", type=files.named, metavar="SPACE", help="where does the claim hold?  A TOML file of ranges"
    )
    parser.add_argument(
        "--trials",
        type=files.named,
        metavar="FILE",
        help="with --sweep: finished points; the same command continues (default: SPACE.trials.jsonl)",
    )
    parser.add_argument(
        "--for",
        dest="for_s",
        type=worded(parse_time_s),
        metavar="TIME",
        help="with --sweep: begin no further point after so long",
    )
    parser.add_argument(
        "--map", metavar="X,Y", help="with --sweep and --plots: the axes of the map (default: the first two)"
    )


def check_alone(args: argparse.Namespace) -> None:
    """What only a sweep has."""
    given = [word for word, value in (("--trials", args.trials), ("--for", args.for_s), ("--map", args.map)) if value]
    if given and args.sweep is None:
        raise usage(f"{given[0]} belongs to a sweep", "name a space with --sweep, or leave it out")


def run(study: Study, args: argparse.Namespace, seeds: int) -> int:
    """The whole of `--sweep`."""
    space = load(args.sweep, legal(study), gridded=True)
    axes = map_axes(space, args.map)
    place = args.trials or Path(f"{args.sweep.with_suffix('')}.trials.jsonl")
    found = swept(study, space, place, seeds, for_s=args.for_s, workers=args.workers)
    if args.plots is not None and found.rows:
        plot(args.plots, found, axes)
    if args.json:
        print(report.as_json(document(found)), end="")
    else:
        print(table(found, place))
    return OK


def map_axes(space: Space, given: str | None) -> tuple[str, str | None]:
    """The map's axes: those named, else the first two."""
    names = [axis.name for axis in space.axes]
    wanted = names[:2] if given is None else given.split(",")
    if len(wanted) not in (1, 2) or len({*wanted}) < len(wanted) or not {*wanted} <= {*names}:
        raise usage(f"--map {given} names no two axes of the space", f"there are: {', '.join(names)}")
    return wanted[0], wanted[1] if len(wanted) == 2 else None


def legal(study: Study) -> Callable[[str, Any, Mapping[str, Any]], str | None]:
    """Rule 1, for `phoenix.search.space`."""
    described = msgspec.inspect.type_info(study.parameters)
    assert isinstance(described, msgspec.inspect.StructType)
    fields = {field.name: field.type for field in described.fields}

    def check(name: str, value: Any, beside: Mapping[str, Any]) -> str | None:
        if name == AGAINST:
            known = isinstance(value, list) and all(each in study.stated for each in value)
            return None if known else f"should be a list of what the source states: {', '.join(study.stated)}"
        if name not in fields:
            hint = suggestion(name, fields) or f"; there are: {', '.join(sorted(fields))}"
            return f"should be a parameter of the workload{hint}"
        try:
            parameters = msgspec.convert({name: value}, study.parameters)
        except msgspec.ValidationError:
            return f"should be {words_of(fields[name])}"
        listed = beside.get(AGAINST, ())
        if name in study.stated and name not in listed and parameters != study.parameters():
            return f"should not be here: {study.stated[name]}; to vary it all the same, list it in fixed.{AGAINST}"
        return None

    return check


# ------------------------------------------------------------------------------------------------------------------- runs


def swept(
    study: Study, space: Space, place: Path, seeds: int, *, for_s: float | None = None, workers: int | None = None
) -> Region:
    """Every point of the space, those of the file not again.  Raises `Interrupted`, and CliError for the file."""
    points = list(map(space.with_fixed, grid(space)))
    for point in points:
        point.pop(AGAINST, None)
    parts = {"seeds": str(seeds), "phoenix": metadata.version("phoenix-cloud")}
    head = trials.Head(
        search=f"simulate {study.name}", parts=parts | ({"inputs": study.inputs} if study.inputs else {})
    )

    def make(job: Job) -> dict[str, Any]:
        made = [study.measure(job.point, seed) for seed in range(1, seeds + 1)]
        return {name: [each[name] for each in made] for name in made[0]}

    with trials.opened(place, head) as file:
        jobs = [Job(point) for point in points]
        evaluate(file, jobs, make, title=study.name, total=len(jobs), for_s=for_s, workers=workers)
        done = [trial for point in points if (trial := file.known(point)) is not None]
    rows = [judged(study, trial.point, trial.result) for trial in done]
    return Region(study, space, rows, len(points), seeds)


def judged(study: Study, point: Point, measures: Measures) -> Row:
    """Rules 2 and 3."""
    count = len(next(iter(measures.values())))
    seeds = [{name: values[n] for name, values in measures.items()} for n in range(count)]
    differences = tuple([claim.kept(each) for each in seeds] for claim in study.claims)
    agrees = tuple(told.least <= mean(measures[told.measure]) <= told.most for told in study.told)
    return Row(point, measures, differences, agrees)


def best(rows: Sequence[Row]) -> list[Row]:
    """Most agreement first, then most claims, then the largest first claim; else in the order of the space."""
    return sorted(
        rows,
        key=lambda row: (
            -sum(row.agrees),
            -sum(each == "holds" for each in row.verdicts),
            -mean(row.differences[0]),
        ),
    )


# ----------------------------------------------------------------------------------------------------------------- output


def table(region: Region, place: Path) -> str:
    """For people."""
    study = region.study
    parts = [_points(region), _claims(region), _told(region)] if region.rows else []
    legend = LEGEND.format(seeds=region.seeds)
    shown = f"; the first {ROWS_MAX} are shown" if len(region.rows) > ROWS_MAX else ""
    state = f"{len(region.rows):,} of {region.total:,} points of {study.name} are finished{shown}; they are in {place}."
    if len(region.rows) < region.total:
        state += "  The same command continues."
    return "\n\n".join([*parts, f"{legend}\n{state}" if parts else state])


def _points(region: Region) -> str:
    study, axes = region.study, [axis.name for axis in region.space.axes]
    head = (
        *(name.upper() for name in axes),
        *(each.head for each in study.columns),
        *(each.head for each in study.claims),
        "AGREES",
    )
    rows = [
        (
            *(_value(row.point.get(name)) for name in axes),
            *(interval(row.measures[each.measure], digits=each.digits) for each in study.columns),
            *(WORDS[each] for each in row.verdicts),
            f"{sum(row.agrees)} of {len(study.told)}",
        )
        for row in best(region.rows)[:ROWS_MAX]
    ]
    return render(head, rows, right=" ".join(head))


def _value(value: Any) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _claims(region: Region) -> str:
    rows = []
    agreeing = [row for row in region.rows if all(row.agrees)]
    for n, claim in enumerate(region.study.claims):
        found = [row.verdicts[n] for row in region.rows]
        there = sum(row.verdicts[n] == "holds" for row in agreeing)
        counts = [str(found.count(each)) for each in ("holds", "open", "does not hold")]
        rows.append((claim.head, claim.text, *counts, f"{there} of {len(agreeing)}"))
    head = ("CLAIM", "", "HOLDS", "OPEN", "DOES-NOT", "WHERE-ALL-AGREES")
    return render(head, rows, right=" ".join(head[2:]))


def _told(region: Region) -> str:
    rows = []
    for n, told in enumerate(region.study.told):
        means = [mean(row.measures[told.measure]) for row in region.rows]
        agreeing = sum(row.agrees[n] for row in region.rows)
        band = f"{told.least:,.5g} to {told.most:,.5g}" if math.isfinite(told.least) else f"at most {told.most:,.5g}"
        rows.append((told.text, band, f"{min(means):,.5g} to {max(means):,.5g}", str(agreeing)))
    return render(("THE SOURCE TELLS", "BAND", "HERE", "AGREE"), rows, right="BAND HERE AGREE")


def document(region: Region) -> dict[str, Any]:
    """For programs: every point, with each measure of each seed."""
    study = region.study
    return {
        "format": report.FORMAT,
        "experiment": study.name,
        "seeds": region.seeds,
        "axes": {axis.name: list(axis.values()) for axis in region.space.axes},
        "points_total": region.total,
        "points": [
            {
                "point": row.point,
                "measures": row.measures,
                "claims": [
                    {"claim": claim.text, "mean": spread(each)[0], "half": spread(each)[1], "verdict": found}
                    for claim, each, found in zip(study.claims, row.differences, row.verdicts, strict=True)
                ],
                "agrees": {told.text: found for told, found in zip(study.told, row.agrees, strict=True)},
            }
            for row in region.rows
        ],
    }


def plot(directory: Path, region: Region, axes: tuple[str, str | None]) -> None:
    """The map."""
    from phoenix.plugin.simulation import plots
    from phoenix_papers import region_plot

    figure = region_plot.region(region, axes)
    for ending in ("svg", "png"):
        plots.save(figure, directory / f"{region.study.name}-region.{ending}")


__all__ = ["AGAINST", "Claim", "Column", "Region", "Row", "Study", "Told", "add_arguments", "check_alone", "run"]
