"""The operator's question: how few hosts keep the service levels?  `capacity` searches; here its probes are made and told.

Each variant of the experiment has an answer of its own; a size keeps the goal if it does so with every seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from phoenix.cli.tables import render as render_table
from phoenix.cli.units import count
from phoenix.simulate import capacity, goal, outputs, report
from phoenix.simulate.capacity import Found
from phoenix.simulate.experiment import Experiment, Variant
from phoenix.simulate.metrics import Metrics
from phoenix.simulate.scenarios import Inputs, case_of

NAMED_MAX: Final = 8  # sizes that a sentence lists


class Answer(msgspec.Struct, kw_only=True):
    """`runs`: by size, one for each seed."""

    variant: str
    found: Found
    runs: dict[int, list[report.Run]]


def answers(experiment: Experiment, inputs: Inputs, workers: int | None = None) -> list[Answer]:
    return [_answer(experiment, variant, inputs, workers) for variant in experiment.variants]


def _answer(experiment: Experiment, variant: Variant, inputs: Inputs, workers: int | None) -> Answer:
    runs: dict[int, list[report.Run]] = {}

    def holds(sizes: Sequence[int]) -> list[bool]:
        cases = [case_of(experiment, variant, hosts, seed) for hosts in sizes for seed in experiment.seeds]
        for case, result in zip(cases, outputs.simulate(inputs, cases, workers=workers), strict=True):
            runs.setdefault(case.hosts, []).append(result.run)
        return [all(limit.holds(run.metrics) for run in runs[hosts] for limit in experiment.goal) for hosts in sizes]

    asked = [inputs.scenario(case_of(experiment, variant, 1, seed)) for seed in experiment.seeds]
    floor = max(capacity.floor_of(scenario) for scenario in asked)
    ceiling = max(capacity.ceiling_of(scenario) for scenario in asked)
    found = capacity.search(holds, floor, ceiling)
    return Answer(variant=variant.name, found=found, runs=dict(sorted(runs.items())))


# ---------------------------------------------------------------------------------------------------------------- telling


def render(answer: Answer, limits: Sequence[goal.Limit]) -> str:
    """The answer in a sentence, what was tried as a table, and what to be careful about."""
    named = f" ({answer.variant})" if answer.variant else ""
    goal_told = f"The goal: {', '.join(limit.asked for limit in limits)}."
    lines = [f"{_sentence(answer.found)}{named}", goal_told, "", _tried(answer, limits), ""]
    return "\n".join([*lines, *_cautions(answer, limits)])


def _sentence(found: Found) -> str:
    if found.smallest is None:
        return (
            f"no cluster keeps the goal: it does not hold at any of {count(len(found.tried), 'size')} from {found.floor} "
            f"to {found.ceiling} hosts"
        )
    return f"{count(found.smallest, 'host')} is the smallest cluster found that keeps the goal"


def _tried(answer: Answer, limits: Sequence[goal.Limit]) -> str:
    heads = ["HOSTS", "GOAL", *(limit.name for limit in limits), "DONE", "OPEN"]
    rows = [
        [
            str(hosts),
            "kept" if answer.found.tried[hosts] else "missed",
            *(_cell(limit, runs) for limit in limits),
            str(min(run.completed for run in runs)),
            str(max(run.unfinished for run in runs)),
        ]
        for hosts, runs in answer.runs.items()
    ]
    return render_table(heads, rows, right=" ".join(("HOSTS", "DONE", "OPEN", *(limit.name for limit in limits))))


def _cell(limit: goal.Limit, runs: Sequence[report.Run]) -> str:
    """The worst value of all seeds."""
    values = [goal.value_of(run.metrics, limit.department, limit.metric) for run in runs]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return "-"
    return f"{(max if limit.compare.startswith('<') else min)(known):.6g}"


def _cautions(answer: Answer, limits: Sequence[goal.Limit]) -> list[str]:
    found = answer.found
    lines = [
        f"Sizes from {found.floor} (the widest job, and guarantees) to {found.ceiling} (where nothing would ever wait) "
        f"were searched; {len(found.tried)} {'was' if len(found.tried) == 1 else 'were'} tried."
    ]
    seeds = max(map(len, answer.runs.values()), default=1)
    if seeds > 1:
        lines.append(f"A row tells the worst of {seeds} seeds; the goal is kept where every seed keeps it.")
    if found.smallest is None:
        lines += [f"{limit.asked} is kept at none of them." for limit in _never(answer, limits)]
        lines.append("More hosts would only be idle: change the goal, a policy, or the load.")
        return lines
    if found.smallest > found.floor:
        lines.append(
            "Smallest found, not proven: a smaller one that was not tried could keep the goal by chance, "
            "since more hosts are not always better."
        )
    if found.failed_above:
        some = ", ".join(map(str, found.failed_above[:NAMED_MAX])) + (
            " …" if len(found.failed_above) > NAMED_MAX else ""
        )
        lines.append(f"Careful: the goal is missed on some larger clusters ({some}).")
    left = max(run.unfinished for run in answer.runs[found.smallest])
    if left and not any(limit.metric in ("unfinished", "completed") for limit in limits):
        those = (
            "job is unfinished at that size, and the goal does not ask for it"
            if left == 1
            else ("jobs are unfinished at that size, and the goal does not ask for them")
        )
        lines.append(f"Careful: {left} {those}.")
    return lines


def _never(answer: Answer, limits: Sequence[goal.Limit]) -> list[goal.Limit]:
    """The levels that hold at no size with every seed: those that more hosts do not help."""
    return [
        limit for limit in limits if not any(all(map(limit.holds, _metrics(runs))) for runs in answer.runs.values())
    ]


def _metrics(runs: Sequence[report.Run]) -> list[Metrics]:
    return [run.metrics for run in runs]


def document(experiment: Experiment, inputs: Inputs, found: Sequence[Answer]) -> dict[str, Any]:
    """The JSON document (docs/howto/simulator.md)."""
    return {
        "format": report.FORMAT,
        "experiment": experiment.name,
        **outputs.about(experiment, inputs),
        "goal": [str(limit) for limit in experiment.goal],
        "answers": [_data(answer, experiment.goal) for answer in found],
    }


def _data(answer: Answer, limits: Sequence[goal.Limit]) -> dict[str, Any]:
    tried = [
        {
            "hosts": hosts,
            "holds": answer.found.tried[hosts],
            "runs": [{**msgspec.to_builtins(run), "goal": outputs.limits(limits, run.metrics)} for run in runs],
        }
        for hosts, runs in answer.runs.items()
    ]
    found = answer.found
    return {
        "policy": answer.variant,
        "smallest": found.smallest,
        "floor": found.floor,
        "ceiling": found.ceiling,
        "failed_above": list(found.failed_above),
        "tried": tried,
    }
