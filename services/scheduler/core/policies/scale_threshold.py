"""Scaling by a threshold: one instance more or fewer, by the mean utilisation of a window.

Source: Phoenix Cloud paper, III-C (80 % over 20 s).

Rules, with n instances in service and u their mean utilisation over a covered window (`state.load`)
  1. u ≥ threshold: n + 1.  While an instance is on its way (current > n) a high load asks for no more than n + 1.
  2. u < threshold · (n − 1) / n: n − 1, since one fewer would still be below the threshold.  Never fewer than one.
  3. The window restarts when the number in service changes: a whole window passes between two steps.
  4. Before it is covered the reason says so, and how much of it is missing, if that is known.
"""

from __future__ import annotations

from typing import Any

from schemas import reasons as because
from schemas.config import WebPolicy
from schemas.reasons import Reason
from services.scheduler.core.policies.scale import Heard, Memory, Rule
from services.scheduler.core.state.load import follow as into_window
from services.scheduler.core.state.load import mean


def follow(memory: Memory, heard: Heard, policy: WebPolicy) -> Memory:
    """Rule 3."""
    samples = into_window(
        memory.samples, heard.sample, since=heard.since, window_s=policy.window_s, gap_s=policy.signal_timeout_s
    )
    return memory._replace(samples=samples)


def wanted(memory: Memory, serving: int, current: int, policy: WebPolicy) -> tuple[int, Reason]:
    """Rules 1 and 2."""
    n, threshold = serving, policy.threshold
    utilisation = mean(memory.samples, policy.window_s) if n else None
    if utilisation is None:
        return current, because.UtilisationSteady(instances=n, open_s=policy.window_s, left_s=_left_s(memory, policy))
    seen: dict[str, Any] = {"utilisation": round(utilisation, 4), "instances": n, "window_s": policy.window_s}
    if utilisation >= threshold:
        return max(current, n + 1), because.UtilisationHigh(threshold=threshold, **seen)
    low = threshold * (n - 1) / n
    if utilisation < low:
        return min(current, n - 1), because.UtilisationLow(threshold=round(low, 4), **seen)
    return current, because.UtilisationSteady(**seen)


def _left_s(memory: Memory, policy: WebPolicy) -> float | None:
    """Rule 4: how long until the window is full; None if it is."""
    samples = memory.samples
    left_s = policy.window_s - (samples[-1].end - samples[0].start) if samples else 0.0
    return round(left_s, 3) if left_s > 0 else None


def looks_back_s(policy: WebPolicy) -> float:
    return policy.window_s


RULE = Rule(follow, wanted, hurried=True, looks_back_s=looks_back_s)
