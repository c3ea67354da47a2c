"""Means over seeds, their 95 % intervals, and what they say of a claim."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

Verdict = Literal["holds", "does not hold", "open"]
# Student's t for a two-sided 95 %, by degrees of freedom; beyond 30 the interval is a little too wide.
T_95: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and half of its 95 % interval; None with one value."""
    middle = mean(values)
    if len(values) < 2:
        return middle, None
    deviation = math.sqrt(math.fsum((value - middle) ** 2 for value in values) / (len(values) - 1))
    return middle, T_95[min(len(values) - 1, len(T_95)) - 1] * deviation / math.sqrt(len(values))


def verdict(differences: Sequence[float]) -> Verdict:
    """Of "each is at least 0": what the interval of their mean says; `open` if it has 0 in it, or if there is one value."""
    middle, half = spread(differences)
    if half is None or abs(middle) <= half:
        return "open"
    return "holds" if middle > 0 else "does not hold"


def interval(values: Sequence[float], *, sign: bool = False, digits: int = 0) -> str:
    """Mean and 95 % interval, as text."""
    middle, half = spread(values)
    text = f"{middle:{'+' if sign else ''},.{digits}f}"
    return text if half is None else f"{text} ± {half:,.{digits}f}"
