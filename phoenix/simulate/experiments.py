"""The experiments of `phoenix simulate NAME`: each is a plug-in, those that come with Phoenix Cloud too (`phoenix_papers`).

    [project.entry-points."phoenix_cloud.experiments"]
    svmsched = "phoenix_papers:SVMSCHED"

What it decides: which experiments there are, and what a module of one must have.

Rules
  1. An entry point names an `Experiment`; where that stands must be quick to import, since `phoenix simulate --help` lists all.
  2. `Experiment.module` is imported when the experiment is asked for.  It has `HELP` (a few lines, with examples),
     `add_arguments(parser)` and `run(args) -> int` (an exit code), as a command of `phoenix` has.  The front
     (`phoenix.cli.simulate`) makes the parser, adds `--json`, and turns `CliError`, `InputError` and Ctrl-C into sentences and
     exit codes; everything else belongs to the module.
  3. `Experiment.bench`, if it has one, is what `phoenix tune --experiment NAME` searches: a module with
     `bench(jobs, web, holdout, on)` (`phoenix.tune.bench.Bench`).
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from services.runtime import plugins


class Experiment(NamedTuple):
    """`about` completes the sentence "phoenix simulate NAME: …"; `module`, `bench`: rules 2 and 3, as dotted names."""

    about: str
    module: str
    bench: str = ""


@cache
def experiments() -> dict[str, Experiment]:
    """Those that are installed and can be loaded, by name."""
    return {p.name: found for p in plugins.usable(("experiment",)) if (found := _loaded(p)) is not None}


def _loaded(plugin: plugins.Plugin) -> Experiment | None:
    try:
        return Experiment(*plugins.load(plugin).policy)
    except plugins.Unusable:
        return None  # `problem` says why, when it is asked for by its name


def problem(name: str) -> str:
    """Why an experiment of this name cannot be run, as the end of a sentence; empty if there is none, or it can."""
    try:
        plugins.use("experiment", name)
    except plugins.Absent:
        return ""
    except plugins.Unusable as error:
        return str(error)
    return ""


def module(name: str) -> ModuleType:
    return import_module(experiments()[name].module)


def benches() -> dict[str, str]:
    """Experiments that `phoenix tune` can search: name and module (rule 3)."""
    return {name: one.bench for name, one in experiments().items() if one.bench}
