"""Made-up web load has its days, weeks, noise and crowds where and as large as its parameters say, and never changes."""

from __future__ import annotations

import hashlib
import math
from itertools import pairwise
from typing import Any

import pytest

from phoenix.simulate.text_input import InputError
from phoenix.simulate.web_csv import demand
from phoenix.simulate.web_model import generate

DAY = 1440  # minutes
CALM: dict[str, Any] = {"noise": 0, "crowds_per_week": 0}


def test_a_working_day_is_a_sine_between_night_and_afternoon() -> None:
    values = generate(1, 10_000, 1, **CALM).values
    assert len(values) == DAY
    assert values.index(max(values)) // 60 in (15, 16)
    assert values.index(min(values)) // 60 in (3, 4)
    assert (max(values), min(values)) == (10_000, 3_000)
    assert values[10 * 60] == pytest.approx(6_500, abs=20)  # half way up at 10:00


def test_the_weekend_is_quieter() -> None:
    values = generate(14, 10_000, 1, **CALM, weekend_share=0.5).values
    tops = [max(values[day * DAY : (day + 1) * DAY]) for day in range(14)]
    assert tops == [10_000] * 5 + [5_000] * 2 + [10_000] * 5 + [5_000] * 2


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_highest_interval_has_the_peak(seed: int) -> None:
    series = generate(14, 76_543, seed)
    assert max(series.values) == 76_543
    assert all(value >= 0 and value.is_integer() for value in series.values)
    assert max(level for _, level in demand(series, 64)) == 64


def test_noise_is_as_large_as_asked_and_fades() -> None:
    """Measured on the calm series under it: standard deviation, and correlation one memory later."""
    calm, noisy = generate(28, 1e9, 5, **CALM).values, generate(28, 1e9, 5, noise=0.1, crowds_per_week=0).values
    logs = [math.log(b / a) for a, b in zip(calm, noisy, strict=True)]
    mean = sum(logs) / len(logs)
    spread = math.sqrt(sum((x - mean) ** 2 for x in logs) / len(logs))
    assert spread == pytest.approx(0.1, rel=0.05)
    later = sum((a - mean) * (b - mean) for a, b in zip(logs, logs[15:], strict=False)) / (len(logs) - 15)
    assert later / spread**2 == pytest.approx(math.exp(-1), abs=0.06)
    sudden = generate(2, 1e9, 5, noise=0.1, noise_memory_s=0, crowds_per_week=0).values
    assert max(abs(math.log(b / a)) for a, b in pairwise(sudden)) > 0.3


def test_crowds_come_suddenly_and_fade_exponentially() -> None:
    """Without a cycle or noise what is left are the crowds themselves."""
    flat = {"night_share": 1, "weekend_share": 1, "noise": 0}
    values = generate(70, 1e9, 3, crowds_per_week=1, **flat).values
    ground = min(values)
    starts = [i for i, (a, b) in enumerate(pairwise(values)) if b > 1.02 * a and a < 1.05 * ground]
    assert 4 <= len(starts) <= 16  # ten weeks, Poisson
    first = starts[0]
    top = max(range(first, first + 10), key=values.__getitem__)
    assert 4 <= top - first <= 6  # 300 s
    assert (values[top + 60] - ground) / (values[top] - ground) == pytest.approx(math.exp(-1), abs=0.01)
    heights = [max(values[i : i + 10]) / ground - 1 for i in starts]
    assert all(
        0.7 <= height <= 2.4 for height in heights
    )  # 1.5 × (0.5 to 1.5); cut a little by the interval; may add up


def test_other_crowds_leave_the_days_between_in_shape() -> None:
    without, many = generate(14, 1e9, 9, crowds_per_week=0).values, generate(14, 1e9, 9, crowds_per_week=2).values
    before = without[:200]  # the first crowd of this seed comes after that
    scale = many[0] / without[0]
    assert scale < 1
    assert [round(value * scale / 10) for value in before] == pytest.approx([round(v / 10) for v in many[:200]], abs=1)


def test_intervals_may_have_any_length() -> None:
    series = generate(0.5, 100, 1, 5.0)
    assert (len(series.starts), series.starts[1], series.end_s) == (8640, 5.0, 43_200.0)


def test_a_seed_gives_the_same_load_everywhere() -> None:
    values = generate(7, 100_000, 42).values
    assert hashlib.sha256(repr(values).encode()).hexdigest()[:16] == "a44a1ac5d847800d"
    assert values == generate(7, 100_000, 42).values != generate(7, 100_000, 43).values


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"days": 0}, "days must be above 0, not 0"),
        ({"peak": math.nan}, "peak must be above 0, not nan"),
        ({"interval_s": -1}, "interval_s must be above 0, not -1"),
        ({"noise": -0.1}, "noise must be 0 or more, not -0.1"),
        ({"night_share": 1.5}, "night_share must be above 0 and at most 1, not 1.5"),
        ({"interval_s": 1e-6}, "1,209,600,000,000 intervals; 2 to 10,000,000 are possible"),
        ({"interval_s": 1e9}, "0 intervals"),
    ],
)
def test_values_without_meaning_are_refused(changed: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        generate(**{"days": 14, "peak": 100, "seed": 1, **changed})  # type: ignore[arg-type]
