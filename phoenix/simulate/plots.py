"""The plots that a person would put in a report.

Each function takes outcomes (`workload.Outcome`) or rows of a sweep (`report.Run`) and gives a matplotlib figure; `save` writes
it as SVG or PNG.  Titles have a sensible default; in the caption the caller says what the reader must know about the data.

| function | shows |
|---|---|
| `hosts_over_time` | who holds the hosts, and what web departments want |
| `web_consumption` | instances wanted by each web department (the paper's Fig. 5) |
| `sweep_plot` | completed jobs and mean turnaround by cluster size (Fig. 7) |
| `preemption_plot` | jobs killed or requeued by cluster size (Fig. 8) |
| `frontier` | both benefits at once, by policy and size |
| `distributions` | wait and bounded slowdown of completed jobs, run by run |
| `scaling_comparison` | scaling rules on the same load |

How they look, and why equal figures are equal bytes, is in `plots_style`.
"""

from phoenix.simulate.plots_frontier import frontier
from phoenix.simulate.plots_runs import distributions, preemption_plot, sweep_plot
from phoenix.simulate.plots_style import save
from phoenix.simulate.plots_time import hosts_over_time, scaling_comparison, web_consumption

__all__ = [
    "distributions",
    "frontier",
    "hosts_over_time",
    "preemption_plot",
    "save",
    "scaling_comparison",
    "sweep_plot",
    "web_consumption",
]
