"""What guests report of their use (`POST usage`, `POST used`), handed on to their department as measures.  Nothing is kept.

Theory of operation
  A measure is a level at a moment. Load balancers and the monitor need it within a second, and never later: so it is no
  fact, and costs no disk.  (The last report of a job becomes one: `usage_facts`.)  What came since the last message to a
  department goes out in one, `INTERVAL_S` after it at the earliest; so a department of a thousand instances costs four
  messages a second, and one of one instance one.

Rules
  1. Of an instance, or a job's attempt, the last report counts; a guest that reports more often than `INTERVAL_S` is ignored,
     and counted.
  2. Bounded: `PENDING_MAX` of them in one message, `SPOKE_MAX` remembered.  What exceeds it is dropped, and counted.
  3. A broker that is away loses measures, and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sized
from typing import Final

import msgspec
import nats.errors
from prometheus_client import CollectorRegistry

from schemas import subjects
from schemas.measures import JobMeasured, JobMeasures, Measured, Measures, Usage
from schemas.times import exact
from services.admission.metrics import MEASURES

INTERVAL_S: Final = 0.25  # four times as often as guests report
PENDING_MAX: Final = 5_000  # about 120 bytes each; a message has 1 MiB at most
SPOKE_MAX: Final = 20_000  # of whom the last word's time is remembered, the longest silent is forgotten first

Publish = Callable[[str, bytes], Awaitable[None]]
_Key = tuple[str, int, int]  # unit, attempt, rank


class Usages:
    """`publish`: the broker's; `clock`: monotonic seconds."""

    def __init__(self, publish: Publish, clock: Callable[[], float], registry: CollectorRegistry) -> None:
        self._publish, self._clock = publish, clock
        self._spoke: dict[_Key, float] = {}
        self._instances: dict[str, dict[_Key, Measured]] = {}  # by department, and so are the next
        self._jobs: dict[str, dict[_Key, JobMeasured]] = {}
        self._news = asyncio.Event()
        self._counted = MEASURES.live(registry)

    def hear(self, dept: str, key: _Key, usage: Usage, at: float) -> None:
        """Of an instance.  `key`: unit, attempt, rank; `at`: UTC seconds."""
        unit, attempt, rank = key
        if self._takes(self._instances.setdefault(dept, {}), key):
            self._instances[dept][key] = Measured(
                unit=unit,
                attempt=attempt,
                rank=rank,
                at=exact(at),
                utilisation=usage.utilisation,
                interval_s=usage.interval_s,
                memory_mb=usage.memory_mb,
            )

    def hear_job(self, dept: str, rank: int, measured: JobMeasured) -> None:
        """`rank`: whose word has changed what is measured of the attempt."""
        key = (measured.unit, measured.attempt, rank)
        if self._takes(self._jobs.setdefault(dept, {}), key):
            self._jobs[dept][measured.unit, measured.attempt, 0] = measured

    def implausible(self) -> None:
        """A guest has reported an implausible value, which is ignored."""
        self._counted.labels("implausible").inc()

    def _takes(self, pending: Mapping[_Key, Measured | JobMeasured], key: _Key) -> bool:
        """Rules 1 and 2."""
        now = self._clock()
        if now - self._spoke.get(key, float("-inf")) < INTERVAL_S:
            self._counted.labels("too_often").inc()
            return False
        if key not in pending and len(pending) >= PENDING_MAX:
            self._counted.labels("too_many").inc()
            return False
        self._spoke.pop(key, None)
        self._spoke[key] = now
        if len(self._spoke) > SPOKE_MAX:
            del self._spoke[next(iter(self._spoke))]
        self._counted.labels("taken").inc()
        self._news.set()
        return True

    async def run(self) -> None:
        """As long as the door is open."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self.publish()
            await asyncio.sleep(INTERVAL_S)

    async def publish(self) -> None:
        """One message of each kind to each department of which there is news."""
        instances, self._instances = self._instances, {}
        jobs, self._jobs = self._jobs, {}
        for dept, found in instances.items():
            if found:
                await self._say(subjects.measure(dept, "instances"), Measures(instances=tuple(found.values())), found)
        for dept, those in jobs.items():
            if those:
                await self._say(subjects.measure(dept, "jobs"), JobMeasures(jobs=tuple(those.values())), those)

    async def _say(self, subject: str, message: Measures | JobMeasures, of: Sized) -> None:
        try:
            await self._publish(subject, msgspec.json.encode(message))
        except (nats.errors.Error, OSError):
            self._counted.labels("lost").inc(len(of))
