"""Both benefits of a run at once: which policies and sizes are worth having, and which are better than the reference.

Runs of one policy and size differ in their inputs alone (seeds), and a lucky input makes no policy the best: such runs are one
point, their mean, with bars that span them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from phoenix.simulate import plots_style as look
from phoenix.simulate.plots_runs import groups, told, turnaround_in, turnaround_unit
from phoenix.simulate.report import Rated, Run, pareto

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABELS_MAX: Final = 40  # points of the frontier that carry their size
_Box = tuple[float, float, float, float]  # left, bottom, right, top


class _Point(NamedTuple):
    """The mean of runs that differ in their inputs; `spans`: least and most completed, least and most turnaround."""

    label: str
    policy: str
    nodes: int
    completed: float
    mean_turnaround_s: float | None
    spans: tuple[float, float, float, float] | None = None


def _means(runs: Sequence[Run]) -> list[_Point]:
    """A point for each policy and size, in the order of first appearance; without those that completed nothing."""
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for run in runs:
        if run.mean_turnaround_s is not None:
            found.setdefault((run.policy, run.nodes), []).append((run.completed, run.mean_turnaround_s))
    points = []
    for (policy, nodes), values in found.items():
        done, times = [done for done, _ in values], [each for _, each in values]
        spans = (min(done), max(done), min(times), max(times)) if len(values) > 1 else None
        means = math.fsum(done) / len(done), math.fsum(times) / len(times)
        points.append(_Point(f"{policy} {nodes}", policy, nodes, *means, spans))
    return points


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
    rated = _means(points)
    sizes = sorted({run.nodes for run in rated})
    with look.styled():
        figure, (axes,) = look.canvas(1, 1, height_in=6.0, caption=caption)
        look.whole_numbers(axes.xaxis)
        colours = dict(zip(sizes, _shades(len(sizes)), strict=True))
        best = pareto(rated)
        unit_s, unit = turnaround_unit([*rated, *([reference] if reference is not None else [])])
        _draw_points(axes, rated, best, colours, unit_s)
        axes.margins(0.08)
        if reference is not None and reference.mean_turnaround_s is not None:
            _draw_better(axes, reference, unit_s)
        axes.set_title("Filled and joined: the best of their size", loc="left", fontsize=8.5, color=look.GREY)
        axes.set_xlabel("completed jobs (more is better)")
        axes.set_ylabel(f"mean turnaround ({unit}; less is better)")
        axes.xaxis.set_major_formatter(look.thousands)
        axes.yaxis.set_major_formatter(look.thousands)
        look.finish(figure, [axes], title=title)
        if len(best) <= _LABELS_MAX:
            _label_points(axes, best, rated, reference, unit_s)
    return figure


def _shades(count: int) -> list[Any]:
    """Light to dark, told apart in grey too."""
    import matplotlib

    scale = matplotlib.colormaps["viridis"]
    return [scale(0.88 - 0.84 * place / max(1, count - 1)) for place in range(count)]


def _draw_points(
    axes: Axes, runs: Sequence[_Point], best: Sequence[_Point], colours: dict[int, Any], unit_s: float
) -> None:
    from matplotlib.lines import Line2D

    for size, colour in colours.items():
        line = [run for run in best if run.nodes == size]
        axes.plot(
            [r.completed for r in line],
            [turnaround_in(unit_s, r) or 0.0 for r in line],
            color=colour,
            linewidth=1.2,
            zorder=2,
        )
    for place, (name, group) in enumerate(groups(runs, "policy").items()):
        marker = look.MARKERS[place % len(look.MARKERS)]
        for run in group:
            filled = any(run is each for each in best)
            axes.plot(
                [run.completed],
                [turnaround_in(unit_s, run) or 0.0],
                marker=marker,
                linestyle="none",
                markerfacecolor=colours[run.nodes] if filled else "white",
                markeredgecolor=colours[run.nodes],
                markersize=8 if filled else 6,
                zorder=4 if filled else 3,
            )
            _draw_spans(axes, run, colours[run.nodes], unit_s)
        axes.add_line(Line2D([], [], marker=marker, linestyle="none", color=look.GREY, label=name))


def _draw_spans(axes: Axes, point: _Point, colour: Any, unit_s: float) -> None:
    if point.spans is None:
        return
    fewest, most, shortest, longest = point.spans
    middle = turnaround_in(unit_s, point) or 0.0
    axes.errorbar(
        [point.completed],
        [middle],
        xerr=[[point.completed - fewest], [most - point.completed]],
        yerr=[[middle - shortest / unit_s], [longest / unit_s - middle]],
        fmt="none",
        ecolor=colour,
        elinewidth=0.7,
        zorder=1,
    )


def _draw_better(axes: Axes, reference: Run, unit_s: float) -> None:
    from matplotlib.patches import Rectangle

    level = turnaround_in(unit_s, reference) or 0.0
    axes.plot(
        [reference.completed],
        [level],
        marker="P",
        color=look.VERMILION,
        markersize=11,
        linestyle="none",
        label=told(reference),
        zorder=5,
    )
    axes.autoscale_view()
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    axes.add_patch(
        Rectangle(
            (reference.completed, low),
            max(0.0, right - reference.completed),
            max(0.0, level - low),
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
    axes: Axes, best: Sequence[_Point], everything: Sequence[_Point], reference: Run | None, unit_s: float
) -> None:
    """The size beside each point of the frontier, at the first of some places where nothing else is."""
    marked: list[Rated] = [*everything, *([reference] if reference is not None else [])]
    at_points = [_on_paper(axes, run.completed, turnaround_in(unit_s, run) or 0.0) for run in marked]
    taken = [_around(x, y, 10.0, 10.0) for x, y in at_points] + _along_lines(axes)
    named: dict[tuple[int, float, float], None] = {}  # runs that fall on one point have one name
    for run in best:
        at = (run.nodes, run.completed, turnaround_in(unit_s, run) or 0.0)
        if at in named:
            continue
        named[at] = None
        text = f"{run.nodes:,}"
        x, y = _on_paper(axes, at[1], at[2])
        width = 6.0 * len(text)
        side = 8 + width / 2
        places = [(side, 0), (-side, 0), (0, 12), (0, -12), (side, 9), (side, -9), (-side, 9), (-side, -9)]
        boxes = [_around(x + right, y + up, width, 9.0) for right, up in places]
        free = (n for n, box in enumerate(boxes) if not any(_overlap(box, other) for other in taken))
        chosen = next(free, 0)
        taken.append(boxes[chosen])
        axes.annotate(
            text, at[1:], xytext=places[chosen], textcoords="offset points", ha="center", va="center", fontsize=8.5
        )


def _on_paper(axes: Axes, x: float, y: float) -> tuple[float, float]:
    """Where a point is, in points of paper."""
    scale = 72.0 / axes.figure.dpi
    across, up = axes.transData.transform((x, y))
    return float(across) * scale, float(up) * scale


def _along_lines(axes: Axes) -> list[_Box]:
    """Small boxes along the lines that join points."""
    boxes: list[_Box] = []
    for line in axes.get_lines():
        ends: Any = line.get_xydata()
        points = [_on_paper(axes, float(x), float(y)) for x, y in ends]
        for (x, y), (to_x, to_y) in pairwise(points):
            count = int(math.hypot(to_x - x, to_y - y) / 4) + 1
            boxes += [_around(x + (to_x - x) * n / count, y + (to_y - y) * n / count, 3.0, 3.0) for n in range(count)]
    return boxes


def _around(x: float, y: float, width: float, height: float) -> _Box:
    return (x - width / 2, y - height / 2, x + width / 2, y + height / 2)


def _overlap(a: _Box, b: _Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
