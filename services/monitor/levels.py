"""How busy instances are and how many sessions are open there, as it is said at the moment: shown, and folded nowhere.

    phoenix.measure.<department>.instances    CPU and memory, by the guests' word
    phoenix.signal.<department>.sessions      open sessions, by the load balancers'

Rules
  1. A level: the last word of a source counts, for `STALE_S`.  Sessions of several balancers add up.
  2. Bounded, and what cannot be read is dropped: the schedulers count that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from schemas import signals, subjects
from schemas.measures import Measures
from schemas.requests import Malformed

STALE_S: Final = 5.0  # both are said about once a second
MEASURED_MAX: Final = 100_000  # instances, and …
SOURCES_MAX: Final = 1000  # … balancers

_measures: Final = msgspec.json.Decoder(Measures)


class Level(msgspec.Struct, frozen=True):
    """`cpu`: utilisation of the cores that it may use.  None: nobody says."""

    cpu: float | None = None
    memory_mb: float | None = None
    sessions: int | None = None


class Levels:
    """`clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._use: dict[tuple[str, int], tuple[float, float, float | None]] = {}  # heard, utilisation, memory
        self._open: dict[tuple[str, str], tuple[float, dict[str, int]]] = {}  # department, source -> heard, sessions

    async def subscribe(self, client: Client) -> None:
        await client.subscribe(subjects.measure("*", "instances"), cb=self._measured)
        await client.subscribe(subjects.signal("*", "sessions"), cb=self._counted)

    async def _measured(self, message: Msg) -> None:
        self.measured(message.data)

    async def _counted(self, message: Msg) -> None:
        self.counted(message.subject.split(".")[2], message.data)

    def measured(self, data: bytes) -> None:
        try:
            told = _measures.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        now = self._clock()
        self._use = {key: one for key, one in self._use.items() if now - one[0] <= STALE_S}
        for one in told.instances[: MEASURED_MAX - len(self._use)]:
            self._use[one.unit, one.attempt] = now, one.utilisation, one.memory_mb

    def counted(self, department: str, data: bytes) -> None:
        try:
            told = signals.decode("sessions", data)
        except Malformed:
            return
        now = self._clock()
        self._open = {key: one for key, one in self._open.items() if now - one[0] <= STALE_S}
        if len(self._open) < SOURCES_MAX:
            self._open[department, told.source] = now, told.sessions

    def of(self, unit: str, attempt: int) -> Level:
        now = self._clock()
        heard, cpu, memory_mb = self._use.get((unit, attempt), (float("-inf"), None, None))
        dept = unit.partition(".")[0]
        counts = [
            sessions[unit]
            for (whose, _), (at, sessions) in self._open.items()
            if whose == dept and now - at <= STALE_S and unit in sessions
        ]
        fresh = now - heard <= STALE_S
        return Level(cpu if fresh else None, memory_mb if fresh else None, sum(counts) if counts else None)
