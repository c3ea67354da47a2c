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

from services.runtime.config_checks import Range
from services.runtime.config_form import Form, Path_


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    pass


class JobsTable(_Table, frozen=True, kw_only=True):
    """Where jobs come from: `log` (SWF) or `generator`; and how they are laid out on hosts (`layout`)."""

    log: Path | None = None
    generator: Literal["lublin"] | None = None
    jobs: int | None = None  # for the generator, as the next two
    load: float | None = None  # offered, 0.8: 80 % of `processors`; None: the model's own
    processors: int | None = None  # of the machine that the jobs are made for
    processors_per_node: int | None = None  # of the log's machine; None: the cores of our hosts
    scale: float = 1.0  # run times are multiplied by it
    walltimes: Literal["requested", "none"] = "requested"


class DemandTable(_Table, frozen=True, kw_only=True):
    """Instances that are asked for, whatever the load: from a table (`csv`) or `generator`."""

    csv: Path | None = None
    generator: Literal["daily"] | None = None
    column: Literal["instances", "requests", "utilisation"] | None = None
    peak: int | None = None  # instances for the most requests
    measured_on: float | None = None  # instances that utilisation was measured on
    days: float | None = None  # for the generator


class LoadTable(_Table, frozen=True, kw_only=True):
    """Work that keeps instances busy; the department's own rule decides how many there are."""

    csv: Path | None = None
    generator: Literal["daily"] | None = None
    column: Literal["requests", "utilisation"] | None = None
    capacity: float | None = None  # requests a second that one instance serves
    peak: float | None = None  # for the generator: instances that are busy at the peak
    measured_on: float | None = None
    days: float | None = None


_RANGES: Final[dict[type, dict[str, Range]]] = {
    JobsTable: {
        "jobs": Range(1, 10_000_000),
        "load": Range(0, 10, open_low=True),
        "processors": Range(1, 1 << 24),
        "processors_per_node": Range(1, 1 << 24),
        "scale": Range(0, 1000, open_low=True),
    },
    DemandTable: {
        "peak": Range(1, 1e6),
        "measured_on": Range(0, 1e6, open_low=True),
        "days": Range(0, 3660, open_low=True),
    },
    LoadTable: {
        "capacity": Range(0, 1e9, open_low=True),
        "peak": Range(0, 1e6, open_low=True),
        "measured_on": Range(0, 1e6, open_low=True),
        "days": Range(0, 3660, open_low=True),
    },
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
    if (file is None) == (table.generator is None):
        right = "should be a file; or generator = ..., one of the two"
        form.report((*path, key), right, label=label) if file is None else form.report((*path, key), right, file, label)
    elif file is not None and not file.is_file():
        form.report((*path, key), "should be a file that exists", file, label)
    made = {JobsTable: ("jobs", "load", "processors"), DemandTable: ("days",), LoadTable: ("days",)}[type(table)]
    for name in made if file is not None else ():
        if getattr(table, name) is not None:
            right = "should not be here: it is for a generator, and the input is a file"
            form.report((*path, name), right, getattr(table, name), label)
    if table.generator is not None:
        _check_generated(form, table, path, label)


def _check_generated(form: Form, table: JobsTable | DemandTable | LoadTable, path: Path_, label: str) -> None:
    needed = {"jobs": "a number of jobs"} if isinstance(table, JobsTable) else {"peak": "instances at the peak"}
    for name, what in needed.items():
        if getattr(table, name) is None:
            form.report((*path, name), f"should be {what}: a generator needs it", label=label)
