"""Where a claim holds: a map over two axes of a space, small multiples over the others.

A cell's colour is the study's level, a mean over the seeds.  A mark: that claim holds by its interval; the frame: the point
agrees with every other figure that the source tells.  Empty: not run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from phoenix.plugin.simulation import plots_style as look
from phoenix_papers.study import Region, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS_MAX: Final = 12
COLUMNS_MAX: Final = 4
PANEL_IN: Final = 2.6  # of height
MARKS: Final = (("o", 3.2), ("s", 5.5), ("D", 8.0), ("^", 10.5), ("v", 13.0))  # of the claims, one around the other


def region(found: Region, axes: tuple[str, str | None]) -> Figure:
    """`axes`: across and up; every combination of the others' values is a panel."""
    across, up = axes
    others = [axis.name for axis in found.space.axes if axis.name not in axes]
    panels: dict[tuple[Any, ...], list[Row]] = {}
    for row in found.rows:
        panels.setdefault(tuple(row.point.get(name) for name in others), []).append(row)
    shown = dict(list(panels.items())[:PANELS_MAX])
    columns = max(1, min(COLUMNS_MAX, len(shown)))
    rows = max(1, -(-len(shown) // columns))
    levels = [found.study.level(row) for row in found.rows]
    with look.styled():
        figure, places = look.canvas(
            rows, columns, height_in=1.6 + PANEL_IN * rows, caption=_caption(found, len(panels))
        )
        drawn = None
        for place, (values, cells) in zip(places, shown.items(), strict=False):
            title = ", ".join(f"{name} {_label(value)}" for name, value in zip(others, values, strict=True))
            drawn = _panel(place, found, cells, (across, up), (min(levels), max(levels)))
            place.set_title(title, loc="left", fontsize=8.5, color=look.GREY)
        for place in places[len(shown) :]:
            place.set_axis_off()
        if drawn is not None:
            figure.colorbar(drawn, ax=places, label=found.study.level_label, shrink=0.9)
        look.finish(figure, places, title=f"Where the source's claims hold ({found.study.name})")
    return figure


def _caption(found: Region, panels: int) -> str:
    unfinished = found.total - len(found.rows)
    parts = [
        f"Means of {found.seeds} seeds.  A mark: that claim holds, its 95 % interval is above 0.",
        "Frame: agrees with all else that the source tells.",
        f"{unfinished} points are not run." if unfinished else "",
        f"The first {PANELS_MAX} of {panels} panels." if panels > PANELS_MAX else "",
    ]
    return " ".join(filter(None, parts))


def _panel(
    axes: Axes, found: Region, cells: Sequence[Row], names: tuple[str, str | None], limits: tuple[float, float]
) -> Any:
    from matplotlib.patches import Rectangle

    known = {axis.name: [None, *axis.values()] if axis.when else list(axis.values()) for axis in found.space.axes}
    across, up = ([None] if name is None else known[name] for name in names)
    places = {(_at(across, row, names[0]), _at(up, row, names[1])): row for row in cells}
    level = [[_level(found, places, x, y) for x in range(len(across))] for y in range(len(up))]
    image = axes.imshow(level, origin="lower", aspect="auto", cmap="cividis", vmin=limits[0], vmax=limits[1])
    axes.grid(visible=False)
    for n, claim in enumerate(found.study.claims):
        held = [place for place, row in places.items() if row.verdicts[n] == "holds"]
        marker, points = MARKS[n % len(MARKS)]
        axes.plot(
            [x for x, _ in held],
            [y for _, y in held],
            marker,
            markersize=points,
            fillstyle="none" if n else "full",
            color=look.VERMILION,
            label=claim.text,
        )
    for (x, y), row in places.items():
        if row.agrees and all(row.agrees):
            axes.add_patch(Rectangle((x - 0.48, y - 0.48), 0.96, 0.96, fill=False, edgecolor=look.BLACK, linewidth=2))
    axes.set_xticks(range(len(across)), [_label(each) for each in across], fontsize=7.5)
    axes.set_xlabel(names[0])
    axes.set_yticks(range(len(up)), [_label(each) for each in up], fontsize=7.5)
    axes.set_ylabel(names[1] or "")
    return image


def _at(values: Sequence[Any], row: Row, name: str | None) -> int:
    return 0 if name is None else values.index(row.point.get(name))


def _level(found: Region, places: Mapping[tuple[int, int], Row], x: int, y: int) -> float:
    row = places.get((x, y))
    return math.nan if row is None else found.study.level(row)


def _label(value: Any) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, int | float) else str(value)
