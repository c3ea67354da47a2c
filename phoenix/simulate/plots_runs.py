"""Plots that compare runs: over cluster size (the paper's Fig. 7 and 8), and job by job."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from phoenix.simulate import plots_style as look
from phoenix.simulate.metrics import bounded_slowdown, end_of, wait_s
from phoenix.simulate.report import R, Rated, Run
from phoenix.simulate.tables import duration
from phoenix.simulate.workload import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NAMES: Final = {
    "nodes": "cluster size (nodes)",
    "on_reclaim": "on reclaim",
    "completed": "completed jobs",
    "killed": "killed jobs",
    "requeued": "requeued jobs",
}
_LONG_S: Final = 10_000.0
_TICKS_MAX: Final = 14  # sizes that the x axis names one by one
_BARS_MAX: Final = 24  # bars that carry their number
_Value = Callable[[Run], float | None]
Spread = tuple[float, float, float, float]  # x, least, mean, most


def turnaround_unit(runs: Sequence[Rated]) -> tuple[float, str]:
    """(seconds, name) of the unit in which turnarounds are shown: hours if seconds would have five digits."""
    longest = max((run.mean_turnaround_s or 0.0 for run in runs), default=0.0)
    return (3600.0, "hours") if longest >= _LONG_S else (1.0, "seconds")


def turnaround_in(unit_s: float, run: Rated) -> float | None:
    """The mean turnaround in that unit; None if no job completed."""
    return None if run.mean_turnaround_s is None else run.mean_turnaround_s / unit_s


def groups(runs: Sequence[R], attribute: str) -> dict[str, list[R]]:
    """Runs by the attribute's value, in the order of first appearance."""
    found: dict[str, list[R]] = {}
    for run in runs:
        found.setdefault(str(getattr(run, attribute) or "none"), []).append(run)
    return found


def _said(attribute: str, value: str) -> str:
    return f"{_NAMES.get(attribute, attribute)}: {value}"


def told(reference: Run) -> str:
    """What a legend calls it."""
    return f"{reference.configuration}, {reference.nodes:,} nodes"


# ------------------------------------------------------------------------------------------------------------------ sweeps


def sweep_plot(
    runs: Sequence[Run],
    *,
    reference: Run | None = None,
    x: str = "nodes",
    series: str = "on_reclaim",
    title: str = "Completed jobs and mean turnaround by cluster size",
    caption: str = "",
) -> Figure:
    """The paper's Fig. 7: both benefits over the attribute `x` of the runs, a line for each value of the attribute `series`,
    the reference (the static configuration) dashed across.  The side on which a run is better is shaded.  Where several runs
    (seeds) have the same `x` the line goes through their mean, and a bar spans them."""
    with look.styled():
        figure, (left, right) = look.canvas(1, 2, height_in=4.6, caption=caption)
        _draw_lines(left, runs, lambda run: run.completed, x, series)
        unit_s, unit = turnaround_unit([*runs, *([reference] if reference is not None else [])])
        _draw_lines(right, runs, lambda run: turnaround_in(unit_s, run), x, series)
        look.whole_numbers(left.yaxis)
        left.set_ylabel("completed jobs")
        right.set_ylabel(f"mean turnaround ({unit})")
        if reference is not None:
            _draw_reference(left, float(reference.completed), f"{reference.completed:,}", reference, above=True)
            turnaround = turnaround_in(unit_s, reference)
            if turnaround is not None:
                text = duration(reference.mean_turnaround_s)
                _draw_reference(right, turnaround, text, reference, above=False)
        for axes in (left, right):
            _name_x(axes, runs, x)
        look.finish(figure, (left, right), title=title)
    return figure


def _draw_lines(axes: Axes, runs: Sequence[Run], value: _Value, x: str, series: str) -> None:
    for place, (name, group) in enumerate(groups(runs, series).items()):
        points = spread([(getattr(run, x), value(run)) for run in group])
        colour = look.SERIES[place % len(look.SERIES)]
        axes.plot(
            [at for at, *_ in points],
            [mean for _, _, mean, _ in points],
            color=colour,
            marker=look.MARKERS[place % len(look.MARKERS)],
            linestyle=look.DASHES[place % len(look.DASHES)],
            label=_said(series, name),
            zorder=3,
        )
        _draw_ranges(axes, points, colour)
    axes.margins(y=0.12)
    axes.yaxis.set_major_formatter(look.thousands)


def spread(points: Iterable[tuple[float, float | None]]) -> list[Spread]:
    """(x, least, mean, most) of the values at each x, rising; what has no value is left out."""
    found: dict[float, list[float]] = {}
    for at, value in points:
        if value is not None:
            found.setdefault(at, []).append(value)
    return [(at, min(each), math.fsum(each) / len(each), max(each)) for at, each in sorted(found.items())]


def _draw_ranges(axes: Axes, points: Sequence[Spread], colour: str) -> None:
    """A bar from the least to the most, where they differ."""
    wide = [point for point in points if point[1] < point[3]]
    if wide:
        below, above = [mean - low for _, low, mean, _ in wide], [high - mean for _, _, mean, high in wide]
        axes.errorbar(
            [at for at, *_ in wide],
            [mean for _, _, mean, _ in wide],
            yerr=[below, above],
            fmt="none",
            ecolor=colour,
            elinewidth=1.0,
            capsize=3,
            zorder=2,
        )


def _draw_reference(axes: Axes, level: float, text: str, reference: Run, *, above: bool) -> None:
    """A dashed line across, its value at the right edge, the better side shaded."""
    axes.axhline(level, color=look.BLACK, linestyle=(0, (6, 3)), linewidth=1.1, label=told(reference), zorder=2)
    axes.autoscale_view()
    low, high = axes.get_ylim()
    margin = 0.08 * (high - low)
    low, high = min(low, level - margin), max(high, level + margin)
    axes.set_ylim(low, high)
    axes.axhspan(
        level,
        high if above else low,
        color=look.GREEN,
        alpha=0.08,
        linewidth=0,
        label="better than the reference",
        zorder=1,
    )
    axes.annotate(
        text,
        (1.0, level),
        xycoords=("axes fraction", "data"),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        fontsize=8.5,
    )


def _name_x(axes: Axes, runs: Sequence[Run], x: str) -> None:
    values = sorted({getattr(run, x) for run in runs})
    if len(values) <= _TICKS_MAX:
        axes.set_xticks(values, [f"{value:,}" for value in values])
    axes.set_xlabel(_NAMES.get(x, x))


def preemption_plot(
    runs: Sequence[Run],
    *,
    series: str = "on_reclaim",
    title: str = "Jobs killed, or put back into the queue, by cluster size",
    caption: str = "",
) -> Figure:
    """The paper's Fig. 8: for each size a bar for each value of `series`: how many jobs were killed or, where they live on, how
    often one went back into the queue.  Of several such runs (seeds) the mean, and a line spans them."""
    sizes = sorted({run.nodes for run in runs})
    readings = groups(runs, series)
    with look.styled():
        figure, (axes,) = look.canvas(1, 1, height_in=4.2, caption=caption)
        width = 0.8 / max(1, len(readings))
        for place, (name, group) in enumerate(readings.items()):
            shift = (place - (len(readings) - 1) / 2) * width
            points = spread([(sizes.index(run.nodes) + shift, float(run.killed + run.requeued)) for run in group])
            bars = axes.bar(
                [at for at, *_ in points],
                [mean for _, _, mean, _ in points],
                width * 0.92,
                color=look.SERIES[place % len(look.SERIES)],
                label=f"{_said(series, name)} ({_counted(group)})",
            )
            _draw_ranges(axes, points, look.BLACK)
            if len(sizes) * len(readings) <= _BARS_MAX and not any(low < high for _, low, _, high in points):
                axes.bar_label(bars, fmt="{:,.0f}", fontsize=8, padding=2)
        axes.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes])
        axes.grid(visible=False, axis="x")
        axes.margins(y=0.12)
        axes.set_xlabel(_NAMES["nodes"])
        look.whole_numbers(axes.yaxis)
        axes.set_ylabel("preemptions")
        look.finish(figure, [axes], title=title)
    return figure


def _counted(group: Sequence[Run]) -> str:
    killed, requeued = any(run.killed for run in group), any(run.requeued for run in group)
    if killed and requeued:
        return "killed jobs and returns to the queue"
    return "returns to the queue" if requeued else "killed jobs"


# ------------------------------------------------------------------------------------------------------------- job by job


def distributions(
    outcomes: Sequence[Outcome],
    *,
    title: str = "Wait and bounded slowdown of completed jobs",
    caption: str = "",
) -> Figure:
    """What share of a run's completed jobs waited at most so long, and were slowed down at most so much; a line a run."""
    with look.styled():
        figure, (left, right) = look.canvas(1, 2, height_in=4.6, caption=caption, sharey=True)
        start = 1.0
        for place, outcome in enumerate(outcomes):
            done = [job for job in outcome.jobs if end_of(job, outcome.window_s) == "completed"]
            label = f"{outcome.label} ({len(done):,} jobs)"
            waits = [wait for job in done if (wait := wait_s(job)) is not None]
            slowdowns = [slow for job in done if (slow := bounded_slowdown(job)) is not None]
            start = min(start, _draw_cdf(left, waits, label, place), _draw_cdf(right, slowdowns, label, place))
        _axis_of_waits(left)
        right.set_xlabel("bounded slowdown (threshold 10 s)")
        right.set_xlim(left=1.0)
        left.set_ylabel("share of completed jobs")
        left.set_ylim(math.floor(10 * max(0.0, start - 0.05)) / 10, 1.005)
        left.yaxis.set_major_formatter(lambda value, _place: f"{value:.0%}".replace("%", " %"))
        right.xaxis.set_major_formatter(lambda value, _place: f"{value:,.0f}")
        look.finish(figure, (left, right), title=title)
    return figure


def _draw_cdf(axes: Axes, values: Sequence[float], label: str, place: int) -> float:
    """The line, from 1 on (below it a logarithm has no room); returns the share of values that are 1 or less."""
    later = [(value, (rank + 1) / len(values)) for rank, value in enumerate(sorted(values)) if value > 1.0]
    start = 1.0 - len(later) / len(values) if values else 1.0
    axes.set_xscale("log")
    axes.plot(
        [1.0, *(value for value, _ in later)],
        [start, *(share for _, share in later)],
        drawstyle="steps-post",
        color=look.SERIES[place % len(look.SERIES)],
        linestyle=look.DASHES[place % len(look.DASHES)],
        label=label,
    )
    return start


def _axis_of_waits(axes: Axes) -> None:
    from matplotlib.ticker import NullLocator

    names = {
        1: "≤ 1 s",
        10: "10 s",
        60: "1 min",
        600: "10 min",
        3600: "1 h",
        6 * 3600: "6 h",
        86400: "1 d",
        7 * 86400: "7 d",
    }
    _, high = axes.get_xlim()
    shown = {at: name for at, name in names.items() if at <= high}
    axes.set_xticks(list(shown), list(shown.values()))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(1.0, high)
    axes.set_xlabel("wait")
