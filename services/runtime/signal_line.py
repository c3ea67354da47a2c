"""The line on which signals come, in floods if need be: a connection of its own, and of each subject the newest few.

Theory of operation
  A signal is a level: it contains all that its publisher has to report, and the next one repeats it.  So of a flood a few are
  read, and the rest costs no more than its way through the client library: 100,000 messages some tenths of a second.  Nothing
  of the service waits behind them, as its own connection carries requests, the journal and the broker's pings.

Rules
  1. The callback only stores.  `listen` hands on what is there: the first after a pause at once, then what has come in EVERY_S.
  2. Of each subject the newest KEPT_MAX are kept, oldest first, of KEPT_BYTES together; the others are counted in `folded`.
     There are as many subjects as the broker lets users publish: its signals of each user of the configuration.
  3. A message that has no time of its own gets the time of its arrival here, not that of its reading.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from nats.aio.msg import Msg

from services.runtime.broker.client import Client
from services.runtime.flood_connections import Line, Pace
from services.runtime.service import Service

EVERY_S: Final = 0.04  # 25 looks a second: more often would be no news, and less would be late
KEPT_MAX: Final = 64  # of a subject between two looks: as many as programs may share a user (`meter_gate.SOURCES_MAX`)
KEPT_BYTES: Final = 4 << 20  # likewise: a second of what is read at most of sessions


class Message(NamedTuple):
    """`at`: when it arrived, UTC seconds."""

    data: bytes
    content_type: str
    at: float


class Heard(NamedTuple):
    """Of one subject, the oldest first; `folded`: the number of further messages."""

    subject: str
    messages: tuple[Message, ...]
    folded: int


class _Kept:
    __slots__ = ("folded", "messages", "size")

    def __init__(self) -> None:
        self.messages: deque[Message] = deque()
        self.size = self.folded = 0


class Newest:
    """Rule 2.  No I/O."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def put(self, subject: str, message: Message) -> None:
        kept = self._kept.get(subject)
        if kept is None:
            kept = self._kept[subject] = _Kept()
        kept.messages.append(message)
        kept.size += len(message.data)
        while len(kept.messages) > KEPT_MAX or kept.size > KEPT_BYTES:
            kept.size -= len(kept.messages.popleft().data)
            kept.folded += 1

    def take(self) -> list[Heard]:
        """All that there is, by subject, as they came."""
        found, self._kept = self._kept, {}
        return [Heard(subject, tuple(kept.messages), kept.folded) for subject, kept in found.items()]


class SignalLine:
    """The signals on `subjects`, as the service hears them."""

    def __init__(self, service: Service, subjects: Iterable[str]) -> None:
        self._service, self._subjects = service, tuple(subjects)
        self._newest, self._arrived = Newest(), asyncio.Event()
        self._line, self._pace = Line(service, "signals"), Pace()
        self.client: Client

    async def start(self, heard: Callable[[Heard], None]) -> None:
        """Hear them from now on, until the service ends.  `heard` must not raise."""
        service = self._service
        self.client = await self._line.open()
        service.spawn("signals", self._listen(heard))
        for subject in self._subjects:
            await self.client.subscribe(subject, cb=self._arrive)
        await self.client.flush()

    async def _arrive(self, msg: Msg) -> None:
        headers = msg.headers
        kind = headers.get("Content-Type", "") if headers else ""
        self._newest.put(msg.subject, Message(msg.data, kind, self._service.now()))
        self._arrived.set()
        await self._pace.one_more()

    async def _listen(self, heard: Callable[[Heard], None]) -> None:
        try:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                for one in self._newest.take():
                    heard(one)
                await asyncio.sleep(EVERY_S)
        finally:
            await self._line.close()
