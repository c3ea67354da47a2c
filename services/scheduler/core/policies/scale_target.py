"""Scaling to a target: as many instances as keep the utilisation where it should be, at once, with a window for each direction.

Source: the Kubernetes horizontal pod autoscaler: its ratio of utilisation and target, and its two stabilisation windows.

Rules
  1. Each observation recommends ceil(n · u / target) instances, n in service and u their utilisation; n itself while u is
     within `tolerance` of the target; at least one, at most `instances_max` and RATIO_MAX · n.  An overload hides its size,
     as a processor cannot be busier than all the time: then each step grows by 1 / target at most.  Requests are counted as
     they come in, so where they are the measure a rush is met in one step, without RATIO_MAX.
  2. Up: to the least that was recommended in the last `up_window_s`, so more must be wanted throughout it.
     Down: to the most that was recommended in the last `down_window_s`, so a dip shorter than that costs nothing.
  3. A window decides once it is covered: what was wanted in a time without observations is unknown.  A gap as long as
     `signal_timeout_s` restarts both.  A change of the number in service does not: a recommendation is about the load.
  4. An observation that began before that change is dropped: it speaks of two numbers.
  5. Remembered are the recommendations that can still be the most or the least of a window: those that no later one matches.
     They fall (or rise) strictly, so there are at most `instances_max`, and no more than the window has observations.
  6. The reason states what the last observation recommends, if a window holds the number, and when it may let go at the
     earliest: once it is covered, and the last recommendation that forbids the step has left it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from schemas import reasons as because
from schemas.config import WebPolicy
from schemas.reasons import Reason
from services.scheduler.core.policies.scale import Heard, Level, Memory, Rule, Track

RATIO_MAX: Final = 2.0  # work that waits is counted again and again: no meter's backlog more than doubles a department
_ROUNDING: Final = 1e-6  # instances: 3 · 0.8 / 0.8 is 3
_ROUNDING_S: Final = 1e-6  # a float of UTC seconds has a resolution of 2e-7


def recommended(serving: int, utilisation: float, policy: WebPolicy, *, counted: bool = False) -> int:
    """Rule 1."""
    ratio = utilisation / policy.target
    if abs(ratio - 1.0) <= policy.tolerance + _ROUNDING:
        return serving
    ratio = ratio if counted else min(ratio, RATIO_MAX)
    return max(1, min(policy.instances_max, math.ceil(serving * ratio - _ROUNDING)))


def follow(memory: Memory, heard: Heard, policy: WebPolicy) -> Memory:
    """Rules 3 to 5."""
    track, sample = memory.track, heard.sample
    begun = max(track.end, heard.since)
    if not heard.serving or sample.end <= sample.start or sample.start < begun - _ROUNDING_S:
        return memory
    known = track if sample.start - track.end < policy.signal_timeout_s else Track(since=sample.start)
    level = (sample.end, recommended(heard.serving, sample.utilisation, policy, counted=heard.counted))
    return memory._replace(
        track=Track(
            since=known.since,
            end=sample.end,
            serving=heard.serving,
            utilisation=sample.utilisation,
            high=_kept(known.high, level, policy.down_window_s, lambda old, new: old > new),
            low=_kept(known.low, level, policy.up_window_s, lambda old, new: old < new),
        )
    )


def _kept(
    levels: tuple[Level, ...], new: Level, window_s: float, counts: Callable[[int, int], bool]
) -> tuple[Level, ...]:
    """Rule 5: those of the window that `new` does not match, and `new`."""
    oldest = new[0] - window_s + _ROUNDING_S
    return (*(level for level in levels if level[0] > oldest and counts(level[1], new[1])), new)


def wanted(memory: Memory, serving: int, current: int, policy: WebPolicy) -> tuple[int, Reason]:
    """Rules 2 and 3."""
    track = memory.track
    if not serving or not track.high:
        return current, because.UtilisationSteady(instances=serving)
    seen: dict[str, Any] = {
        "utilisation": round(track.utilisation, 4),
        "instances": track.serving,
        "target": policy.target,
    }
    least, most = track.low[0][1], track.high[0][1]
    if least > current and _covered(track, policy.up_window_s):
        return least, because.UtilisationHigh(wanted=least, window_s=policy.up_window_s, **seen)
    if most < current and _covered(track, policy.down_window_s):
        return most, because.UtilisationLow(wanted=most, window_s=policy.down_window_s, **seen)
    return current, because.UtilisationSteady(**seen, **_held(track, current, policy))


def _held(track: Track, current: int, policy: WebPolicy) -> dict[str, Any]:
    """Rule 6."""
    asked = track.high[-1][1]
    if asked == current:
        return {}
    down = asked < current
    levels, window_s = (track.high, policy.down_window_s) if down else (track.low, policy.up_window_s)
    against = [at for at, level in levels if (level >= current if down else level <= current)]
    free_at = max([track.since, *against]) + window_s
    told: dict[str, Any] = {"held": current, "asked": asked, "held_s": window_s}
    return told | {"against": len(against), "left_s": max(0.0, round(free_at - track.end, 3))}


def _covered(track: Track, window_s: float) -> bool:
    return track.since <= track.end - window_s + _ROUNDING_S


def looks_back_s(policy: WebPolicy) -> float:
    return max(policy.up_window_s, policy.down_window_s)


RULE = Rule(follow, wanted, hurried=False, looks_back_s=looks_back_s)
