"""The real monitor as a process that is killed at a call that is chosen: before it, in its middle, after it.

    python -m tests.support.monitor_struck FILE          a line in: the number of a point, or `-`; lines out: `pid N`, `code N`

Theory of operation
  This program imports the monitor once and forks a process for each line, so that a start costs a tenth of a second instead of
  one.  What the process runs is `python -m services.monitor --config FILE` with small limits; at its point it sends itself
  SIGKILL, so that nothing of it runs any more, no `finally` and no buffer.  What is in the kernel stays, as with any kill.

Rules
  1. A point is a function of the product and a moment: the `number`th call, since the process began.  The function itself is as
     it is; a middle is made with the function's own arguments (`_HALVES`).
  2. The limits are smaller than a user may set them: a trim every few messages, segments of a few, commits all the time.
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from nats.js import JetStreamContext

from services.monitor import edge
from services.monitor.__main__ import build
from services.monitor.history import archivist, file
from services.monitor.history.archivist import Archivist
from services.monitor.history.file import History
from services.runtime import main
from services.runtime.broker.objects import Objects
from services.runtime.journal import archive
from services.runtime.journal.snapshots import Snapshots

SEGMENT_MAX: Final = 8
STEP_MIN: Final = 12  # so that a step is two segments at least
LOOK_S: Final = 0.02
COMMIT_S: Final = 0.01


class When(StrEnum):
    BEFORE = "before"
    WITHIN = "in the middle of"
    AFTER = "after"


class Point(NamedTuple):
    what: str
    owner: Any
    name: str
    when: When
    number: int = 1

    @property
    def title(self) -> str:
        return f"{self.when} {self.what}"


def _around(what: str, owner: Any, name: str, number: int = 1) -> tuple[Point, ...]:
    return Point(what, owner, name, When.BEFORE, number), Point(what, owner, name, When.AFTER, number)


def _whole(what: str, owner: Any, name: str, number: int = 1) -> tuple[Point, ...]:
    before, after = _around(what, owner, name, number)
    return before, Point(what, owner, name, When.WITHIN, number), after


POINTS: Final = (
    *_whole("a commit of the history", History, "_write", 3),
    *_around("the monitor's snapshot is saved", Snapshots, "save", 2),
    Point("the monitor's snapshot, its description", Objects, "_describe", When.BEFORE, 2),
    *_whole("a segment of the archive is written", archive, "_write_synced", 2),
    *_whole("its line of the chain", archive, "_add_line", 2),
    *_around("the mark", archivist, "write_mark"),
    Point("the purge", Archivist, "_purge", When.BEFORE),
    Point("the purge of the first subject", JetStreamContext, "purge_stream", When.AFTER),
    Point("the purge", Archivist, "_purge", When.AFTER),
)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# ------------------------------------------------------------------------------------------------------ the middle of a call


def _half_a_file(path: Path, content: bytes) -> None:
    path.with_suffix(".part").write_bytes(content[: len(content) // 2])
    die()


def _half_a_line(chain: Path, line: bytes) -> None:
    with chain.open("ab") as lines:
        lines.write(line[: len(line) // 2])
    die()


def _before_commit(history: History, *words: Any) -> None:
    """All rows are written, and the transaction is open: the second from here, so that it would be the other one if position
    and rows were committed apart."""
    commits = 0

    def traced(sql: str) -> None:
        nonlocal commits
        commits += sql.startswith("COMMIT")
        if commits == 2:
            die()

    database: sqlite3.Connection = history.database
    database.set_trace_callback(traced)
    _WRITE(history, *words)


_WRITE: Final = History._write
_HALVES: Final[dict[str, Callable[..., None]]] = {
    "_write_synced": _half_a_file,
    "_add_line": _half_a_line,
    "_write": _before_commit,
}


# ------------------------------------------------------------------------------------------------------------- the process


def arm(point: Point) -> None:
    """Rule 1."""
    function = getattr(point.owner, point.name)
    calls = 0

    def struck(*words: Any) -> bool:
        """Before a call.  True: after it, too."""
        nonlocal calls
        calls += 1
        if calls != point.number:
            return False
        if point.when is When.BEFORE:
            die()
        if point.when is When.WITHIN:
            _HALVES[point.name](*words)
        return True

    @functools.wraps(function)
    def call(*words: Any, **named: Any) -> Any:
        last = struck(*words)
        found = function(*words, **named)
        return die() if last else found

    @functools.wraps(function)
    async def call_async(*words: Any, **named: Any) -> Any:
        last = struck(*words)
        found = await function(*words, **named)
        return die() if last else found

    setattr(point.owner, point.name, call_async if inspect.iscoroutinefunction(function) else call)


def hasten() -> None:
    """Rule 2."""
    archive.SEGMENT_MAX = archivist.SEGMENT_MAX = SEGMENT_MAX  # type: ignore[misc]
    archivist.LOOK_S = LOOK_S  # type: ignore[misc]
    Archivist.look.__defaults__ = (STEP_MIN,)
    edge.COMMIT_S = COMMIT_S  # type: ignore[misc]
    assert file.COMMIT_S >= COMMIT_S


def be_the_monitor(config: str, point: Point | None) -> None:
    """In the forked process; does not return."""
    code = 1
    try:
        hasten()
        if point is not None:
            arm(point)
        code = main.run("monitor", build, ["--config", config])
    finally:
        os._exit(code)


def run(config: str) -> int:
    for line in sys.stdin:
        point = None if line.strip() == "-" else POINTS[int(line)]
        pid = os.fork()
        if not pid:
            be_the_monitor(config, point)
        print(f"pid {pid}", flush=True)
        print(f"code {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1]))
