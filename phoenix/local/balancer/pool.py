"""The pool: which instances there are, which may get requests, which gets the next one, and what is to be reported of them.

Theory of operation. The department's events announce which instances have begun, drain or are closed; the audit
(`instance.list`) repairs what was missed; probes and failed connections show which of them answer. All of them only change
this table. It has no I/O and no clock: times come in as arguments.

1. In service = healthy, not draining, not closed. An instance starts unhealthy: its first good probe puts it in service.
2. Least connections: the fewest open requests, then the one that was chosen longest ago, then by name; none that has as many
   as it is to be given at a time.
3. One failed connection takes an instance out at once; the next good probe brings it back. Probes are more patient:
   two failures in a row, because an instance at its CPU limit may be late.
4. Draining is for ever. It gets no new request; when its open ones have ended it is reported as drained, and closed soon.
5. Closed is the end. It is forgotten when its open requests have ended, or after `drain_s`, a second at least, in which the
   program may finish what it has begun: then they are broken off.
6. One that fails its probes (rule 3) is reported as unready, with its last answer, and ready when one is good again. One that
   drains is not: it goes anyway; nor one that has failed a connection alone: the next probe shows how it is.
7. An audit speaks of the moment it was asked: it removes nothing that came later, and brings back nothing closed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from phoenix.balance.feed import Listed
from phoenix.balance.reporter import Report, State
from phoenix.balance.utilisation import Key

PROBE_FAILURES_MAX = 2
FINISH_S = 1.0
CLOSED_REMEMBERED_MAX = 10_000  # attempts; an audit that is older than that many closings does not exist


@dataclass(slots=True)
class Instance:
    """One instance: the place `rank` of `attempt` of `unit`, at `address` (HOST:PORT)."""

    unit: str
    attempt: int
    rank: int
    address: str
    added_at: float
    connections: int  # requests that it is given at a time
    cores: float = 1.0
    health_path: str | None = None  # of its release; None: not told yet
    healthy: bool = False
    draining: bool = False
    closed_since: float | None = None
    open_requests: int = 0
    chosen: int = 0
    probe_failures: int = 0
    served: int = 0
    failed: int = 0
    answered: int = 0  # requests, whatever it answered …
    errors: int = 0  # … of these with 5xx, or that it broke off after they were sent
    why: str = "it has not answered yet"  # its last failure
    reported: State | None = None

    def count(self, *, error: bool) -> None:
        """It has answered a request, or has broken it off."""
        self.answered += 1
        self.errors += error

    @property
    def key(self) -> Key:
        return (self.unit, self.attempt, self.rank)

    @property
    def in_service(self) -> bool:
        return self.healthy and not self.draining and self.closed_since is None

    @property
    def has_room(self) -> bool:
        return self.in_service and self.open_requests < self.connections

    @property
    def is_new(self) -> bool:
        """It has not been asked yet."""
        return not self.healthy and not self.probe_failures and self.closed_since is None

    @property
    def state(self) -> str:
        """For people."""
        if self.closed_since is not None:
            return "closed"
        return "draining" if self.draining else "in service" if self.healthy else "unhealthy"


class Pool:
    """The table of instances."""

    def __init__(self, drain_s: float, connections: int) -> None:
        self.drain_s = drain_s
        self._connections = connections  # of an instance of which no event has come yet
        self._instances: dict[Key, Instance] = {}
        self._closed: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._choices = 0

    def all(self) -> list[Instance]:
        return [self._instances[key] for key in sorted(self._instances)]

    def in_service(self) -> list[Instance]:
        return [instance for instance in self.all() if instance.in_service]

    def _of(self, unit: str, attempt: int) -> Iterator[Instance]:
        return (one for one in self._instances.values() if (one.unit, one.attempt) == (unit, attempt))

    # ------------------------------------------------------------------------------------------------ events and audits

    def began(self, unit: str, attempt: int, addresses: Iterable[str | None], now: float) -> None:
        """An attempt has begun at these addresses, in rank order."""
        if (unit, attempt) in self._closed:
            return
        for rank, address in enumerate(addresses):
            if address and (unit, attempt, rank) not in self._instances:
                new = Instance(unit, attempt, rank, address, now, self._connections)
                self._instances[new.key] = new

    def draining(self, unit: str, attempt: int, until: float | None, now: float) -> None:  # noqa: ARG002  (the feed's table)
        """Rule 4."""
        for instance in self._of(unit, attempt):
            instance.draining = True

    def closed(self, unit: str, attempt: int, now: float) -> None:
        """Rule 5."""
        self._closed[unit, attempt] = None
        while len(self._closed) > CLOSED_REMEMBERED_MAX:
            self._closed.popitem(last=False)
        for instance in self._of(unit, attempt):
            if instance.closed_since is None:
                instance.closed_since = now

    def audited(self, listed: Sequence[Listed], asked_at: float, now: float) -> None:
        """Correct the table by a listing that was asked for at `asked_at`."""
        seen: set[tuple[str, int]] = set()
        for entry in listed:
            seen.add((entry.unit, entry.attempt))
            if entry.is_over:
                self.closed(entry.unit, entry.attempt, now)
                continue
            if not any(self._of(entry.unit, entry.attempt)):
                self.began(entry.unit, entry.attempt, [entry.address], now)
            for instance in self._of(entry.unit, entry.attempt):
                instance.cores, instance.health_path = entry.cores, entry.health_path
                instance.connections = entry.connections or self._connections
            if entry.state == "draining":
                until = None if entry.drains_until is None else entry.drains_until.timestamp()
                self.draining(entry.unit, entry.attempt, until, now)
        for instance in self.all():
            if (instance.unit, instance.attempt) not in seen and instance.added_at < asked_at:
                self.closed(instance.unit, instance.attempt, now)

    # --------------------------------------------------------------------------------------------------------- requests

    def places(self) -> int:
        """Requests that all in service may have at a time."""
        return sum(one.connections for one in self._instances.values() if one.in_service)

    def choose(self) -> Instance | None:
        """The instance for the next request (rule 2), None if none has room."""
        candidates = [one for one in self._instances.values() if one.has_room]
        if not candidates:
            return None
        best = min(candidates, key=lambda one: (one.open_requests, one.chosen, one.key))
        self._choices += 1
        best.chosen = self._choices
        return best

    def answered(self, instance: Instance) -> None:
        """A probe was answered well."""
        instance.probe_failures = 0
        instance.healthy = True

    def missed(self, instance: Instance, why: str) -> None:
        """A probe failed."""
        instance.probe_failures += 1
        if instance.probe_failures >= PROBE_FAILURES_MAX:
            self._fail(instance, why)

    def eject(self, instance: Instance) -> None:
        """A connection for a request failed."""
        self._fail(instance, "a connection for a request failed")

    def _fail(self, instance: Instance, why: str) -> None:
        instance.why, instance.healthy = why, False

    # ---------------------------------------------------------------------------------------------------------- reports

    def reports(self) -> list[Report]:
        """What is to be reported (rules 4 and 6); that nothing is said twice is the reporter's business."""
        found = []
        for instance in self.all():
            state = self._state(instance)
            if state is not None:
                instance.reported = state
                why = instance.why if state == "unready" else ""
                found.append(Report(instance.unit, instance.attempt, state, why))
        return found

    def _state(self, instance: Instance) -> State | None:
        if instance.closed_since is not None:
            return None
        if instance.draining:
            ends = instance.open_requests == 0 and instance.reported != "drained"
            return "drained" if ends else None
        if instance.healthy:
            return "ready" if instance.reported == "unready" else None
        return "unready" if instance.probe_failures >= PROBE_FAILURES_MAX else None

    def forget_closed(self, now: float) -> list[Instance]:
        """Remove closed instances from the table and return them; those out of time may still have open requests."""
        done = [
            instance
            for instance in self.all()
            if instance.closed_since is not None
            and (instance.open_requests == 0 or now - instance.closed_since >= max(self.drain_s, FINISH_S))
        ]
        for instance in done:
            del self._instances[instance.key]
        return done
