"""The window of a web department's load: what the last `window_s` say about the instances in service.

Rules
  1. A sample is a span of time and the mean utilisation in it.  Spans are in order; a late or repeated one is dropped.
  2. Only samples that began after the number of instances in service last changed count: earlier ones are about another number.
     So after each change a whole window passes before the next step (paper, III-C: "in the past 20 seconds").
  3. A gap shorter than `signal_timeout_s` is bridged: it adds nothing to the mean.  After a longer one the window restarts.
  4. The window is covered when its samples reach back `window_s` from the end of the last one, and at least COVERED_MIN of it
     was measured.  Else there is no mean, and nothing is decided on it.
"""

from __future__ import annotations

from typing import Final

import msgspec

COVERED_MIN: Final = 0.5  # less than half measured is no mean of the window
_ROUNDING_S: Final = 1e-6  # a float of UTC seconds has a resolution of 2e-7


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """Mean `utilisation` in [start, end), UTC seconds."""

    start: float
    end: float
    utilisation: float


def follow(samples: list[Sample], sample: Sample, *, since: float, window_s: float, gap_s: float) -> list[Sample]:
    """The samples with `sample` added and what is too old left out.  `since`: rule 2; `gap_s`: rule 3."""
    last = samples[-1].end if samples else since
    if sample.end <= sample.start or sample.start < last - _ROUNDING_S:
        return samples
    kept = samples if sample.start - last < gap_s else []
    oldest = sample.end - window_s
    return [old for old in kept if old.end > oldest + _ROUNDING_S] + [sample]


def mean(samples: list[Sample], window_s: float) -> float | None:
    """Mean utilisation over the window that ends with the last sample; None if it is not covered (rule 4)."""
    if not samples:
        return None
    begin = samples[-1].end - window_s
    if samples[0].start > begin + _ROUNDING_S:
        return None
    spans = [(sample.end - max(sample.start, begin), sample.utilisation) for sample in samples]
    measured = sum(span for span, _ in spans)
    if measured < COVERED_MIN * window_s:
        return None
    return sum(span * utilisation for span, utilisation in spans) / measured
