"""What alpha does (InterGrid, Fig. 9): overhead against waiting, one point for each alpha, joined in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from phoenix.plugin.simulation import plots_style as look

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def alphas(points: Sequence[tuple[float, float, float]], *, chosen: float, caption: str = "") -> Figure:
    """`points`: alpha, overhead and mean wait in seconds; `chosen`: the alpha to be marked."""
    with look.styled():
        figure, axes = look.canvas(1, 1, height_in=4.2, caption=caption)
        overheads, waits = [overhead for _, overhead, _ in points], [wait for _, _, wait in points]
        axes[0].plot(
            waits, overheads, color=look.SERIES[0], marker=look.MARKERS[0], linewidth=0.8, label="alpha 0 to 1"
        )
        for alpha, overhead, wait in points:
            if alpha in (0.0, 1.0):
                axes[0].annotate(f"{alpha:g}", (wait, overhead), textcoords="offset points", xytext=(6, 6), fontsize=8)
            elif alpha == chosen:
                axes[0].plot([wait], [overhead], "o", markersize=11, fillstyle="none", color=look.SERIES[1])
        axes[0].set_xlabel("mean wait of external leases (s)")
        axes[0].set_ylabel("overhead (s)")
        axes[0].xaxis.set_major_formatter(look.thousands)
        axes[0].yaxis.set_major_formatter(look.thousands)
        look.finish(figure, axes, title="What alpha weighs: overhead against waiting")
    return figure
