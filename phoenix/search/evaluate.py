"""Points are evaluated on all cores, and each is in the file of trials as soon as it is finished.

Rules
  1. A job that the file has is not run again; `told` hears of it all the same, in its turn.
  2. The next job is asked for when a worker is free, after `told` has heard of everything finished: it may follow from that.
  3. After `for_s` nothing is begun any more; what runs is finished.
  4. Ctrl-C ends what runs; what was finished is in the file, and the same command continues (`Interrupted` says so).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from phoenix.search.space import Point
from phoenix.search.trials import Trial, Trials
from phoenix.simulate import sweep


class Job(NamedTuple):
    """A point, and what it is to run on (a log, a seed; empty: there is one)."""

    point: Point
    on: str = ""


class Made(NamedTuple):
    """What a worker sends back."""

    result: dict[str, Any]
    cpu_s: float


def evaluate(
    trials: Trials,
    jobs: Iterable[Job],
    make: Callable[[Job], dict[str, Any]],
    told: Callable[[Trial], None] = lambda _: None,
    *,
    title: str,
    total: int | None = None,
    for_s: float | None = None,
    workers: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Run jobs until there are no more of them, or time is over; returns how many were run now.  `total`: for the progress
    bar, None if not known; `clock`: seconds, for `for_s`."""
    count = 0
    wanted = _wanted(trials, jobs, told, None if for_s is None else clock() + for_s, clock)
    made = sweep.stream(lambda job: _made(make, job), wanted, title=title, total=total, workers=workers)
    try:
        with contextlib.closing(made):
            for job, found in made:
                told(trials.add(job.point, found.result, on=job.on, cpu_s=found.cpu_s))
                count += 1
    except KeyboardInterrupt:
        raise sweep.Interrupted(_interrupted(trials.path, count, len(trials.rows)), trials.rows) from None
    return count


def _wanted(
    trials: Trials,
    jobs: Iterable[Job],
    told: Callable[[Trial], None],
    until_s: float | None,
    clock: Callable[[], float],
) -> Iterator[Job]:
    """Rules 1 and 3."""
    for job in jobs:
        if (known := trials.known(job.point, job.on)) is not None:
            told(known)
        elif until_s is None or clock() < until_s:
            yield job
        else:
            return


def _made(make: Callable[[Job], dict[str, Any]], job: Job) -> Made:
    began = time.process_time()
    try:
        return Made(make(job), round(time.process_time() - began, 3))
    except Exception as error:
        error.add_note(f"in trial {job.point} {job.on}".rstrip())
        raise


def _interrupted(path: Path, count: int, total: int) -> str:
    return f"interrupted: {count} trials were finished, {path} has {total}; the same command continues with them"
