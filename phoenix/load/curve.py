"""When requests arrive: a rate over time, and the moments that follow from it.

It decides nothing about what is sent or what comes back: an arrival is due at its moment whether or not the one before it has
been answered.  That is what makes the load open.

Rules
  1. A curve is steps: `rates[i]` requests a second from `starts[i]` to `starts[i + 1]`, the last one to `end_s`.
  2. Arrivals are counted on the curve's own integral L(t), the requests due until t.  Paced: one at L = 1/2, 3/2, 5/2, …
     Poisson: the gaps in L are exponential with mean 1 (Lewis and Shedler 1979; a time change, so no arrival is thrown away).
  3. The same curve and seed give the same moments.  What each request is (method, connection) comes from dice of its own:
     another share of POST does not move an arrival.
"""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec

REQUESTS_MAX: Final = 2_000_000  # of one run: 100 bytes each in memory, and hours at any rate that one process sends
RATE_MAX: Final = 20_000.0  # requests a second: several times what one process in Python sends
SECONDS_MAX: Final = 24 * 3600.0
FRESH: Final = 1  # flags of a request: it opens a connection of its own, and closes it
POST: Final = 2


class LoadError(Exception):
    """What is asked for cannot be played; the message says why and what can."""


class Curve(msgspec.Struct, frozen=True):
    """Rule 1.  Times in seconds from the beginning of the run."""

    starts: tuple[float, ...]
    rates: tuple[float, ...]
    end_s: float

    def __post_init__(self) -> None:
        if len(self.starts) != len(self.rates) or not self.starts or self.starts[0] != 0:
            raise LoadError("a curve has a rate for each step, and its first step begins at 0")
        if any(later <= earlier for earlier, later in pairwise((*self.starts, self.end_s))):
            raise LoadError("the steps of a curve begin one after the other, and the last before its end")
        if not 0 < self.end_s <= SECONDS_MAX:
            raise LoadError(f"a run lasts above 0 and at most {SECONDS_MAX / 3600:g} h, not {self.end_s:g} s")
        if not all(0 <= rate <= RATE_MAX for rate in self.rates):  # not a number is neither
            raise LoadError(f"a rate is 0 to {RATE_MAX:,.0f} requests a second; one process sends no more")
        if self.requests > REQUESTS_MAX:
            raise LoadError(
                f"{self.requests:,.0f} requests; one run has at most {REQUESTS_MAX:,}: ask for less, or shorter"
            )

    @property
    def requests(self) -> float:
        """How many are expected in all."""
        return math.fsum(rate * (until - since) for since, until, rate in self.steps())

    @property
    def peak(self) -> float:
        return max(self.rates)

    def steps(self) -> Iterator[tuple[float, float, float]]:
        """(since, until, requests a second)."""
        for (since, until), rate in zip(pairwise((*self.starts, self.end_s)), self.rates, strict=True):
            yield since, until, rate


def constant(rate: float, seconds: float) -> Curve:
    return Curve((0.0,), (rate,), seconds)


def arrivals(curve: Curve, seed: int | None) -> Iterator[float]:
    """The moments, rising.  `seed` None: paced, else Poisson (rule 2)."""
    dice = None if seed is None else random.Random(seed)  # noqa: S311  # repeatable load, not a secret
    due = dice.expovariate(1.0) if dice else 0.5
    passed = 0.0
    for since, until, rate in curve.steps():
        here = rate * (until - since)
        while due < passed + here:
            yield since + (due - passed) / rate
            due += dice.expovariate(1.0) if dice else 1.0
        passed += here


class Plan(msgspec.Struct, frozen=True):
    """Every request of a run: when it is due (seconds from the beginning), and its flags (FRESH, POST)."""

    due: Sequence[float]
    flags: Sequence[int]
    curve: Curve


def plan(curve: Curve, *, seed: int, paced: bool = False, fresh_share: float = 0.0, post_share: float = 0.0) -> Plan:
    """Everything that is decided before the run.  Shares are 0 to 1 of the requests."""
    due = array("d")
    for at in arrivals(curve, None if paced else seed):
        if len(due) == REQUESTS_MAX:
            raise LoadError(f"one run has at most {REQUESTS_MAX:,} requests: ask for less, or shorter")
        due.append(at)
    dice = random.Random(f"{seed} kinds")  # noqa: S311  # rule 3
    kinds = ((dice.random() < fresh_share, dice.random() < post_share) for _ in due)
    return Plan(due, bytearray(FRESH * fresh | POST * post for fresh, post in kinds), curve)
