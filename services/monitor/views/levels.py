"""How busy instances are, how many sessions are open there, and what running jobs have used, as reported at the moment:
shown, and folded nowhere.

    phoenix.measure.<department>.instances         CPU and memory, by the guests' word
    phoenix.measure.<department>.jobs              CPU time and peak memory until now, likewise
    phoenix.signal.<department>.<user>.sessions    open sessions, by the load balancers'

Rules
  1. A level: the last report of a source counts, for `STALE_S`.  Sessions of several balancers add up.
  2. Bounded, each user by itself, so that none can take the space or the time of another: sources, instances and bytes a
     second as its scheduler takes (`services.scheduler.meter.signal_filter`).  What exceeds it, and what cannot be read, is
     dropped: the schedulers count that.
  3. What an attempt has used is a total, which stays true while it runs: it is kept until the journal has it, of the
     `MEASURED_MAX` attempts that reported last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec
from nats.aio.msg import Msg

from schemas import signals, subjects
from schemas.measures import JobMeasured, JobMeasures, Measures
from schemas.requests import Malformed
from services.runtime.service import Service
from services.runtime.signal_line import Heard, SignalLine
from services.runtime.token_bucket import Buckets

STALE_S: Final = 5.0  # both are said about once a second
MEASURED_MAX: Final = 100_000  # instances of all departments, by the door's word
SOURCES_MAX: Final = 64  # balancers of a user
SESSIONS_MAX: Final = 100_000  # instances that they name together
BYTES_PER_S: Final = 4 << 20  # of a user

_Source: TypeAlias = tuple[str, str]  # a user, and what it calls itself
_measures: Final = msgspec.json.Decoder(Measures)
_job_measures: Final = msgspec.json.Decoder(JobMeasures)


class Level(msgspec.Struct, frozen=True):
    """`cpu`: utilisation of the cores that it may use.  None: not reported."""

    cpu: float | None = None
    memory_mb: float | None = None
    sessions: int | None = None


class Levels:
    """`clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._use: dict[tuple[str, int], tuple[float, float, float | None]] = {}  # heard, utilisation, memory
        self._jobs: dict[tuple[str, int], JobMeasured] = {}  # by unit and attempt, who was heard last at the end
        self._open: dict[str, dict[_Source, tuple[float, dict[str, int]]]] = {}  # by department: heard, sessions
        self._bytes = Buckets(BYTES_PER_S, BYTES_PER_S)  # by department and user

    async def subscribe(self, service: Service) -> None:
        await service.nc.subscribe(subjects.measure("*", "instances"), cb=self._measured)
        await service.nc.subscribe(subjects.measure("*", "jobs"), cb=self._measured_jobs)
        await SignalLine(service, [subjects.signal("*", "*", "sessions")]).start(self._counted)

    async def _measured(self, message: Msg) -> None:
        self.measured(message.data)

    async def _measured_jobs(self, message: Msg) -> None:
        self.measured_jobs(message.data)

    def _counted(self, heard: Heard) -> None:
        subject = subjects.parse_signal(heard.subject)
        for message in heard.messages:
            self.counted(subject.department, subject.user, message.data)

    def measured(self, data: bytes) -> None:
        try:
            message = _measures.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        now = self._clock()
        self._use = {key: one for key, one in self._use.items() if now - one[0] <= STALE_S}
        for one in message.instances:
            key = (one.unit, one.attempt)
            if key in self._use or len(self._use) < MEASURED_MAX:
                self._use[key] = now, one.utilisation, one.memory_mb

    def measured_jobs(self, data: bytes) -> None:
        try:
            message = _job_measures.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        for one in message.jobs:
            self._jobs.pop((one.unit, one.attempt), None)
            self._jobs[one.unit, one.attempt] = one
        while len(self._jobs) > MEASURED_MAX:
            del self._jobs[next(iter(self._jobs))]

    def job(self, unit: str, attempt: int) -> JobMeasured | None:
        """Rule 3."""
        return self._jobs.get((unit, attempt))

    def counted(self, department: str, user: str, data: bytes) -> None:
        now = self._clock()
        if not self._bytes.of(f"{department}.{user}", now).take(now, len(data)):
            return
        try:
            message = signals.decode("sessions", data)
        except Malformed:
            return
        known = self._open.get(department, {}).items()
        mine = user, message.source
        others = {source: one for source, one in known if source != mine and now - one[0] <= STALE_S}
        own = [sessions for (name, _), (_, sessions) in others.items() if name == user]
        if len(own) < SOURCES_MAX and sum(map(len, own)) + len(message.sessions) <= SESSIONS_MAX:
            others[mine] = now, message.sessions
        self._open[department] = others

    def of(self, unit: str, attempt: int) -> Level:
        now = self._clock()
        heard, cpu, memory_mb = self._use.get((unit, attempt), (float("-inf"), None, None))
        dept = unit.partition(".")[0]
        counts = [
            sessions[unit]
            for at, sessions in self._open.get(dept, {}).values()
            if now - at <= STALE_S and unit in sessions
        ]
        fresh = now - heard <= STALE_S
        return Level(cpu if fresh else None, memory_mb if fresh else None, sum(counts) if counts else None)
