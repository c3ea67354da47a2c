"""Where a department's work comes from, as an experiment file says it: tables `jobs`, `demand` and `load`, and what is wrong
with them.

It decides whether the tables can be read, and reads none of the files that they name (`scenarios` does).  A key that would be
ignored is an error: a number of jobs beside a log is a setting that its author believes in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from phoenix.cli.units import parse_time_s
from phoenix.simulate import lublin
from phoenix.simulate.layout import Mode, Walltime
from schemas.ranges import between, positive
from services.runtime.config.form import Form, Path_, ranges


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    pass


class JobsTable(_Table, frozen=True, kw_only=True):
    """Where jobs come from: `log` (SWF) or `generator`; and how they are laid out on hosts (`layout`)."""

    log: Path | None = None
    generator: Literal["lublin"] | None = None
    jobs: Annotated[int | None, between(1, 10_000_000, "for the generator, as the next two")] = None
    load: Annotated[float | None, positive(10, "offered, 0.8: 80 % of `processors`; None: the model's own")] = None
    processors: Annotated[int | None, between(1, 1 << 24, "of the machine that the jobs are made for")] = None
    estimate_factor: Annotated[float, between(0, 1000, "of requested times")] = lublin.ESTIMATE_FACTOR
    part: tuple[str, ...] = ()  # ["7d", "21d"]: what is submitted from the one to the other; empty: everything
    mode: Mode = "whole-hosts"
    walltime: Walltime = "requested"
    kill_overruns: bool = False
    use_memory: bool = True
    load_factor: Annotated[float, positive(1000, "1.2: 20 % more load")] = 1.0
    time_factor: Annotated[float, positive(1000, "stretches all times")] = 1.0
    run_factor: Annotated[float, positive(1000, "stretches run times and limits; 0.5: hosts twice as fast")] = 1.0
    checkpoint_s: Annotated[float, between(0, 1e9, "work after which a job saves what it has done; 0: never")] = 0.0
    checkpoint_cost_s: Annotated[float, between(0, 1e9, "how long saving takes")] = 0.0


class WebTable(_Table, frozen=True, kw_only=True):
    """A table (`csv`), or `generator`, whose shape has the names of `web_model.generate`."""

    csv: Path | None = None
    generator: Literal["daily"] | None = None
    measured_on: Annotated[float | None, positive(1e6, "instances that utilisation was measured on")] = None
    days: Annotated[float | None, positive(3660, "for the generator, as all below")] = None
    night_share: Annotated[float | None, positive(1, "of the day's peak, at night")] = None
    weekend_share: Annotated[float | None, positive(1, "of a weekday's load, at the weekend")] = None
    noise: Annotated[float | None, between(0, 10, "around the shape")] = None
    crowds_per_week: Annotated[float | None, between(0, 10_000, "flash crowds")] = None
    crowd_height: Annotated[float | None, between(0, 1000, "of a flash crowd")] = None
    crowd_rise_s: Annotated[float | None, positive(1e6, "until a crowd is there")] = None
    crowd_decay_s: Annotated[float | None, positive(1e6, "until a crowd has gone")] = None


class DemandTable(WebTable, frozen=True, kw_only=True):
    """Instances that are asked for, whatever the load."""

    column: Literal["instances", "requests", "utilisation"] | None = None
    peak: Annotated[int | None, between(1, 1e6, "instances for the most requests")] = None


class LoadTable(WebTable, frozen=True, kw_only=True):
    """Work that keeps instances busy; the department's own rule decides how many there are."""

    column: Literal["requests", "utilisation"] | None = None
    capacity: Annotated[float | None, positive(1e9, "requests a second that one instance serves")] = None
    peak: Annotated[float | None, positive(1e6, "of a generator: instances that are busy at the peak")] = None


SHAPE: Final = tuple(
    name for name in WebTable.__struct_fields__ if name not in ("csv", "generator", "measured_on", "days")
)
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
    form.problems += ranges(table, path, label)
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
