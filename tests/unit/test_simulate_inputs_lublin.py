"""The batch model has the statistics that its published parameters say, keeps its day at any load, and never changes."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from itertools import pairwise

import pytest

from phoenix.simulate import lublin, swf
from phoenix.simulate.lublin import ALL, BATCH, Gamma, Model, day_weights, generate
from phoenix.simulate.text_input import InputError
from phoenix.simulate.variates import Variates
from phoenix.simulate.workload import LogJob

JOBS = 20_000
MODELS = pytest.mark.parametrize("model", [BATCH, ALL], ids=["batch", "all"])
BY_MODEL: dict[Model, list[LogJob]] = {}


def sample(model: Model) -> list[LogJob]:
    """One sample for all tests: made once, read only."""
    if model not in BY_MODEL:
        BY_MODEL[model] = generate(JOBS, 128, 7, model=model)
    return BY_MODEL[model]


def share(jobs: list[LogJob], wanted: list[bool]) -> float:
    assert len(wanted) == len(jobs)
    return sum(wanted) / len(jobs)


def four_sigma(p: float) -> float:
    return 4 * math.sqrt(p * (1 - p) / JOBS)


def offered(jobs: list[LogJob], processors: int) -> float:
    return math.fsum(job.run_s * job.processors for job in jobs) / processors / jobs[-1].submit_s


@MODELS
def test_serial_jobs_have_their_published_share(model: Model) -> None:
    jobs = sample(model)
    serial = share(jobs, [job.processors == 1 for job in jobs])
    assert serial == pytest.approx(model.serial, abs=four_sigma(model.serial))


@MODELS
def test_powers_of_two_have_at_least_their_published_share(model: Model) -> None:
    """Some of the others fall on a power of two as well: 2 and 4 are near to much."""
    jobs = sample(model)
    powers = share(jobs, [job.processors & (job.processors - 1) == 0 for job in jobs])
    assert model.serial + model.power_of_two - four_sigma(0.1) < powers < model.serial + model.power_of_two + 0.06


@MODELS
def test_parallel_sizes_have_the_mean_of_the_two_stage_uniform(model: Model) -> None:
    jobs = sample(model)
    logs = [math.log2(job.processors) for job in jobs if job.processors > 1]
    med = 7 - model.med_below_hi
    mean = (model.first_stage * model.low + med + (1 - model.first_stage) * 7) / 2  # as the authors give it
    assert sum(logs) / len(logs) == pytest.approx(mean, abs=0.07)  # rounding to whole numbers moves it a little
    assert max(job.processors for job in jobs) == 128
    large = sum(x > 5.5 for x in logs) / len(logs)  # 5.5 to 7 of [med, 7], the second stage; rounding does not cross it
    assert large == pytest.approx((1 - model.first_stage) * 1.5 / model.med_below_hi, abs=0.01)


@MODELS
@pytest.mark.parametrize("size", [1, 4, 16, 128])
def test_run_times_have_the_mean_of_the_hyper_gamma_of_their_size(model: Model, size: int) -> None:
    """Of the logarithm; the cut at 45 hours takes a little off."""
    logs = [math.log(job.run_s) for job in sample(model) if job.processors == size]
    short = model.pa * size + model.pb
    means = model.short.shape * model.short.scale, model.long.shape * model.long.scale
    mean = short * means[0] + (1 - short) * means[1]
    assert sum(logs) / len(logs) == pytest.approx(mean, abs=0.05 + 4 * 2.8 / math.sqrt(len(logs)))
    assert max(logs) <= lublin.LN_RUN_MAX


@MODELS
def test_large_jobs_are_longer(model: Model) -> None:
    jobs = sample(model)
    small = [job.run_s for job in jobs if job.processors <= 2]
    large = [job.run_s for job in jobs if job.processors >= 64]
    assert sum(large) / len(large) > 1.2 * sum(small) / len(small)


@MODELS
def test_arrivals_follow_the_cycle_of_the_day(model: Model) -> None:
    counts = Counter(int(job.submit_s % lublin.DAY_S // lublin.BUCKET_S) for job in sample(model))
    weights = day_weights(model)
    assert sum(weights) == pytest.approx(48)
    assert 25 <= weights.index(max(weights)) <= 28  # early afternoon
    assert 9 <= weights.index(min(weights)) <= 11  # before dawn
    for bucket, weight in enumerate(weights):
        expected = weight * JOBS / 48
        assert counts[bucket] == pytest.approx(expected, abs=6 * math.sqrt(expected))  # arrivals come in bursts


def test_gaps_are_those_of_the_published_gamma() -> None:
    """Asked of the model's own part, since the cycle of the day stretches what comes out."""
    chance = Variates(1, "gaps")
    logs = [math.log(lublin._gap(BATCH, chance)) for _ in range(JOBS)]
    assert sum(logs) / JOBS == pytest.approx(6.0415 * 1.0519 * 0.8531, abs=0.07)


@pytest.mark.parametrize("load", [0.3, 0.7, 1.5])
def test_a_load_is_offered_and_leaves_jobs_and_days_as_they_were(load: float) -> None:
    plain, loaded = sample(BATCH), generate(JOBS, 128, 7, load)
    assert offered(loaded, 128) == pytest.approx(load, rel=1e-3)
    assert [(j.number, j.run_s, j.processors, j.requested_s) for j in loaded] == [
        (j.number, j.run_s, j.processors, j.requested_s) for j in plain
    ]
    counts = Counter(int(job.submit_s % lublin.DAY_S // (6 * 3600)) for job in loaded)
    assert counts[0] < counts[1] < counts[2] > counts[3] > counts[0]


def test_requested_times_follow_the_f_model() -> None:
    jobs = [job for job in sample(BATCH) if job.run_s > 3600]
    ratios = [(job.requested_s or 0) / job.run_s for job in jobs]
    assert 1 <= min(ratios) < 1.1
    assert 3.9 < max(ratios) <= 4 + 60 / 3600
    assert sum(ratios) / len(ratios) == pytest.approx(2.5, abs=0.05)
    assert all((job.requested_s or 1) % 60 == 0 for job in jobs)
    exact = generate(100, 128, 7, estimate_factor=0)
    assert all(0 <= (job.requested_s or 0) - job.run_s < 60 for job in exact)


@pytest.mark.parametrize("processors", [1, 2, 3, 5, 100, 1000])
def test_no_job_is_larger_than_the_machine(processors: int) -> None:
    jobs = generate(2000, processors, 3)
    assert {1} <= {job.processors for job in jobs} <= set(range(1, processors + 1))
    assert processors == 1 or max(job.processors for job in jobs) > processors / 2


def test_jobs_are_a_log_in_order() -> None:
    jobs = sample(BATCH)
    assert [job.number for job in jobs] == list(range(1, JOBS + 1))
    assert all(a.submit_s <= b.submit_s for a, b in pairwise(jobs))
    assert all(job.submit_s.is_integer() and job.run_s.is_integer() and job.run_s >= 1 for job in jobs)


def test_a_seed_gives_the_same_jobs_everywhere() -> None:
    lines = "\n".join(map(swf.text, generate(1000, 128, 42, 0.7)))
    assert hashlib.sha256(lines.encode()).hexdigest()[:16] == "ffe7e67b8cb3cb54"
    assert generate(50, 128, 1) != generate(50, 128, 2)
    assert generate(50, 128, 1) == generate(100, 128, 1)[:50]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 128, 1), "1 to 10,000,000 jobs, not 0"),
        ((10, 0, 1), "1 to 16,777,216 processors, not 0"),
        ((10, 8, 1, 0.0), "offered load must be above 0"),
        ((10, 8, 1, math.nan), "offered load must be above 0"),
    ],
)
def test_what_makes_no_workload_is_refused(arguments: tuple[int, int, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        generate(*arguments)


def test_a_negative_factor_is_refused() -> None:
    with pytest.raises(InputError, match="factor of requested times must be 0 or more, not -1"):
        generate(10, 8, 1, estimate_factor=-1)


# ----------------------------------------------------------------------------------------------------------- distributions


@pytest.mark.parametrize(("shape", "scale"), [(1.0, 2.0), (6.57, 0.823), (639.1, 0.0156)])
def test_gamma_variates_have_their_distribution(shape: float, scale: float) -> None:
    """Kolmogorov and Smirnov's distance to the distribution function; 1.95 / √n is passed once in a thousand seeds."""
    chance, count = Variates(3, "gamma"), 5000
    drawn = sorted(chance.gamma(shape, scale) for _ in range(count))
    distance = max(abs(Gamma(shape, scale).share_below(x) - (i + 0.5) / count) for i, x in enumerate(drawn))
    assert distance < 1.95 / math.sqrt(count)


def test_the_distribution_function_is_the_known_one() -> None:
    assert Gamma(1, 2).share_below(3) == pytest.approx(1 - math.exp(-1.5), rel=1e-12)  # exponential
    assert Gamma(3, 1).share_below(2) == pytest.approx(1 - math.exp(-2) * (1 + 2 + 2), rel=1e-12)  # Erlang
    assert Gamma(3, 1).share_below(0) == 0


def test_normal_and_exponential_variates_have_their_moments() -> None:
    chance, count = Variates(5, "others"), 20_000
    normal = [chance.normal() for _ in range(count)]
    assert sum(normal) / count == pytest.approx(0, abs=0.03)
    assert sum(x * x for x in normal) / count == pytest.approx(1, abs=0.04)
    exponential = [chance.exponential(10) for _ in range(count)]
    assert sum(exponential) / count == pytest.approx(10, abs=0.3)
    assert sum(x > 10 for x in exponential) / count == pytest.approx(math.exp(-1), abs=0.015)


def test_a_shape_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Variates(1, "x").gamma(0.5, 1)


def test_streams_of_a_seed_are_independent() -> None:
    assert Variates(1, "a").uniform() != Variates(1, "b").uniform()
    assert Variates(1, "a").uniform() == Variates(1, "a").uniform()
