"""How much room the journal has, and whether what is left of it is for what ends things.

Theory of operation
  A full journal accepts nothing, not even that a job has ended, that a host is released, that a user cancels: what runs then
  runs on, and is lost to its owner.  So its last `RESERVED` of bytes is for facts that end and free.  What begins or changes
  something (`schemas.facts.begins`) waits, where a core has decided it, and is refused, where a caller requests it, until the
  journal is trimmed or given room.  The broker is asked for its bytes every `LOOK_S`, and at once when what was folded since
  may have made them too many: it alone knows what was trimmed meanwhile.

Rules
  1. A journal without a limit, or one whose size has not been read yet, has space: the broker says when it is full (`Full`).
  2. What cannot be seen stays as it was: a broker that does not answer takes nothing either.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import nats.errors
from nats.js import JetStreamContext
from nats.js.errors import Error as JetStreamError

from schemas.subjects import JOURNAL_STREAM
from services.domain.refusal import Refused
from services.runtime.log import Log

RESERVED: Final = 0.1  # with the default store 740 MB: two million facts, and a day of ten web departments' load
LOOK_S: Final = 5.0
CALL_S: Final = 5.0
OVERHEAD: Final = 256  # bytes of a stored message beside its data: subject, headers, record; never more


class Sized(Protocol):
    @property
    def position(self) -> int: ...
    @property
    def data(self) -> bytes: ...


class Room:
    """`changed`: told when `scarce` is another one."""

    def __init__(self, changed: Callable[[], None], log: Log) -> None:
        self.scarce = False
        self.refused = 0  # requests to begin or change something, since the start
        self._changed, self._log = changed, log
        self._used = self._most = self._position = 0
        self._due = asyncio.Event()  # it is to be looked at now

    @property
    def why(self) -> str:
        have = f"{self._used / 1048576:.1f} of {self._most / 1048576:.1f} MiB"
        return f"the journal is nearly full ({have}): only cancelling works until it has space again"

    def refuse(self) -> Refused:
        """The answer to a request to begin or change something; it is counted."""
        self.refused += 1
        return Refused("unavailable", self.why)

    def looked(self, used: int, most: int, position: int) -> None:
        """The broker's word: bytes, the limit (0 or less: none), and the last position."""
        self._used, self._most, self._position = used, max(0, most), position
        self._judge()

    def folded(self, messages: Sequence[Sized]) -> int:
        """These have come; returns their bytes."""
        size = sum(len(message.data) for message in messages) + OVERHEAD * len(messages)
        if messages and messages[-1].position > self._position:
            self._used += size
            if not self.scarce and self._is_short():
                self._due.set()
        return size

    def _is_short(self) -> bool:
        return self._most > 0 and self._used >= self._most * (1 - RESERVED)

    def _judge(self) -> None:
        scarce = self._is_short()
        if scarce is not self.scarce:
            self.scarce = scarce
            if scarce:
                self._log.error(
                    "the journal is nearly full; the rest is reserved for requests that end things", why=self.why
                )
            else:
                self._log.info("the journal has space again")
            self._changed()

    async def watch(self, js: JetStreamContext) -> None:
        """For ever."""
        while True:
            with contextlib.suppress(nats.errors.Error, JetStreamError, TimeoutError, OSError):  # rule 2
                async with asyncio.timeout(CALL_S):
                    info = await js.stream_info(JOURNAL_STREAM)
                self.looked(info.state.bytes, info.config.max_bytes or 0, info.state.last_seq)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._due.wait()
            self._due.clear()
