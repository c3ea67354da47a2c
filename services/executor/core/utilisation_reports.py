"""When the executor reports what a host really uses (`host.observed`): seldom, late, and only lasting changes.

Theory of operation
  Measurements are no facts: a thousand hosts would fill the journal with them.  What schedulers decide on is in which band a
  host is, most of the time.  So a host's use is reported when it has mostly been in another band than the last report.  The
  edges are those at which a service decides (`edges`).  The last report is folded (`Ledger`); what is seen is this leader's
  alone, so a new leader reports nothing twice, and may report a little later.

Rules
  1. Reported is the median of the samples of the last `HOLD_S`, at least `SAMPLES`, once they span that long; of the two in the
     middle the one nearer to the last report.  One sample is no measure: OpenNebula's says what a few seconds were like.
  2. Reported if it is beyond an edge by `MARGIN`: a host that swings around one would otherwise be reported again and again.
  3. Samples start again after each report, so a host reports once in `HOLD_S` at most.
  4. A VM that was moved to or from a host, or the host's clearing, invalidates its report (`domain.observed`): it is
     forgotten, and reported again by rule 1.  Only samples that are new since then count; the first may still have been taken
     before, hence two.
  5. Nothing is reported of a host without a sample.
"""

from __future__ import annotations

from bisect import bisect_right
from statistics import median_high, median_low
from typing import Final, NamedTuple

import msgspec

from schemas import facts as f
from schemas.config import Balance, CloudConfig
from services.executor.core.ledger import Ledger

HOLD_S: Final = 60.0
SAMPLES: Final = 2
MARGIN: Final = 0.02
FULL_ENOUGH: Final = 0.60  # where overcommit ends by default (`overcommit`), and the balancer fills no further
DEFAULTS: Final = (Balance().low, FULL_ENOUGH, Balance().high)


class Sight(NamedTuple):
    """A sample: when it was seen first, and the shares in use."""

    at: float
    cpu: float
    memory: float


class Seen(msgspec.Struct):
    """`stamp`: OpenNebula's time of the newest sample, if there is one; `sights`: those that count."""

    stamp: int | None = None
    sights: list[Sight] = []


def edges(config: CloudConfig | None) -> tuple[float, ...]:
    """Where bands meet: the defaults, and what departments that balance have set instead."""
    found = dict.fromkeys(DEFAULTS)
    for department in config.departments if config is not None else ():
        if department.batch is not None and department.batch.balance.enabled:
            found |= dict.fromkeys((department.batch.balance.low, department.batch.balance.high))
    return tuple(sorted(found))


class UtilisationReports:
    """Reads `ledger.state.told` and drains `ledger.worn`."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.seen: dict[str, Seen] = {}

    def sampled(self, name: str, cpu: float, memory: float, stamp: int, now: float) -> bool:
        """A sample that OpenNebula took at `stamp`, as shares of the host's own; True if a fact follows."""
        self._begin_anew()
        seen = self.seen.get(name)
        if seen is None:
            seen = self.seen[name] = Seen()
        if seen.stamp != stamp:
            seen.stamp = stamp
            sights = seen.sights
            sights.append(Sight(now, cpu, memory))
            while len(sights) > SAMPLES and sights[1].at <= now - HOLD_S:  # the first is as old as the window, or older
                del sights[0]
        return self.fact(name, now) is not None

    def fact(self, name: str, now: float) -> f.HostObserved | None:
        """Rules 1 and 2."""
        self._begin_anew()
        seen, told = self.seen.get(name), self.ledger.state.told.get(name)
        if seen is None or len(seen.sights) < SAMPLES or now - seen.sights[0].at < HOLD_S:
            return None
        used = [sight.cpu for sight in seen.sights]
        low, high = round(median_low(used), 3), round(median_high(used), 3)
        cpu = low if told is None else min(max(told, low), high)
        if told is not None and not self._elsewhere(told, cpu):
            return None
        return f.HostObserved(host=name, cpu=cpu, memory=round(median_low(sight.memory for sight in seen.sights), 3))

    def forget(self, name: str) -> None:
        """The host is gone."""
        self.seen.pop(name, None)

    def _elsewhere(self, told: float, cpu: float) -> bool:
        """Rule 2."""
        at = edges(self.ledger.custody.state.config)
        for_certain = cpu - MARGIN if cpu > told else cpu + MARGIN
        between = bisect_right(at, for_certain) - bisect_right(at, told)
        return between > 0 if cpu > told else between < 0

    def _begin_anew(self) -> None:
        """Rules 3 and 4: the samples so far count no more."""
        for name in self.ledger.worn:
            if name in self.seen:
                self.seen[name].sights.clear()
        self.ledger.worn.clear()
