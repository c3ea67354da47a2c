"""The experiment file: TOML in, `Experiment` out, validated as a whole, before anything is simulated.

What it decides: which runs are made of which inputs, with which values.  It must never report one problem at a time, never
ignore a mistyped key, and never read the inputs themselves (`scenarios` does).

    [experiment]   name, window, seeds, signal_s          what is simulated, for how long
    [cluster]      hosts or sizes, cores, memory_mb       on what
    [latencies]    boot_s, end_s, drain_s, suspend_s, resume_s     how long things take; suspend_mb_per_s, resume_mb_per_s
    [policy]  [[department]]                              as in the product's configuration, and of each department its input:
                                                          jobs (batch), demand or load (web)
    [[vary]]       name, set, hosts or sizes              variants, crossed with sizes and seeds (`vary`)
    [goal]                                                service levels (`goal`)

Rules
  1. Every problem is reported at once, each with file, line, key, the value found, and what would be right.
  2. What the product's configuration refuses is refused here by the same code; but a simulated cloud can suspend and migrate.
  3. Paths are relative to the file.
  4. Without [[vary]] there is one variant, with an empty name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from phoenix.cli.units import parse_time_s
from phoenix.simulate import goal as goals
from phoenix.simulate import vary as varying
from phoenix.simulate.input_tables import DemandTable, JobsTable, LoadTable, check_inputs
from phoenix.simulate.sizes import HOSTS_MAX, SPELLING, NoSizes, sizes_of
from phoenix.simulate.workload import Latencies
from schemas.config import BatchPolicy, CloudConfig, Department, Lending, Limits, Policy, WebPolicy
from schemas.ranges import between, positive
from services.domain.capabilities import ALL
from services.runtime.config.checks import check_cloud
from services.runtime.config.file import ConfigError, document_of, text_of
from services.runtime.config.form import Form, Lines, Path_, Problem, ranges

RUNS_MAX: Final = 10_000  # of one experiment: a day of simulating on a large machine
_WINDOW: Final = re.compile(r"(\d+(\.\d+)?[smhd])+\Z")
_NAMES: Final = ("experiment", "cluster", "latencies", "policy", "limits", "department", "lending", "vary", "goal")


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    pass


class DepartmentTable(Department, frozen=True, kw_only=True):
    """A department as the product has it, and its input."""

    jobs: JobsTable | None = None
    demand: DemandTable | None = None
    load: LoadTable | None = None


class About(_Table, frozen=True, kw_only=True):
    name: str = ""
    window: str = ""  # "14d"; empty: until everything has ended
    seeds: tuple[int, ...] = (1,)
    signal_s: Annotated[float, positive(3600, "between two observations of load")] = 20.0


class ClusterTable(_Table, frozen=True, kw_only=True):
    hosts: Annotated[int | None, between(1, HOSTS_MAX, "hosts of the cluster")] = None
    sizes: Any = None
    cores: Annotated[int, between(1, 10_000, "of a host")] = 1
    memory_mb: Annotated[int, between(1, 1 << 30, "of a host")] = 1 << 20


class VaryTable(_Table, frozen=True, kw_only=True):
    name: str
    set: dict[str, Any] = {}
    hosts: int | None = None
    sizes: Any = None


class Variant(_Table, frozen=True, kw_only=True):
    """One set of values: everything that runs need, besides size and seed."""

    name: str
    sizes: tuple[int, ...]
    cluster: ClusterTable
    latencies: Latencies
    config: CloudConfig
    departments: tuple[DepartmentTable, ...]


class Experiment(_Table, frozen=True, kw_only=True):
    """A file that can be simulated."""

    name: str
    file: Path
    window_s: float | None
    seeds: tuple[int, ...]
    signal_s: float
    variants: tuple[Variant, ...]
    goal: tuple[goals.Limit, ...]


def load(path: Path) -> Experiment:
    """Read and validate an experiment file.  Raises `ConfigError`, which lists every problem."""
    return loads(text_of(path), path)


def loads(text: str, path: Path = Path("experiment.toml")) -> Experiment:
    """Validate the text of an experiment; `path`: what messages call it, and where its relative paths start from."""
    document = document_of(text, path.name)
    reader = _Reader(path)
    experiment = reader.read(document)
    if reader.problems:
        raise ConfigError(reader.problems, path.name, Lines(text))
    return experiment


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path, self.base = path, path.absolute().parent
        self.problems: list[Problem] = []

    def read(self, document: Mapping[str, Any]) -> Experiment:
        form = Form(self.base)
        form.unknown_keys(document, _NAMES, ())
        about = form.table(About, document.get("experiment", {}), ("experiment",))
        window_s = _window_s(form, about)
        _check_seeds(form, about)
        vary = form.tables(VaryTable, document.get("vary", []), ("vary",))
        _check_names(form, vary)
        limits = _limits(form, document)
        self.problems += form.problems
        base, found = read_variant(document, self.base, "")
        self.problems += found
        variants = tuple(self._varied(document, table, index, found) for index, table in enumerate(vary)) or (base,)
        self._check_seeds_used(about, variants)
        runs = sum(len(variant.sizes) for variant in variants) * len(about.seeds)
        if runs > RUNS_MAX:
            right = f"should be fewer variants, sizes or seeds: together at most {RUNS_MAX:,} runs, these are {runs:,}"
            self.problems.append(Problem(path=("vary",), right=right, found=f"{len(variants)} variants"))
        return Experiment(
            name=about.name or self.path.stem,
            file=self.path,
            window_s=window_s,
            seeds=about.seeds,
            signal_s=about.signal_s,
            variants=variants,
            goal=limits,
        )

    def _check_seeds_used(self, about: About, variants: tuple[Variant, ...]) -> None:
        sources = [s for v in variants for d in v.departments for s in (d.jobs, d.demand, d.load) if s is not None]
        mistyped = any(problem.path[-1:] == ("generator",) for problem in self.problems)
        if len(about.seeds) > 1 and not mistyped and not any(source.generator for source in sources):
            right = "should be left out: no input is generated, so every seed gives the same runs"
            found = str(list(about.seeds))
            self.problems.append(Problem(path=("experiment", "seeds"), right=right, found=found))

    def _varied(self, document: Mapping[str, Any], table: VaryTable, index: int, known: list[Problem]) -> Variant:
        """The document with the variant's values; problems are those of the variant alone."""
        variant, found = varied(document, self.base, table, index, known)
        self.problems += found
        return variant


def _window_s(form: Form, about: About) -> float | None:
    if not about.window:
        return None
    if _WINDOW.match(about.window) and (window_s := parse_time_s(about.window)) > 0:
        return window_s
    form.report(("experiment", "window"), 'should be a duration such as "14d", "36h" or "1d12h"', about.window)
    return None


def _check_seeds(form: Form, about: About) -> None:
    if not about.seeds or len(set(about.seeds)) < len(about.seeds) or min(about.seeds) < 0:
        right = "should be different whole numbers of 0 or more, for example [1, 2, 3]"
        form.report(("experiment", "seeds"), right, list(about.seeds))
    form.problems += ranges(about, ("experiment",))


def _check_names(form: Form, vary: tuple[VaryTable, ...]) -> None:
    for index, table in enumerate(vary):
        if table.name and table.name in [earlier.name for earlier in vary[:index]]:
            form.report(("vary", index, "name"), "should be unique; an earlier variant has it", table.name)


def _limits(form: Form, document: Mapping[str, Any]) -> tuple[goals.Limit, ...]:
    raw = document.get("goal", {})
    if not isinstance(raw, Mapping):
        form.report(("goal",), "should be a table", raw)
        return ()
    departments = document.get("department")
    named = [d for d in departments if isinstance(d, Mapping)] if isinstance(departments, list) else []
    kinds = {str(d.get("name")): str(d.get("kind")) for d in named if d.get("kind") in ("batch", "web")}
    known = goals.known(kinds)
    found = []
    for name, text in varying.flat(raw, depth=2):
        if (right := goals.unknown(name, known)) is not None:
            form.report(("goal", *name.split(".")), right, text)
        elif (limit := goals.parse(name, text)) is None:
            form.report(("goal", *name.split(".")), goals.RIGHT, text)
        else:
            found.append(limit)
    return tuple(found)


# ------------------------------------------------------------------------------------------------------------ one variant


def varied(
    document: Mapping[str, Any], base: Path, table: VaryTable, index: int = 0, known: Sequence[Problem] = ()
) -> tuple[Variant, list[Problem]]:
    """The document with the values of one [[vary]], read as if they stood there, and what is wrong besides what is `known`."""
    changed = varying.changed(document, table.set, index)
    if table.hosts is not None or table.sizes is not None:
        cluster = dict(changed.document.get("cluster", {}))
        cluster.pop("hosts", None), cluster.pop("sizes", None)
        own = {"hosts": table.hosts, "sizes": table.sizes}
        changed.document["cluster"] = cluster | {key: value for key, value in own.items() if value is not None}
        changed.places[("cluster", "hosts")] = ("vary", index, "hosts")
        changed.places[("cluster", "sizes")] = ("vary", index, "sizes")
    variant, found = read_variant(changed.document, base, table.name)
    before = {(p.path, p.right, p.found) for p in known}
    new = [p for p in found if (p.path, p.right, p.found) not in before]
    return variant, changed.problems + [varying.placed(p, changed.places, index, table.name) for p in new]


def read_variant(document: Mapping[str, Any], base: Path, name: str) -> tuple[Variant, list[Problem]]:
    """Everything of a document but [experiment], [[vary]] and [goal], and what is wrong with it."""
    form = Form(base)
    cluster = form.table(ClusterTable, document.get("cluster", {}), ("cluster",))
    latencies = form.table(Latencies, document.get("latencies", {}), ("latencies",))
    departments = form.tables(DepartmentTable, document.get("department", []), ("department",))
    config = CloudConfig(
        name="simulation",
        capabilities=ALL,
        departments=tuple(_product(department) for department in departments),
        lending=form.tables(Lending, document.get("lending", []), ("lending",)),
        policy=form.table(Policy, document.get("policy", {}), ("policy",)),
        limits=form.table(Limits, document.get("limits", {}), ("limits",)),
    )
    sizes = _sizes(form, cluster, needed="goal" not in document)
    form.problems += [*ranges(cluster, ("cluster",)), *ranges(latencies, ("latencies",))]
    for index, department in enumerate(departments):
        check_inputs(form, department, ("department", index))
        if sizes and department.guarantee > min(sizes):
            right = f"should be at most the smallest number of hosts that is simulated ({min(sizes)})"
            form.report(("department", index, "guarantee"), right, department.guarantee, department.name)
    broken = {problem.path for problem in form.problems}
    meant = [p for p in check_cloud(config, min(sizes, default=None)) if not _covered(p, broken)]
    variant = Variant(
        name=name, sizes=sizes, cluster=cluster, latencies=latencies, config=config, departments=departments
    )
    return variant, form.problems + meant


def _covered(problem: Problem, broken: set[Path_]) -> bool:
    """True if the form of it, or of something around it, is reported already."""
    return any(problem.path[:n] in broken for n in range(1, len(problem.path) + 1))


def _product(table: DepartmentTable) -> Department:
    values = {name: getattr(table, name) for name in Department.__struct_fields__}
    if table.kind == "batch" and table.batch is None:
        values["batch"] = BatchPolicy()
    if table.kind == "web" and table.web is None:
        values["web"] = WebPolicy()
    return Department(**values)


def _sizes(form: Form, cluster: ClusterTable, *, needed: bool) -> tuple[int, ...]:
    if cluster.hosts is not None and cluster.sizes is not None:
        form.report(("cluster", "sizes"), "should not be here beside hosts: name one of them", cluster.sizes)
    if cluster.hosts is not None:
        return (cluster.hosts,)
    if cluster.sizes is None:
        if needed:
            form.report(("cluster", "hosts"), f"should be a number of hosts; or sizes: {SPELLING}")
        return ()
    try:
        return sizes_of(cluster.sizes)
    except NoSizes as error:
        form.report(("cluster", "sizes"), str(error), cluster.sizes)
        return ()
