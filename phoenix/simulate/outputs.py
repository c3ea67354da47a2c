"""An experiment's runs made on all cores, and what they leave: table, document, plots.

Rules
  1. A worker measures its run; the outcome with all its jobs travels back only if it is wanted.
  2. Same results, same table and plots.  The document has the time that the simulation took besides (`wall_s`, `cpu_s`).
  3. Plots of single runs are made for the first `SINGLE_MAX`; those of all runs together always.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from phoenix.simulate import engine, goal_table, metrics, report, summary, sweep, tables, verify
from phoenix.simulate.experiment import Experiment
from phoenix.simulate.goal import Limit, value_of
from phoenix.simulate.scenarios import Case, Inputs
from phoenix.simulate.summary import Seeded
from phoenix.simulate.workload import Outcome, Scenario

if TYPE_CHECKING:  # matplotlib takes half a second to import
    from matplotlib.figure import Figure

SINGLE_MAX: Final = 12
DISTRIBUTIONS_MAX: Final = 8  # lines that can be told apart
FORMS: Final = ("svg", "png")


class Result(msgspec.Struct, kw_only=True):
    """`outcome`: None unless it was to be kept; `problems`: what `verify` found."""

    run: report.Run
    outcome: Outcome | None = None
    problems: list[str] = []


def simulate(
    inputs: Inputs, cases: Sequence[Case], *, keep: bool = False, verify: bool = False, workers: int | None = None
) -> list[Result]:
    """All runs, in their order."""
    scenarios = [inputs.scenario(case) for case in cases]
    tasks = [
        sweep.Task(case.label, _maker(scenario, case, keep=keep, check=verify))
        for case, scenario in zip(cases, scenarios, strict=True)
    ]
    return sweep.run_all(tasks, workers=workers)


def _maker(scenario: Scenario, case: Case, *, keep: bool, check: bool) -> Callable[[], Result]:
    def made() -> Result:
        outcome = engine.run(scenario)
        problems = verify.verify(scenario, outcome) if check else []
        run = report.run_of(
            outcome, configuration="dynamic", on_reclaim=_on_reclaim(scenario), policy=case.variant.name
        )
        return Result(run=run, outcome=outcome if keep else None, problems=problems)

    return made


def _on_reclaim(scenario: Scenario) -> str | None:
    """What batch departments do; None if no department reclaims."""
    departments = scenario.config.departments
    found = dict.fromkeys(d.batch.on_reclaim for d in departments if d.batch is not None)
    return "/".join(found) if found and any(d.kind == "web" for d in departments) else None


# ------------------------------------------------------------------------------------------------------------------ table


def table(seeded: Sequence[Seeded], goal: Sequence[Limit], *, detail: bool = False) -> str:
    """A row a run; the seeds summed up; where the goal holds; and of one run, or if asked for, everything."""
    runs = [each.run for each in seeded]
    parts = [tables.runs_table(runs)]
    if len({each.seed for each in seeded}) > 1:
        parts.append(summary.render_summary(summary.summary(seeded)))
    if goal:
        parts.append(goal_table.render_goal(goal, runs))
    if detail or len(runs) == 1:
        parts += [tables.detail_tables(run) for run in runs]
    return "\n\n".join(parts)


def limits(goal: Sequence[Limit], measured: metrics.Metrics) -> list[dict[str, Any]]:
    """Each level of the goal for one run, for a program."""
    return [
        {
            "limit": str(limit),
            "value": value_of(measured, limit.department, limit.metric),
            "holds": limit.holds(measured),
        }
        for limit in goal
    ]


def document(
    experiment: Experiment, inputs: Inputs, cases: Sequence[Case], results: Sequence[Result], *, verified: bool
) -> dict[str, Any]:
    """The JSON document (docs/howto/simulator.md)."""
    found = report.document(experiment.name, [result.run for result in results], **about(experiment, inputs))
    for row, case, result in zip(found["runs"], cases, results, strict=True):
        row["seed"] = case.seed
        row["goal"] = limits(experiment.goal, result.run.metrics)
        if verified:
            row["verified"] = not result.problems
    if len({case.seed for case in cases}) > 1:
        rows = summary.summary(seeded(cases, results))
        found["summary"] = [msgspec.to_builtins(row) for row in rows]
    return found


def seeded(cases: Sequence[Case], results: Sequence[Result]) -> list[Seeded]:
    """Each run with its seed."""
    return [Seeded(case.seed, result.run) for case, result in zip(cases, results, strict=True)]


def about(experiment: Experiment, inputs: Inputs) -> dict[str, Any]:
    return {"file": experiment.file.name, "window_s": experiment.window_s, "notes": inputs.notes}


# ------------------------------------------------------------------------------------------------------------------ plots


def plot(directory: Path, name: str, results: Sequence[Result], workers: int | None = None) -> None:
    """Every plot that says something about these runs, drawn on all cores."""
    from phoenix.simulate import plots  # before the workers are forked: each would import it again

    runs = [result.run for result in results]
    outcomes = [result.outcome for result in results if result.outcome is not None]
    figures: dict[str, Callable[[], Figure]] = {}
    seeds = _seeds_told(runs)
    if len({run.nodes for run in runs}) > 1:
        figures["sweep"] = lambda: plots.sweep_plot(runs, series="policy", caption=seeds)
        if any(run.killed or run.requeued for run in runs):
            figures["preemptions"] = lambda: plots.preemption_plot(runs, series="policy", caption=seeds)
    if len({run.policy for run in runs}) > 1:
        figures["frontier"] = lambda: plots.frontier(runs, caption=seeds)
    if any(run.completed for run in runs):
        some = _some_told(DISTRIBUTIONS_MAX, len(outcomes))
        figures["distributions"] = lambda: plots.distributions(outcomes[:DISTRIBUTIONS_MAX], caption=some)
    for outcome in outcomes[:SINGLE_MAX]:
        figures[f"hosts-{_file(outcome.label)}"] = lambda outcome=outcome: plots.hosts_over_time(outcome)  # type: ignore[misc]
    if any(outcome.web for outcome in outcomes):
        which = f"Run {outcomes[0].label}." if len(outcomes) > 1 else ""
        figures["web"] = lambda: plots.web_consumption(outcomes[0], caption=which)
    tasks = [
        sweep.Task(f"plot {key}", _drawer(figure, directory / f"{_file(name)}-{key}"))
        for key, figure in figures.items()
    ]
    sweep.run_all(tasks, title="drawing", workers=workers)


def _seeds_told(runs: Sequence[report.Run]) -> str:
    """What a plot says that shows several runs as one."""
    counts = Counter((run.policy, run.nodes) for run in runs)
    most = max(counts.values(), default=1)
    return f"Means of {most} runs (seeds); bars span them." if most > 1 else ""


def _some_told(shown: int, there: int) -> str:
    return f"The first {shown} of {there} runs; --run LABEL shows another one." if there > shown else ""


def _drawer(figure: Callable[[], Figure], stem: Path) -> Callable[[], None]:
    from phoenix.simulate import plots

    def drawn() -> None:
        made = figure()
        for form in FORMS:
            plots.save(made, stem.with_name(f"{stem.name}.{form}"))

    return drawn


def _file(label: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", label).strip("-") or "run"
