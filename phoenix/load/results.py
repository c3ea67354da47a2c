"""What a run comes to: counts, failures by kind, latencies, the same over time, and how well the generator did its own part.

Rules
  1. Percentiles are exact, by nearest rank: the smallest latency that at least the share q of all has not exceeded.
  2. A request that failed counts as slower than every one that was answered: else a service that drops its slow requests would
     look fast.  A percentile that falls on a failure is None ("failed").  `answered_latency_s` is without them.
  3. Latency is counted from when a request was due (`record`, rule 3).
  4. The generator was late if what it took up itself came late.  A latency contains that, so it can only be too long.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from phoenix.load.record import Outcome, Record, Row, kind
from schemas.times import TimeText, exact

SHARES: Final = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))
LAG_P99_MAX_S: Final = 0.01  # a hundredth of a second: what is later is no longer the load that was asked for
CPU_SHARE_MAX: Final = 0.7  # of a core; one process in Python has one core, and is late in bursts before it is full
CEILING_SHARE_MAX: Final = 0.5  # of what it reached against a server that does nothing


def percentile(ordered: Sequence[float], share: float, failed: int = 0) -> float | None:
    """Nearest rank of the rising values and `failed` ones beyond them; None if it falls there, or there is nothing."""
    count = len(ordered) + failed
    rank = max(1, math.ceil(share * count - 1e-9))  # 0.999 × 1000 is 999, not 1000
    return ordered[rank - 1] if count and rank <= len(ordered) else None


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Of latencies or lags, in seconds.  None: it falls on a failure, or there was nothing."""

    p50: float | None
    p90: float | None
    p99: float | None
    p999: float | None
    max: float | None  # of those that were answered
    mean: float | None  # likewise


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """What was due in one piece of the run."""

    at_s: float
    due: int
    failed: int
    p50: float | None
    p99: float | None
    p999: float | None


class Own(msgspec.Struct, frozen=True, kw_only=True):
    """How the generator did.  `lag_s`: from due to taken up.  `ceiling`: requests a second that it reached against a
    server that does nothing, None if that was not tried.  `bottleneck`: why it was one, a sentence each; none: it was not."""

    lag_s: Spread
    cpu_share: float
    peak_rate: float
    ceiling: float | None
    connections: int
    connections_most: int
    bottleneck: tuple[str, ...]


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """One run.  `failures` by kind; latencies in seconds."""

    began_at: TimeText
    seconds: float
    interrupted: bool
    requests: int
    answered: int
    failed: int
    failures: dict[str, int]
    latency_s: Spread
    answered_latency_s: Spread
    generator: Own
    interval_s: float
    intervals: tuple[Interval, ...]


def spread(values: Iterable[float], failed: int = 0) -> Spread:
    """Rules 1 and 2."""
    ordered = sorted(values)
    found = {name: percentile(ordered, share, failed) for name, share in SHARES}
    mean = math.fsum(ordered) / len(ordered) if ordered else None
    return Spread(**found, max=ordered[-1] if ordered else None, mean=mean)


def sum_up(record: Record, interval_s: float, ceiling: float | None = None) -> Results:
    """The results of a run."""
    rows = list(record.rows())
    answered = [row.ended - row.due for row in rows if row.outcome is Outcome.ANSWERED]
    failed = len(rows) - len(answered)
    return Results(
        began_at=exact(record.began_at),
        seconds=record.seconds,
        interrupted=record.interrupted,
        requests=len(rows),
        answered=len(answered),
        failed=failed,
        failures=dict(sorted(Counter(kind(row) for row in rows if row.outcome is not Outcome.ANSWERED).items())),
        latency_s=spread(answered, failed),
        answered_latency_s=spread(answered),
        generator=_own(record, rows, ceiling),
        interval_s=interval_s,
        intervals=tuple(intervals(rows, interval_s)),
    )


def intervals(rows: Sequence[Row], interval_s: float) -> list[Interval]:
    """Each piece of the run in which something was due."""
    pieces: dict[int, list[Row]] = {}
    for row in rows:
        pieces.setdefault(int(row.due / interval_s), []).append(row)
    return [_interval(place * interval_s, pieces[place]) for place in sorted(pieces)]


def _interval(at_s: float, rows: Sequence[Row]) -> Interval:
    answered = [row.ended - row.due for row in rows if row.outcome is Outcome.ANSWERED]
    failed = len(rows) - len(answered)
    found = spread(answered, failed)
    return Interval(at_s=at_s, due=len(rows), failed=failed, p50=found.p50, p99=found.p99, p999=found.p999)


def _own(record: Record, rows: Sequence[Row], ceiling: float | None) -> Own:
    lag = spread(max(0.0, row.taken - row.due) for row in rows)
    share = record.cpu_s / record.seconds if record.seconds else 0.0
    not_sent = sum(1 for row in rows if row.outcome is Outcome.NOT_SENT)
    peak = record.plan.curve.peak
    said = []
    if (lag.p99 or 0.0) > LAG_P99_MAX_S:
        said.append(f"one request in a hundred was sent {1000 * (lag.p99 or 0.0):.1f} ms late or later")
    if share > CPU_SHARE_MAX:
        said.append(f"the generator used {share:.0%} of a core")
    if not_sent:
        said.append(f"{not_sent} requests were not sent: all {record.connections_most} connections were busy")
    if ceiling is not None and peak > CEILING_SHARE_MAX * ceiling:
        said.append(f"the highest rate, {peak:,.0f}/s, is more than half of what it can send ({ceiling:,.0f}/s)")
    return Own(
        lag_s=lag,
        cpu_share=share,
        peak_rate=peak,
        ceiling=ceiling,
        connections=record.connections,
        connections_most=record.connections_most,
        bottleneck=tuple(said),
    )
