"""A batch workload made up after the model of Lublin and Feitelson.

Source: U. Lublin and D. G. Feitelson, The workload on parallel supercomputers: modeling the characteristics of rigid jobs,
Journal of Parallel and Distributed Computing 63(11), 2003; the parameters are those that the authors publish with their program
(Parallel Workloads Archive, model `lublin99`).  They were fitted to logs of machines with some hundred processors.

  1. Size: serial with a probability; else 2^x, where x is uniform in [low, med] or, less often, in [med, hi]; hi = log2 of the
     machine, med a constant below it.  For a share of the jobs x is rounded, so that powers of two come out on top.
  2. Run time: e^g seconds, g from one of two gamma distributions; the first, of short jobs, with probability pa·size + pb (kept
     within 0 to 1): large jobs are longer.  More than e^12 s (45 hours) is drawn again.
  3. Arrivals: e^g seconds to the next job, g gamma; more than e^13 s (5 days) is drawn again.  These are seconds of an average
     time of day: half-hours with more arrivals than the average pass faster, by the weights of a third gamma distribution
     over the day, which begins at 5:00.  Time 0 is midnight.
  4. Load: work offered by all jobs over processors · time of the last submission.  Another load stretches the seconds of
     rule 3, so that the day keeps 24 hours.
  5. The model says nothing of requested times.  They follow the f model: uniform in [run time, (f + 1)·run time] (D. Tsafrir
     and D. G. Feitelson, The dynamics of backfilling, IISWC 2006), rounded up to whole minutes, as people ask.  Real
     estimates are more modal than that; f = 0 gives exact ones, to the minute.

A user is not modelled.  It must never depend on anything but its arguments.  Sizes, run times, arrivals and requested times are
drawn from streams of their own: another f leaves the jobs as they are.  Times are whole seconds.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import accumulate
from typing import Final

import msgspec

from phoenix.simulate.text_input import InputError
from phoenix.simulate.variates import Variates
from phoenix.simulate.workload import LogJob

JOBS_MAX: Final = 10_000_000  # some 5 GB of jobs
PROCESSORS_MAX: Final = 1 << 24  # more than any machine has
LN_RUN_MAX: Final = 12.0
LN_GAP_MAX: Final = 13.0
DAY_S: Final = 86_400
BUCKETS: Final = 48  # half-hours in a day
BUCKET_S: Final = DAY_S // BUCKETS
# the gamma of the day counts half-hours from midnight on; the day that it describes begins with this one
FIRST_BUCKET: Final = 11
ESTIMATE_FACTOR: Final = 3.0  # people ask for 2.5 times what they need on average
MINUTE_S: Final = 60


class Gamma(msgspec.Struct, frozen=True):
    shape: float
    scale: float

    def share_below(self, x: float) -> float:
        """The distribution function, by its series; made for x within some ten times the mean."""
        if x <= 0:
            return 0.0
        x /= self.scale
        term = total = 1 / self.shape
        step = self.shape
        while term > total * 1e-15:
            step += 1
            term *= x / step
            total += term
        return total * math.exp(self.shape * math.log(x) - x - math.lgamma(self.shape))


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters, by the rules above."""

    serial: float  # share of jobs with one processor
    power_of_two: float  # share of jobs whose exponent is rounded
    low: float  # log2 of the smallest parallel job
    med_below_hi: float
    first_stage: float  # share of [low, med]
    short: Gamma  # of ln(run time)
    long: Gamma
    pa: float
    pb: float
    gap: Gamma  # of ln(time to the next job) in the rush hours
    rush_to_all: float  # what the rush hours' shape is multiplied by to hold for all hours
    day: Gamma  # of the half-hour of an arrival


BATCH: Final = Model(
    serial=0.2927, power_of_two=0.6686, low=1.2, med_below_hi=2.0, first_stage=0.875,
    short=Gamma(6.57, 0.823), long=Gamma(639.1, 0.0156), pa=-0.003, pb=0.6986,
    gap=Gamma(6.0415, 0.8531), rush_to_all=1.0519, day=Gamma(6.1271, 5.2740),
)  # fmt: skip
# Batch and interactive jobs together, fitted as one.
ALL: Final = Model(
    serial=0.244, power_of_two=0.576, low=0.8, med_below_hi=2.5, first_stage=0.86,
    short=Gamma(4.2, 0.94), long=Gamma(312, 0.03), pa=-0.0054, pb=0.78,
    gap=Gamma(10.2303, 0.4871), rush_to_all=1.0225, day=Gamma(8.1737, 3.9631),
)  # fmt: skip


def generate(
    jobs: int,
    processors: int,
    seed: int,
    load: float | None = None,
    *,
    model: Model = BATCH,
    estimate_factor: float = ESTIMATE_FACTOR,
) -> list[LogJob]:
    """Jobs for a machine of `processors` processors, in order of submission, numbered from 1.

    `load`: offered load (0.8: the jobs keep 80 % of the processors busy until the last submission); None: the model's own.
    `estimate_factor`: f of rule 5.  Raises InputError for values that make no workload.
    """
    _check(jobs, processors, load, estimate_factor)
    sizes = _sizes(jobs, processors, model, Variates(seed, "sizes"))
    runs = _run_times(sizes, model, Variates(seed, "run times"))
    work = math.fsum(run_s * size for run_s, size in zip(runs, sizes, strict=True))
    last_s = None if load is None else work / processors / load
    submits = _arrivals(jobs, model, Variates(seed, "arrivals"), last_s)
    estimate = Variates(seed, "estimates").uniform
    return [
        LogJob(
            number=number,
            submit_s=submit_s,
            run_s=run_s,
            processors=size,
            requested_s=float(math.ceil(run_s * (1 + estimate_factor * estimate()) / MINUTE_S) * MINUTE_S),
        )
        for number, (submit_s, run_s, size) in enumerate(zip(submits, runs, sizes, strict=True), start=1)
    ]


def _check(jobs: int, processors: int, load: float | None, estimate_factor: float) -> None:
    if not 1 <= jobs <= JOBS_MAX:
        raise InputError(f"the model makes 1 to {JOBS_MAX:,} jobs, not {jobs:,}")
    if not 1 <= processors <= PROCESSORS_MAX:
        raise InputError(f"the model's machine has 1 to {PROCESSORS_MAX:,} processors, not {processors:,}")
    if load is not None and not 0 < load < math.inf:
        raise InputError(f"the offered load must be above 0 (0.8 is 80 %), not {load:g}")
    if not 0 <= estimate_factor < math.inf:
        raise InputError(f"the factor of requested times must be 0 or more, not {estimate_factor:g}")


# ------------------------------------------------------------------------------------------------------ sizes and run times


def _sizes(jobs: int, processors: int, model: Model, chance: Variates) -> list[int]:
    hi = math.log2(processors)
    low = min(model.low, hi)
    med = max(low, hi - model.med_below_hi)
    return [_size(processors, low, med, hi, model, chance) for _ in range(jobs)]


def _size(processors: int, low: float, med: float, hi: float, model: Model, chance: Variates) -> int:
    kind = chance.uniform()
    if kind <= model.serial:
        return 1
    start, end = (low, med) if chance.uniform() <= model.first_stage else (med, hi)
    exponent = start + (end - start) * chance.uniform()
    if kind > model.serial + model.power_of_two:
        return min(processors, int(2**exponent + 0.5))
    size = 1 << int(exponent + 0.5)
    return size if size <= processors else size >> 1  # rounded up beyond a machine that is no power of two itself


def _run_times(sizes: list[int], model: Model, chance: Variates) -> list[float]:
    return [_run_time(model.pa * size + model.pb, model, chance) for size in sizes]


def _run_time(short: float, model: Model, chance: Variates) -> float:
    while True:
        part = model.short if chance.uniform() <= short else model.long
        ln_run = chance.gamma(part.shape, part.scale)
        if ln_run <= LN_RUN_MAX:
            return float(max(1, int(math.exp(ln_run))))


# ---------------------------------------------------------------------------------------------------------------- arrivals


def day_weights(model: Model = BATCH) -> list[float]:
    """How many arrivals each half-hour of a day from midnight on gets, as a multiple of the average."""
    weights = [0.0] * BUCKETS
    for bucket in range(FIRST_BUCKET, FIRST_BUCKET + BUCKETS):
        share = model.day.share_below(bucket + 0.5) - model.day.share_below(bucket - 0.5)
        weights[(bucket - 1) % BUCKETS] = share
    mean = math.fsum(weights) / BUCKETS
    return [weight / mean for weight in weights]


class _Day:
    """Seconds of an average time of day, to seconds of the clock and back."""

    def __init__(self, model: Model) -> None:
        self.ends = [
            weight * BUCKET_S for weight in accumulate(day_weights(model))
        ]  # of each half-hour, in average seconds
        self.ends[-1] = float(DAY_S)
        self.starts = [0.0, *self.ends[:-1]]

    def clock(self, average_s: float) -> float:
        days, rest = divmod(average_s, DAY_S)
        bucket = min(bisect_left(self.ends, rest), BUCKETS - 1)
        start, end = self.starts[bucket], self.ends[bucket]
        return days * DAY_S + (bucket + (rest - start) / (end - start)) * BUCKET_S

    def average(self, clock_s: float) -> float:
        days, rest = divmod(clock_s, DAY_S)
        bucket = min(int(rest // BUCKET_S), BUCKETS - 1)
        start, end = self.starts[bucket], self.ends[bucket]
        return days * DAY_S + start + (end - start) * (rest / BUCKET_S - bucket)


def _arrivals(jobs: int, model: Model, chance: Variates, last_s: float | None) -> list[float]:
    """Times of submission; `last_s`: when the last one is to be."""
    at = list(accumulate(_gap(model, chance) for _ in range(jobs)))
    day = _Day(model)
    stretch = 1.0 if last_s is None else day.average(last_s) / at[-1]
    return [float(int(day.clock(average_s * stretch))) for average_s in at]


def _gap(model: Model, chance: Variates) -> float:
    while True:
        ln_gap = chance.gamma(model.gap.shape * model.rush_to_all, model.gap.scale)
        if ln_gap <= LN_GAP_MAX:
            return math.exp(ln_gap)
