"""Where a department's work comes from, as an experiment file says it: tables `jobs`, `demand` and `load`, and what is wrong
with them.

It decides whether the tables can be read, and reads none of the files that they name (`scenarios` does).  A key that would be
ignored is an error: a number of jobs beside a log is a setting that somebody believes in.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from phoenix.cli.units import parse_time_s
from phoenix.simulate import lublin
from phoenix.simulate.layout import Mode, Walltime
from schemas.ranges import Range
from services.runtime.config.form import Form, Path_


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    pass


class JobsTable(_Table, frozen=True, kw_only=True):
    """Where jobs come from: `log` (SWF) or `generator`; and how they are laid out on hosts (`layout`)."""

    log: Path | None = None
    generator: Literal["lublin"] | None = None
    jobs: int | None = None  # for the generator, as the next two
    load: float | None = None  # offered, 0.8: 80 % of `processors`; None: the model's own
    processors: int | None = None  # of the machine that the jobs are made for, whatever the size of ours
    estimate_factor: float = lublin.ESTIMATE_FACTOR  # of requested times
    part: tuple[str, ...] = ()  # ["7d", "21d"]: what is submitted from the one to the other; empty: everything
    mode: Mode = "whole-hosts"
    walltime: Walltime = "requested"
    kill_overruns: bool = False
    use_memory: bool = True
    load_factor: float = 1.0
    time_factor: float = 1.0
    run_factor: float = 1.0
    checkpoint_s: float = 0.0  # after so much work a job saves what it has done; 0: never
    checkpoint_cost_s: float = 0.0  # for so long each time


class WebTable(_Table, frozen=True, kw_only=True):
    """A table (`csv`), or `generator`, whose shape has the names of `web_model.generate`."""

    csv: Path | None = None
    generator: Literal["daily"] | None = None
    measured_on: float | None = None  # instances that utilisation was measured on
    days: float | None = None  # for the generator, as all below
    night_share: float | None = None
    weekend_share: float | None = None
    noise: float | None = None
    crowds_per_week: float | None = None
    crowd_height: float | None = None
    crowd_rise_s: float | None = None
    crowd_decay_s: float | None = None


class DemandTable(WebTable, frozen=True, kw_only=True):
    """Instances that are asked for, whatever the load."""

    column: Literal["instances", "requests", "utilisation"] | None = None
    peak: int | None = None  # instances for the most requests


class LoadTable(WebTable, frozen=True, kw_only=True):
    """Work that keeps instances busy; the department's own rule decides how many there are."""

    column: Literal["requests", "utilisation"] | None = None
    capacity: float | None = None  # requests a second that one instance serves
    peak: float | None = None  # of a generator: instances that are busy at the peak


SHAPE: Final = tuple(
    name for name in WebTable.__struct_fields__ if name not in ("csv", "generator", "measured_on", "days")
)
_WEB: Final = {
    "measured_on": Range(0, 1e6, open_low=True),
    "days": Range(0, 3660, open_low=True),
    "night_share": Range(0, 1, open_low=True),
    "weekend_share": Range(0, 1, open_low=True),
    "noise": Range(0, 10),
    "crowds_per_week": Range(0, 10_000),
    "crowd_height": Range(0, 1000),
    "crowd_rise_s": Range(0, 1e6, open_low=True),
    "crowd_decay_s": Range(0, 1e6, open_low=True),
}
_RANGES: Final[dict[type, dict[str, Range]]] = {
    JobsTable: {
        "jobs": Range(1, 10_000_000),
        "load": Range(0, 10, open_low=True),
        "processors": Range(1, 1 << 24),
        "estimate_factor": Range(0, 1000),
        "load_factor": Range(0, 1000, open_low=True),
        "time_factor": Range(0, 1000, open_low=True),
        "run_factor": Range(0, 1000, open_low=True),
        "checkpoint_s": Range(0, 1e9),
        "checkpoint_cost_s": Range(0, 1e9),
    },
    DemandTable: _WEB | {"peak": Range(1, 1e6)},
    LoadTable: _WEB | {"capacity": Range(0, 1e9, open_low=True), "peak": Range(0, 1e6, open_low=True)},
}
_MADE: Final[dict[type, tuple[str, ...]]] = {  # keys for a generator only
    JobsTable: ("jobs", "load", "processors"),
    DemandTable: ("days", *SHAPE),
    LoadTable: ("days", "peak", *SHAPE),
}
_NEEDED: Final[dict[type, dict[str, str]]] = {  # keys that a generator needs
    JobsTable: {"jobs": "a number of jobs", "processors": "the processors of the machine that the jobs are made for"},
    DemandTable: {"peak": "instances at the peak", "days": "how many days"},
    LoadTable: {"peak": "instances that are busy at the peak", "days": "how many days"},
}


def check_ranges(form: Form, table: msgspec.Struct, path: Path_, ranges: Mapping[str, Range], label: str = "") -> None:
    """Report each value of the table that is out of its range."""
    for name, allowed in ranges.items():
        value = getattr(table, name)
        if value is not None and not allowed.holds(value):
            form.report((*path, name), allowed.right, value, label)


def check_inputs(form: Form, table: Any, path: Path_) -> None:
    """A department (its `name`, `kind`, `jobs`, `demand`, `load`) has what its kind needs, and only that."""
    wanted = {"batch": ("jobs",), "web": ("demand", "load")}[table.kind]
    given = [name for name in ("jobs", "demand", "load") if getattr(table, name) is not None]
    for name in given:
        if name not in wanted:
            right = f'should not be here: a department of kind "{table.kind}" has {" or ".join(wanted)}'
            form.report((*path, name), right, "a table", table.name)
        else:
            _check_source(form, getattr(table, name), (*path, name), table.name)
    if not any(name in given for name in wanted):
        example = (
            'jobs = { log = "FILE.swf.gz" }' if table.kind == "batch" else 'demand = { csv = "FILE.csv", peak = 64 }'
        )
        form.report(
            (*path, wanted[0]), f"should say what the department has to do, for example {example}", label=table.name
        )
    elif len([name for name in given if name in wanted]) > 1:
        form.report((*path, "load"), "should not be here beside demand: name one of them", "a table", table.name)


def _check_source(form: Form, table: JobsTable | DemandTable | LoadTable, path: Path_, label: str) -> None:
    check_ranges(form, table, path, _RANGES[type(table)], label)
    key = "log" if isinstance(table, JobsTable) else "csv"
    file: Path | None = getattr(table, key)
    mistyped = any(problem.path == (*path, "generator") for problem in form.problems)  # told already, and meant
    if not mistyped and (file is None) == (table.generator is None):
        right = "should be a file; or generator = ..., one of the two"
        form.report((*path, key), right, label=label) if file is None else form.report((*path, key), right, file, label)
    elif file is not None and not file.is_file():
        form.report((*path, key), "should be a file that exists", file, label)
    for name in _MADE[type(table)] if file is not None else ():
        if getattr(table, name) is not None:
            right = "should not be here: it is for a generator, and the input is a file"
            form.report((*path, name), right, getattr(table, name), label)
    for name, what in _NEEDED[type(table)].items() if table.generator is not None else ():
        if getattr(table, name) is None:
            form.report((*path, name), f"should be {what}: the generator needs it", label=label)
    if isinstance(table, JobsTable) and table.part and part_s(table.part) is None:
        right = 'should be two durations, the earlier one first: ["7d", "21d"]'
        form.report((*path, "part"), right, list(table.part), label)


def part_s(part: tuple[str, ...]) -> tuple[float, float] | None:
    """`["7d", "21d"]` in seconds; None if it is no such thing."""
    try:
        times = [parse_time_s(text) for text in part]
    except ValueError:
        return None
    return (times[0], times[1]) if len(times) == 2 and times[0] < times[1] else None
