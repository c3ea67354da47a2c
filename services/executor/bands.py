"""When the executor tells what a host really uses (`host.observed`): seldom, late, and only what has come to stay.

Theory of operation
  Measurements are no facts: a thousand hosts would fill the journal with them.  What schedulers decide on is in which band a
  host is, if it stays there.  So a host's use is told when it has been in another band than the one told last for a while.
  The edges are those at which somebody decides (`edges`).  What was told last is folded (`Ledger`); what is seen is this
  leader's alone, so a new leader tells nothing twice, and may tell a little later.

Rules
  1. Told if it has been in another band than the one told for `HOLD_S` and in `SAMPLES` different samples of OpenNebula.  So a
     host tells once a minute at most, and what comes and goes within it is not told.
  2. A VM that was moved to or from a host, or the host's clearing, makes what was told worthless: it is forgotten, and told
     anew by rule 1.  Only samples that are new since then count; the first may still have been taken before, hence two.
  3. Nothing is told of a host of which there is no sample.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

import msgspec

from schemas import facts as f
from schemas.config import Balance, CloudConfig
from schemas.reasons import Code

if TYPE_CHECKING:  # it folds what is told
    from services.executor.ledger import Ledger

HOLD_S: Final = 60.0
SAMPLES: Final = 2
FULL_ENOUGH: Final = 0.60  # where overcommit ends by default (`overcommit`), and the balancer fills no further
DEFAULTS: Final = (Balance().low, FULL_ENOUGH, Balance().high)
_NOWHERE: Final = -1  # the band of a host whose samples so far are of before


class Seen(msgspec.Struct):
    """`band`: which one it is in; `since`: when it was seen there first; `samples`: in how many; `stamp`: of the last one."""

    band: int
    since: float
    samples: int
    stamp: int
    cpu: float
    memory: float


def edges(config: CloudConfig | None) -> tuple[float, ...]:
    """Where bands meet: the defaults, and what departments that balance have set instead."""
    found = dict.fromkeys(DEFAULTS)
    for department in config.departments if config is not None else ():
        if department.batch is not None and department.batch.balance.enabled:
            found |= dict.fromkeys((department.batch.balance.low, department.batch.balance.high))
    return tuple(sorted(found))


def worthless(fact: f.Fact) -> tuple[str, ...]:
    """Rule 2: hosts of which nothing is known any more once this is folded."""
    if isinstance(fact, f.HostCleared | f.HostLost | f.HostRemoved):
        return (fact.host,)
    if isinstance(fact, f.UnitPlaced) and fact.reason is not None and fact.reason.code is Code.BALANCED:
        left = fact.reason.params.get("from_hosts", ())
        return (*fact.hosts, *(left if isinstance(left, list) else ()))
    return ()


class Bands:
    """Reads `ledger.state.told` and drains `ledger.untold`."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.seen: dict[str, Seen] = {}

    def sampled(self, name: str, cpu: float, memory: float, stamp: int, now: float) -> bool:
        """A sample that OpenNebula took at `stamp`, as shares of the host's own; True if a fact follows."""
        self._forget_untold()
        cpu, memory = round(cpu, 3), round(memory, 3)  # as told: else a host at an edge would be told again and again
        band, seen = self._band(cpu), self.seen.get(name)
        new = seen is None or seen.stamp != stamp
        if seen is None or seen.band != band:
            self.seen[name] = Seen(band, now, int(new), stamp, cpu, memory)
        else:
            seen.samples, seen.stamp, seen.cpu, seen.memory = seen.samples + new, stamp, cpu, memory
        return self.fact(name, now) is not None

    def fact(self, name: str, now: float) -> f.HostObserved | None:
        """Rule 1."""
        self._forget_untold()
        seen, told = self.seen.get(name), self.ledger.state.told.get(name)
        if seen is None or seen.band == _NOWHERE or seen.samples < SAMPLES or now - seen.since < HOLD_S:
            return None
        if told is not None and self._band(told) == self._band(seen.cpu):
            return None
        return f.HostObserved(host=name, cpu=seen.cpu, memory=seen.memory)

    def forget(self, name: str) -> None:
        """The host is gone."""
        self.seen.pop(name, None)

    def _band(self, cpu: float) -> int:
        return bisect_right(edges(self.ledger.custody.state.config), cpu)

    def _forget_untold(self) -> None:
        """Rule 2: the samples so far count no more."""
        for name in self.ledger.untold:
            if name in self.seen:
                self.seen[name].band = _NOWHERE
        self.ledger.untold.clear()
