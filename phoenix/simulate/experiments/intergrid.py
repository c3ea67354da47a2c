"""`phoenix simulate intergrid`: leases with time slots among external ones that make way for them (the paper's section 5).

Table II and Fig. 9: what preempting by waiting time, by overhead or both costs, over seeds; and that without preemption slots
do not begin on time.  The order is production's (`order = "leases"`); what is compared is in `intergrid_rules`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from phoenix.cli import files
from phoenix.cli.errors import OK, USAGE, CliError
from phoenix.cli.parser import at_least_zero, count
from phoenix.cli.tables import render
from phoenix.simulate import engine, report, sweep, traces
from phoenix.simulate.experiments import intergrid_rules as rules
from phoenix.simulate.experiments.intergrid_rules import Policy, Run
from phoenix.simulate.workload import LogJob
from schemas import facts as f
from schemas.facts import Disposal
from schemas.meta import Meta

HELP: Final = """13 local leases with time slots among 60 external ones, on 4 hosts of 4 cores.  none: nobody makes way; mwt,
mov, cp: external leases are suspended for local ones, by minimum waiting time, minimum overhead, or both weighed by alpha.
Means over the seeds with 95 % intervals; a legend stands under the tables.  As a whole about half a minute on two idle cores.

examples:
  phoenix simulate intergrid                      30 seeds, and alpha from 0 to 1 on 5 of them
  phoenix simulate intergrid --json               every run
  phoenix simulate intergrid --sweep 0            no sweep of alpha
  phoenix simulate intergrid --plots figures      what alpha does

docs/policies.md describes the order; the paper is M. A. Salehi et al., Software: Practice and Experience 2013."""

SEEDS: Final = 30
SWEEP_SEEDS: Final = 5
ALPHAS: Final = tuple(step / 100 for step in range(101))
LOG: Final = "sdsc-blue-reconstructed-65days.swf.gz"
POLICIES: Final[tuple[Policy, ...]] = ("none", "mwt", "mov", "cp")
# Student's t for a two-sided 95 %, by degrees of freedom; beyond 30 the interval is a little too wide.
T_95: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
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
# What the paper found: left is at most right.
CLAIMS: Final = (
    ("wait", "mwt", "cp"),
    ("wait", "cp", "mov"),
    ("overhead", "mov", "cp"),
    ("overhead", "cp", "mwt"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seeds", type=count, default=SEEDS, metavar="N", help=f"runs of each policy ({SEEDS})")
    parser.add_argument(
        "--sweep",
        type=at_least_zero,
        default=SWEEP_SEEDS,
        metavar="N",
        help=f"seeds of the sweep of alpha ({SWEEP_SEEDS}; 0: none)",
    )
    parser.add_argument(
        "--log", type=files.named, metavar="FILE", help=f"the job log (default: {LOG}, in {traces.WHERE})"
    )
    parser.add_argument("--plots", type=files.named, metavar="DIR", help="what alpha does, as SVG and PNG")
    parser.add_argument("--workers", type=count, metavar="N", help="processes (default: one for each core)")


def run(args: argparse.Namespace) -> int:
    log = args.log or traces.find(LOG)
    if log is None:
        raise CliError(USAGE, f"no {LOG}: {traces.looked_in()}; or name a log with --log")
    requests = rules.externals(log)
    runs = simulated(requests, range(1, args.seeds + 1), workers=args.workers)
    swept = simulated(requests, range(1, args.sweep + 1), ("cp",), ALPHAS, workers=args.workers)
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
    policies: Sequence[Policy] = POLICIES,
    alphas: Sequence[float] = (rules.ALPHA,),
    workers: int | None = None,
) -> list[Run]:
    tasks = [
        sweep.Task(f"{policy} {alpha:g}, seed {seed}", partial(_made, requests, policy, alpha, seed))
        for policy in policies
        for alpha in alphas
        for seed in seeds
    ]
    return sweep.run_all(tasks, title="intergrid", workers=workers) if tasks else []


def _made(requests: tuple[LogJob, ...], policy: Policy, alpha: float, seed: int) -> Run:
    suspended: list[str] = []

    def watch(fact: f.Fact, _meta: Meta) -> None:
        if isinstance(fact, f.AttemptClosed) and fact.disposal is Disposal.SUSPEND:
            suspended.append(fact.unit)

    outcome = engine.run(rules.scenario(requests, policy, alpha, seed), watch=watch)
    return rules.measured(requests, policy, alpha, seed, outcome, len(suspended))


def document(runs: Sequence[Run]) -> dict[str, Any]:
    """For programs: every run; those of the sweep are of policy cp, with other alphas."""
    return {"format": report.FORMAT, "experiment": "intergrid", "runs": [msgspec.to_builtins(each) for each in runs]}


def plot(directory: Path, swept: Sequence[Run]) -> None:
    """Fig. 9: what alpha does."""
    if not swept:
        raise CliError(USAGE, "--plots shows the sweep of alpha: --sweep should be at least 1")
    from phoenix.simulate import plots, plots_alpha

    alphas = sorted({each.alpha or 0.0 for each in swept})
    points = [
        (alpha, _mean([r.overhead_s for r in mine]), _mean([r.mean_wait_s for r in mine]))
        for alpha in alphas
        if (mine := [each for each in swept if each.alpha == alpha])
    ]
    seeds = len({each.seed for each in swept})
    figure = plots_alpha.alphas(points, chosen=rules.ALPHA, caption=f"means of {seeds} seeds; the ring is alpha = 0.31")
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
    for policy in POLICIES:
        mine = [each for each in runs if each.policy == policy]
        if mine:
            values = [interval([measure(each) for each in mine]) for measure in MEASURES.values()]
            stops = _mean([float(each.preemptions) for each in mine])
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
        for name, left, right in CLAIMS
    ]


def verdict(differences: Sequence[float]) -> str:
    """What the paired differences say of "left is at most right"."""
    mean, half = spread(differences)
    if half is None:
        return "holds in this run" if mean >= 0 else "does not hold in this run"
    if mean - half > 0:
        return "holds"
    if mean + half < 0:
        return "does not hold"
    return "no difference that these seeds show"


def _claims(runs: Sequence[Run]) -> str:
    if {each.policy for each in runs} != set(POLICIES):
        return ""
    rows = []
    for text, _, differences in claims(runs):
        kept = sum(1 for each in differences if each >= 0)
        rows.append((text, interval(differences, sign=True), f"{kept} of {len(differences)}", verdict(differences)))
    return render(("THE PAPER SAYS", "DIFFERENCE", "SEEDS", ""), rows, right="DIFFERENCE SEEDS")


def _sweep(swept: Sequence[Run]) -> str:
    rows = []
    for alpha in sorted({each.alpha or 0.0 for each in swept}):
        mine = [each for each in swept if each.alpha == alpha]
        if round(alpha * 100) % 10 == 0 or alpha == rules.ALPHA:
            means = (_mean([r.overhead_s for r in mine]), _mean([r.mean_wait_s for r in mine]))
            rows.append((f"{alpha:.2f}", *(f"{mean:,.0f}" for mean in means)))
    return render(("ALPHA", "OVERHEAD", "WAIT"), rows, right="ALPHA OVERHEAD WAIT")


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and half of its 95 % interval; None with one value."""
    mean = _mean(values)
    if len(values) < 2:
        return mean, None
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return mean, T_95[min(len(values) - 1, len(T_95)) - 1] * deviation / math.sqrt(len(values))


def interval(values: Sequence[float], *, sign: bool = False) -> str:
    """Mean and 95 % interval, as text."""
    mean, half = spread(values)
    text = f"{mean:+,.0f}" if sign else f"{mean:,.0f}"
    return text if half is None else f"{text} ± {half:,.0f}"


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
