"""Orders and victims by what they cost: mean turnaround across, work lost upwards, a panel for each log.

A colour is an order, a mark is an order of victims; a point is the mean of the log's windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from phoenix.plugin.simulation import plots_style as look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS_A_ROW: Final = 2


class Rated(Protocol):
    @property
    def log(self) -> str: ...
    @property
    def order(self) -> str: ...
    @property
    def victims(self) -> str: ...
    @property
    def mean_turnaround_s(self) -> float: ...
    @property
    def lost_node_s(self) -> float: ...


def turnaround_and_loss(runs: Sequence[Rated]) -> Figure:
    logs, orders, victims = (
        list(dict.fromkeys(getattr(r, name) for r in runs)) for name in ("log", "order", "victims")
    )
    across = min(PANELS_A_ROW, len(logs))
    with look.styled():
        high = 3.4 * -(-len(logs) // across)
        caption = "colour: the order; mark: the victims; means of each log's windows"
        figure, axes = look.canvas(-(-len(logs) // across), across, height_in=high, caption=caption)
        for panel, log in zip(axes, logs, strict=False):
            _draw(panel, [r for r in runs if r.log == log], orders, victims)
            panel.set_title(log, loc="left", fontsize=8.5, color=look.GREY)
            panel.set_xlabel("mean turnaround (hours)")
            panel.set_ylabel("work lost (node-hours)")
            panel.set_ylim(bottom=0)
        _name(axes[0], orders, victims)
        look.finish(figure, axes, title="Orders and victims: turnaround and work lost")
    return figure


def _draw(axes: Axes, runs: Sequence[Rated], orders: Sequence[str], victims: Sequence[str]) -> None:
    for colour, order in enumerate(orders):
        for mark, chosen in enumerate(victims):
            mine = [r for r in runs if (r.order, r.victims) == (order, chosen)]
            if mine:
                hours = sum(r.mean_turnaround_s for r in mine) / len(mine) / 3600
                lost = sum(r.lost_node_s for r in mine) / 3600
                axes.scatter([hours], [lost], color=_colour(colour), marker=_mark(mark), s=22)


def _name(axes: Axes, orders: Sequence[str], victims: Sequence[str]) -> None:
    """Entries of the legend: points that are nowhere."""
    for colour, order in enumerate(orders):
        axes.scatter([], [], color=_colour(colour), marker="o", label=order)
    for mark, chosen in enumerate(victims):
        axes.scatter([], [], color=look.GREY, marker=_mark(mark), label=chosen)


def _colour(number: int) -> str:
    return look.SERIES[number % len(look.SERIES)]


def _mark(number: int) -> str:
    return look.MARKERS[number % len(look.MARKERS)]
