"""`phoenix simulate phoenix-cloud --checkpoints`: what is it worth that jobs save their work?

Theory of operation
  The experiment's own jobs and web load at 160 and 150 nodes; victims enter the queue again.  Without checkpoints a victim runs
  from the start.  With them it continues from its last one, and `least-work-lost` knows what each job would lose, where the
  paper's order of victims looks at size and running time alone.

Rules
  1. Every job checkpoints, after so much work each time, at such a cost: 0, 60 s an hour (1.7 %), 60 s a quarter of an hour
     (6.7 %).  Jobs shorter than that never save.
  2. Nothing else differs: first fit, no latencies, no time limits, the experiment's window.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from phoenix.plugin.simulation import (
    OK,
    Habit,
    Run,
    Scenario,
    WebInput,
    Work,
    duration,
    render,
    report,
    simulate,
    sweep,
)
from phoenix_papers.phoenix_cloud import rules
from phoenix_papers.phoenix_cloud.inputs import Inputs, about

SIZES: Final = (160, 150)
VICTIMS: Final[tuple[str, ...]] = ("smallest-shortest", "least-work-lost")
HABITS: Final = (None, Habit(3600.0, 60.0), Habit(900.0, 60.0), Habit(900.0, 0.0))


class Case(NamedTuple):
    nodes: int
    victims: str
    habit: Habit | None

    @property
    def saves(self) -> str:
        return "never" if self.habit is None else f"every {self.habit.every_s:g} s for {self.habit.cost_s:g} s"

    @property
    def label(self) -> str:
        return f"{self.nodes} {self.victims}, {self.saves}"


def run(args: argparse.Namespace, inputs: Inputs) -> int:
    works = rules.lay_out(inputs.jobs)
    cases = [Case(nodes, victims, habit) for nodes in SIZES for victims in VICTIMS for habit in HABITS]
    tasks = [sweep.Task(case.label, lambda c=case: _made(c, works, inputs.demand)) for case in cases]  # type: ignore[misc]
    runs: list[Run] = sweep.run_all(tasks, title="phoenix-cloud, checkpoints", workers=args.workers)
    if args.json:
        print(report.as_json(report.document("phoenix-cloud-checkpoints", runs, inputs=about(inputs, works))), end="")
    else:
        print(told(cases, runs))
    return OK


def scenario(case: Case, works: tuple[Work, ...], demand: WebInput) -> Scenario:
    habit = case.habit or Habit(0.0, 0.0)
    saving = tuple(
        msgspec.structs.replace(work, checkpoint_s=habit.every_s, checkpoint_cost_s=habit.cost_s) for work in works
    )
    return rules.shared(case.label, case.nodes, rules.policy(victims=case.victims), saving, demand)


def _made(case: Case, works: tuple[Work, ...], demand: WebInput) -> Run:
    outcome = simulate(scenario(case, works, demand))
    return report.run_of(outcome, configuration="dynamic", on_reclaim="requeue", policy=case.label)


def told(cases: Sequence[Case], runs: Sequence[Run]) -> str:
    """A row a run: what was lost to preemption, what saving cost, what users had of it."""
    head = ("NODES", "VICTIMS", "SAVES", "DONE", "PREEMPTED", "LOST", "SAVING", "TURNAROUND")
    rows = []
    for case, each in zip(cases, runs, strict=True):
        total = each.metrics.total
        hours = (f"{node_s / 3600:,.1f} h" for node_s in (total.preemption_lost_node_s, total.checkpoint_node_s))
        row = (str(case.nodes), case.victims, case.saves, f"{each.completed:,}", str(total.preempted))
        rows.append([*row, *hours, duration(each.mean_turnaround_s)])
    return "\n".join(
        [
            render(head, rows, right="NODES DONE PREEMPTED LOST SAVING TURNAROUND"),
            "",
            "LOST: node-hours lost to preemption; SAVING: node-hours spent on checkpoints; TURNAROUND: mean of completed jobs.",
        ]
    )
