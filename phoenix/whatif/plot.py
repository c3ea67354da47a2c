"""Hosts by owner over the period, a panel for each replay: what another configuration moves, and when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from phoenix.simulate import plots_style as look
from phoenix.simulate.metrics import held_by_department
from phoenix.simulate.workload import Outcome


def draw(path: Path, sides: Sequence[tuple[str, Outcome]]) -> None:
    """CliError if it cannot be written."""
    names = sorted({name for _, outcome in sides for name in held_by_department(outcome)})
    with look.styled():
        figure, panels = look.canvas(
            len(sides), 1, height_in=1.4 + 2.6 * len(sides), caption="", sharex=True, sharey=True
        )
        for axes, (label, outcome) in zip(panels, sides, strict=True):
            held = held_by_department(outcome)
            series = [[(at, float(hosts)) for at, hosts in held.get(name, [])] for name in names]
            edges = look.edges_of(series, outcome.window_s)
            unit_s = look.time_axis(axes, 0.0, outcome.window_s)
            at = [edge / unit_s for edge in edges]
            levels = [[*(row := look.means(rows, edges)), row[-1] if row else 0.0] for rows in series]
            axes.stackplot(at, levels, labels=names, colors=look.SERIES, step="post", alpha=0.8)
            axes.set_ylabel(f"hosts held\n{label}")
            look.whole_numbers(axes.yaxis)
        look.finish(figure, panels, title="Hosts by owner")
    look.save(figure, path)
