"""The pool: which instances there are, which may get requests, and which gets the next one.

Theory of operation. The department's events say which instances have begun and which attempts are closed; the audit
(`instance.list`) repairs what was missed; probes and failed connections say which of them answer. All three only change
this table. It has no I/O and no clock: times come in as arguments.

1. In service = healthy and not draining. An instance starts unhealthy: its first good probe puts it in service.
2. Least connections: the fewest open requests, then the one that was chosen longest ago, then by name.
3. One failed connection takes an instance out at once; the next good probe brings it back. Probes are more patient:
   two failures in a row, because an instance at its CPU limit may be late.
4. Draining is for ever. It gets no new request; it is forgotten when its open ones have ended or after `drain_s`.
5. An audit speaks of the moment it was asked: it removes nothing that came later, and brings back nothing closed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

PROBE_FAILURES_MAX = 2
CLOSED_REMEMBERED_MAX = 10_000  # attempts; an audit that is older than so many closings does not exist

type_key = tuple[str, int, int]


@dataclass(slots=True)
class Instance:
    """One instance: the place `rank` of `attempt` of `unit`, at `address` (HOST:PORT)."""

    unit: str
    attempt: int
    rank: int
    address: str
    cores: float
    added_at: float
    healthy: bool = False
    healthy_since: float = 0.0
    draining_since: float | None = None
    open_requests: int = 0
    chosen: int = 0
    probe_failures: int = 0
    served: int = 0
    failed: int = 0

    @property
    def key(self) -> type_key:
        return (self.unit, self.attempt, self.rank)

    @property
    def in_service(self) -> bool:
        return self.healthy and self.draining_since is None


@dataclass(frozen=True, slots=True)
class Listed:
    """One instance as an audit lists it."""

    unit: str
    attempt: int
    address: str
    draining: bool
    cores: float


class Pool:
    """The table of instances."""

    def __init__(self, drain_s: float, cores: float) -> None:
        self._drain_s = drain_s
        self._cores = cores
        self._instances: dict[type_key, Instance] = {}
        self._closed: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._choices = 0

    def all(self) -> list[Instance]:
        return [self._instances[key] for key in sorted(self._instances)]

    def in_service(self) -> list[Instance]:
        return [instance for instance in self.all() if instance.in_service]

    def began(self, unit: str, attempt: int, addresses: Iterable[str | None], now: float) -> None:
        """An attempt has begun at these addresses, in rank order."""
        if (unit, attempt) in self._closed:
            return
        for rank, address in enumerate(addresses):
            if address and (unit, attempt, rank) not in self._instances:
                new = Instance(unit, attempt, rank, address, self._cores, added_at=now)
                self._instances[new.key] = new

    def closed(self, unit: str, attempt: int, now: float) -> None:
        """An attempt is over: its instances drain."""
        self._closed[unit, attempt] = None
        while len(self._closed) > CLOSED_REMEMBERED_MAX:
            self._closed.popitem(last=False)
        for instance in self._instances.values():
            if (instance.unit, instance.attempt) == (unit, attempt) and instance.draining_since is None:
                instance.draining_since = now

    def audited(self, listed: Iterable[Listed], asked_at: float, now: float) -> None:
        """Correct the table by a listing that was asked for at `asked_at`."""
        seen: set[tuple[str, int]] = set()
        for entry in listed:
            seen.add((entry.unit, entry.attempt))
            if entry.draining:
                self.closed(entry.unit, entry.attempt, now)
                continue
            known = any(key[:2] == (entry.unit, entry.attempt) for key in self._instances)
            if not known:
                self.began(entry.unit, entry.attempt, [entry.address], now)
            for instance in self._instances.values():
                if (instance.unit, instance.attempt) == (entry.unit, entry.attempt):
                    instance.cores = entry.cores
        for instance in self.all():
            if (instance.unit, instance.attempt) not in seen and instance.added_at < asked_at:
                self.closed(instance.unit, instance.attempt, now)

    def choose(self, without: Instance | None = None) -> Instance | None:
        """The instance for the next request (rule 2), None if none is in service; `without` one that just failed."""
        candidates = [one for one in self._instances.values() if one.in_service and one is not without]
        if not candidates:
            return None
        best = min(candidates, key=lambda one: (one.open_requests, one.chosen, one.key))
        self._choices += 1
        best.chosen = self._choices
        return best

    def answered(self, instance: Instance, now: float) -> None:
        """A probe was answered well."""
        instance.probe_failures = 0
        if not instance.healthy:
            instance.healthy = True
            instance.healthy_since = now

    def missed(self, instance: Instance) -> None:
        """A probe failed."""
        instance.probe_failures += 1
        if instance.probe_failures >= PROBE_FAILURES_MAX:
            instance.healthy = False

    def eject(self, instance: Instance) -> None:
        """A connection for a request failed."""
        instance.healthy = False

    def forget_drained(self, now: float) -> list[Instance]:
        """Remove drained instances from the table and return them; those out of time may still have open requests."""
        done = [
            instance
            for instance in self.all()
            if instance.draining_since is not None
            and (instance.open_requests == 0 or now - instance.draining_since >= self._drain_s)
        ]
        for instance in done:
            del self._instances[instance.key]
        return done
