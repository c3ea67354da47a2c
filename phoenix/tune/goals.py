"""What is wanted of a trial: metrics that are to be small or large, and limits that are to be kept.

    min hpc.mean_turnaround_s        max hpc.completed        hpc.p95_wait_s <= 2h        hpc.completed > static

Metrics and limits are those of `phoenix.simulate.goal`.  A limit may stand against the same metric of another run that the
experiment has beside each trial (`static` of phoenix-cloud).

Rules
  1. One trial is better than another if it is at least as good in every aim, and better in one (Pareto).  The *front* of a size
     are the trials that keep every limit, and that no other such trial of that size is better than.
  2. Trials of different sizes are not compared: more hosts are always better.  Where sizes are searched, each has as many
     trials as any other, and fewer hosts are an aim of the search.
  3. Of trials that are equal in every aim the one with fewer settings, then the first by its identity, is in the front.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from phoenix.cli.errors import usage
from phoenix.search.choose import UNSCORED
from phoenix.search.space import key
from phoenix.search.trials import Trial
from phoenix.simulate import goal as goals

HOSTS: Final = "cluster.hosts"  # the axis of sizes
_AIM: Final = re.compile(r"\s*(min|max)\s+(\S+)\s*\Z")
_LIMIT: Final = re.compile(r"\s*([^\s<>=]+)\s*((?:<=|>=|<|>)\s*\S+)\s*\Z")
_JUST: Final = 1e-9  # how far a limit is missed that is met exactly, and should be beaten
RIGHT: Final = '"min hpc.mean_turnaround_s", "max hpc.completed", or a limit: "hpc.p95_wait_s <= 2h"'

Values = Mapping[str, float | None]  # metric -> value, of one trial


class Aim(NamedTuple):
    metric: str
    sign: float  # 1: to be small, -1: to be large

    def score(self, values: Values) -> float:
        """Small is good."""
        value = values.get(self.metric)
        return UNSCORED if value is None else self.sign * value

    def __str__(self) -> str:
        return f"{'min' if self.sign > 0 else 'max'} {self.metric}"


class Aims(NamedTuple):
    """`limits`: those with a number, and those against the run that `against` names."""

    aims: tuple[Aim, ...]
    limits: tuple[goals.Limit, ...]
    against: str = ""

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*(aim.metric for aim in self.aims), *(limit.name for limit in self.limits)]))

    def asked(self) -> str:
        """All of them as a person would write them."""
        return "; ".join([*map(str, self.aims), *(limit.asked for limit in self.limits)])

    def over(self, values: Values, reference: Values) -> list[float]:
        """For each limit how far it is missed, 0 where it is kept; `reference`: of the run that limits stand against."""
        return [_missed(self._resolved(limit, reference), values.get(limit.name)) for limit in self.limits]

    def kept(self, values: Values, reference: Values) -> bool:
        return all(each <= 0 for each in self.over(values, reference))

    def scores(self, values: Values) -> tuple[float, ...]:
        return tuple(aim.score(values) for aim in self.aims)

    def better(self, one: Values, other: Values) -> bool:
        """Rule 1."""
        mine, theirs = self.scores(one), self.scores(other)
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))

    def front(self, trials: Sequence[Trial], reference: Values) -> list[Trial]:
        """Rules 1 to 3, of trials of one size; best in the first aim first."""
        kept = [trial for trial in trials if self.kept(trial.result, reference)]
        found: dict[tuple[float, ...], Trial] = {}
        for trial in sorted(kept, key=lambda t: (self.scores(t.result), len(t.point), key(t.point))):
            if not any(self.better(other.result, trial.result) for other in found.values()):
                found.setdefault(self.scores(trial.result), trial)
        return list(found.values())

    def nearest(self, trials: Sequence[Trial], reference: Values) -> Trial | None:
        """The trial that misses its limits least, each in parts of its bound."""
        bounds = [abs(self._resolved(limit, reference).bound) or 1.0 for limit in self.limits]

        def rank(trial: Trial) -> tuple[float, tuple[float, ...], str]:
            over = self.over(trial.result, reference)
            return (
                sum(max(0.0, each) / bound for each, bound in zip(over, bounds, strict=True)),
                self.scores(trial.result),
                key(trial.point),
            )

        return min(trials, key=rank, default=None)

    def _resolved(self, limit: goals.Limit, reference: Values) -> goals.Limit:
        if limit.word != self.against or not self.against:
            return limit
        value = reference.get(limit.name)
        return msgspec.structs.replace(limit, bound=math.nan if value is None else value)


def _missed(limit: goals.Limit, value: float | None) -> float:
    if limit.holds_of(value):
        return 0.0
    if value is None or math.isnan(limit.bound):
        return UNSCORED
    return abs(value - limit.bound) or _JUST


def parse(texts: Sequence[str], kinds: Mapping[str, str], against: str, given: Sequence[goals.Limit] = ()) -> Aims:
    """Raises CliError, which names every text that is wrong.  `given`: limits of the experiment's own."""
    known = goals.known(kinds)
    aims: list[Aim] = []
    limits = list(given)
    wrong = []
    for text in texts:
        aim, limit = _AIM.match(text), _LIMIT.match(text)
        name = aim[2] if aim else limit[1] if limit else ""
        unknown = goals.unknown(name, known) if name else f"should be {RIGHT}"
        if unknown is None and aim:
            aims.append(Aim(name, 1.0 if aim[1] == "min" else -1.0))
        elif unknown is None and limit and (found := _limit(name, limit[2], against)) is not None:
            limits.append(found)
        else:
            wrong.append(f"--goal {text!r}: {unknown or goals.RIGHT}{_or_against(against) if not unknown else ''}")
    twice = [aim.metric for place, aim in enumerate(aims) if aim.metric in [a.metric for a in aims[:place]]]
    wrong += [f"--goal: {name} is to be small, or large: it is there twice" for name in twice[:1]]
    if not aims and not wrong:
        wrong.append(f"--goal: nothing is to be small or large; {RIGHT}")
    if wrong:
        raise usage("\n".join(wrong))
    return Aims(tuple(aims), tuple(limits), against)


def _or_against(against: str) -> str:
    return f', or against another run "> {against}"' if against else ""


def _limit(name: str, text: str, against: str) -> goals.Limit | None:
    compare = text.rstrip()[: 2 if text[1:2] == "=" else 1]
    if against and text[len(compare) :].strip() == against:
        department, _, metric = name.partition(".")
        return goals.Limit(department=department, metric=metric, compare=compare, bound=0.0, word=against)
    return goals.parse(name, text)
