"""`phoenix simulate phoenix-cloud`: the paper's comparison (§III-D), on the cores of this product.

One department runs batch jobs, one runs a web service.  Static: each has a cluster of its own, 144 and 64 nodes.  Dynamic: they
share 200 down to 150 nodes.  "Kill" in the paper can be read in two ways, so every size is simulated with both.  The paper
claims that at 160 nodes more jobs complete than in the static configuration, and sooner; the last lines say of each reading
whether that holds here, and where it stops holding.  Of generated inputs nothing follows for the paper: there is no verdict.

Rules are in `rules`, jobs and demand come from `inputs`; what it is
worth that jobs save their work is asked in `phoenix_cloud_checkpoints`, which policies go below the paper by `phoenix tune`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from phoenix.plugin.simulation import (
    FAILED,
    OK,
    CliError,
    Outcome,
    Run,
    Scenario,
    WebInput,
    Work,
    beats,
    count,
    files,
    report,
    simulate,
    sweep,
    usage,
)
from phoenix_papers.phoenix_cloud import rules
from phoenix_papers.phoenix_cloud.inputs import Inputs, about, read

PAPER_NODES: Final = 160  # of which the claim is made: 76.9 % of 208
HELP: Final = """examples:
  phoenix simulate phoenix-cloud                      the public traces if they are there, else generated ones
  phoenix simulate phoenix-cloud --jobs my.swf.gz --web my.csv
  phoenix simulate phoenix-cloud --json > runs.json
  phoenix simulate phoenix-cloud --plots figures      the paper's Fig. 5, 7 and 8, as SVG and PNG
  phoenix simulate phoenix-cloud --checkpoints        what it is worth that jobs save their work

The job log is in the Standard Workload Format; the web load is a CSV of requests per minute:
docs/reference/simulator-inputs.md, which also says where to get the public logs."""


class Result(NamedTuple):
    """What a worker sends back."""

    run: Run
    outcome: Outcome | None
    problems: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jobs", type=files.named, metavar="F.swf", help="a job log instead of SDSC Blue's (.swf, .swf.gz)"
    )
    parser.add_argument(
        "--web", type=files.named, metavar="F.csv", help="requests per minute instead of the World Cup's"
    )
    parser.add_argument("--plots", type=files.named, metavar="DIR", help="Fig. 5, 7 and 8 as SVG and PNG")
    parser.add_argument(
        "--jobs-csv", type=files.text_out, metavar="FILE", help="every job of every run; - is standard output"
    )
    parser.add_argument("--explain", type=count, metavar="JOB", help="one job's story; --run says in which run")
    parser.add_argument("--run", metavar="LABEL", help="with --explain: as in the table's first column")
    parser.add_argument("--checkpoints", action="store_true", help="what it is worth that jobs save their work")
    parser.add_argument("--verify", action="store_true", help="replay each run's facts apart: the same bytes?")
    parser.add_argument("--workers", type=count, metavar="N", help="processes (default: one for each core)")


def run(args: argparse.Namespace) -> int:
    inputs = read(args.jobs, args.web)
    for note in inputs.notes:
        print(f"phoenix: {note}", file=sys.stderr)
    works = rules.lay_out(inputs.jobs)
    if args.explain is not None:
        return _explain(args, works, inputs)
    if args.checkpoints:
        from phoenix_papers.phoenix_cloud import checkpoints as phoenix_cloud_checkpoints

        return phoenix_cloud_checkpoints.run(args, inputs)
    out = files.beside(args.jobs_csv)
    results = simulated(works, inputs.demand, args)
    runs = [result.run for result in results]
    claims = judged(runs, inputs.stand_ins)
    if args.jobs_csv is not None:
        report.write_jobs_csv(args.jobs_csv, [result.outcome for result in results if result.outcome is not None])
    if args.plots is not None:
        _plot(args.plots, results, inputs)
    if args.json:
        print(
            report.as_json(report.document("phoenix-cloud", runs, inputs=about(inputs, works), claims=claims)), end=""
        )
    else:
        print(_told(runs, claims, inputs.stand_ins), file=out)
    problems = [problem for result in results for problem in result.problems]
    if problems:
        raise CliError(FAILED, "the replay differs:\n" + "\n".join(problems), "that is a bug: please report it")
    if args.verify and not args.json:
        print(f"\nverified: {len(runs)} runs, replayed through separate folds to the same bytes", file=out)
    return OK


# ------------------------------------------------------------------------------------------------------------------- runs


def scenarios(works: tuple[Work, ...], demand: WebInput) -> list[tuple[Scenario, str, str | None]]:
    """The 13 runs: scenario, configuration, on_reclaim."""
    found: list[tuple[Scenario, str, str | None]] = [(rules.static(works, demand), "static", None)]
    for nodes in rules.SIZES:
        found += [(rules.dynamic(nodes, reading, works, demand), "dynamic", reading) for reading in rules.READINGS]
    return found


def simulated(works: tuple[Work, ...], demand: WebInput, args: argparse.Namespace) -> list[Result]:
    keep = args.plots is not None or args.jobs_csv is not None
    tasks = [
        sweep.Task(
            scenario.label,
            lambda s=scenario, c=configuration, o=on_reclaim: _made(s, c, o, keep=keep, verified=args.verify),  # type: ignore[misc]
        )
        for scenario, configuration, on_reclaim in scenarios(works, demand)
    ]
    return sweep.run_all(tasks, title="phoenix-cloud", workers=args.workers)


def _made(scenario: Scenario, configuration: str, on_reclaim: str | None, *, keep: bool, verified: bool) -> Result:
    outcome = simulate(scenario)
    problems: tuple[str, ...] = ()
    if verified:
        from phoenix.plugin.simulation import verify

        problems = tuple(verify(scenario, outcome))
    row = report.run_of(outcome, configuration=configuration, on_reclaim=on_reclaim)
    return Result(row, outcome if keep else None, problems)


# ------------------------------------------------------------------------------------------------------------- the claim


def judged(runs: Iterable[Run], stand_ins: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Of each reading: does the paper's claim hold at 160 nodes (None where inputs were generated: that cannot be said), at
    which sizes does it hold, and where does it stop?"""
    runs = list(runs)
    static = next(run for run in runs if run.configuration == "static")
    found = []
    for reading in rules.READINGS:
        mine = [run for run in runs if run.on_reclaim == reading]
        paper = next((run for run in mine if run.nodes == PAPER_NODES), None)
        sooner = [run.nodes for run in mine if _sooner(run, static)]
        more = [run.nodes for run in mine if run.completed > static.completed]
        both = [run.nodes for run in mine if beats(run, static)]
        found.append(
            {
                "reading": reading,
                "nodes": PAPER_NODES,
                "holds": None if stand_ins else paper is not None and beats(paper, static),
                "more_jobs_complete_at": more,
                "turnaround_is_shorter_at": sooner,
                "both_at": both,
                "smallest_with_both": min(both, default=None),
            }
        )
    return found


def _sooner(run: Run, static: Run) -> bool:
    mine, theirs = run.mean_turnaround_s, static.mean_turnaround_s
    return mine is not None and theirs is not None and mine < theirs


def _told(runs: list[Run], claims: list[dict[str, Any]], stand_ins: Sequence[str]) -> str:
    from phoenix.plugin.simulation import runs_table

    static = runs[0]
    lines = [runs_table(runs, reference=static), ""]
    share = PAPER_NODES / rules.STATIC_NODES
    lines.append(
        f"The paper's claim: at {PAPER_NODES} nodes ({share:.1%} of {rules.STATIC_NODES}) more jobs complete, and sooner."
    )
    if stand_ins:
        were = "was" if stand_ins == ("the web load",) else "were"
        lines.append(f"No verdict on that: {' and '.join(stand_ins)} {were} generated.  With these inputs:")
    for claim in claims:
        verdict = {True: "holds: ", False: "does not hold: ", None: ""}[claim["holds"]]
        lines.append(
            f"  {claim['reading']:8} {verdict}more jobs complete at {_sizes(claim['more_jobs_complete_at'])}; turnaround is "
            f"shorter at {_sizes(claim['turnaround_is_shorter_at'])}; both at {_sizes(claim['both_at'])}"
        )
    return "\n".join(lines)


def _sizes(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes)) if sizes else "no size"


# ---------------------------------------------------------------------------------------------------------------- output


def _plot(directory: Path, results: list[Result], inputs: Inputs) -> None:
    from phoenix.plugin.simulation import plots

    runs = [result.run for result in results]
    caption = f"{inputs.jobs_from}; {inputs.web_from}"
    shared = [result.outcome for result in results if result.outcome is not None]
    figures = {
        "fig5-web-consumption": plots.web_consumption(shared[0], caption=caption),
        "fig7-completed-and-turnaround": plots.sweep_plot(runs[1:], reference=runs[0], caption=caption),
        "fig8-killed-and-requeued": plots.preemption_plot(runs[1:], caption=caption),
    }
    for name, figure in figures.items():
        for ending in ("svg", "png"):
            plots.save(figure, directory / f"{name}.{ending}")


def _explain(args: argparse.Namespace, works: tuple[Work, ...], inputs: Inputs) -> int:
    from phoenix.plugin.simulation import explain

    known = {scenario.label: scenario for scenario, _, _ in scenarios(works, inputs.demand)}
    label = args.run or f"{PAPER_NODES} requeue"
    if label not in known:
        raise usage(f"there is no run {label!r}", f"one of {', '.join(known)}")
    try:
        story = explain.story(known[label], args.explain)
    except explain.NoSuchJob as error:
        raise usage(str(error)) from error
    print(report.as_json(explain.as_data(story)).rstrip() if args.json else explain.render(story))
    return OK
