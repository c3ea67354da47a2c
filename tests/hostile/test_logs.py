"""Nobody washes a log away: of one kind of line a few are written, and how many were left out."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, Iterator

import pytest

from services.runtime import log
from services.runtime.log_flood import AT_ONCE, PER_S, Flood

FLOOD = 100_000


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    kept = [(one, list(one.handlers), one.level, one.propagate) for one in map(logging.getLogger, ("phoenix", ""))]
    hooks = sys.excepthook, sys.unraisablehook
    text = io.StringIO()
    monkeypatch.setattr(sys, "stderr", text)
    log.configure("info")
    yield text
    for one, handlers, level, propagates in kept:
        one.handlers[:] = handlers
        one.setLevel(level)
        one.propagate = propagates
    sys.excepthook, sys.unraisablehook = hooks
    logging.captureWarnings(False)


@pytest.mark.long
def test_a_flood_of_refusals_leaves_the_other_lines(said: io.StringIO) -> None:
    logger = log.get_log()
    for number in range(FLOOD):
        logger.warning("reply subject refused", reply=f"x{number}")
        if number % (FLOOD // 10) == 0:
            logger.error("something else", number=number)
    lines = said.getvalue().splitlines()
    assert sum("something else" in line for line in lines) == 10
    assert AT_ONCE <= sum("reply subject refused" in line for line in lines) < FLOOD // 100


def test_what_is_left_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    now, told = [0.0], []
    event_of: Callable[[logging.LogRecord], str] = lambda record: str(record.args[0]) if record.args else ""  # noqa: E731
    flood = Flood(event_of, lambda record, count: told.append((record.getMessage(), count)), lambda: now[0])

    def line(level: int, event: str) -> bool:
        return flood.filter(logging.LogRecord("phoenix", level, "", 0, "%s", (event,), None))

    assert sum(line(logging.WARNING, "a") for _ in range(1000)) == AT_ONCE
    assert all(line(logging.DEBUG, "a") for _ in range(1000))
    assert line(logging.INFO, "b")
    assert told == []
    now[0] += 1 / PER_S
    assert line(logging.ERROR, "a")
    assert not line(logging.WARNING, "a")
    assert told == [("a", 1000 - int(AT_ONCE))]
