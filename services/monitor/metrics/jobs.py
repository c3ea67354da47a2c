"""Queues, jobs and work as Prometheus has them: what waits and why, how jobs ended, and what their hosts did (`collect`)."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import CounterMetricFamily, Metric

from schemas.dimensions import DIMENSIONS
from services.monitor.core import counters, goodput
from services.monitor.core.buckets import Span
from services.monitor.core.counters import Waits
from services.monitor.core.monitor import MonitorCore
from services.monitor.metrics import families as fs
from services.monitor.views.views import Views


def queues(views: Views, batch: list[str], now: float) -> Iterator[Metric]:
    """Every state and reason, those with 0 included, so that a queue that has emptied is seen to."""
    views.refresh()
    jobs, queue, oldest = fs.JOBS.family(), fs.QUEUE_JOBS.family(), fs.QUEUE_OLDEST.family()
    waiting = [family.family() for family in fs.WAITING]
    for name in batch:
        states = views.counts(name)
        waits = _by_reason(views, name)
        for state in fs.OPEN_STATES:
            jobs.add_metric([name, state], states.get(state, 0))
        for reason in fs.WAITS:
            count, since = waits.get(reason, (0, now))
            queue.add_metric([name, reason], count)
            oldest.add_metric([name, reason], max(0.0, now - since))
        asked = views.waiting.asked(name, fs.FOR_HOSTS)
        for family, dimension, number in zip(waiting, DIMENSIONS, asked, strict=True):
            family.add_metric([name], number * dimension.scale)
    yield from (jobs, queue, oldest, *waiting)


def _by_reason(views: Views, name: str) -> dict[str, tuple[int, float]]:
    """How many wait for it, and since when the longest does; what another version may say is added up as `OTHER`."""
    found: dict[str, tuple[int, float]] = {}
    for code, count, since, _ in views.waiting.reasons(name):
        reason = code if code in fs.WAITS else fs.OTHER
        had, longest = found.get(reason, (0, since))
        found[reason] = (had + count, min(longest, since))
    return found


def ends(core: MonitorCore, names: list[str], batch: list[str]) -> Iterator[Metric]:
    """What became of jobs and attempts."""
    told = core.state.tallies
    outcomes, retries, preempted = fs.JOB_OUTCOMES.family(), fs.JOB_RETRIES.family(), fs.PREEMPTIONS.family()
    waits, cpu = fs.QUEUE_WAIT.family(), fs.JOB_CPU_S.family()
    for name in batch:
        for outcome in counters.OUTCOMES:
            outcomes.add_metric([name, outcome], told.outcomes.get(name, {}).get(outcome, 0))
        for cause in counters.CAUSES:
            preempted.add_metric([name, cause], told.preempted.get(name, {}).get(cause, 0))
        retries.add_metric([name], told.retries.get(name, 0))
        times = told.waits.get(name, Waits())
        waits.add_metric([name], times.cumulated(), times.sum_s)
        cpu.add_metric([name], told.cpu_s.get(name, 0.0))
    closed = fs.ATTEMPTS_CLOSED.family()
    for name in names:
        for why, disposals in sorted(core.state.levels.ended.get(name, {}).items()):
            for disposal, count in sorted(disposals.items()):
                closed.add_metric([name, why, disposal], count)
    yield from (outcomes, retries, preempted, waits, cpu, closed)


class Grown:
    """Running work counts as of now, and the fact that ends it is of its writer's clock, a moment earlier or more.  If less
    were reported then, Prometheus would take it for a reset of the counter, and count all of it once more: so it stays."""

    def __init__(self) -> None:
        self._most: dict[tuple[str, str], float] = {}  # metric, department

    def add(self, family: CounterMetricFamily, name: str, value: float) -> None:
        key = (family.name, name)
        self._most[key] = max(value, self._most.get(key, 0.0))
        family.add_metric([name], self._most[key])


def work(core: MonitorCore, grown: Grown, names: list[str], now: float) -> Iterator[Metric]:
    """Lost: also what a late success took back, since a counter never falls."""
    found, judged = core.accounting.totals(round(now * 1000)), core.accounting.state.goodput
    held, lent, borrowed = fs.HELD_HOST_S.family(), fs.LENT_HOST_S.family(), fs.BORROWED_HOST_S.family()
    used, lost, back = fs.USED_CORE_S.family(), fs.LOST_CORE_S.family(), fs.TAKEN_BACK.family()
    good, bad, opened = fs.GOODPUT.family(), fs.BADPUT.family(), fs.OPENPUT.family()
    for name in names:
        span, causes = found.get(name, Span()), judged.bad.get(name, {})
        grown.add(held, name, span.held / 1000)
        grown.add(lent, name, span.lent / 1000)
        grown.add(borrowed, name, span.borrowed / 1000)
        grown.add(used, name, span.used / 1000)
        lost.add_metric([name], (span.lost + span.failed + span.recovered) / 1000)
        back.add_metric([name, "noticed"], span.noticed_hosts)
        back.add_metric([name, "seized"], span.seized_hosts)
        good.add_metric([name], judged.good.get(name, 0) / 1000)
        for cause in goodput.CAUSES:
            bad.add_metric([name, cause], causes.get(cause, 0) / 1000)
        opened.add_metric([name], (span.used - judged.good.get(name, 0) - sum(causes.values())) / 1000)
    yield from (held, lent, borrowed, used, lost, back, good, bad, opened)
