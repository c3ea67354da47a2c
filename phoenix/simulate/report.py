"""What a run or a sweep leaves on disk: one JSON document, and a CSV with every job.

Rules
  1. Equal outcomes give equal bytes, but for `wall_s` and `cpu_s` of the JSON: how long the simulation took stands only there.
  2. A file is there whole or not at all: it is written beside its place and then renamed.
  3. What cannot be written is a sentence (`CliError`) that names the file and the reason.
  4. CSV is RFC 4180: a header, CRLF, quotes where they are needed.  Nothing known is an empty field.
  5. Numbers are written shortest: as many digits as read back to the same number, and no `.0`.
"""

from __future__ import annotations

import contextlib
import csv
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, Protocol, TypeVar

import msgspec

from phoenix.cli import files
from phoenix.cli.errors import FAILED, CliError
from phoenix.simulate.metrics import (
    Metrics,
    bounded_slowdown,
    end_of,
    measure,
    requeues,
    turnaround_s,
    wait_s,
)
from phoenix.simulate.workload import JobRecord, Outcome

FORMAT: Final = 1  # of the JSON document: a reader of another number must not guess

_Column = Callable[[int, Outcome, JobRecord], object]
_COLUMNS: Final[dict[str, _Column]] = {
    "run": lambda run, _o, _j: run,
    "label": lambda _r, outcome, _j: outcome.label,
    "hosts": lambda _r, outcome, _j: outcome.hosts,
    "department": lambda _r, _o, job: job.department,
    "number": lambda _r, _o, job: job.number,
    "user": lambda _r, _o, job: job.user,
    "nodes": lambda _r, _o, job: job.nodes,
    "cores": lambda _r, _o, job: job.cores,
    "submit_s": lambda _r, _o, job: job.submit_s,
    "start_s": lambda _r, _o, job: job.start_s,
    "last_start_s": lambda _r, _o, job: job.last_start_s,
    "end_s": lambda _r, _o, job: job.end_s,
    "end": lambda _r, outcome, job: end_of(job, outcome.window_s),
    "run_s": lambda _r, _o, job: job.run_s,
    "wait_s": lambda _r, _o, job: wait_s(job),
    "turnaround_s": lambda _r, _o, job: turnaround_s(job),
    "bounded_slowdown": lambda _r, _o, job: bounded_slowdown(job),
    "preempted": lambda _r, _o, job: job.preempted,
    "requeued": lambda _r, outcome, job: requeues(job, outcome.window_s),
    "ran_node_s": lambda _r, _o, job: job.ran_node_s,
    "lost_node_s": lambda _r, _o, job: job.lost_node_s,
}
JOB_COLUMNS: Final = tuple(_COLUMNS)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a sweep, as tables, plots and the JSON document have it.  The plain numbers are those of all batch
    departments together, repeated from `metrics` for people who read the document."""

    label: str
    configuration: str  # static or dynamic
    nodes: int
    on_reclaim: str | None = None  # None: nothing is reclaimed
    policy: str = ""  # what a sweep over policies calls it
    completed: int
    killed: int
    requeued: int
    unfinished: int
    mean_turnaround_s: float | None
    wall_s: float
    cpu_s: float
    facts: int
    envelopes: int
    void: int
    metrics: Metrics


def run_of(
    outcome: Outcome,
    *,
    configuration: str,
    on_reclaim: str | None = None,
    policy: str = "",
    label: str | None = None,
    nodes: int | None = None,
    metrics: Metrics | None = None,
) -> Run:
    """An outcome as a row; `metrics` if they have been measured already; `nodes` if the configuration has more than what was
    simulated in this run (a static one: the web department's own)."""
    measured = measure(outcome) if metrics is None else metrics
    total = measured.total
    return Run(
        label=outcome.label if label is None else label,
        configuration=configuration,
        nodes=outcome.hosts if nodes is None else nodes,
        on_reclaim=on_reclaim,
        policy=policy,
        completed=total.completed,
        killed=total.killed,
        requeued=total.requeued,
        unfinished=total.unfinished,
        mean_turnaround_s=total.turnaround_s.mean,
        wall_s=outcome.wall_s,
        cpu_s=outcome.cpu_s,
        facts=outcome.facts,
        envelopes=outcome.envelopes,
        void=outcome.void,
        metrics=measured,
    )


def beats(run: Run, reference: Run) -> bool:
    """The paper's claim: more jobs complete, and their mean turnaround is shorter (§III-A: the benefit of the service provider
    is completed jobs, that of its users the reciprocal of the mean turnaround)."""
    if run.mean_turnaround_s is None or reference.mean_turnaround_s is None:
        return False
    return run.completed > reference.completed and run.mean_turnaround_s < reference.mean_turnaround_s


class Rated(Protocol):
    """What is compared by its two benefits: a run, or the mean of several."""

    @property
    def label(self) -> str: ...
    @property
    def policy(self) -> str: ...
    @property
    def nodes(self) -> int: ...
    @property
    def completed(self) -> float: ...
    @property
    def mean_turnaround_s(self) -> float | None: ...


R = TypeVar("R", bound=Rated)


def pareto(runs: Sequence[R]) -> list[R]:
    """The runs that no other run of the same size beats in one of completed jobs and mean turnaround without losing in the
    other (Pareto).  By size, then completed jobs, then turnaround, then label; runs without a completed job are not in it."""
    rated = [
        (run.nodes, -run.completed, run.mean_turnaround_s, run.label, place)
        for place, run in enumerate(runs)
        if run.mean_turnaround_s is not None
    ]
    kept: list[R] = []
    best: dict[
        int, tuple[float, float]
    ] = {}  # by size: the shortest turnaround so far, and the completed jobs that it has
    for nodes, fewer, turnaround, _label, place in sorted(rated):
        shortest, at = best.get(nodes, (float("inf"), 1))
        if turnaround < shortest or (turnaround == shortest and fewer == at):
            best[nodes] = (turnaround, fewer)
            kept.append(runs[place])
    return kept


def document(experiment: str, runs: Iterable[Run], **about: Any) -> dict[str, Any]:
    """The JSON document: `format`, `experiment`, what `about` says (inputs, claims, caveats), and `runs`."""
    return {"format": FORMAT, "experiment": experiment, **about, "runs": [msgspec.to_builtins(run) for run in runs]}


def as_json(content: Mapping[str, Any]) -> str:
    """Indented, keys in the order given, with a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """The document, on disk."""
    with whole_file(path) as file:
        file.write(as_json(content))


def write_jobs_csv(path: Path, outcomes: Iterable[Outcome]) -> int:
    """One row for each job of each run, in the order of runs and submissions; columns are `JOB_COLUMNS`.  Returns how many.
    `outcomes` may be a generator: one run at a time is kept."""
    count = 0
    with whole_file(path) as file:
        writer = csv.writer(file, lineterminator="\r\n")
        writer.writerow(JOB_COLUMNS)
        for run, outcome in enumerate(outcomes, start=1):
            for job in outcome.jobs:
                writer.writerow([_field(column(run, outcome, job)) for column in _COLUMNS.values()])
                count += 1
    return count


def _field(value: object) -> str:
    """Rule 5."""
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


# ------------------------------------------------------------------------------------------------------------------- files


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[str]]:
    """A text file (UTF-8, line ends as written) that appears at `path` when it is complete; a failed one leaves no trace.
    Directories on the way are made.  CliError if it cannot be written.  `files.STDOUT` is standard output."""
    if path == files.STDOUT:
        yield sys.stdout
        return
    with _moved_to(Path(path)) as beside, open(beside, "w", encoding="utf-8", newline="") as file:
        yield file


def write_bytes(path: Path, data: bytes) -> None:
    """The same, of bytes that are there already."""
    with _moved_to(Path(path)) as beside:
        beside.write_bytes(data)


@contextlib.contextmanager
def _moved_to(path: Path) -> Iterator[Path]:
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield beside
        os.replace(beside, path)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        hint = "Name another place, or make room there."
        raise CliError(FAILED, f"{path} cannot be written: {reason}", hint) from error
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
