"""Plots over time of one run, or of a few runs below each other: who holds the hosts, what web departments want and have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from phoenix.simulate import plots_style as look
from phoenix.simulate.metrics import held_by_department, load_and_service, stretches
from phoenix.simulate.workload import Outcome, WebRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Rows = list[tuple[float, float]]
_WEB_COLOURS: Final = (look.ORANGE, look.YELLOW, look.VERMILION)
_BATCH_COLOURS: Final = ((look.BLUE, "#BFDCEC"), (look.GREEN, "#C4E8DC"), (look.PURPLE, "#F2DCE8"))  # busy, idle


def hosts_over_time(outcome: Outcome, *, title: str | None = None, caption: str = "") -> Figure:
    """Hosts by who holds them, stacked: web departments at the bottom, so that the line of what they want can be compared
    with what they have; then batch; free hosts on top."""
    with look.styled():
        figure, (axes,) = look.canvas(1, 1, height_in=4.8, caption=caption)
        _draw_holders(axes, outcome)
        wanted = _added([[(at, float(want)) for at, want, _ in record.levels] for record in outcome.web])
        unit_s = look.time_axis(axes, 0.0, outcome.window_s)
        if wanted:
            times, levels = look.steps(wanted, outcome.window_s)
            axes.plot(
                [at / unit_s for at in times],
                levels,
                drawstyle="steps-post",
                color=look.BLACK,
                linewidth=0.8,
                label="instances wanted by web",
            )
        axes.set_ylim(0, outcome.hosts)
        look.whole_numbers(axes.yaxis)
        axes.set_ylabel("hosts")
        look.finish(figure, [axes], title=f"Hosts over time: {outcome.label}" if title is None else title)
    return figure


def _draw_holders(axes: Axes, outcome: Outcome) -> None:
    layers = _layers(outcome)
    edges = look.edges_of([rows for _, _, rows in layers], outcome.window_s)
    unit_s, _ = look.time_unit(outcome.window_s)
    shown = [at / unit_s for at in edges]
    floor = [0.0] * (len(edges) - 1)
    for label, colour, rows in layers:
        top = [low + high for low, high in zip(floor, look.means(rows, edges), strict=True)]
        _area(axes, shown, floor, top, colour=colour, label=label)
        floor = top
    _area(axes, shown, floor, [float(outcome.hosts)] * len(floor), colour=look.PALE, label="free")


def _layers(outcome: Outcome) -> list[tuple[str, str, _Rows]]:
    """(label, colour, hosts) from below: web departments by name, then batch departments, busy and idle hosts apart if the
    run tells them apart."""
    web = {record.department for record in outcome.web}
    held = {name: [(at, float(hosts)) for at, hosts in rows] for name, rows in held_by_department(outcome).items()}
    busy: dict[str, _Rows] = {}
    for at, name, nodes in outcome.running:
        busy.setdefault(name, []).append((at, float(nodes)))
    layers = [
        (name, _WEB_COLOURS[place % len(_WEB_COLOURS)], held[name])
        for place, name in enumerate(filter(web.__contains__, held))
    ]
    for place, name in enumerate(name for name in held if name not in web):
        dark, light = _BATCH_COLOURS[place % len(_BATCH_COLOURS)]
        if name in busy:
            layers.append((f"{name}: running jobs", dark, busy[name]))
            layers.append((f"{name}: idle", light, _between(busy[name], held[name])))
        else:
            layers.append((name, dark, held[name]))
    return layers


def _between(low: _Rows, high: _Rows) -> _Rows:
    """How much the second level is above the first; nothing where it is below (jobs that share hosts count more nodes)."""
    changes = sorted([(at, 0, level) for at, level in low] + [(at, 1, level) for at, level in high])
    now, rows = [0.0, 0.0], []
    for at, which, level in changes:
        now[which] = level
        rows.append((at, max(0.0, now[1] - now[0])))
    return rows


def _area(axes: Axes, edges: list[float], low: list[float], high: list[float], *, colour: str, label: str) -> None:
    axes.fill_between(edges, [*low, low[-1]], [*high, high[-1]], step="post", color=colour, linewidth=0, label=label)


def _added(series: Sequence[_Rows]) -> _Rows:
    """The sum of several levels."""
    changes = sorted((at, place, level) for place, rows in enumerate(series) for at, level in rows)
    now, rows = [0.0] * len(series), []
    for at, place, level in changes:
        now[place] = level
        rows.append((at, math.fsum(now)))
    return rows


# --------------------------------------------------------------------------------------------------------------------- web


def web_consumption(
    outcome: Outcome, *, title: str = "Resource consumption of web departments", caption: str = ""
) -> Figure:
    """Instances that each web department wants over the window (the paper's Fig. 5), with what was missing in red."""
    records = outcome.web
    with look.styled():
        figure, panels = look.canvas(
            max(1, len(records)),
            1,
            height_in=2.0 + 2.4 * max(1, len(records)),
            caption=caption,
            sharex=True,
        )
        for axes, record in zip(panels, records, strict=False):
            unit_s = look.time_axis(axes, 0.0, outcome.window_s)
            _draw_wanted(axes, record, outcome.window_s, unit_s)
            look.whole_numbers(axes.yaxis)
            axes.set_ylabel(f"instances ({record.department})")
        for axes in panels[:-1]:
            axes.set_xlabel("")
        look.finish(figure, panels, title=title)
    return figure


def _draw_wanted(axes: Axes, record: WebRecord, window_s: float, unit_s: float) -> None:
    wanted = [(at, float(want)) for at, want, _ in record.levels]
    times, levels = look.steps(wanted, window_s)
    axes.plot(
        [at / unit_s for at in times], levels, drawstyle="steps-post", color=look.BLUE, linewidth=0.8, label="wanted"
    )
    _draw_missing(axes, [(at, (float(want), serve)) for at, want, serve in record.levels], window_s, unit_s, "missing")
    peak = max(stretches(wanted, window_s), key=lambda each: each[2], default=None)
    top = 1.0 if peak is None else max(peak[2], 1.0)
    axes.set_ylim(0, top * 1.15)
    if peak is not None:
        left = peak[0] > 0.8 * window_s
        axes.annotate(
            f"peak: {peak[2]:.0f}",
            (peak[0] / unit_s, peak[2]),
            xytext=(-6 if left else 6, 4),
            textcoords="offset points",
            ha="right" if left else "left",
            fontsize=9,
        )


def _draw_missing(
    axes: Axes, rows: list[tuple[float, tuple[float, int]]], window_s: float, unit_s: float, label: str
) -> None:
    """What is needed and not there, hatched between the two levels."""
    parts = [
        (since, until, needed, there) for since, until, (needed, there) in stretches(rows, window_s) if needed > there
    ]
    if not parts:
        return
    from matplotlib.collections import PolyCollection

    boxes = [
        [(a / unit_s, low), (b / unit_s, low), (b / unit_s, high), (a / unit_s, high)] for a, b, high, low in parts
    ]
    axes.add_collection(
        PolyCollection(boxes, facecolors=look.VERMILION, edgecolors=look.VERMILION, linewidths=0.4, label=label)
    )


# -------------------------------------------------------------------------------------------------------- scaling rules


def scaling_comparison(
    outcomes: Sequence[Outcome],
    *,
    department: str | None = None,
    between: tuple[float, float] | None = None,
    title: str = "Scaling rules on the same load",
    caption: str = "",
) -> Figure:
    """Scaling rules side by side: a panel for each run with load, instances in service, and what was missing; below, how
    the missing instance-hours add up.  `between` shows a part of the window, in seconds; sums begin with it."""
    chosen = [(outcome, _record(outcome, department)) for outcome in outcomes]
    since, until = between or (0.0, max((outcome.window_s for outcome in outcomes), default=1.0))
    with look.styled():
        ratios = [2.0] * len(chosen) + [1.4]
        figure, panels = look.canvas(
            len(ratios),
            1,
            height_in=1.3 + 1.1 * sum(ratios),
            caption=caption,
            sharex=True,
            gridspec_kw={"height_ratios": ratios},
        )
        unit_s = look.time_axis(panels[-1], since, until)
        for axes, (outcome, record) in zip(panels, chosen, strict=False):
            _draw_rule(axes, record, (since, min(until, outcome.window_s)), unit_s)
            axes.set_title(outcome.label, loc="left", fontsize=10)
        _same_height(panels[:-1])
        for place, (outcome, record) in enumerate(chosen):
            _draw_sum(panels[-1], record, (since, min(until, outcome.window_s)), unit_s, outcome.label, place)
        panels[-1].set_ylabel("missing in all\n(instance-hours)")
        panels[-1].set_ylim(bottom=0)
        panels[-1].set_title("Load beyond what was in service, added up", loc="left", fontsize=10)
        look.finish(figure, panels, title=title)
    return figure


def _record(outcome: Outcome, department: str | None) -> WebRecord:
    return next(
        (record for record in outcome.web if department in (None, record.department)),
        WebRecord(department=department or "web"),
    )


def _needed_and_there(record: WebRecord) -> list[tuple[float, tuple[float, int]]]:
    """The load, or, where none decided, what was wanted; beside what was in service."""
    if record.load:
        return load_and_service(record)
    return [(at, (float(wanted), serving)) for at, wanted, serving in record.levels]


def _cut(rows: Sequence[tuple[float, float]], span: tuple[float, float]) -> _Rows:
    """What of a level lies within the span."""
    return [(max(a, span[0]), level) for a, b, level in stretches(rows, span[1]) if b > span[0]]


def _draw_rule(axes: Axes, record: WebRecord, span: tuple[float, float], unit_s: float) -> None:
    there = _cut([(at, float(serving)) for at, _, serving in record.levels], span)
    times, levels = look.steps(there, span[1])
    shown = [at / unit_s for at in times]
    axes.fill_between(shown, levels, step="post", color=look.SKY, alpha=0.45, linewidth=0, label="in service")
    axes.plot(shown, levels, drawstyle="steps-post", color=look.BLUE, linewidth=0.8)
    both = _needed_and_there(record)
    needed = _cut([(at, level) for at, (level, _) in both], span)
    times, levels = look.steps(needed, span[1])
    name = "load (busy instances)" if record.load else "wanted"
    axes.plot(
        [at / unit_s for at in times], levels, drawstyle="steps-post", color=look.BLACK, linewidth=0.9, label=name
    )
    parts = [(max(a, span[0]), level) for a, b, level in stretches(both, span[1]) if b > span[0]]
    _draw_missing(axes, parts, span[1], unit_s, "missing")
    look.whole_numbers(axes.yaxis)
    axes.set_ylabel("instances")


def _same_height(panels: Sequence[Axes]) -> None:
    top = max((axes.get_ylim()[1] for axes in panels), default=1.0)
    for axes in panels:
        axes.set_ylim(0, top)


def _draw_sum(axes: Axes, record: WebRecord, span: tuple[float, float], unit_s: float, label: str, place: int) -> None:
    times, parts = [span[0] / unit_s], [0.0]
    for since, until, (needed, there) in stretches(_needed_and_there(record), span[1]):
        since = max(since, span[0])
        if until > since and needed > there:
            times += [since / unit_s, until / unit_s]
            parts += [0.0, (until - since) * (needed - there) / 3600.0]
    times.append(span[1] / unit_s)
    parts.append(0.0)
    axes.plot(
        times,
        list(accumulate(parts)),
        color=look.SERIES[place % len(look.SERIES)],
        linestyle=look.DASHES[place % len(look.DASHES)],
        label=label,
    )
