"""The picture of the experiment: a column for each variant, and below each other the load with its instances, the latency, and
who held the hosts.  The look is that of all plots (`phoenix.simulate.plots_style`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from phoenix.load.results import Interval
from phoenix.rush import levels
from phoenix.rush.recording import Recording
from phoenix.rush.site import BATCH, WEB
from phoenix.simulate import plots_style as look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LATENCY_FROM_S: Final = 0.002  # the axis begins here: nothing through a balancer is quicker
HOLDERS: Final = (
    (WEB, look.ORANGE, "web"),
    (BATCH, look.BLUE, "batch"),
    (levels.OTHER, look.PALE, "_between"),
)


def figure(recordings: Sequence[Recording], *, title: str, caption: str) -> Figure:
    """One figure of all variants."""
    with look.styled():
        made, axes = look.canvas(
            3, len(recordings), height_in=7.4, caption=caption, sharex=True, sharey="row", height_ratios=(3, 3, 2)
        )
        from matplotlib.ticker import MaxNLocator

        columns = len(recordings)
        for place, recording in enumerate(recordings):
            load, latency, hosts = (axes[row * columns + place] for row in range(3))
            load.set_title(_name(recording), loc="left", fontsize=9.5)
            _draw_load(load, recording)
            _draw_latency(latency, recording)
            _draw_hosts(hosts, recording)
            unit_s = look.time_axis(hosts, 0.0, recording.curve.end_s)
            assert unit_s == 1.0, "a run of minutes is shown in seconds"
            hosts.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            hosts.set_xlabel("seconds")
        axes[0].set_ylim(0, _most(recordings))
        for row, label in enumerate(("instances", "latency (s)", "hosts")):
            axes[row * columns].set_ylabel(label)
        look.finish(made, axes, title=title)
    return made


def _most(recordings: Sequence[Recording]) -> float:
    """The top of all instance axes, which are one."""
    rows = (level for one in recordings for level in (levels.serving(one), levels.wanted(one), levels.needed(one)))
    return 0.5 + max(value for level in rows for _, value in level)


def _name(recording: Recording) -> str:
    load = recording.load
    return f"{recording.variant.name}\n{f'{load.failed:,}' if load.failed else 'none'} of {load.requests:,} failed"


def _draw_load(axes: Axes, recording: Recording) -> None:
    end = recording.curve.end_s
    times, there = look.steps(levels.serving(recording), end)
    axes.fill_between(times, there, step="post", color=look.SKY, alpha=0.45, linewidth=0, label="in service")
    axes.plot(times, there, drawstyle="steps-post", color=look.BLUE, linewidth=0.9)
    if recording.variant.exact is None:
        _line(axes, levels.wanted(recording), end, look.GREEN, "wanted", 0.8)
    _line(axes, levels.needed(recording), end, look.BLACK, "load", 0.9)
    rows = levels.needed(recording), levels.serving(recording)
    parts = levels.merged(*rows, until=end)
    edges = [since for since, _, _ in parts] + [end]
    low = [min(needed, serving) for _, _, (needed, serving) in parts]
    high = [needed for _, _, (needed, _) in parts]
    axes.fill_between(
        edges, [*low, low[-1]], [*high, high[-1]], step="post", color=look.VERMILION, linewidth=0, label="overload"
    )
    look.whole_numbers(axes.yaxis)


def _line(axes: Axes, rows: levels.Rows, end: float, colour: str, label: str, width: float) -> None:
    times, values = look.steps(rows, end)
    axes.plot(times, values, drawstyle="steps-post", color=colour, linewidth=width, label=label)


def _draw_latency(axes: Axes, recording: Recording) -> None:
    pieces = recording.load.intervals
    middle = [piece.at_s + recording.load.interval_s / 2 for piece in pieces]
    axes.set_yscale("log")
    top = recording.setting.timeout_s
    axes.plot(middle, [_shown(piece.p99, top) for piece in pieces], color=look.VERMILION, linewidth=0.9, label="p99")
    axes.plot(middle, [_shown(piece.p50, top) for piece in pieces], color=look.BLUE, linewidth=0.9, label="p50")
    failed = [(at, piece) for at, piece in zip(middle, pieces, strict=True) if piece.failed]
    if failed:
        axes.plot(
            [at for at, _ in failed],
            [top] * len(failed),
            "x",
            color=look.PURPLE,
            markersize=5,
            label="failures",
        )
    axes.set_ylim(LATENCY_FROM_S, 1.5 * top)
    axes.yaxis.set_major_formatter(look.thousands)


def _shown(value: float | None, top: float) -> float:
    """A percentile that falls on a failure is at the top."""
    return top if value is None else min(max(value, LATENCY_FROM_S), top)


def _draw_hosts(axes: Axes, recording: Recording) -> None:
    end = recording.curve.end_s
    found = levels.holders(recording)
    parts = levels.merged(*(found[name] for name, _, _ in HOLDERS), until=end)
    edges = [since for since, _, _ in parts] + [end]
    floor = [0.0] * len(edges)
    for place, (_, colour, label) in enumerate(HOLDERS):
        values = [heights[place] for _, _, heights in parts]
        top = [low + high for low, high in zip(floor, [*values, values[-1]], strict=True)]
        axes.fill_between(edges, floor, top, step="post", color=colour, linewidth=0, label=label)
        floor = top
    axes.set_ylim(0, recording.setting.hosts)
    look.whole_numbers(axes.yaxis)


__all__ = ["Interval", "figure"]
