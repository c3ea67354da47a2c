"""`phoenix simulate intergrid`: leases with time slots among external ones that make way for them (the paper's section 5).

Table II and Fig. 9: what preempting by waiting time, by overhead or both costs, over seeds; and that without preemption slots
do not begin on time.  The order is production's (`order = "leases"`); what is compared is in `rules`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from phoenix.plugin.simulation import (
    OK,
    USAGE,
    CliError,
    LogJob,
    at_least_zero,
    count,
    files,
    interval,
    mean,
    render,
    report,
    sweep,
    traces,
    verdict,
)
from phoenix_papers import region
from phoenix_papers.intergrid import rules
from phoenix_papers.intergrid import sweep as intergrid_sweep
from phoenix_papers.intergrid.rules import Policy, Run

HELP: Final = """13 local leases with time slots among 60 external ones, on 4 hosts of 4 cores.  none: no preemption; mwt,
mov, cp: external leases are suspended for local ones, by minimum waiting time, minimum overhead, or both weighed by alpha.
Means over the seeds with 95 % intervals; a legend stands under the tables.  As a whole about half a minute on two idle cores.

examples:
  phoenix simulate intergrid                      30 seeds, and alpha from 0 to 1 on 5 of them
  phoenix simulate intergrid --json               every run
  phoenix simulate intergrid --alphas 0           Table II alone
  phoenix simulate intergrid --plots figures      what alpha does
  phoenix simulate intergrid --seeds 10 --sweep docs/examples/intergrid-space.toml --for 15m
                                                  for which leases does the paper's order hold?

docs/reference/policies.md describes the order; the paper is M. A. Salehi et al., Software: Practice and Experience 2013."""

SEEDS: Final = 30
ALPHA_SEEDS: Final = 5
ALPHAS: Final = tuple(step / 100 for step in range(101))
LOG: Final = "sdsc-blue-reconstructed-65days.swf.gz"
LEGEND: Final = """\
OVERHEAD: seconds that suspending and resuming took, of all leases together.  WAIT: seconds in which an external lease did
not run between its submission and its end, the mean.  MAKESPAN: seconds from the first submission to the last end.
SUSPENDED: how often, in a run.  ON-TIME: local leases of 13 that began and ended on time, the least of all seeds.
PAPER: its Table II.  DIFFERENCE: seconds, right less left, seed by seed.  ± is the 95 % interval of a mean over the seeds."""
Measure = Callable[[Run], float]
MEASURES: Final[dict[str, Measure]] = {
    "overhead": lambda run: run.overhead_s,
    "wait": lambda run: run.mean_wait_s,
    "makespan": lambda run: run.makespan_s,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=count, default=SEEDS, metavar="N", help=f"runs of each policy ({SEEDS})")
    parser.add_argument(
        "--alphas",
        type=at_least_zero,
        default=ALPHA_SEEDS,
        metavar="N",
        help=f"seeds of Fig. 9, alpha from 0 to 1 ({ALPHA_SEEDS}; 0: none)",
    )
    region.add_arguments(parser)
    parser.add_argument(
        "--log", type=files.named, metavar="FILE", help=f"the job log (default: {LOG}, in {traces.WHERE})"
    )
    parser.add_argument("--plots", type=files.named, metavar="DIR", help="what alpha does, or the map of --sweep")
    parser.add_argument("--workers", type=count, metavar="N", help="processes (default: one for each core)")


def run(args: argparse.Namespace) -> int:
    region.check_alone(args)
    log = args.log or traces.find(LOG)
    if log is None:
        raise CliError(USAGE, f"no {LOG}: {traces.looked_in()}; or name a log with --log")
    if args.sweep is not None:
        return region.run(intergrid_sweep.study(rules.externals(log, intergrid_sweep.EXTERNALS_MAX)), args, args.seeds)
    requests = rules.externals(log)
    runs = simulated(requests, range(1, args.seeds + 1), workers=args.workers)
    swept = simulated(requests, range(1, args.alphas + 1), ("cp",), ALPHAS, workers=args.workers)
    if args.plots is not None:
        plot(args.plots, swept)
    if args.json:
        print(report.as_json(document([*runs, *(each for each in swept if each.alpha != rules.ALPHA)])), end="")
    else:
        print(f"{told(runs, swept)}\n\n{LEGEND}\nThe log: {log}")
    return OK


def simulated(
    requests: tuple[LogJob, ...],
    seeds: Sequence[int],
    policies: Sequence[Policy] = rules.POLICIES,
    alphas: Sequence[float] = (rules.ALPHA,),
    workers: int | None = None,
) -> list[Run]:
    tasks = [
        sweep.Task(f"{policy} {alpha:g}, seed {seed}", partial(rules.made, requests, policy, alpha, seed))
        for policy in policies
        for alpha in alphas
        for seed in seeds
    ]
    return sweep.run_all(tasks, title="intergrid", workers=workers) if tasks else []


def document(runs: Sequence[Run]) -> dict[str, Any]:
    """For programs: every run; those of the sweep are of policy cp, with other alphas."""
    return {"format": report.FORMAT, "experiment": "intergrid", "runs": [msgspec.to_builtins(each) for each in runs]}


def plot(directory: Path, swept: Sequence[Run]) -> None:
    """Fig. 9: what alpha does."""
    if not swept:
        raise CliError(USAGE, "--plots shows what alpha does: --alphas should be at least 1")
    from phoenix.plugin.simulation import plots
    from phoenix_papers.intergrid import plot

    alphas = sorted({each.alpha or 0.0 for each in swept})
    points = [
        (alpha, mean([r.overhead_s for r in mine]), mean([r.mean_wait_s for r in mine]))
        for alpha in alphas
        if (mine := [each for each in swept if each.alpha == alpha])
    ]
    seeds = len({each.seed for each in swept})
    figure = plot.alphas(points, chosen=rules.ALPHA, caption=f"means of {seeds} seeds; the ring is alpha = 0.31")
    for ending in ("svg", "png"):
        plots.save(figure, directory / f"alpha.{ending}")


# ------------------------------------------------------------------------------------------------------------------ tables


def told(runs: Sequence[Run], swept: Sequence[Run]) -> str:
    """For people."""
    parts = [_table(runs), _claims(runs)]
    if swept:
        parts.append(_sweep(swept))
    return "\n\n".join(part for part in parts if part)


def _table(runs: Sequence[Run]) -> str:
    rows = []
    for policy in rules.POLICIES:
        mine = [each for each in runs if each.policy == policy]
        if mine:
            values = [interval([measure(each) for each in mine]) for measure in MEASURES.values()]
            stops = mean([float(each.preemptions) for each in mine])
            paper = rules.TABLE_II.get(policy)
            theirs = [f"{value:,.0f}" for value in paper] if paper else ["", "", ""]
            on_time = min(each.local_on_time for each in mine)
            rows.append((policy, *values, f"{stops:.1f}", str(on_time), *theirs))
    head = ("POLICY", "OVERHEAD", "WAIT", "MAKESPAN", "SUSPENDED", "ON-TIME", "PAPER:OVERHEAD", "WAIT", "MAKESPAN")
    return render(head, rows, right=" ".join(head[1:]))


def claims(runs: Sequence[Run]) -> list[tuple[str, str, list[float]]]:
    """The paper's inequalities: what it says, and right less left for each seed."""
    known = {(each.policy, each.seed): each for each in runs}
    seeds = sorted({each.seed for each in runs})
    return [
        (
            f"{name}: {left} ≤ {right}",
            name,
            [MEASURES[name](known[right, s]) - MEASURES[name](known[left, s]) for s in seeds],  # type: ignore[index]
        )
        for name, left, right in rules.CLAIMS
    ]


def told_of(differences: Sequence[float]) -> str:
    """What the paired differences say of "left is at most right"."""
    if len(differences) == 1:
        return "holds in this run" if differences[0] >= 0 else "does not hold in this run"
    found = verdict(differences)
    return "no difference that these seeds show" if found == "open" else found


def _claims(runs: Sequence[Run]) -> str:
    if {each.policy for each in runs} != set(rules.POLICIES):
        return ""
    rows = []
    for text, _, differences in claims(runs):
        kept = sum(1 for each in differences if each >= 0)
        rows.append((text, interval(differences, sign=True), f"{kept} of {len(differences)}", told_of(differences)))
    return render(("THE PAPER SAYS", "DIFFERENCE", "SEEDS", ""), rows, right="DIFFERENCE SEEDS")


def _sweep(swept: Sequence[Run]) -> str:
    rows = []
    for alpha in sorted({each.alpha or 0.0 for each in swept}):
        mine = [each for each in swept if each.alpha == alpha]
        if round(alpha * 100) % 10 == 0 or alpha == rules.ALPHA:
            means = (mean([r.overhead_s for r in mine]), mean([r.mean_wait_s for r in mine]))
            rows.append((f"{alpha:.2f}", *(f"{mean:,.0f}" for mean in means)))
    return render(("ALPHA", "OVERHEAD", "WAIT"), rows, right="ALPHA OVERHEAD WAIT")
