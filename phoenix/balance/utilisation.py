"""How busy instances are, as their guests report (`phoenix.measure.<department>.instances`).

The utilisation of a department is the mean over its instances, each weighed by its cores: 1.0 means that all cores of all of
them are busy.  A guest measures everything that its program has started, so that any program is measured.  GPUs
are not: a service whose work is on them scales by requests or claims (docs/howto/gpus.md).

Rules
  1. A measure is a level: the last one counts, for `STALE_S`.  One that is silent for longer is not measured: it is not idle.
  2. The request names the instances that serve: one that boots burns CPU without a request, and would ask for still more.
  3. Pure but for `subscribe`: no clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from schemas import subjects
from schemas.measures import Measures
from services.runtime.log import get_log

STALE_S: Final = 3.0  # guests report about once a second; two lost ones are bridged
MEASURED_MAX: Final = 100_000  # instances remembered; more than a department may have

Key: TypeAlias = tuple[str, int, int]  # unit, attempt, rank

_log = get_log()
_measures: Final = msgspec.json.Decoder(Measures)


@dataclass(frozen=True, slots=True)
class Reading:
    """`utilisation` over `instances` measured ones."""

    utilisation: float
    instances: int


class Usages:
    """The last measure of every instance."""

    def __init__(self) -> None:
        self._last: dict[Key, tuple[float, float]] = {}  # utilisation, when it was heard (monotonic)

    async def subscribe(self, client: Client, department: str) -> None:
        await client.subscribe(subjects.measure(department, "instances"), cb=self._hear)

    async def _hear(self, message: Msg) -> None:
        self.hear(message.data, time.monotonic())

    def hear(self, data: bytes, now: float) -> None:
        """One message; what cannot be read is logged and dropped."""
        try:
            message = _measures.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.warning("measurements cannot be read", error=str(error))
            return
        for measured in message.instances:
            key = (measured.unit, measured.attempt, measured.rank)
            if key in self._last or len(self._last) < MEASURED_MAX:
                self._last[key] = (measured.utilisation, now)

    def of(self, key: Key, now: float) -> float | None:
        """The utilisation of one instance; None if it is not measured."""
        utilisation, at = self._last.get(key, (0.0, float("-inf")))
        return utilisation if now - at <= STALE_S else None

    def mean(self, serving: Iterable[tuple[Key, float]], now: float) -> Reading | None:
        """Of those that serve, each with its cores; None if none of them is measured."""
        used = cores = 0.0
        count = 0
        for key, weight in serving:
            utilisation = self.of(key, now)
            if utilisation is not None:
                used, cores, count = used + utilisation * weight, cores + weight, count + 1
        return Reading(used / cores, count) if cores > 0 else None

    def forget_stale(self, now: float) -> None:
        """Drop what counts no more."""
        self._last = {key: found for key, found in self._last.items() if now - found[1] <= STALE_S}
