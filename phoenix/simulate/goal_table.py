"""Where the service levels of a goal hold, told to a person.

A few runs are named one by one.  Many, or several seeds, are a table: a row for each variant and size, a column for each level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from phoenix.cli.tables import render
from phoenix.simulate.goal import Limit
from phoenix.simulate.report import Run
from phoenix.simulate.tables import NOTHING, WIDTH

NAMED_MAX: Final = 8  # runs that are named; more would be a paragraph of names


def render_goal(goal: Sequence[Limit], runs: Sequence[Run]) -> str:
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.policy, run.nodes), []).append(run)
    if len(runs) <= NAMED_MAX and len(groups) == len(runs):
        return "\n".join(_named(goal, runs))
    return _table(goal, groups)


def keeps(goal: Sequence[Limit], run: Run) -> bool:
    """All levels."""
    return all(limit.holds(run.metrics) for limit in goal)


def _named(goal: Sequence[Limit], runs: Sequence[Run]) -> list[str]:
    """`hpc.mean_wait_s <= 1h holds in: 170, 180`."""
    lines = [
        f"{limit.asked} holds in: {_where([run for run in runs if limit.holds(run.metrics)], runs)}" for limit in goal
    ]
    if len(goal) > 1:
        lines.append(f"All of the goal holds in: {_where([run for run in runs if keeps(goal, run)], runs)}")
    return lines


def _where(kept: Sequence[Run], runs: Sequence[Run]) -> str:
    return "all runs" if len(kept) == len(runs) else ", ".join(run.label for run in kept) if kept else "no run"


def _table(goal: Sequence[Limit], groups: dict[tuple[str, int], list[Run]]) -> str:
    heads = [limit.asked for limit in goal]
    legend = []
    if sum(map(len, heads)) + 2 * len(heads) > WIDTH - 40:  # the rest is for variants and sizes
        legend = [f"({place})  {head}" for place, head in enumerate(heads, start=1)]
        heads = [f"({place})" for place in range(1, len(heads) + 1)]
    rows = [
        [
            policy or NOTHING,
            f"{nodes:,}",
            *(_kept(sum(limit.holds(run.metrics) for run in runs), len(runs)) for limit in goal),
            _kept(sum(keeps(goal, run) for run in runs), len(runs)),
        ]
        for (policy, nodes), runs in groups.items()
    ]
    seeds = max(map(len, groups.values()))
    of = f"in how many of {seeds} seeds" if seeds > 1 else "where"
    first = f"The goal, and {of} each level holds:"
    return "\n".join([first, render(["VARIANT", "NODES", *heads, "ALL"], rows, right="NODES"), *legend])


def _kept(count: int, of: int) -> str:
    if of == 1:
        return "yes" if count else "no"
    return "all" if count == of else f"{count} of {of}"
