"""Many runs on all cores of the machine; results in the order of the runs, whatever finishes first, or as they finish.

Theory of operation
  Workers are forked after the inputs have been read, so that a worker has them without anybody copying or pickling them; only
  what a run returns travels back.  One run, or one core, needs no worker: it runs here.

Rules
  1. The order of results is that of the runs.  What a run returns must not depend on which worker made it, or when.
  2. Progress is for a person: a bar on stderr if that is a terminal, else nothing.
  3. Ctrl-C ends all workers at once; `Interrupted` says what was finished, and has it.  No worker outlives the one who asked,
     even if that one is killed.
  4. A run that raises is named: the exception has a note with the run's label, and the other runs are ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, TypeVar

J = TypeVar("J")
T = TypeVar("T")
NAMED_MAX: Final = 8  # finished runs that a message lists by name
_PR_SET_PDEATHSIG: Final = 1
_running: list[Callable[[Any], Any]] = []  # what makes a run; a forked worker finds it here


class Task(NamedTuple, Generic[T]):
    """One run: its label, and what makes it.  `make` may hold anything; what it returns is pickled."""

    label: str
    make: Callable[[], T]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep; `str()` says what was finished, `finished` holds it, in the order of the runs."""

    def __init__(self, told: str, finished: Sequence[Any] = ()) -> None:
        super().__init__(told)
        self.finished = tuple(finished)


def cores() -> int:
    """Of this machine, as far as this process may use them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_all(tasks: Sequence[Task[T]], *, title: str = "simulating", workers: int | None = None) -> list[T]:
    """What each task makes, in their order.  `workers`: processes, default one a core."""
    results: list[Any] = [None] * len(tasks)
    done: dict[int, None] = {}
    made = stream(
        lambda index: _made(tasks[index]),
        range(len(tasks)),
        title=title,
        total=len(tasks),
        workers=min(workers or cores(), len(tasks)),
    )
    try:
        with contextlib.closing(made):
            for index, result in made:
                results[index] = result
                done[index] = None
    except KeyboardInterrupt:
        told = _told([tasks[index].label for index in sorted(done)], len(tasks))
        raise Interrupted(told, [results[index] for index in sorted(done)]) from None
    return results


def stream(
    make: Callable[[J], T], jobs: Iterable[J], *, title: str, total: int | None = None, workers: int | None = None
) -> Generator[tuple[J, T], None, None]:
    """Each job and what `make` makes of it, as it finishes; jobs and results are pickled.  The next job is asked for when a
    worker is free, after everything that has finished: it may follow from that.  To be closed.  `total`: None if not known."""
    wanted = workers or cores()
    with _bar(title, total) as bar:
        finished = _forked(make, jobs, wanted, bar.start) if wanted > 1 else _here(make, jobs, bar.start)
        with contextlib.closing(finished):
            for each in finished:
                bar.advance()
                yield each


def _told(done: Sequence[str], total: int) -> str:
    if not done:
        return f"interrupted: none of {total} runs was finished"
    names = ", ".join(done[:NAMED_MAX]) + (f" and {len(done) - NAMED_MAX} more" if len(done) > NAMED_MAX else "")
    return f"interrupted: {len(done)} of {total} runs were finished ({names})"


def _made(task: Task[T]) -> T:
    """Rule 4."""
    try:
        return task.make()
    except Exception as error:
        error.add_note(f"in run {task.label}")
        raise


def _here(make: Callable[[J], T], jobs: Iterable[J], start: Callable[[], None]) -> Generator[tuple[J, T], None, None]:
    start()
    for job in jobs:
        yield job, make(job)


# ---------------------------------------------------------------------------------------------------------------- workers


def _forked(
    make: Callable[[J], T], jobs: Iterable[J], workers: int, start: Callable[[], None]
) -> Generator[tuple[J, T], None, None]:
    """`start` is called when the workers are there: a process with threads (the bar's) is not one to fork."""
    before = dict.fromkeys(multiprocessing.active_children())
    _running[:] = [make]
    gc.collect()
    gc.freeze()  # a worker's collector would write to, and so copy, every page of the inputs
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), _begin_worker, (os.getpid(),))
    pending: dict[Future[T], tuple[int, J]] = {}
    numbered = enumerate(jobs)
    finished = False

    def fill() -> None:
        for number, job in islice(numbered, workers - len(pending)):
            pending[pool.submit(_work, job)] = number, job

    try:
        with _no_ctrl_c():  # a worker is born deaf to it: none must die with a stack trace before it can say so
            fill()
        start()
        while pending:
            for future in sorted(wait(pending, return_when=FIRST_COMPLETED).done, key=lambda f: pending[f][0]):
                yield pending.pop(future)[1], future.result()
            fill()
        finished = True
    finally:
        if not finished:
            for process in multiprocessing.active_children():
                if process not in before:
                    process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)
        gc.unfreeze()
        _running.clear()


@contextlib.contextmanager
def _no_ctrl_c() -> Iterator[None]:
    """Ctrl-C waits until the end of this block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(job: Any) -> Any:
    return _running[0](job)


def _begin_worker(parent: int) -> None:
    """Rule 3: Ctrl-C reaches the whole group, and only the one who asked answers it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with contextlib.suppress(OSError, AttributeError):  # not Linux: then only a kill -9 leaves workers behind
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


# --------------------------------------------------------------------------------------------------------------- progress


class _Bar:
    """`shown`: to a person at a terminal."""

    def __init__(self, title: str, total: int | None, *, shown: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.progress = Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown)
        self.task = self.progress.add_task(title, total=total)

    def start(self) -> None:
        self.progress.start()

    def advance(self) -> None:
        self.progress.advance(self.task)


@contextlib.contextmanager
def _bar(title: str, total: int | None) -> Iterator[_Bar]:
    """Rule 2."""
    bar = _Bar(title, total, shown=(total is None or total >= 2) and sys.stderr.isatty())
    try:
        yield bar
    finally:
        bar.progress.stop()
