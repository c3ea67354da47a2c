"""Hosts as Prometheus has them: what one look at each of them tells (`collect`)."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import Metric

from services.domain.custody.state import Host
from services.monitor.metrics import families as fs


class Seen:
    """Adds up hosts.  `names`: of departments; `now`: UTC seconds."""

    def __init__(self, names: list[str], now: float) -> None:
        self.now = now
        self.states: Tally[tuple[str, str]] = Tally({("held", name): 0 for name in names})
        self.states.update({(state, ""): 0 for state in fs.HOST_STATES if state != "held"})
        self.apart: Tally[str] = Tally(dict.fromkeys(fs.APART, 0))
        self.cordoned = 0
        self.sums = {
            **{family: Tally(dict.fromkeys(["", *names], 0)) for family in (fs.CORES_USABLE, fs.MEMORY_USABLE)},
            **{
                family: Tally(dict.fromkeys(names, 0))
                for family in (fs.HOSTS_IDLE, fs.CORES_ALLOCATED, fs.MEMORY_ALLOCATED)
            },
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
        self.sums[fs.CORES_USABLE][holder] += host.cores
        self.sums[fs.MEMORY_USABLE][holder] += host.memory_mb << 20

    def _works(self, host: Host, holder: str) -> None:
        """Where a live attempt has the host alone, it has all of it."""
        cores, memory_mb = host.cores_used, host.memory_used_mb
        if host.exclusive:
            cores, memory_mb = host.cores, host.memory_mb
        self.sums[fs.CORES_ALLOCATED][holder] += cores
        self.sums[fs.MEMORY_ALLOCATED][holder] += memory_mb << 20
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
