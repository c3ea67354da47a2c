"""`phoenix simulate phoenix-cloud --frontier`: below the paper.  Which of the product's own policies keep both benefits at 150
nodes and fewer, down to the floor that the widest job sets?

Theory of operation
  A policy is an order, an order of victims, and what becomes of a victim: every combination that the product has.  Each is
  simulated at 150 nodes; those that beat the static configuration there (more jobs complete, and sooner) go on, node by node,
  down to the floor: the widest job and the one node that the web department always has.

Rules
  1. Estimates are what users asked for (where they are unknown, three times the run time); backfill decides by them.
  2. Both benefits must hold at every size on the way: a size that keeps them by luck below one that does not is no frontier.
  3. Suspending takes no time here, as reclaim takes none: the most that suspending can bring.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args

from phoenix.cli.errors import OK
from phoenix.cli.tables import render
from phoenix.simulate import report, sweep
from phoenix.simulate.engine import run as simulate
from phoenix.simulate.experiments import phoenix_cloud_rules as rules
from phoenix.simulate.report import Run, beats
from phoenix.simulate.tables import duration
from phoenix.simulate.workload import Scenario, WebInput, Work
from schemas.config import OnReclaim, Order, Victims

if TYPE_CHECKING:
    from phoenix.simulate.experiments.phoenix_cloud import Inputs

FIRST: Final = 150  # the paper's smallest size
RECLAIMS: Final[tuple[OnReclaim, ...]] = ("kill", "requeue", "suspend")
SHOWN: Final = 12  # policies of the table that keep nothing; the rest is counted


class Policy(NamedTuple):
    order: Order
    victims: Victims
    on_reclaim: OnReclaim

    @property
    def name(self) -> str:
        return f"{self.order}, {self.victims}, {self.on_reclaim}"


def policies() -> list[Policy]:
    """Every combination that a configuration may name."""
    return [Policy(o, v, r) for o in get_args(Order) for v in get_args(Victims) for r in RECLAIMS]


def floor_of(works: Sequence[Work]) -> int:
    """The widest job and the web department's one node."""
    return max(work.nodes for work in works) + 1


def run(args: argparse.Namespace, inputs: Inputs) -> int:
    from phoenix.simulate.experiments.phoenix_cloud import about

    works = rules.lay_out(inputs.jobs, estimates=True)
    static, rows = explore(works, inputs.demand, args.workers)
    kept = kept_down_to(static, rows)
    if args.plots is not None:
        _plot(args, static, rows, inputs)
    if args.json:
        told = [{"policy": name, "smallest_with_both": size} for name, size in kept.items()]
        content = report.document(
            "phoenix-cloud-frontier", [static, *rows], inputs=about(inputs, works), floor=floor_of(works), frontier=told
        )
        print(report.as_json(content), end="")
    else:
        print(_told(static, rows, kept, floor_of(works)))
    return OK


def explore(works: tuple[Work, ...], demand: WebInput, workers: int | None = None) -> tuple[Run, list[Run]]:
    """The static run, and every policy at 150 nodes; those that beat it also at each smaller size."""
    every = policies()
    first = [(rules.static(works, demand), "static", "")] + [_at(FIRST, policy, works, demand) for policy in every]
    static, *rows = _simulated(first, workers, f"{len(every)} policies")
    able = [policy for policy, row in zip(every, rows, strict=True) if beats(row, static)]
    smaller = range(FIRST - 1, floor_of(works) - 1, -1)
    further = [_at(nodes, policy, works, demand) for policy in able for nodes in smaller]
    return static, [*rows, *_simulated(further, workers, "below 150 nodes")]


def _at(nodes: int, policy: Policy, works: tuple[Work, ...], demand: WebInput) -> tuple[Scenario, str, str]:
    label = f"{nodes} {policy.name}"
    order, victims, on_reclaim = policy
    return (
        rules.with_policy(label, nodes, on_reclaim, works, demand, order=order, victims=victims),
        policy.name,
        on_reclaim,
    )


def _simulated(wanted: Sequence[tuple[Scenario, str, str]], workers: int | None, title: str) -> list[Run]:
    tasks = [
        sweep.Task(scenario.label, lambda s=scenario, n=name, r=on_reclaim: _made(s, n, r))  # type: ignore[misc]
        for scenario, name, on_reclaim in wanted
    ]
    return sweep.run_all(tasks, title=title, workers=workers)


def _made(scenario: Scenario, policy: str, on_reclaim: str) -> Run:
    configuration = "dynamic" if on_reclaim else "static"
    return report.run_of(simulate(scenario), configuration=configuration, on_reclaim=on_reclaim or None, policy=policy)


def kept_down_to(static: Run, rows: Sequence[Run]) -> dict[str, int | None]:
    """Policy -> the smallest size down to which it keeps both benefits without a gap (rule 2); None: not at 150."""
    by_policy: dict[str, dict[int, Run]] = {}
    for row in rows:
        by_policy.setdefault(row.policy, {})[row.nodes] = row
    found: dict[str, int | None] = {}
    for name, sizes in by_policy.items():
        smallest = None
        for nodes in sorted(sizes, reverse=True):
            if not beats(sizes[nodes], static):
                break
            smallest = nodes
        found[name] = smallest
    return found


def _told(static: Run, rows: Sequence[Run], kept: dict[str, int | None], floor: int) -> str:
    at_first = {row.policy: row for row in rows if row.nodes == FIRST}
    at_last = {(row.policy, row.nodes): row for row in rows}
    able = sorted((n for n, size in kept.items() if size is not None), key=lambda n: (kept[n], *_rank(at_first[n])))
    unable = sorted((name for name, size in kept.items() if size is None), key=lambda n: _rank(at_first[n]))
    head = ("POLICY", "DOWN-TO", "DONE", "TURNAROUND", f"DONE@{FIRST}", f"TURNAROUND@{FIRST}")
    table = [[name, str(kept[name]), *_cells(at_last[name, kept[name] or 0]), *_cells(at_first[name])] for name in able]
    table += [[name, "-", "-", "-", *_cells(at_first[name])] for name in unable[:SHOWN]]
    rest = f"\n… and {len(unable) - SHOWN} more that do not keep both at {FIRST}" if len(unable) > SHOWN else ""
    return (
        f"static, {static.nodes} nodes: {static.completed:,} completed, {duration(static.mean_turnaround_s)} mean turnaround; "
        f"the floor is {floor} nodes\n\n"
        + render(head, table, right=" ".join(head[1:]))
        + rest
        + f"\n\n{len(able)} of {len(kept)} policies keep both benefits at {FIRST} nodes."
    )


def _rank(row: Run) -> tuple[Any, ...]:
    return -row.completed, row.mean_turnaround_s or 0.0, row.policy


def _cells(row: Run) -> list[str]:
    return [f"{row.completed:,}", duration(row.mean_turnaround_s)]


def _plot(args: argparse.Namespace, static: Run, rows: Sequence[Run], inputs: Inputs) -> None:
    from phoenix.simulate import plots

    figure = plots.frontier(rows, reference=static, caption=f"{inputs.jobs_from}; {inputs.web_from}")
    for ending in ("svg", "png"):
        plots.save(figure, args.plots / f"frontier.{ending}")
