"""Streams that outlive a connection: events behind a position, and what a job writes behind an offset.

Theory of operation
  A stream that breaks off, ends or is silent is asked for again from where it was.  Events are asked for by position, but
  several can have one position (they were decided together), and a connection can be cut between them.  `Cursor` remembers the
  place of the last event: as long as more of its position may be missing, the cloud is asked from the position before, and what
  was seen already is dropped.

Rules
  1. Each event is yielded once, in the journal's order, and none is left out silently: the cloud answers 410 (`Gone`) where
     some are not kept any more.
  2. A cloud that is away is asked again for `patience_s`; then its error is raised.
  3. A job that is queued again writes a new output: it is read from its beginning, after the rest of the one before.  An
     attempt that was suspended and resumed continues its output.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Final

import msgspec

from phoenix.client.answers import Event, read
from phoenix.client.errors import Invalid, TimedOut, Unavailable, Unreadable
from phoenix.client.transport import Answer, Transport, lines

PATIENCE_S: Final = 60.0  # of an upgrade, or a machine that starts again
AGAIN_S: Final = 0.5  # before a stream that ended is asked for again
PAGE: Final = 5000  # events of one answer
HOLD_S: Final = 20.0  # the cloud may hold an answer without news for so long; it allows 25
PENDING_FIRST_S: Final = 0.2  # between questions whether a job that waits, or was queued again, has started
PENDING_MAX_S: Final = 2.0


class Cursor:
    """The place of the last event.  `after`: a position, all of which was seen, or an event's id, which was the last one."""

    def __init__(self, after: int | str) -> None:
        position, dot, index = str(after).partition(".")
        if not position.isdecimal() or not (index.isdecimal() or not dot):
            wrong = Invalid(f"after: {str(after)[:40]!r} is neither a position nor the id of an event")
            wrong.field = "after"
            raise wrong
        self.position = int(position)
        self._index = int(index) if dot else 0
        self._whole = not dot

    def resume(self) -> int:
        """The position to ask behind."""
        return self.position if self._whole else max(0, self.position - 1)

    def takes(self, event: Event) -> bool:
        """False if it was seen before; else it is the last one now."""
        if (event.position, event.index) <= (self.position, self._index) or (
            self._whole and event.position == self.position
        ):
            return False
        self.position, self._index, self._whole = event.position, event.index, False
        return True

    def rest(self) -> None:
        """The cloud had nothing more: it sends what has one position in one go."""
        self._whole = True


class Patience:
    """Rule 2: how long a cloud has been away."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._since: float | None = None

    def answered(self) -> None:
        self._since = None

    def is_over(self) -> bool:
        """After a failure."""
        now = asyncio.get_running_loop().time()
        self._since = now if self._since is None else self._since
        return now - self._since >= self._patience_s


async def pages(transport: Transport, cursor: Cursor, chosen: Mapping[str, object]) -> AsyncGenerator[Event, None]:
    """What the cloud keeps behind the cursor, up to now."""
    while True:
        answer = await transport.call("GET", "/v1/events", {"after": cursor.resume(), "limit": PAGE, **chosen})
        found = [event for line in answer.body.splitlines() if (event := _event(line)) is not None]
        for event in found:
            if cursor.takes(event):
                yield event
        cursor.rest()  # a page ends with all of its last position
        if len(found) < PAGE:
            return


async def follow(
    transport: Transport, cursor: Cursor, chosen: Mapping[str, object], patience_s: float
) -> AsyncGenerator[Event, None]:
    """What the cloud keeps behind the cursor, and what comes."""
    patience = Patience(patience_s)
    while True:
        try:
            asked = {"after": cursor.resume(), "follow": 1, **chosen}
            async with transport.stream("/v1/events", asked) as chunks:
                async for line in lines(chunks):
                    patience.answered()
                    event = _event(line)
                    if event is None:
                        cursor.rest()
                    elif cursor.takes(event):
                        yield event
        except TimedOut:
            cursor.rest()
        except Unavailable:
            if patience.is_over():
                raise
        await asyncio.sleep(AGAIN_S)


async def events(
    transport: Transport, after: int | str | None, chosen: Mapping[str, object], *, on: bool, patience_s: float
) -> AsyncGenerator[Event, None]:
    """Behind `after`, or from now on; `on`: not only those that there are."""
    cursor = Cursor(await _newest(transport, chosen) if after is None else after)
    async with aclosing(
        follow(transport, cursor, chosen, patience_s) if on else pages(transport, cursor, chosen)
    ) as found:
        async for event in found:
            yield event


async def _newest(transport: Transport, chosen: Mapping[str, object]) -> int:
    """The position of the newest event; 0 if there is none."""
    answer = await transport.call("GET", "/v1/events", {"limit": 1, **chosen})
    return max((event.position for line in answer.body.splitlines() if (event := _event(line))), default=0)


def _event(line: bytes) -> Event | None:
    """None of an empty line, which keeps the connection alive."""
    if not line.strip():
        return None
    try:
        return read(Event, msgspec.json.decode(line))
    except msgspec.DecodeError as error:
        raise Unreadable(f"an event is no JSON: {error}") from error


class Output:
    """The bytes of one stream of a job or instance, part by part.  `path`: where it is read; `values`: which stream of it;
    `is_over`: whether an attempt of this number is the last one there will be."""

    def __init__(
        self, transport: Transport, path: str, values: Mapping[str, object], is_over: Callable[[int], Awaitable[bool]]
    ) -> None:
        self._transport, self._path, self._values, self._is_over = transport, path, values, is_over
        self._began = ""  # the attempt that began the stream that is read

    async def now(self, offset: int, timeout_s: float | None) -> bytes:
        """What there is from `offset` on."""
        values = {**self._values, "offset": offset or None}
        return (await self._transport.call("GET", self._path, values, timeout_s=timeout_s)).body

    async def follow(self, offset: int, patience_s: float) -> AsyncGenerator[bytes, None]:
        """All from `offset` on, until nothing more will come (rule 3)."""
        patience, pause_s = Patience(patience_s), PENDING_FIRST_S
        while True:
            try:
                answer = await self._ask(offset, hold_s=HOLD_S)
                patience.answered()
            except (Unavailable, TimedOut):
                if patience.is_over():
                    raise
                await asyncio.sleep(AGAIN_S)
                continue
            began = answer.headers.get("phoenix-began", answer.headers.get("phoenix-attempt", "0"))
            if self._began not in ("", "0", began):
                rest = await self._ask(offset, attempt=self._began)
                self._began, offset = began, 0
                if rest.body:
                    yield rest.body
                continue
            self._began = began
            if answer.body:
                yield answer.body
            moved = offset
            offset = int(answer.headers.get("phoenix-offset", offset + len(answer.body)))
            if answer.headers.get("phoenix-end") == "true":
                if await self._is_over(int(answer.headers.get("phoenix-attempt", 0))):
                    return
            elif offset > moved:
                pause_s = PENDING_FIRST_S
                continue
            await asyncio.sleep(pause_s)
            pause_s = min(PENDING_MAX_S, pause_s * 1.5)

    async def _ask(self, offset: int, *, hold_s: float | None = None, attempt: str | None = None) -> Answer:
        values = {**self._values, "offset": offset or None, "wait_s": hold_s}
        if attempt is not None:
            values["attempt"] = attempt
        timeout_s = None if hold_s is None else hold_s + self._transport.timeout_s
        return await self._transport.call("GET", self._path, values, timeout_s=timeout_s)
