"""What VMs beside a host's own job are worth (Thiao, Figs. 4.11 to 4.13): makespan and run time by VMs a host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from phoenix.plugin.simulation import plots_style as look

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Line(NamedTuple):
    """One mode.  `points`: VMs a host, makespan in percent of the base (least, mean, most), mean run time in minutes."""

    label: str
    points: Sequence[tuple[int, float, float, float, float]]


def slots(lines: Sequence[Line], measured: Sequence[tuple[int, float]], *, caption: str = "") -> Figure:
    """`measured`: (VMs a host, percent of the base) as the thesis states them."""
    with look.styled():
        figure, axes = look.canvas(1, 2, height_in=4.4, caption=caption)
        for place, line in enumerate(lines):
            colour, marker = look.SERIES[place], look.MARKERS[place]
            vms = [point[0] for point in line.points]
            axes[0].fill_between(
                vms, [p[1] for p in line.points], [p[3] for p in line.points], color=colour, alpha=0.15, linewidth=0
            )
            axes[0].plot(vms, [p[2] for p in line.points], color=colour, marker=marker, markersize=4, label=line.label)
            axes[1].plot(vms, [p[4] for p in line.points], color=colour, marker=marker, markersize=4, label=line.label)
        axes[0].plot(
            [vms for vms, _ in measured],
            [percent for _, percent in measured],
            "x",
            color=look.BLACK,
            markersize=9,
            label="measured (thesis)",
        )
        axes[0].set_ylabel("makespan (% of that without VMs)")
        axes[0].set_ylim(0, 105)
        axes[1].set_ylabel("mean run time of a job (minutes)")
        axes[1].set_ylim(bottom=0)
        for each in axes:
            each.set_xlabel("VMs on each host, beside its own job")
            look.whole_numbers(each.xaxis)
        look.finish(figure, axes, title="107 whole-node jobs of one thread on 4 hosts of 8 cores")
    return figure
