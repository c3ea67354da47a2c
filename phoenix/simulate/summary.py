"""Several seeds as one row: mean and standard deviation, and how variants differ from the first one.

What it decides: nothing; it sums up runs that differ in their seeds alone.  It must never compare runs of different inputs.

Rules
  1. Runs of one variant and size are one row.  The standard deviation is that of a sample (n - 1); of one run there is none.
  2. A variant is compared with the first one of the file, size by size and seed by seed: with one seed both have the same jobs
     and the same load, so what differs is the policy.  The interval is Student's for the mean of these differences, 95 %; it
     needs two pairs.  An interval that does not contain 0 says that the difference is more than luck of the inputs.
  3. A seed for which either value is missing (no job completed) is not in the difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from phoenix.cli.tables import render
from phoenix.simulate.report import Run
from phoenix.simulate.tables import NOTHING, duration, host_hours, ratio, share

_Value = Callable[[Run], float | None]
VALUES: Final[dict[str, _Value]] = {
    "completed": lambda run: run.completed,
    "killed": lambda run: run.killed,
    "requeued": lambda run: run.requeued,
    "refused": lambda run: run.metrics.total.refused,
    "timeout": lambda run: run.metrics.total.timeout,
    "unfinished": lambda run: run.unfinished,
    "mean_turnaround_s": lambda run: run.mean_turnaround_s,
    "mean_wait_s": lambda run: run.metrics.total.wait_s.mean,
    "p95_wait_s": lambda run: run.metrics.total.wait_s.p95,
    "mean_bounded_slowdown": lambda run: run.metrics.total.bounded_slowdown.mean,
    "useful_utilisation": lambda run: run.metrics.total.useful_utilisation,
    "lost_node_s": lambda run: run.metrics.total.lost_node_s,
    "shortfall_instance_s": lambda run: math.fsum(web.shortfall_instance_s for web in run.metrics.web),
}
_SHOWN: Final[dict[str, tuple[str, Callable[[float], str]]]] = {
    "completed": ("DONE", ratio),
    "unfinished": ("OPEN", ratio),
    "mean_turnaround_s": ("TURNAROUND", duration),
    "mean_wait_s": ("WAIT", duration),
    "mean_bounded_slowdown": ("SLOWDOWN", ratio),
    "useful_utilisation": ("USEFUL", share),
    "shortfall_instance_s": ("SHORT", host_hours),
}
_COMPARED: Final = ("completed", "mean_turnaround_s", "mean_wait_s", "shortfall_instance_s")  # a row has room for four
_NORMAL_975: Final = 1.959963984540054
# Student's t, 97.5 %, for 1, 2, … degrees of freedom
_STUDENT_975: Final = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448, 2.1314,
    2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip


class Seeded(NamedTuple):
    """A run, and the seed of its inputs."""

    seed: int
    run: Run


class Mean(msgspec.Struct, frozen=True, kw_only=True):
    """`sd`: None of fewer than two."""

    count: int
    mean: float
    sd: float | None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Mean of a variant's value minus the first one's; `low` and `high`: rule 2, None of fewer than two pairs."""

    pairs: int
    mean: float
    low: float | None
    high: float | None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    policy: str
    nodes: int
    seeds: int
    means: dict[str, Mean]
    compared_with: str | None  # None: the first variant itself, or one without this size
    differences: dict[str, Difference]


def summary(runs: Sequence[Seeded]) -> list[Row]:
    """A row for each variant and size, in the order of first appearance."""
    found: dict[tuple[str, int], dict[int, Run]] = {}
    for seed, run in runs:
        found.setdefault((run.policy, run.nodes), {})[seed] = run
    first = runs[0].run.policy if runs else ""
    return [_row(each, policy, nodes, first, found.get((first, nodes))) for (policy, nodes), each in found.items()]


def _row(runs: dict[int, Run], policy: str, nodes: int, first: str, base: dict[int, Run] | None) -> Row:
    compared = base is not None and policy != first
    means = {name: mean_of(value(run) for run in runs.values()) for name, value in VALUES.items()}
    differences = {name: _difference(runs, base or {}, value) if compared else None for name, value in VALUES.items()}
    return Row(
        policy=policy,
        nodes=nodes,
        seeds=len(runs),
        means={name: mean for name, mean in means.items() if mean is not None},
        compared_with=first if compared else None,
        differences={name: difference for name, difference in differences.items() if difference is not None},
    )


def mean_of(values: Iterable[float | None]) -> Mean | None:
    """Rule 1; None if there is no value."""
    known = [float(value) for value in values if value is not None]
    if not known:
        return None
    mean = math.fsum(known) / len(known)
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in known) / (len(known) - 1)) if len(known) > 1 else None
    return Mean(count=len(known), mean=mean, sd=sd)


def _difference(runs: dict[int, Run], base: dict[int, Run], value: _Value) -> Difference | None:
    """Rules 2 and 3."""
    pairs = [(value(run), value(base[seed])) for seed, run in runs.items() if seed in base]
    found = mean_of(mine - theirs for mine, theirs in pairs if mine is not None and theirs is not None)
    if found is None:
        return None
    half = None if found.sd is None else student_975(found.count - 1) * found.sd / math.sqrt(found.count)
    low, high = (None, None) if half is None else (found.mean - half, found.mean + half)
    return Difference(pairs=found.count, mean=found.mean, low=low, high=high)


def student_975(freedom: int) -> float:
    """The 97.5 % point of Student's t; beyond the table by Cornish and Fisher, right to 0.0001 there."""
    if freedom <= len(_STUDENT_975):
        return _STUDENT_975[freedom - 1]
    z, n = _NORMAL_975, float(freedom)
    return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n * n)


# --------------------------------------------------------------------------------------------------------------- telling


def render_summary(rows: Sequence[Row]) -> str:
    """For a person: means, and where there are several variants, how they differ."""
    parts = ["Over seeds: mean ± standard deviation", _means(rows)]
    compared = [row for row in rows if row.compared_with is not None]
    if compared:
        first = compared[0].compared_with or "the first one"
        parts += ["", f"Difference to {first}, seed by seed: mean, and its 95 % interval", _differences(compared)]
    return "\n".join(parts)


def _means(rows: Sequence[Row]) -> str:
    names = [name for name in _SHOWN if any(name in row.means and (row.means[name].mean) for row in rows)]
    heads = ["VARIANT", "NODES", "SEEDS", *(_SHOWN[name][0] for name in names)]
    cells = [
        [row.policy or NOTHING, f"{row.nodes:,}", str(row.seeds), *(_mean(row.means.get(name), name) for name in names)]
        for row in rows
    ]
    return render(heads, cells, right=" ".join(heads[1:]))


def _mean(found: Mean | None, name: str) -> str:
    if found is None:
        return NOTHING
    shown = _SHOWN[name][1]
    return shown(found.mean) if found.sd is None else f"{shown(found.mean)} ± {shown(found.sd)}"


def _differences(rows: Sequence[Row]) -> str:
    names = [
        name for name in _COMPARED if any(name in row.differences and _says(row.differences[name]) for row in rows)
    ]
    heads = ["VARIANT", "NODES", *(_SHOWN[name][0] for name in names)]
    cells = [
        [row.policy or NOTHING, f"{row.nodes:,}", *(_delta(row.differences.get(name), name) for name in names)]
        for row in rows
    ]
    return render(heads, cells, right=" ".join(heads[1:]))


def _says(difference: Difference) -> bool:
    return bool(difference.mean or difference.low)


def _delta(found: Difference | None, name: str) -> str:
    if found is None:
        return NOTHING
    interval = (
        "" if found.low is None or found.high is None else f" [{_signed(found.low, name)}, {_signed(found.high, name)}]"
    )
    return f"{_signed(found.mean, name)}{interval}"


def _signed(value: float, name: str) -> str:
    sign = "-" if value < 0 else "+" if value > 0 else ""
    return f"{sign}{_SHOWN[name][1](abs(value))}"
