"""Hosts as Prometheus has them: what one look at each of them yields (`collect`)."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import Metric

from schemas.dimensions import DIMENSIONS
from schemas.size import Size
from services.domain.custody.state import Host
from services.monitor.metrics import families as fs
from services.runtime.families import Gauge


class Seen:
    """Adds up hosts.  `names`: of departments; `now`: UTC seconds."""

    def __init__(self, names: list[str], now: float) -> None:
        self.now = now
        self.states: Tally[tuple[str, str]] = Tally({("held", name): 0 for name in names})
        self.states.update({(state, ""): 0 for state in fs.HOST_STATES if state != "held"})
        self.apart: Tally[str] = Tally(dict.fromkeys(fs.APART, 0))
        self.cordoned = 0
        self.sums = {
            **{family: Tally(dict.fromkeys(["", *names], 0)) for family in fs.USABLE},
            **{family: Tally(dict.fromkeys(names, 0)) for family in (fs.HOSTS_IDLE, *fs.ALLOCATED)},
        }

    def add(self, hosts: Iterable[Host]) -> Seen:
        for host in hosts:
            self.states[host.state, (host.dept or "") if host.state == "held" else ""] += 1
            self.cordoned += host.cordoned is not None
            if self._is_apart(host):
                self.apart[host.quarantine if host.quarantine in fs.APART else fs.OTHER] += 1
            if host.state == "free":
                self._offers(host, "")
            elif host.state == "held":
                self._offers(host, host.dept or "")
                self._works(host, host.dept or "")
        return self

    def _is_apart(self, host: Host) -> bool:
        return host.quarantine is not None and host.quarantine_until > self.now

    def _offers(self, host: Host, holder: str) -> None:
        self._count(fs.USABLE, host.size, holder)

    def _count(self, families: Iterable[Gauge], size: Size, holder: str) -> None:
        for family, dimension, number in zip(families, DIMENSIONS, size, strict=True):
            self.sums[family][holder] += number * dimension.scale

    def _works(self, host: Host, holder: str) -> None:
        """Where a live attempt has the host alone, it has all of it."""
        self._count(fs.ALLOCATED, host.size if host.exclusive else host.used, holder)
        is_idle = not host.units and host.cordoned is None and not self._is_apart(host)
        self.sums[fs.HOSTS_IDLE][holder] += is_idle

    def families(self) -> Iterator[Metric]:
        hosts, quarantined = fs.HOSTS.family(), fs.HOSTS_APART.family()
        for key, count in sorted(self.states.items()):
            hosts.add_metric(list(key), count)
        for reason, count in self.apart.items():
            quarantined.add_metric([reason], count)
        yield from (hosts, quarantined, fs.HOSTS_CORDONED.of(self.cordoned))
        for declared, found in self.sums.items():
            family = declared.family()
            for name, count in found.items():
                family.add_metric([name], count)
            yield family
