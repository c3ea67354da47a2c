"""Minimal preemption: candidates are taken away until it fits, then those that were not needed are given back.

Source: Kueue, pkg/scheduler/preemption (remove workloads until the new one fits, then add back in reverse).

Theory of operation
  A notice, a job that preempts best-effort, a lease's slot and a usage limit all ask the same: whose end makes room, and whose
  would be for nothing?  They differ in the candidates, in their order, and in what "it fits" is: enough hosts are empty, a job
  finds hosts, a slot does, a limit is kept.  That is the *trial*.  It follows each step incrementally, so that none costs more
  than what the candidate holds.

Rules
  1. Candidates are taken in their order, the cheapest first, until it fits.  The order may depend on those taken already.
  2. Then each is given back without which it still fits, the last taken first; so the dearest is spared before the cheapest.
  3. What remains is minimal, provided that giving a candidate back never makes room: without any one of them it does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

Candidate = TypeVar("Candidate")
Taken = TypeVar("Taken", contravariant=True)


class Trial(Protocol[Taken]):
    """Where room is made, hypothetically.  `fits` is asked after each `take`; once it is true, no more is taken."""

    def take(self, candidate: Taken, /) -> None: ...

    def fits(self) -> bool: ...

    def give_back(self, candidate: Taken, /) -> bool:
        """True if it fits with the candidate back, which then stays; else nothing has changed."""
        ...


def minimal(candidates: Iterable[Candidate], trial: Trial[Candidate]) -> list[Candidate] | None:
    """The victims, in their order; None if it does not fit with all candidates taken.  Only for what does not fit yet."""
    gone = until_fits(candidates, trial.take, trial.fits)
    return None if gone is None else needed(gone, trial.give_back)


def until_fits(
    candidates: Iterable[Candidate], take: Callable[[Candidate], None], fits: Callable[[], bool]
) -> list[Candidate] | None:
    """Rule 1: those that were taken, in their order."""
    gone: list[Candidate] = []
    for candidate in candidates:
        take(candidate)
        gone.append(candidate)
        if fits():
            return gone
    return None


def needed(gone: Sequence[Candidate], give_back: Callable[[Candidate], bool]) -> list[Candidate]:
    """Rule 2: those of `gone` that are not given back, in their order."""
    return [candidate for candidate in reversed(gone) if not give_back(candidate)][::-1]
