"""Simulated jobs that checkpoint: after a fixed number of seconds of work they stop for as long as saving takes, and continue.

Theory of operation
  A job of `run_s` with a period and a cost runs for run_s + n · cost in a life that does it all, n the checkpoints on
  the way (`batch.saved`); the j-th is whole after j · (period + cost).  A life that is cut short has done what its
  whole checkpoints hold; the next one begins from there, and pays for its own.

Rules
  1. None at the end: a job that is about to finish does not save.
  2. A checkpoint that was not whole when the life was cut short saves nothing.
  3. A life that is suspended continues where it stopped, also amid a checkpoint.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Habit(NamedTuple):
    """Every `every_s` seconds of work, at a cost in seconds."""

    every_s: float
    cost_s: float

    def count(self, work_s: float) -> int:
        """Rule 1: checkpoints on the way through so much work."""
        return max(0, math.ceil(work_s / self.every_s) - 1)


class Life:
    """What a job does from its last whole checkpoint on.  `work_s`: what is left of it."""

    __slots__ = ("done", "habit", "work_s")

    def __init__(self, work_s: float, habit: Habit | None) -> None:
        self.work_s, self.habit, self.done = work_s, habit, 0  # done: whole checkpoints

    @property
    def length_s(self) -> float:
        """How long it runs undisturbed."""
        return self.work_s if self.habit is None else self.work_s + self.habit.count(self.work_s) * self.habit.cost_s

    @property
    def next_s(self) -> float | None:
        """After how much of its running the next checkpoint is whole; None: there is none."""
        if self.habit is None or self.done >= self.habit.count(self.work_s):
            return None
        return (self.done + 1) * (self.habit.every_s + self.habit.cost_s)

    def cut_short(self) -> Life:
        """The life after this one (rule 2)."""
        saved_s = self.done * self.habit.every_s if self.habit is not None else 0.0
        return Life(self.work_s - saved_s, self.habit)
