"""The search: points are chosen, evaluated on all cores and kept; then the best are judged on what they were not tuned on.

Theory of operation
  First comes the run that limits stand against, then trials until there are enough, time is over or the space is at its end.
  The front of each size, and the experiment's own settings at that size, are then run in each world that is held out.
  Everything is a row of the file of trials, so a second run continues where the last one ended.

Rules
  1. A trial counts once, whichever process made it: the number of trials is that of the whole file.
  2. The time budget is for the trials; what is held out is judged afterwards, all of it.
  3. Of each size at most HELD_OUT_MAX points are judged: the best in each aim first.
  4. Whatever is random follows from the seed and the trials that are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from phoenix.search.choose import Chooser, chooser, new_points
from phoenix.search.evaluate import Job, evaluate
from phoenix.search.space import Point, Space, key
from phoenix.search.trials import Trial, Trials
from phoenix.tune.bench import Bench
from phoenix.tune.goals import HOSTS, Aims, Values

HELD_OUT_MAX: Final = 3
MANY: Final = 10**9  # trials: as many as time allows
REFUSED_MAX: Final = 1000  # points in a row whose values do not go together


class Found(NamedTuple):
    """What a search leaves: enough for tables, JSON and plots.  `refused`: points whose values do not go together."""

    bench: Bench
    space: Space
    aims: Aims
    trials: list[Trial]  # of the world that is tuned on
    about: str
    refused: dict[str, str]
    runs: dict[tuple[str, str], Values]  # beside trials: (identity of the point, what it ran on) -> metrics
    references: dict[str, Values]  # world -> metrics of the run that limits stand against

    def sizes(self) -> list[Any]:
        """Those that were tried, smallest first; one that is None where sizes are not searched."""
        return sorted({trial.point.get(HOSTS) for trial in self.trials}, key=lambda n: (n is not None, n or 0))

    def of_size(self, hosts: Any) -> list[Trial]:
        return [trial for trial in self.trials if trial.point.get(HOSTS) == hosts]

    def front(self, hosts: Any) -> list[Trial]:
        return self.aims.front(self.of_size(hosts), self.references.get("", {}))

    def best(self) -> Trial | None:
        """The best in the first aim, of the experiment's own size if that was tried, else of all; None: no trial keeps every
        limit."""
        own = [hosts for hosts in self.sizes() if hosts in self.bench.sizes]
        every = [trial for hosts in own or self.sizes() for trial in self.front(hosts)]
        return min(every, key=lambda t: (self.aims.aims[0].score(t.result), t.number), default=None)

    def judged(self, hosts: Any) -> list[Trial]:
        """Rule 3."""
        front = self.front(hosts)
        best = [min(front, key=lambda t: (aim.score(t.result), t.number)) for aim in self.aims.aims] if front else []
        return list({key(t.point): t for t in [*best, *front]}.values())[:HELD_OUT_MAX]

    def own(self, hosts: Any) -> Point:
        """The experiment as it is, at this size."""
        hosts = self.space.fixed.get(HOSTS) if hosts is None else hosts
        return {} if hosts is None else {HOSTS: hosts}

    def own_result(self, hosts: Any, world: str) -> Values:
        """Metrics of that, in a world; of nothing if it was not run."""
        return self.runs.get((key(self.own(hosts)), own_on(world)), {})

    def held_out(self, trial: Trial) -> dict[str, Values]:
        """World -> metrics of the trial's point there."""
        found = {world: self.runs.get((key(trial.point), world)) for world in self.bench.worlds}
        return {world: values for world, values in found.items() if values is not None}


class Budget(NamedTuple):
    """`trials`: in all; `for_s`: seconds, None for any."""

    trials: int
    for_s: float | None
    seed: int
    workers: int | None


def search(bench: Bench, space: Space, aims: Aims, trials: Trials, budget: Budget) -> Found:
    """Raises `Interrupted`; everything finished is in the file."""
    sized = any(axis.name == HOSTS for axis in space.axes)
    references = _references(bench, aims, trials, ("",), budget.workers)
    done = [row for row in trials.rows if not row.on]
    chosen = chooser(space, len(aims.aims) + sized, len(aims.limits), budget.seed + len(done), budget.trials)
    found = Found(bench, space, aims, done, chosen.about, {}, {}, references)
    asked = _Asked(found, chosen, sized)
    for row in done:
        asked.told(row)

    def told(row: Trial) -> None:
        done.append(row)
        asked.told(row)

    evaluate(
        trials,
        (Job(point) for point in asked.points(budget)),
        lambda job: bench.run(space.with_fixed(job.point), "", aims.metrics),
        told,
        title="trials",
        total=None if budget.trials >= MANY else max(0, budget.trials - len(found.trials)),
        for_s=budget.for_s,
        workers=budget.workers,
    )
    return found


def judge(found: Found, trials: Trials, workers: int | None) -> None:
    """Run the experiment's own settings, and the best points in the worlds that are held out."""
    bench, aims, sizes = found.bench, found.aims, found.sizes()
    found.references.update(_references(bench, aims, trials, bench.worlds, workers))
    own = {own_on(world): world for world in ("", *bench.worlds)}
    jobs = [Job(found.own(hosts), on) for on in own for hosts in sizes]
    jobs += [Job(trial.point, world) for world in bench.worlds for hosts in sizes for trial in found.judged(hosts)]

    def made(job: Job) -> dict[str, float | None]:
        if job.on in own:  # as it is, also where the space fixes something
            return bench.run(job.point, own[job.on], aims.metrics)
        return bench.run(found.space.with_fixed(job.point), job.on, aims.metrics)

    def told(row: Trial) -> None:
        found.runs[key(row.point), row.on] = row.result

    total = sum(trials.known(job.point, job.on) is None for job in jobs)
    evaluate(trials, jobs, made, told, title="own settings, held out", total=total, workers=workers)


def own_on(world: str) -> str:
    """What the experiment's own settings are run on, in that world."""
    return f"own settings {world}".rstrip()


def _references(
    bench: Bench, aims: Aims, trials: Trials, worlds: Sequence[str], workers: int | None
) -> dict[str, Values]:
    """World -> metrics of the run that limits stand against."""
    if not bench.against:
        return {}
    found: dict[str, Values] = {}
    ons = {f"against {bench.against} {world}".rstrip(): world for world in worlds}
    evaluate(
        trials,
        [Job({}, on) for on in ons],
        lambda job: bench.reference(ons[job.on], aims.metrics),
        lambda row: found.update({ons[row.on]: row.result}),
        title=bench.against,
        total=len(ons),
        workers=min(len(ons), workers or len(ons)),
    )
    return found


class _Asked:
    """The conversation with the chooser."""

    def __init__(self, found: Found, chosen: Chooser, sized: bool) -> None:
        self.found, self.chosen, self.sized = found, chosen, sized
        self.known = {key(row.point) for row in found.trials}
        axis = next((axis for axis in found.space.axes if axis.name == HOSTS and axis.count is not None), None)
        self.tried = dict.fromkeys(axis.values() if axis else (), 0)
        for row in found.trials:
            self.tried[row.point.get(HOSTS)] = self.tried.get(row.point.get(HOSTS), 0) + 1

    def told(self, row: Trial) -> None:
        aims = self.found.aims
        hosts = (float(row.point.get(HOSTS, 0)),) if self.sized else ()
        over = aims.over(row.result, self.found.references.get("", {}))
        self.chosen.tell(row.point, (*aims.scores(row.result), *hosts), over)

    def points(self, budget: Budget) -> Iterator[Point]:
        """New ones, until there are as many trials as wanted."""
        bench, space, refused = self.found.bench, self.found.space, self.found.refused
        left, misses = budget.trials - len(self.found.trials), 0
        for point in new_points(self.chosen, space, budget.seed, self.known, self._size) if left > 0 else ():
            self.tried[point.get(HOSTS)] = self.tried.get(point.get(HOSTS), 0) + 1
            wrong = bench.problem(space.with_fixed(point))
            if wrong is not None:
                refused[key(point)] = wrong
                self.chosen.tell(point, None, ())
                misses += 1
                if misses >= REFUSED_MAX:
                    return
                continue
            misses, left = 0, left - 1
            yield point
            if left == 0:
                return

    def _size(self) -> Point:
        """The size that has the fewest trials, if sizes are searched."""
        return {HOSTS: min(self.tried, key=lambda hosts: self.tried[hosts])} if self.sized and self.tried else {}
