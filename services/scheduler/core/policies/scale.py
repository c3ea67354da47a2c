"""What a scaling rule is: two pure functions, one that remembers what was observed, one that says how many instances follow.

    follow(memory, heard, policy) -> memory                     an observation comes in
    wanted(memory, serving, current, policy) -> (n, reason)     instances; `current`: as many as are wanted until now

Rules
  1. What a rule remembers is in the core's state, and bounded; neither function changes what it is given.
  2. The bounds (minimum, maximum, a person's word, a missing signal) are the core's: a rule speaks of the load alone.

A new rule is one module with such functions, and its entry in `registry`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import msgspec

from schemas.config import WebPolicy
from schemas.reasons import Reason
from services.scheduler.core.state.load import Sample

Level: TypeAlias = tuple[float, int]  # (when it was observed, instances wanted)


class Track(msgspec.Struct, frozen=True):
    """What rule target-tracking remembers: see there."""

    since: float = 0.0  # begin of what was observed without a gap
    end: float = 0.0  # end of the last observation
    serving: int = 0  # instances in service in it
    utilisation: float = 0.0
    high: tuple[Level, ...] = ()  # of the down window: strictly falling, the first is the highest
    low: tuple[Level, ...] = ()  # of the up window: strictly rising, the first is the lowest


class Memory(NamedTuple):
    samples: list[Sample]  # since the number in service last changed
    track: Track


class Heard(NamedTuple):
    """An observation of `serving` instances, whose number last changed at `since`.  `counted`: it comes from counting requests,
    which an overload neither hides nor multiplies."""

    sample: Sample
    serving: int
    since: float
    counted: bool = False


def level(policy: WebPolicy) -> float:
    """The utilisation that the rule keeps."""
    return policy.target if policy.rule == "target-tracking" else policy.threshold


class Rule(NamedTuple):
    """`looks_back_s`: how far back the load decides; of a rule whose reasons are a `because.Utilisation`, into which goes who
    reported that load, and how many requests it was."""

    follow: Callable[[Memory, Heard, WebPolicy], Memory]
    wanted: Callable[[Memory, int, int, WebPolicy], tuple[int, Reason]]
    hurried: bool  # True: what decides something is not kept back until its second is over (`edge_web`)
    looks_back_s: Callable[[WebPolicy], float] | None = None
