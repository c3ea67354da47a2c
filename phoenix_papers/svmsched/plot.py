"""Which threshold?  What shares that short jobs may leave gain over static ones, and what it does to each service's waits.

A line joins means over the seeds; the band is between the smallest and the largest of them.  Thresholds stand at equal
distances: they are chosen, and rise by factors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from phoenix.plugin.simulation import plots_style as look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# service or setting -> values of all seeds at each threshold
Lines = Mapping[str, Sequence[Sequence[float]]]


def thresholds(labels: Sequence[str], gains: Lines, waits: Mapping[str, Lines], *, caption: str = "") -> Figure:
    """`labels` of the thresholds; `gains` in points of utilisation, by setting; `waits` in seconds, by setting and service."""
    with look.styled():
        figure, axes = look.canvas(1, 1 + len(waits), height_in=4.2, caption=caption)
        _draw(axes[0], labels, gains, first=len(next(iter(waits.values()))))
        axes[0].axhline(0, color=look.GREY, linewidth=0.8)
        axes[0].set_ylabel("utilisation beyond static (points)")
        for each, (setting, lines) in zip(axes[1:], waits.items(), strict=True):
            _draw(each, labels, lines, first=0)
            each.set_title(setting, loc="left", fontsize=8.5, color=look.GREY)
            each.set_ylabel("mean wait (s)")
            each.set_ylim(bottom=0)
            each.yaxis.set_major_formatter(look.thousands)
        look.finish(figure, axes, title="What a threshold gains, and who waits")
    return figure


def _draw(axes: Axes, labels: Sequence[str], lines: Lines, *, first: int) -> None:
    places = range(len(labels))
    for number, (name, values) in enumerate(lines.items(), start=first):
        colour, marker = look.SERIES[number % len(look.SERIES)], look.MARKERS[number % len(look.MARKERS)]
        means = [sum(each) / len(each) for each in values]
        axes.fill_between(
            places,
            [min(each) for each in values],
            [max(each) for each in values],
            color=colour,
            alpha=0.12,
            linewidth=0,
        )
        axes.plot(places, means, color=colour, marker=marker, label=name)
    axes.set_xticks(list(places), list(labels))
    axes.set_xlabel("threshold (min)")
