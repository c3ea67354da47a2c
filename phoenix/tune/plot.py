"""The frontier of a search: turnaround, completed jobs and lost work of every trial, the best of each size filled.

Rules
  1. Where sizes are searched, each panel has the size across; else turnaround stands against completed jobs, and against work
     lost.
  2. Trials that keep every limit are darker; the experiment's own settings and the run that limits stand against are lines, or
     marks.
  3. The axes reach around the best trials, the experiment's own settings and that run; what is far worse lies outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from phoenix.search.trials import Trial
from phoenix.simulate import plots_style as look
from phoenix.tune.goals import HOSTS, Values
from phoenix.tune.searching import Found

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Panel = tuple[str, str, float]  # metric, label, unit
_PANELS: Final[tuple[_Panel, ...]] = (
    ("mean_turnaround_s", "mean turnaround (s; less is better)", 1.0),
    ("completed", "completed jobs (more is better)", 1.0),
    ("preemption_lost_node_s", "lost to preemption (node-hours; less is better)", 3600.0),
)


def frontier(found: Found) -> Figure:
    """Rules 1 and 2, of the first batch department."""
    department = next(name for name, kind in found.bench.kinds.items() if kind == "batch")
    sized = any(axis.name == HOSTS for axis in found.space.axes)
    caption = f"{len(found.trials):,} trials of {found.bench.name}, {found.about}; wanted: {found.aims.asked()}"
    with look.styled():
        figure, axes = look.canvas(1, 3 if sized else 2, height_in=4.6, caption=caption)
        if sized:
            for panel, each in zip(_PANELS, axes, strict=True):
                _by_size(each, found, department, panel)
        else:
            for panel, each in zip(_PANELS[1:], axes, strict=True):
                _against_turnaround(each, found, department, panel)
        look.finish(figure, axes, title=f"What {found.bench.name} could be: the best trials")
    return figure


def _by_size(axes: Axes, found: Found, department: str, panel: _Panel) -> None:
    metric, label, unit = panel
    name = f"{department}.{metric}"
    _draw(axes, found, lambda trial: trial.point[HOSTS], _reader(name, unit))
    own = [(hosts, found.own_result(hosts, "").get(name)) for hosts in found.sizes()]
    line = [(hosts, value / unit) for hosts, value in own if value is not None]
    axes.plot([x for x, _ in line], [y for _, y in line], color=look.ORANGE, linestyle="--", label="as it is", zorder=2)
    reference = found.references.get("", {}).get(name)
    if reference is not None:
        axes.axhline(reference / unit, color=look.VERMILION, linestyle=":", label=found.bench.against, zorder=2)
    axes.set_xlabel("hosts")
    axes.set_ylabel(label)
    axes.set_ylim(*_around(found, name, unit))
    look.whole_numbers(axes.xaxis)
    axes.yaxis.set_major_formatter(look.thousands)


def _against_turnaround(axes: Axes, found: Found, department: str, panel: _Panel) -> None:
    metric, label, unit = panel
    across, up = f"{department}.{metric}", f"{department}.mean_turnaround_s"
    _draw(axes, found, _reader(across, unit), _reader(up, 1.0))
    static = found.references.get("", {})
    marks = (("as it is", look.ORANGE, found.own_result(None, "")), (found.bench.against, look.VERMILION, static))
    for name, colour, values in marks:
        x, y = values.get(across), values.get(up)
        if x is not None and y is not None:
            axes.plot([x / unit], [y], marker="P", linestyle="none", color=colour, markersize=10, label=name, zorder=4)
    axes.set_xlabel(label)
    axes.set_ylabel(_PANELS[0][1])
    axes.set_xlim(*_around(found, across, unit))
    axes.set_ylim(*_around(found, up, 1.0))
    axes.xaxis.set_major_formatter(look.thousands)
    axes.yaxis.set_major_formatter(look.thousands)


def _best(found: Found) -> list[Trial]:
    """Of each size its front; where no trial keeps every limit, the one that misses least."""
    best: list[Trial] = []
    for hosts in found.sizes():
        nearest = found.aims.nearest(found.of_size(hosts), found.references.get("", {}))
        best += found.front(hosts) or ([nearest] if nearest else [])
    return best


def _around(found: Found, name: str, unit: float) -> tuple[float, float]:
    """Rule 3."""
    results = [trial.result for trial in _best(found)] + [found.own_result(hosts, "") for hosts in found.sizes()]
    values = [each[name] for each in (*results, found.references.get("", {})) if each.get(name) is not None]
    least, most = min(values, default=0.0) or 0.0, max(values, default=1.0) or 0.0  # type: ignore[type-var]
    margin = 0.15 * (most - least) or 1.0
    return (least - margin) / unit, (most + margin) / unit


def _reader(name: str, unit: float) -> Callable[[Trial], float | None]:
    def read(trial: Trial) -> float | None:
        value = trial.result.get(name)
        return None if value is None else value / unit

    return read


def _draw(axes: Axes, found: Found, x: Callable[[Trial], Any], y: Callable[[Trial], float | None]) -> None:
    reference: Values = found.references.get("", {})
    kept = [trial for trial in found.trials if found.aims.kept(trial.result, reference)]
    best = _best(found)
    layers: Sequence[tuple[str, Sequence[Trial], dict[str, Any]]] = (
        ("a trial", found.trials, {"color": "#C4C4C4", "markersize": 4}),
        ("… that keeps every limit", kept if found.aims.limits else [], {"color": look.SKY, "markersize": 4}),
        ("the best of its size", [t for t in best if t in kept], {"color": look.BLUE, "markersize": 6}),
        (
            "… that misses a limit",
            [t for t in best if t not in kept],
            {"color": look.BLUE, "markersize": 6, "mfc": "white"},
        ),
    )
    for order, (label, trials, form) in enumerate(layers):
        points = [(x(trial), y(trial)) for trial in trials]
        drawn = [(across, up) for across, up in points if across is not None and up is not None]
        if drawn:
            axes.plot([a for a, _ in drawn], [b for _, b in drawn], "o", label=label, zorder=1 + order, **form)
