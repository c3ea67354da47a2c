"""What scaling rules lack, have too much of, and move, side by side: a bar for each rule in each of three panels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from phoenix.plugin.simulation import plots_style as look

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Bar(NamedTuple):
    label: str
    under_instance_s: float
    over_instance_s: float
    hosts_moved: int


_PANELS: Final[tuple[tuple[str, str, Callable[[Bar], float]], ...]] = (
    ("under the ideal (instance-hours)", look.VERMILION, lambda bar: bar.under_instance_s / 3600.0),
    ("over the ideal (instance-hours)", look.BLUE, lambda bar: bar.over_instance_s / 3600.0),
    ("hosts moved", look.GREEN, lambda bar: float(bar.hosts_moved)),
)


def capacity(
    bars: Sequence[Bar], *, title: str = "What the rules lack, and what they cost", caption: str = ""
) -> Figure:
    """The first one on top."""
    places = list(range(len(bars)))[::-1]
    with look.styled():
        figure, panels = look.canvas(1, len(_PANELS), height_in=1.6 + 0.3 * len(bars), caption=caption, sharey=True)
        for axes, (name, colour, value) in zip(panels, _PANELS, strict=True):
            values = [value(bar) for bar in bars]
            axes.barh(places, values, color=colour, height=0.62)
            for place, number in zip(places, values, strict=True):
                axes.annotate(
                    f"{number:,.0f}" if number >= 10 else f"{number:.2g}",
                    (number, place),
                    xytext=(3, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=8,
                )
            axes.set_xlabel(name)
            axes.set_xlim(0, 1.18 * max([*values, 1e-9]))
            axes.xaxis.set_major_formatter(look.thousands)
            axes.grid(visible=False, axis="y")
        panels[0].set_yticks(places, [bar.label for bar in bars], fontsize=8)
        look.finish(figure, panels, title=title)
    return figure
