"""Rows that wait for the file: what was folded while nothing can be written, as far as memory holds it.

Rules
  1. Batches leave in the order in which they came, each when it is stored with its position: nothing is passed over.
  2. Beyond `ROWS_MAX` nothing more is taken (`lost`), and what is here stays: when it is stored, the file is at a position of
     the journal from which the next start of the monitor folds the rest.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from services.monitor.history.rows import Statement

BATCH: Final = 20_000  # statements of one commit: about a tenth of a second
ROWS_MAX: Final = 500_000  # about 90 MB: twenty minutes of a busy cloud, a day of a small one


@dataclass(slots=True)
class Batch:
    """`at`: position and index of the last fact whose rows are in it."""

    statements: list[Statement]
    at: tuple[int, int]


class Backlog:
    def __init__(self) -> None:
        self.lost = False  # rule 2: what came later is not here
        self._batches: deque[Batch] = deque()
        self._rows = 0

    def add(self, statements: list[Statement], at: tuple[int, int]) -> None:
        if self.lost or (self._rows and self._rows + len(statements) > ROWS_MAX):
            self.lost = True
            return
        self._rows += len(statements)
        if self._batches and len(self._batches[-1].statements) + len(statements) <= BATCH:
            self._batches[-1].statements += statements
            self._batches[-1].at = at
        else:
            self._batches.append(Batch(statements, at))

    @property
    def first(self) -> Batch | None:
        return self._batches[0] if self._batches else None

    def stored(self) -> None:
        """The first batch is in the file."""
        self._rows -= len(self._batches.popleft().statements)
