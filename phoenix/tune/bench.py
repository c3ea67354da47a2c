"""What is tuned: an experiment whose settings may be changed, and the worlds that it is judged in.

Theory of operation
  An experiment is a document, as a file of `phoenix simulate` is; a point's values are set in it as those of a [[vary]] are,
  and judged by the same code.  A *world* is one input (jobs and web load) that it runs on: the one it is tuned on, whose name
  is empty, and those that are held out.  Everything is read or made before workers are forked.

Rules
  1. `cluster.hosts` is the number of hosts; everything else is a key of [[vary]].set.
  2. A trial has the metrics that aims name, and those that tell of tails, losses and fairness (`KEPT`).
  3. A point whose values do not go together, each of which may be right, is not simulated.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from phoenix.cli.errors import usage
from phoenix.simulate import engine
from phoenix.simulate import goal as goals
from phoenix.simulate.experiment import Variant, VaryTable, varied
from phoenix.simulate.metrics import Metrics, measure
from phoenix.simulate.workload import Scenario
from phoenix.tune.goals import HOSTS
from services.runtime.config.form import Problem

SEEDS_MAX: Final = 100  # that --holdout names: each is simulated for every point of the front
KEPT: Final = (
    *("completed", "killed", "unfinished", "refused", "preempted", "preemption_lost_node_s", "useful_utilisation"),
    *("mean_turnaround_s", "mean_wait_s", "p95_wait_s", "p99_wait_s", "max_wait_s"),
    *("mean_bounded_slowdown", "p95_bounded_slowdown", "p99_bounded_slowdown", "user_fairness"),
)


class Bench(Protocol):
    """What a search asks of an experiment."""

    name: str
    parts: dict[str, str]  # what results follow from, for the head of the file of trials
    kinds: dict[str, str]  # departments that goals may name, and their kinds
    sizes: tuple[int, ...]  # of the experiment as it is: one, unless the space says which
    against: str  # the run that limits may stand against; empty: there is none
    limits: tuple[goals.Limit, ...]  # of the experiment's own
    worlds: tuple[str, ...]  # held out
    notes: list[str]  # on the inputs, for people

    def legal(self, name: str, value: Any, beside: Mapping[str, Any]) -> str | None:
        """As `space.Legal`."""
        ...

    def problem(self, values: Mapping[str, Any]) -> str | None:
        """Rule 3."""
        ...

    def run(self, values: Mapping[str, Any], world: str, metrics: Iterable[str]) -> dict[str, float | None]:
        """The metrics of one run."""
        ...

    def reference(self, world: str, metrics: Iterable[str]) -> dict[str, float | None]:
        """Those of the run that limits stand against."""
        ...


class Judged(ABC):
    """Rules 1 and 3, of whatever says what is wrong with values."""

    @abstractmethod
    def problems(self, values: Mapping[str, Any]) -> list[Problem]:
        """What is wrong with them."""

    def legal(self, name: str, value: Any, beside: Mapping[str, Any]) -> str | None:
        before = {(p.path, p.right) for p in self.problems(beside)}
        found = [p for p in self.problems({**beside, name: value}) if (p.path, p.right) not in before]
        return found[0].right if found else None

    def problem(self, values: Mapping[str, Any]) -> str | None:
        found = self.problems(values)
        return found[0].right if found else None


class Document(Judged):
    """Of any document; its `scenario` is that of the process that has the inputs."""

    def __init__(self, document: Mapping[str, Any], base: Path) -> None:
        self.document, self.base = document, base

    def variant(self, values: Mapping[str, Any], known: Iterable[Problem] = ()) -> tuple[Variant, list[Problem]]:
        """The document with values set, and what is wrong with that besides what is known."""
        rest = {name: value for name, value in values.items() if name != HOSTS}
        return varied(self.document, self.base, VaryTable(name="", set=rest, hosts=values.get(HOSTS)), 0, list(known))

    def problems(self, values: Mapping[str, Any]) -> list[Problem]:
        return self.variant(values)[1]


def measured(scenario: Scenario, names: Iterable[str], kinds: Mapping[str, str]) -> dict[str, float | None]:
    """Rule 2, of a run that is made now."""
    return kept_of(measure(engine.run(scenario)), names, kinds)


def kept_of(metrics: Metrics, names: Iterable[str], kinds: Mapping[str, str]) -> dict[str, float | None]:
    """Rule 2."""
    wanted = [*names, *(f"{dept}.{name}" for dept, kind in kinds.items() if kind == "batch" for name in KEPT)]
    return {name: _value(metrics, name) for name in dict.fromkeys(wanted)}


def _value(metrics: Metrics, name: str) -> float | None:
    department, _, metric = name.partition(".")
    found = goals.value_of(metrics, department, metric)
    return None if found is None else round(found, 6)


def mean_of(results: list[dict[str, float | None]]) -> dict[str, float | None]:
    """Of several seeds; a metric that one of them does not have has no mean."""
    found: dict[str, float | None] = {}
    for name in results[0]:
        values = [each[name] for each in results]
        numbers = [value for value in values if value is not None]
        found[name] = math.fsum(numbers) / len(numbers) if len(numbers) == len(values) else None
    return found


def seeds_of(word: str) -> list[int] | None:
    """`seeds=2-4` or `seeds=2,7`; None if it is something else.  Raises CliError."""
    if not word.startswith("seeds="):
        return None
    try:
        found: list[int] = []
        for part in word.removeprefix("seeds=").split(","):
            first, _, last = part.partition("-")
            found += range(int(first), int(last or first) + 1)
            if len(found) > SEEDS_MAX:
                break
    except ValueError:
        found = []
    if not found or len(set(found)) < len(found) or len(found) > SEEDS_MAX:
        raise usage(f"--holdout {word}: should be at most {SEEDS_MAX} different seeds", "seeds=2-4, or seeds=2,7")
    return found
