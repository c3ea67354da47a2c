"""Plots that compare runs: over cluster size (the paper's Fig. 7 and 8), in both benefits at once, and job by job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from phoenix.simulate import plots_style as look
from phoenix.simulate.metrics import bounded_slowdown, end_of, wait_s
from phoenix.simulate.report import Run, pareto
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
_TICKS_MAX: Final = 14  # sizes that the x axis names one by one
_BARS_MAX: Final = 24  # bars that carry their number
_LABELS_MAX: Final = 40  # points of a frontier that carry their size
_Value = Callable[[Run], float | None]


def _hours(run: Run) -> float | None:
    return None if run.mean_turnaround_s is None else run.mean_turnaround_s / 3600.0


def _groups(runs: Sequence[Run], attribute: str) -> dict[str, list[Run]]:
    """Runs by the attribute's value, in the order of first appearance."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(str(getattr(run, attribute) or "none"), []).append(run)
    return found


def _said(attribute: str, value: str) -> str:
    return f"{_NAMES.get(attribute, attribute)}: {value}"


def _told(reference: Run) -> str:
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
    the reference (the static configuration) dashed across.  The side on which a run is better is shaded."""
    with look.styled():
        figure, (left, right) = look.canvas(1, 2, height_in=4.6, title=title, caption=caption)
        _draw_lines(left, runs, lambda run: run.completed, x, series)
        _draw_lines(right, runs, _hours, x, series)
        left.set_ylabel("completed jobs")
        right.set_ylabel("mean turnaround (hours)")
        if reference is not None:
            _draw_reference(left, float(reference.completed), f"{reference.completed:,}", reference, above=True)
            hours = _hours(reference)
            if hours is not None:
                _draw_reference(right, hours, f"{hours:.2f} h", reference, above=False)
        for axes in (left, right):
            _name_x(axes, runs, x)
        look.legend_above(figure, (left, right))
    return figure


def _draw_lines(axes: Axes, runs: Sequence[Run], value: _Value, x: str, series: str) -> None:
    for place, (name, group) in enumerate(_groups(runs, series).items()):
        points = sorted((getattr(run, x), shown) for run in group if (shown := value(run)) is not None)
        axes.plot(
            [at for at, _ in points],
            [shown for _, shown in points],
            color=look.SERIES[place % len(look.SERIES)],
            marker=look.MARKERS[place % len(look.MARKERS)],
            linestyle=look.DASHES[place % len(look.DASHES)],
            label=_said(series, name),
            zorder=3,
        )
    axes.margins(y=0.12)


def _draw_reference(axes: Axes, level: float, text: str, reference: Run, *, above: bool) -> None:
    """A dashed line across, its value at the right edge, the better side shaded."""
    from matplotlib.ticker import AutoLocator

    axes.axhline(level, color=look.BLACK, linestyle=(0, (6, 3)), linewidth=1.1, label=_told(reference), zorder=2)
    axes.autoscale_view()
    low, high = axes.get_ylim()
    margin = 0.08 * (high - low)
    low, high = min(low, level - margin), max(high, level + margin)
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(AutoLocator())
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
    often one went back into the queue."""
    sizes = sorted({run.nodes for run in runs})
    groups = _groups(runs, series)
    with look.styled():
        figure, (axes,) = look.canvas(1, 1, height_in=4.2, title=title, caption=caption)
        width = 0.8 / max(1, len(groups))
        for place, (name, group) in enumerate(groups.items()):
            bars = axes.bar(
                [sizes.index(run.nodes) + (place - (len(groups) - 1) / 2) * width for run in group],
                [run.killed + run.requeued for run in group],
                width * 0.92,
                color=look.SERIES[place % len(look.SERIES)],
                label=f"{_said(series, name)} ({_counted(group)})",
            )
            if len(runs) <= _BARS_MAX:
                axes.bar_label(bars, fmt="{:,.0f}", fontsize=8, padding=2)
        axes.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes])
        axes.grid(visible=False, axis="x")
        axes.margins(y=0.12)
        axes.set_xlabel(_NAMES["nodes"])
        axes.set_ylabel("preemptions")
        look.legend_above(figure, axes)
    return figure


def _counted(group: Sequence[Run]) -> str:
    killed, requeued = any(run.killed for run in group), any(run.requeued for run in group)
    if killed and requeued:
        return "killed jobs and returns to the queue"
    return "returns to the queue" if requeued else "killed jobs"


# ---------------------------------------------------------------------------------------------------------------- frontier


def frontier(
    points: Sequence[Run],
    *,
    reference: Run | None = None,
    title: str = "Completed jobs against mean turnaround, by policy and size",
    caption: str = "",
) -> Figure:
    """Both benefits at once: colour is size, marker is policy.  Lines join the runs of one size that no other of that size
    beats in one without losing in the other; these are filled and named by their size.  Right and down is better; where
    both are better than the reference is shaded."""
    rated = [run for run in points if run.mean_turnaround_s is not None]
    sizes = sorted({run.nodes for run in rated})
    with look.styled():
        figure, (axes,) = look.canvas(1, 1, height_in=6.0, title=title, caption=caption)
        colours = dict(zip(sizes, _shades(len(sizes)), strict=True))
        best = pareto(rated)
        _draw_points(axes, rated, best, colours)
        axes.margins(0.08)
        if reference is not None and reference.mean_turnaround_s is not None:
            _draw_better(axes, reference)
        axes.set_xlabel("completed jobs (more is better)")
        axes.set_ylabel("mean turnaround (hours; less is better)")
        look.legend_above(figure, axes, columns=4)
        if len(best) <= _LABELS_MAX:
            _label_points(figure, axes, best, rated, reference)
    return figure


def _shades(count: int) -> list[Any]:
    """Light to dark, told apart in grey too."""
    import matplotlib

    scale = matplotlib.colormaps["viridis"]
    return [scale(0.88 - 0.84 * place / max(1, count - 1)) for place in range(count)]


def _draw_points(axes: Axes, runs: Sequence[Run], best: Sequence[Run], colours: dict[int, Any]) -> None:
    from matplotlib.lines import Line2D

    for size, colour in colours.items():
        line = [run for run in best if run.nodes == size]
        axes.plot([r.completed for r in line], [_hours(r) or 0.0 for r in line], color=colour, linewidth=1.2, zorder=2)
    for place, (name, group) in enumerate(_groups(runs, "policy").items()):
        marker = look.MARKERS[place % len(look.MARKERS)]
        for run in group:
            filled = any(run is each for each in best)
            axes.plot(
                [run.completed],
                [_hours(run) or 0.0],
                marker=marker,
                linestyle="none",
                markerfacecolor=colours[run.nodes] if filled else "white",
                markeredgecolor=colours[run.nodes],
                markersize=8 if filled else 6,
                zorder=4 if filled else 3,
            )
        axes.add_line(Line2D([], [], marker=marker, linestyle="none", color=look.GREY, label=name))


def _draw_better(axes: Axes, reference: Run) -> None:
    from matplotlib.patches import Rectangle

    hours = _hours(reference) or 0.0
    axes.plot(
        [reference.completed],
        [hours],
        marker="P",
        color=look.VERMILION,
        markersize=11,
        linestyle="none",
        label=_told(reference),
        zorder=5,
    )
    axes.autoscale_view()
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    axes.add_patch(
        Rectangle(
            (reference.completed, low),
            max(0.0, right - reference.completed),
            max(0.0, hours - low),
            color=look.GREEN,
            alpha=0.1,
            linewidth=0,
            zorder=0,
            label="better in both",
        )
    )
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)


def _label_points(
    figure: Figure, axes: Axes, best: Sequence[Run], everything: Sequence[Run], reference: Run | None
) -> None:
    """The size beside each point of the frontier, at the first of some places where nothing else is."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    figure.draw_without_rendering()  # places the axes: where points are on paper is known only now
    marked = [*everything, *([reference] if reference is not None else [])]
    taken = [_box(axes, run, 0.0, 0.0, 9.0, 9.0) for run in marked]
    for run in best:
        text, half = f"{run.nodes}", 3.2 * len(f"{run.nodes}")
        places = [
            (9 + half, 0),
            (-9 - half, 0),
            (0, 12),
            (0, -12),
            (8 + half, 9),
            (8 + half, -9),
            (-8 - half, 9),
            (-8 - half, -9),
        ]
        boxes = [_box(axes, run, right, up, 2 * half, 9.0) for right, up in places]
        free = [at for at, box in enumerate(boxes) if not any(_overlap(box, other) for other in taken)]
        at = free[0] if free else 0
        taken.append(boxes[at])
        axes.annotate(
            text,
            (run.completed, _hours(run) or 0.0),
            xytext=places[at],
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=8,
        )


def _box(
    axes: Axes, run: Run, right: float, up: float, width: float, height: float
) -> tuple[float, float, float, float]:
    """Of something beside a point, in points of paper: left, bottom, right, top."""
    scale = 72.0 / axes.figure.dpi
    x, y = (float(each) * scale for each in axes.transData.transform((run.completed, _hours(run) or 0.0)))
    return (x + right - width / 2, y + up - height / 2, x + right + width / 2, y + up + height / 2)


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


# ------------------------------------------------------------------------------------------------------------- job by job


def distributions(
    outcomes: Sequence[Outcome],
    *,
    title: str = "Wait and bounded slowdown of completed jobs",
    caption: str = "",
) -> Figure:
    """What share of a run's completed jobs waited at most so long, and were slowed down at most so much; a line a run."""
    with look.styled():
        figure, (left, right) = look.canvas(1, 2, height_in=4.6, title=title, caption=caption, sharey=True)
        for place, outcome in enumerate(outcomes):
            done = [job for job in outcome.jobs if end_of(job, outcome.window_s) == "completed"]
            label = f"{outcome.label} ({len(done):,} jobs)"
            _draw_cdf(left, [wait for job in done if (wait := wait_s(job)) is not None], label, place)
            _draw_cdf(right, [slow for job in done if (slow := bounded_slowdown(job)) is not None], label, place)
        _axis_of_waits(left)
        right.set_xlabel("bounded slowdown (threshold 10 s)")
        left.set_ylabel("share of completed jobs")
        left.set_ylim(0, 1.02)
        left.yaxis.set_major_formatter(lambda value, _place: f"{value:.0%}".replace("%", " %"))
        right.xaxis.set_major_formatter(lambda value, _place: f"{value:,.0f}")
        look.legend_above(figure, (left, right), columns=3)
    return figure


def _draw_cdf(axes: Axes, values: Sequence[float], label: str, place: int) -> None:
    ordered = [max(1.0, value) for value in sorted(values)]
    axes.set_xscale("log")
    axes.plot(
        [1.0, *ordered],
        [0.0, *((rank + 1) / len(ordered) for rank in range(len(ordered)))],
        drawstyle="steps-post",
        color=look.SERIES[place % len(look.SERIES)],
        linestyle=look.DASHES[place % len(look.DASHES)],
        label=label,
    )


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
    low, high = axes.get_xlim()
    shown = {at: name for at, name in names.items() if at <= high}
    axes.set_xticks(list(shown), list(shown.values()))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(min(low, 0.9), high)
    axes.set_xlabel("wait")
