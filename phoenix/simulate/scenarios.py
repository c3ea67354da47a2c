"""The runs of an experiment: its inputs read or made, variants crossed with sizes and seeds, a `Scenario` each.

Rules
  1. An input is read or made once, however many runs use it; what is generated depends on the seed.
  2. The order of runs is that of the file: variants, then sizes, then seeds.  A label is unique: variant, hosts, and the seed
     if there are several.
  3. Job numbers are the log's.  With several batch departments they are renumbered over all of them, in the order of
     submission: a number is a job's name in the whole cloud.
  4. What was skipped or changed while reading is kept in `notes`, for people; so is what a window leaves out, and how it is
     filled where an input ends before it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from phoenix.cli.units import span
from phoenix.simulate import lublin, swf, web_csv, web_model
from phoenix.simulate.experiment import DepartmentTable, Experiment, Variant
from phoenix.simulate.input_tables import SHAPE, DemandTable, JobsTable, LoadTable, part_s
from phoenix.simulate.layout import lay_out
from phoenix.simulate.text_input import InputError
from phoenix.simulate.workload import LogJob, Scenario, Series, WebInput, Work
from services.scheduler.core.policies.scale import level

# requests in the highest interval of a generated series: fine steps, whatever it is scaled to
GENERATED_PEAK: Final = 1_000_000.0
GENERATED_INTERVAL_S: Final = 60.0
SKIPPED_TOLD: Final = 3  # lines of a log that a note shows

T = TypeVar("T")


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One run to be made."""

    label: str
    variant: Variant
    hosts: int
    seed: int


def cases(experiment: Experiment) -> list[Case]:
    """Rule 2."""
    return [
        case_of(experiment, variant, hosts, seed)
        for variant in experiment.variants
        for hosts in variant.sizes
        for seed in experiment.seeds
    ]


def case_of(experiment: Experiment, variant: Variant, hosts: int, seed: int) -> Case:
    label = " ".join(filter(None, (variant.name, str(hosts), f"seed {seed}" if len(experiment.seeds) > 1 else "")))
    return Case(label=label, variant=variant, hosts=hosts, seed=seed)


class Inputs:
    """Reads what an experiment names, once."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self._notes: list[str] = []
        self._late: dict[
            str, dict[int, tuple[int, int]]
        ] = {}  # department -> jobs, by identity -> after the window, all
        self._ended: dict[str, float] = {}  # department -> until when its input reaches, if the window is longer
        self.started_at: int | None = None  # time 0 in seconds since 1970, if a log tells it
        self._kept: dict[Hashable, Any] = {}

    @property
    def notes(self) -> list[str]:
        """Rule 4."""
        window_s = self.experiment.window_s or 0.0
        found = list(self._notes)
        for name, counts in self._late.items():
            if any(late for late, _ in counts.values()):
                late, total = (_range(pair[place] for pair in counts.values()) for place in (0, 1))
                found.append(f"{name}: {late} of {total} jobs would come after the window, and are not submitted")
        for name, end_s in self._ended.items():
            known = f"its input ends at {span(end_s)}, and the window at {span(window_s)}"
            found.append(f"{name}: {known}: the last level holds until then")
        return found

    def scenario(self, case: Case) -> Scenario:
        """Raises InputError for an input that cannot be used."""
        variant, experiment = case.variant, self.experiment
        jobs = self._all_jobs(case)
        web = {d.name: self._web(d, case.seed) for d in variant.departments if d.kind == "web"}
        if experiment.window_s is not None:
            self._against(experiment.window_s, jobs, web)
        return Scenario(
            label=case.label,
            config=variant.config,
            hosts=case.hosts,
            host_cores=variant.cluster.cores,
            host_memory_mb=variant.cluster.memory_mb,
            jobs=jobs,
            web=web,
            window_s=experiment.window_s,
            latencies=variant.latencies,
            signal_s=experiment.signal_s,
        )

    def _against(self, window_s: float, jobs: dict[str, tuple[Work, ...]], web: dict[str, WebInput]) -> None:
        """What the window leaves out, and what does not fill it."""
        for name, works in jobs.items():
            counts = self._late.setdefault(name, {})
            if id(works) not in counts:  # they are kept, so no other has this identity
                counts[id(works)] = sum(work.submit_s > window_s for work in works), len(works)
        for name, given in web.items():
            if given.until_s < window_s:
                self._ended[name] = min(given.until_s, self._ended.get(name, window_s))

    def _once(self, key: Hashable, make: Any) -> Any:
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    # ------------------------------------------------------------------------------------------------------------- jobs

    def _all_jobs(self, case: Case) -> dict[str, tuple[Work, ...]]:
        batch = [d for d in case.variant.departments if d.kind == "batch"]
        found = {d.name: self._works(d, case) for d in batch}
        if len(found) < 2:
            return found
        return self._once(("numbered", *((name, id(works)) for name, works in found.items())), lambda: _numbered(found))  # type: ignore[no-any-return]

    def _works(self, department: DepartmentTable, case: Case) -> tuple[Work, ...]:
        table, cluster = department.jobs, case.variant.cluster
        assert table is not None
        seed = case.seed if table.generator else None
        key = (table, cluster.cores, cluster.memory_mb, department.name, seed)

        def make() -> tuple[Work, ...]:
            return tuple(
                lay_out(
                    self._log(table, seed),
                    cores_per_host=cluster.cores,
                    memory_per_host_mb=cluster.memory_mb,
                    mode=table.mode,
                    walltime=table.walltime,
                    kill_overruns=table.kill_overruns,
                    use_memory=table.use_memory,
                    window=part_s(table.part),
                    load_factor=table.load_factor,
                    time_factor=table.time_factor,
                    run_factor=table.run_factor,
                    checkpoint_s=table.checkpoint_s,
                    checkpoint_cost_s=table.checkpoint_cost_s,
                )
            )

        return self._once(key, make)  # type: ignore[no-any-return]

    def _log(self, table: JobsTable, seed: int | None) -> tuple[LogJob, ...]:
        if table.log is not None:
            return self._once(table.log, lambda: self._read(table.log)).jobs  # type: ignore[no-any-return]
        count, processors, factor = table.jobs or 0, table.processors or 0, table.estimate_factor

        def make() -> tuple[LogJob, ...]:
            return tuple(lublin.generate(count, processors, seed or 0, table.load, estimate_factor=factor))

        return self._once(("lublin", count, processors, seed, table.load, factor), make)  # type: ignore[no-any-return]

    def _read(self, path: Path | None) -> swf.Log:
        assert path is not None
        log = swf.read(path)
        if self.started_at is None:
            self.started_at = log.started_at
        self._notes += [f"{path.name}: {note}" for note in log.notes]
        if log.skipped:
            first = "; ".join(f"line {s.line}: {s.why}" for s in log.skipped[:SKIPPED_TOLD])
            more = "; …" if len(log.skipped) > SKIPPED_TOLD else ""
            self._notes.append(
                f"{path.name}: {len(log.skipped):,} {'line' if len(log.skipped) == 1 else 'lines'} skipped ({first}{more})"
            )
        return log

    # -------------------------------------------------------------------------------------------------------------- web

    def _web(self, department: DepartmentTable, seed: int) -> WebInput:
        table = department.demand if department.demand is not None else department.load
        assert table is not None
        threshold = level(department.web) if department.web is not None else float(web_csv.THRESHOLD)

        def make() -> WebInput:
            series = self._series(table, seed, department.name)
            if series.unit == "requests" and table.csv is not None and not _scale(table):
                key = (
                    "peak = instances for the most requests"
                    if isinstance(table, DemandTable)
                    else "capacity = requests a second that one instance serves"
                )
                raise InputError(f'a table of requests needs {key} (department "{department.name}")', table.csv)
            try:
                if isinstance(table, DemandTable):
                    demand = web_csv.demand(series, table.peak or 0, threshold=threshold)
                    return WebInput(demand=demand, end_s=series.end_s)
                return WebInput(load=web_csv.load(series, _capacity(table)), end_s=series.end_s)
            except InputError as error:
                raise InputError(f'{error.what} (department "{department.name}")', table.csv) from error

        return self._once((table, threshold, seed if table.generator else None), make)  # type: ignore[no-any-return]

    def _series(self, table: DemandTable | LoadTable, seed: int, name: str) -> Series:
        if table.csv is not None:
            return web_csv.read(table.csv, column=table.column, measured_on=table.measured_on)
        shape = {key: value for key in SHAPE if (value := getattr(table, key)) is not None}
        try:
            return web_model.generate(table.days or 0.0, GENERATED_PEAK, seed, GENERATED_INTERVAL_S, **shape)
        except InputError as error:
            raise InputError(f'{error.what} (department "{name}")') from error


def _range(numbers: Iterable[int]) -> str:
    """`111`, or `98 to 111`."""
    found = sorted(set(numbers))
    return f"{found[0]:,}" if len(found) == 1 else f"{found[0]:,} to {found[-1]:,}"


def _scale(table: DemandTable | LoadTable) -> float:
    """What turns requests into instances."""
    return (table.peak if isinstance(table, DemandTable) else table.capacity) or 0.0


def _capacity(table: LoadTable) -> float:
    """Requests a second of an instance.  Of a generated series: what makes its highest interval keep `peak` busy."""
    if table.generator is not None:
        return GENERATED_PEAK / GENERATED_INTERVAL_S / (table.peak or 1.0)
    return table.capacity or 0.0


def _numbered(jobs: dict[str, tuple[Work, ...]]) -> dict[str, tuple[Work, ...]]:
    """Rule 3."""
    order = sorted((work.submit_s, name, work.number) for name, works in jobs.items() for work in works)
    numbers = {(name, number): place for place, (_, name, number) in enumerate(order, start=1)}
    return {
        name: tuple(msgspec.structs.replace(work, number=numbers[name, work.number]) for work in works)
        for name, works in jobs.items()
    }
