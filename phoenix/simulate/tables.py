"""Runs as tables that a person reads in a terminal: at most `WIDTH` columns, seconds as hours where they are many.

`runs_table` is the sweep: a row a run, what the paper measures first.  `detail_tables` is one run, everything about it.
Columns in which no run has anything to say (no web department, no job killed) are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from phoenix.cli.tables import pairs, render
from phoenix.simulate.metrics import BatchMetrics, Distribution, Metrics
from phoenix.simulate.report import Run, beats

WIDTH: Final = 120  # a terminal on half a screen; longer labels are cut
LABEL_MAX: Final = 28
LABEL_MIN: Final = 18  # before a label is cut shorter, columns go
NOTHING: Final = "-"
_HOUR_S: Final = 3600.0
_LONG_S: Final = 10_000.0  # from here on, hours say more than seconds
_SHORTEST_IN_HOURS_S: Final = 360.0  # 0.10 h: two digits


def duration(seconds: float | None) -> str:
    """`412 s`, `3.21 h`, or `-`."""
    if seconds is None:
        return NOTHING
    if seconds >= _LONG_S:
        return f"{seconds / _HOUR_S:,.2f} h"
    return f"{seconds:,.0f} s" if seconds >= 10 or seconds == int(seconds) else f"{seconds:.2g} s"


def durations(column: Sequence[float | None]) -> list[str]:
    """The same for a column: all in hours if that says enough of the shortest, else in seconds."""
    known = [value for value in column if value]
    if max(known, default=0.0) < _LONG_S:
        return [duration(value) for value in column]
    hours = min(known) >= _SHORTEST_IN_HOURS_S
    return [
        NOTHING if value is None else f"{value / _HOUR_S:,.2f} h" if hours else f"{value:,.0f} s" for value in column
    ]


def share(part: float) -> str:
    """`76.9 %`."""
    return f"{part:.1%}".replace("%", " %")


def ratio(value: float | None) -> str:
    """`1.27`, `1,204`, or `-`."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def host_hours(node_seconds: float) -> str:
    """Node-seconds (or instance-seconds) in hours: `1,204 h`, `53.1 h`, `0.033 h`."""
    hours = node_seconds / _HOUR_S
    if hours >= 100 or hours == 0:
        return f"{hours:,.0f} h"
    return f"{hours:.1f} h" if hours >= 1 else f"{hours:.2g} h"


_Cell = Callable[[Run], str]
_ALWAYS: Final[tuple[tuple[str, _Cell], ...]] = (
    ("NODES", lambda run: f"{run.nodes:,}"),
    ("RECLAIM", lambda run: run.on_reclaim or NOTHING),
    ("JOBS", lambda run: f"{run.metrics.total.submitted:,}"),
    ("DONE", lambda run: f"{run.completed:,}"),
    ("KILLED", lambda run: f"{run.killed:,}"),
    ("REFUSED", lambda run: f"{run.metrics.total.refused:,}"),
    ("TIMEOUT", lambda run: f"{run.metrics.total.timeout:,}"),
    ("FAILED", lambda run: f"{run.metrics.total.failed:,}"),
    ("REQUEUED", lambda run: f"{run.requeued:,}"),
    ("OPEN", lambda run: f"{run.unfinished:,}"),
    ("TURNAROUND", lambda run: duration(run.mean_turnaround_s)),
    ("WAIT", lambda run: duration(run.metrics.total.wait_s.mean)),
    ("SLOWDOWN", lambda run: ratio(run.metrics.total.bounded_slowdown.mean)),
    ("USEFUL", lambda run: share(run.metrics.total.useful_utilisation)),
    ("LOST", lambda run: host_hours(run.metrics.total.lost_node_s)),
    ("SHORT", lambda run: host_hours(_shortfall(run.metrics))),
)
_NUMBERS: Final = " ".join(head for head, _ in _ALWAYS if head != "RECLAIM")
_LEFT_OUT: Final = {
    "RECLAIM": {NOTHING},
    "KILLED": {"0"},
    "REFUSED": {"0"},
    "TIMEOUT": {"0"},
    "FAILED": {"0"},
    "REQUEUED": {"0"},
    "OPEN": {"0"},
    "LOST": {"0 h"},
    "SHORT": {"0 h"},
}
_SPARED: Final = (
    "WAIT",
    "LOST",
    "SHORT",
    "SLOWDOWN",
    "RECLAIM",
    "OPEN",
)  # these go first when the table would be too wide
_MEANINGS: Final = {
    "JOBS": "submitted within the window",
    "REQUEUED": "how often a job went back into the queue",
    "DONE": "jobs that completed within the window; OPEN: neither completed nor otherwise ended by then",
    "REFUSED": "jobs that a cluster of this size could never hold",
    "TURNAROUND": "mean over completed jobs, as WAIT and SLOWDOWN (bounded slowdown, threshold 10 s)",
    "USEFUL": "share of all node time in which jobs ran that did not lose it again",
    "LOST": "node-hours that have to be run again, or never count",
    "SHORT": "instance-hours that web departments wanted and did not have",
    "BETTER": "more jobs completed than in the static configuration, and a shorter mean turnaround",
}


def runs_table(runs: Sequence[Run], *, reference: Run | None = None, legend: bool = True) -> str:
    """A row a run.  With a `reference` (the static configuration), a last column says which runs beat it: more jobs completed
    and a shorter mean turnaround."""
    if not runs:
        return "No runs."
    columns = {head: [cell(run) for run in runs] for head, cell in _ALWAYS}
    columns = {head: cells for head, cells in columns.items() if not _says_nothing(head, cells)}
    if reference is not None:
        columns["BETTER"] = [_verdict(run, reference) for run in runs]
    label_min = min(LABEL_MIN, max(len(run.label) for run in runs))
    for head in _SPARED:
        if _width(columns) + label_min > WIDTH:
            columns.pop(head, None)
    label_max = min(LABEL_MAX, max(LABEL_MIN, WIDTH - _width(columns)))
    columns = {"RUN": [_cut(run.label, label_max) for run in runs], **columns}
    table = render(list(columns), list(zip(*columns.values(), strict=True)), right=_NUMBERS)
    return f"{table}\n\n{_legend(columns)}" if legend else table


def _width(columns: Mapping[str, Sequence[str]]) -> int:
    """Of the columns and the space before each."""
    return sum(max(len(head), *map(len, cells)) + 2 for head, cells in columns.items())


def _legend(columns: Mapping[str, object]) -> str:
    return "\n".join(f"{head:<10}  {meaning}" for head, meaning in _MEANINGS.items() if head in columns)


def _says_nothing(head: str, cells: Sequence[str]) -> bool:
    return set(cells) <= _LEFT_OUT.get(head, set())


def _verdict(run: Run, reference: Run) -> str:
    if run is reference:
        return NOTHING
    return "yes" if beats(run, reference) else "no"


def _cut(label: str, limit: int) -> str:
    return label if len(label) <= limit else label[: limit - 1] + "…"


def _shortfall(metrics: Metrics) -> float:
    return sum(web.shortfall_instance_s for web in metrics.web)


# ---------------------------------------------------------------------------------------------------------------- one run


def detail_tables(run: Run) -> str:
    """One run: its departments' jobs, the distributions, hosts, and web service levels."""
    parts = [_summary(run), *_batch_parts(run.metrics), *_host_part(run.metrics), *_web_part(run.metrics)]
    return "\n\n".join(parts)


def _summary(run: Run) -> str:
    metrics = run.metrics
    return pairs(
        [
            ("run", run.label),
            ("configuration", " ".join(filter(None, (run.configuration, run.policy, run.on_reclaim)))),
            ("hosts", f"{metrics.hosts:,} for {duration(metrics.window_s)}"),
            ("makespan", duration(metrics.total.makespan_s)),
            (
                "allocated",
                f"{share(metrics.total.allocated_utilisation)}, useful {share(metrics.total.useful_utilisation)}",
            ),
            (
                "lost",
                f"{host_hours(metrics.total.lost_node_s)} of nodes, "
                f"{host_hours(metrics.total.preemption_lost_node_s)} of them to preemption",
            ),
            ("hosts moved", f"{metrics.hosts_moved:,}, {metrics.hosts_moved_per_hour:.1f} an hour"),
            ("simulated in", f"{run.wall_s:.2f} s, {run.facts:,} facts"),
        ]
    )


def _departments(metrics: Metrics) -> tuple[BatchMetrics, ...]:
    return metrics.batch if len(metrics.batch) == 1 else (*metrics.batch, metrics.total)


def _batch_parts(metrics: Metrics) -> list[str]:
    if not metrics.total.submitted:
        return []
    counts = ("submitted", "completed", "killed", "timeout", "cancelled", "failed", "refused", "unfinished", "requeued")
    used = [
        name for name in counts if any(getattr(each, name) for each in _departments(metrics)) or name == "completed"
    ]
    heads = ["DEPARTMENT", *(name.upper() for name in used)]
    rows = [[each.department, *(f"{getattr(each, name):,}" for name in used)] for each in _departments(metrics)]
    spread = [row for each in _departments(metrics) for row in _spread(each)]
    return [
        render(heads, rows, right=" ".join(heads[1:])),
        render(
            ["DEPARTMENT", "OF COMPLETED JOBS", "MEAN", "MEDIAN", "P90", "P95", "P99", "MAX"],
            spread,
            right="MEAN MEDIAN P90 P95 P99 MAX",
        ),
    ]


def _spread(each: BatchMetrics) -> list[list[str]]:
    def cells(what: Distribution, shown: Callable[[float | None], str]) -> list[str]:
        return [shown(value) for value in (what.mean, what.median, what.p90, what.p95, what.p99, what.max)]

    return [
        [each.department, "turnaround", *cells(each.turnaround_s, duration)],
        [each.department, "wait", *cells(each.wait_s, duration)],
        [each.department, "bounded slowdown", *cells(each.bounded_slowdown, ratio)],
    ]


def _host_part(metrics: Metrics) -> list[str]:
    if not metrics.held:
        return []
    rows = [
        [
            each.department,
            share(each.held_utilisation),
            host_hours(each.held_host_s),
            f"{each.peak_held:,}",
            f"{each.gained:,}",
        ]
        for each in metrics.held
    ]
    return [render(["DEPARTMENT", "HELD", "HOST-HOURS", "PEAK", "GAINED"], rows, right="HELD HOST-HOURS PEAK GAINED")]


def _web_part(metrics: Metrics) -> list[str]:
    if not metrics.web:
        return []
    rows = [
        [
            each.department,
            f"{each.peak_wanted:,}",
            f"{each.peak_in_service:,}",
            host_hours(each.shortfall_instance_s),
            f"{each.shortfall_share:.3%}".replace("%", " %"),
            duration(each.short_s),
            duration(each.longest_shortfall_s),
            f"{each.peak_shortfall:,}",
            NOTHING if each.overload_instance_s is None else host_hours(each.overload_instance_s),
        ]
        for each in metrics.web
    ]
    heads = ["DEPARTMENT", "WANTED", "SERVED", "SHORTFALL", "OF-WANTED", "SHORT-FOR", "LONGEST", "WORST", "OVERLOAD"]
    return [render(heads, rows, right=" ".join(heads[1:]))]
