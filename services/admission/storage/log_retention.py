"""What instances wrote is kept after they are gone, but not for ever: that of all but a department's last ones is removed.

Rules
  1. Which they are follows from the journal (`AdmissionCore.logs_due`), in every door the same.
  2. One removal at a time, beside everything else; a store that does not answer is asked again.  A door that begins looks once
     more at the last ones that were due: its predecessor may have died over them.
"""

from __future__ import annotations

import asyncio
from typing import Final

from schemas import facts as f
from schemas.facts import Fact
from schemas.ids import instance_parts, is_instance
from services.admission.core.admission import AdmissionCore
from services.admission.storage.output import STREAMS, Outputs, StreamId
from services.domain.refusal import Refused

RETRY_S: Final = 1.0
QUEUED_MAX: Final = 10_000  # instances to look at; what does not fit is looked at by the next door, or stays


class Logs:
    def __init__(self, core: AdmissionCore, outputs: Outputs) -> None:
        self._core, self._outputs = core, outputs
        self._due: asyncio.Queue[str] = asyncio.Queue(QUEUED_MAX)

    def applied(self, fact: Fact) -> None:
        """A valid fact came."""
        if isinstance(fact, f.AttemptClosed) and is_instance(fact.unit):
            for unit in self._core.logs_due(instance_parts(fact.unit)[0])[-1:]:
                self._remove_later(unit)

    def _remove_later(self, unit: str) -> None:
        if not self._due.full():
            self._due.put_nowait(unit)

    async def remove(self) -> None:
        """Until it is cancelled."""
        for dept in self._core.logged():
            for unit in self._core.logs_due(dept):
                self._remove_later(unit)
        while True:
            unit = await self._due.get()
            try:
                for name in STREAMS:
                    await self._outputs.forget(StreamId(unit, 1, 0, name))
            except Refused:  # the store does not answer
                self._remove_later(unit)
                await asyncio.sleep(RETRY_S)
