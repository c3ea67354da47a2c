"""`phoenix simulate phoenix-cloud --frontier`: below the paper.  Which of the product's own policies keep both benefits with
the fewest nodes, down to the floor that the widest job sets?

Theory of operation
  A policy is an order, an order of victims, and what becomes of a victim: every combination.  Each is simulated at 160, 155
  and 150 nodes, and then node by node where it stops beating the static configuration (more jobs complete, and sooner): the
  smallest size down to which it does is its place on the frontier.  The best ones are simulated at every size down to the
  floor, the widest job and the one node that the web department always has.

Rules
  1. Estimates are what users asked for (where they are unknown, three times the run time); backfill decides by them.
  2. Both benefits must hold at every size simulated on the way: one that keeps them by luck below one that does not is no
     frontier.
  3. Suspending takes no time here, as reclaim takes none: the most that suspending can bring.
  4. Of policies whose runs are the same at 160, 155 and 150 nodes one is drawn.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, get_args

from phoenix.cli.errors import OK
from phoenix.cli.tables import render
from phoenix.simulate import report, sweep
from phoenix.simulate.engine import run as simulate
from phoenix.simulate.experiments import phoenix_cloud_rules as rules
from phoenix.simulate.experiments.phoenix_cloud_inputs import Inputs, about
from phoenix.simulate.report import Run, beats
from phoenix.simulate.tables import duration
from phoenix.simulate.workload import Scenario, WebInput, Work
from schemas.config import OnReclaim, Order, Victims

COARSE: Final = (160, 155, 150)  # from the size of the paper's claim to its smallest one
DRAWN: Final = 6  # policies at every size: more cannot be told apart
# Orders that need no setting beside their name; `conservative` would take as long as all of these together.
ORDERS: Final[tuple[Order, ...]] = ("fcfs", "first-fit", "shortest-first", "easy")
RECLAIMS: Final[tuple[OnReclaim, ...]] = ("kill", "requeue", "suspend")
SHOWN: Final = 24  # policies of the table; the rest is counted


class Policy(NamedTuple):
    order: Order
    victims: Victims
    on_reclaim: OnReclaim

    @property
    def name(self) -> str:
        return f"{self.order}, {self.victims}, {self.on_reclaim}"


def policies() -> list[Policy]:
    """Every combination of these orders, all orders of victims, and what may become of a victim."""
    return [Policy(o, v, r) for o in ORDERS for v in get_args(Victims) for r in RECLAIMS]


def floor_of(works: Sequence[Work]) -> int:
    """The widest job and the web department's one node."""
    return max(work.nodes for work in works) + 1


def run(args: argparse.Namespace, inputs: Inputs) -> int:
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
    """The static run, and every policy at as many sizes as it takes to know where it stops (theory of operation)."""
    every, floor = {policy.name: policy for policy in policies()}, floor_of(works)
    wanted = [_at(nodes, policy, works, demand) for policy in every.values() for nodes in COARSE]
    static, *rows = _simulated(
        [(rules.static(works, demand), "static", ""), *wanted], workers, f"{len(every)} policies"
    )
    finer = [
        _at(nodes, every[name], works, demand)
        for name, smallest in kept_down_to(static, rows).items()
        for nodes in _between(smallest, floor)
    ]
    rows += _simulated(finer, workers, "node by node")
    known = {(row.policy, row.nodes): row for row in rows}
    rest = [
        _at(nodes, every[name], works, demand)
        for name in best(static, rows)
        for nodes in range(COARSE[0], floor - 1, -1)
        if (name, nodes) not in known
    ]
    return static, [*rows, *_simulated(rest, workers, "the best, at every size")]


def _between(smallest: int | None, floor: int) -> range:
    """Sizes below `smallest` that have not been simulated, down to the next one that has."""
    if smallest is None:
        return range(0)
    lower = [size for size in COARSE if size < smallest]
    return range(smallest - 1, max([floor - 1, *lower]), -1)


def best(static: Run, rows: Sequence[Run]) -> list[str]:
    """At most DRAWN policies, those that keep both benefits longest first (rule 4)."""
    kept = kept_down_to(static, rows)
    coarse = {(row.policy, row.nodes): (row.completed, row.mean_turnaround_s) for row in rows}
    found: dict[tuple[object, ...], str] = {}
    for name in sorted(kept, key=lambda n: _rank(n, kept, rows)):
        found.setdefault(tuple(coarse[name, nodes] for nodes in COARSE), name)
    return list(found.values())[:DRAWN]


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


def _rank(name: str, kept: dict[str, int | None], rows: Sequence[Run]) -> tuple[Any, ...]:
    """Longest kept first; then by completed jobs and turnaround at the smallest coarse size; unique by name."""
    smallest = kept[name]
    row = next(row for row in rows if row.policy == name and row.nodes == COARSE[-1])
    return smallest is None, smallest or 0, -row.completed, row.mean_turnaround_s or 0.0, name


def _told(static: Run, rows: Sequence[Run], kept: dict[str, int | None], floor: int) -> str:
    at = {(row.policy, row.nodes): row for row in rows}
    names, last = sorted(kept, key=lambda n: _rank(n, kept, rows)), COARSE[-1]
    head = ("POLICY", "DOWN-TO", "DONE", "TURNAROUND", f"DONE@{last}", f"TURNAROUND@{last}")
    table = [
        [name, str(kept[name] or "-"), *_cells(at.get((name, kept[name] or 0))), *_cells(at[name, last])]
        for name in names[:SHOWN]
    ]
    able = [size for size in kept.values() if size is not None]
    return "\n".join(
        [
            f"static, {static.nodes} nodes: {static.completed:,} completed, "
            f"{duration(static.mean_turnaround_s)} mean turnaround",
            f"floor: {floor} nodes, for the widest job and the web department's last node",
            "",
            render(head, table, right=" ".join(head[1:])),
            *([f"… and {len(names) - SHOWN} more"] if len(names) > SHOWN else []),
            "",
            "DOWN-TO: the smallest size down to which more jobs complete than in the static configuration, and sooner.",
            f"{len(able)} of {len(kept)} policies keep both benefits at {COARSE[0]} nodes, "
            f"{sum(1 for size in able if size <= last)} at {last}; the smallest size is {min(able, default='none')}.",
        ]
    )


def _cells(row: Run | None) -> list[str]:
    return ["-", "-"] if row is None else [f"{row.completed:,}", duration(row.mean_turnaround_s)]


def _plot(args: argparse.Namespace, static: Run, rows: Sequence[Run], inputs: Inputs) -> None:
    from phoenix.simulate import plots

    drawn = dict.fromkeys(best(static, rows))
    shown = sorted(
        (row for row in rows if row.policy in drawn), key=lambda row: (list(drawn).index(row.policy), -row.nodes)
    )
    caption = f"{inputs.jobs_from}; {inputs.web_from}; order, victims, what becomes of them"
    title = "Below the paper: both benefits by cluster size"
    figure = plots.sweep_plot(shown, reference=static, series="policy", title=title, caption=caption)
    for ending in ("svg", "png"):
        plots.save(figure, args.plots / f"frontier.{ending}")
