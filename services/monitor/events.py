"""Public events: every valid fact, one by one, on a subject of the department that it concerns (stream EVENTS).

Theory of operation
  Departments and other tools subscribe to `phoenix.event.<department>.<noun>.<verb>`, a small documented contract, and never
  to the journal.  An event's id is its place in the journal, `<position>.<index>`: the stream drops what it has, so a
  restarted or second monitor publishes nothing twice.  After a restart publishing continues behind the last event stored.

Rules
  1. Void facts are never published.
  2. A fact about a unit goes to the unit's department; one about a host to whom it is taken from or given to; else to `site`.
  3. The newest `RING_MAX` events stay in memory for `phoenix events` and the page; older ones are in the stream.  A start from
     a snapshot reads them back from there (`event_backfill`).  Observations of load, one a second of each web department
     whatever it does, have as much room of their own: they push out nothing else.
  4. What memory has no longer is never left out silently: `complete_from` is the position from which on nothing is
     missing, by department, since what one department has lost is no other's gap.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable
from heapq import merge
from itertools import islice, takewhile
from typing import Final

import msgspec
import orjson
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import PubAck
from nats.js.errors import NotFoundError

from schemas import facts as f
from schemas import subjects
from schemas.units import exact
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.monitor.parts import Parts, Work
from services.runtime.log import Log

RING_MAX: Final = 20_000  # about 10 MB
LOADS_MAX: Final = 20_000  # likewise; five and a half hours of one web department
LOAD: Final = "load.observed"
IN_FLIGHT_MAX: Final = 64  # publishes whose acknowledgement is awaited at once: about two milliseconds of making them
ACK_S: Final = 5.0
RETRY_S: Final = 0.5
FLUSH_S: Final = 0.05  # how long an event may wait for company


class Entry(msgspec.Struct, frozen=True):
    position: int
    index: int
    department: str
    kind: str
    data: bytes  # the event as JSON

    @property
    def id(self) -> str:
        return f"{self.position}.{self.index}"


def kept_json(value: object) -> bytes:
    """JSON that is kept: a copy of its own size, because what orjson returns keeps holding the buffer of several KiB that it
    was written into."""
    return bytes(memoryview(orjson.dumps(value)))


def department_of(fact: f.Fact, custody: Custody) -> str:
    """Whom a fact concerns (rule 2)."""
    dept = getattr(fact, "dept", None)
    if dept is not None:
        return str(dept)
    name = getattr(fact, "unit", None) or getattr(fact, "job", None)
    if name is not None:
        unit = custody.state.units.get(name)
        return unit.dept if unit is not None else subjects.SITE
    host = custody.state.hosts.get(getattr(fact, "host", ""))
    return host.dept if host is not None and host.dept is not None else subjects.SITE


class Publisher:
    """Collects events from the fold and publishes them in order."""

    def __init__(self, custody: Custody) -> None:
        self.custody = custody
        self.ring: deque[Entry] = deque(maxlen=RING_MAX)  # all but observations of load
        self.loads: deque[Entry] = deque(maxlen=LOADS_MAX)
        self.newest = 0  # position of the last event noted
        self._before = 0  # up to here nothing is in memory: it was folded before the snapshot
        self._gone: dict[tuple[str, bool], int] = {}  # (department, of load) -> position of the last event pushed out
        self.published = (0, 0)  # place of the last event that the stream holds
        self._queue: deque[Entry] = deque()
        self._arrived = asyncio.Event()
        self._stored = asyncio.Event()
        self._watchers: list[asyncio.Event] = []

    async def resume(self, js: JetStreamContext) -> None:
        """Learn the place of the last event stored."""
        try:
            last = await asyncio.wait_for(js.get_last_msg(subjects.EVENTS_STREAM, subjects.EVENTS_ALL), ACK_S)
        except NotFoundError:
            return
        event = orjson.loads(last.data or b"{}")
        self.published = (int(event.get("position", 0)), int(event.get("index", 0)))

    def note(self, fact: f.Fact, meta: Meta) -> None:
        """Make an event of a fact that was just folded."""
        if meta.void is not None:
            return
        dept, kind = department_of(fact, self.custody), f.kind_of(fact)
        event = {
            "v": 1,
            "id": f"{meta.position}.{meta.index}",
            "position": meta.position,
            "index": meta.index,
            "at": exact(meta.at),
            "kind": kind,
            "department": dept,
            "writer": meta.writer,
            "fact": msgspec.to_builtins(fact),
        }
        entry = Entry(meta.position, meta.index, dept, kind, kept_json(event))
        ring = self._ring_of(entry)
        if len(ring) == ring.maxlen:
            self._forget(ring[0])
        ring.append(entry)
        self.newest = meta.position
        if (meta.position, meta.index) > self.published:
            self._queue.append(entry)
            self._arrived.set()
        for watcher in self._watchers:
            watcher.set()

    def _ring_of(self, entry: Entry) -> deque[Entry]:
        return self.loads if entry.kind == LOAD else self.ring

    def _forget(self, entry: Entry) -> None:
        key = entry.department, entry.kind == LOAD
        self._gone[key] = max(self._gone.get(key, 0), entry.position)

    @property
    def room(self) -> int:
        """How many more events may fit into memory."""
        return RING_MAX - len(self.ring) + LOADS_MAX - len(self.loads)

    def resumed(self, position: int) -> None:
        """The fold continues behind `position`: what was before is not in memory until it is put there (`prepend`)."""
        self._before = position

    def prepend(self, entries: list[Entry], *, whole: bool) -> None:
        """Events that were before the first one in memory, as far as there is room.  `whole`: there were no others."""
        for entry in reversed(entries):
            ring = self._ring_of(entry)
            if len(ring) == ring.maxlen:
                self._forget(entry)
            else:
                ring.appendleft(entry)
        if entries:
            self.newest = max(self.newest, entries[-1].position)
        if whole:
            self._before = 0
        elif entries:  # others of its envelope may be missing
            self._before = entries[0].position

    def complete_from(self, department: str | None, *, loads: bool) -> int:
        """The position behind which no event of the department (None: of any) is missing.  `loads`: observations of load,
        too."""
        gone = (at for (of, load), at in self._gone.items() if department in (None, of) and (loads or not load))
        return max(self._before, *gone, 0)

    def waiting(self, position: int) -> bool:
        """Whether an event up to `position` is not stored yet."""
        return bool(self._queue) and self._queue[0].position <= position

    async def stored(self, position: int) -> None:
        """Returns when the stream holds all events up to `position`."""
        while self.waiting(position):
            self._stored.clear()
            await self._stored.wait()

    def after(self, position: int, department: str | None, *, loads: bool = True) -> list[Entry]:
        """Events in memory behind `position`, of one department or all, in order; without `loads` no observations of load."""
        found: list[Entry] = []
        for ring in (self.ring, self.loads) if loads else (self.ring,):
            fresh = takewhile(lambda e: e.position > position, reversed(ring))
            found += [e for e in fresh if department in (None, e.department)]
        found.sort(key=lambda e: (e.position, e.index))
        return found

    def page(
        self, after: int, department: str | None, omitted: Collection[str], most: int, *, oldest: bool
    ) -> Parts[list[Entry]]:
        """`most` events behind `after` from one end, without those kinds, in order; of the oldest also those that share the
        last one's position: one asks on by position."""
        kept = [list(ring) for ring in ((self.ring,) if LOAD in omitted else (self.ring, self.loads))]
        found, work, rings = list[Entry](), Work(), list[Iterable[Entry]]()
        if oldest:
            rings = [islice(ring, bisect_right(ring, after, key=lambda e: e.position), None) for ring in kept]
        else:
            rings = [takewhile(lambda e: e.position > after, reversed(ring)) for ring in kept]
        for entry in merge(*rings, key=lambda e: (e.position, e.index), reverse=not oldest):
            if len(found) >= most and (not oldest or not found or entry.position != found[-1].position):
                break
            if department in (None, entry.department) and entry.kind not in omitted:
                found.append(entry)
            if work.add():
                yield
        return found if oldest else found[::-1]

    def watch(self) -> asyncio.Event:
        """An event that is set whenever something happens; give it back with `unwatch`."""
        watcher = asyncio.Event()
        self._watchers.append(watcher)
        return watcher

    def unwatch(self, watcher: asyncio.Event) -> None:
        self._watchers.remove(watcher)

    async def run(self, nc: Client, js: JetStreamContext, log: Log) -> None:
        """Publish for ever, in order; a batch that is not acknowledged is published again (the ids make that harmless)."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._queue:
                batch = [self._queue[i] for i in range(min(IN_FLIGHT_MAX, len(self._queue)))]
                try:
                    await self._publish(js, batch)
                except (NatsError, TimeoutError, OSError) as error:
                    log.warning(
                        "events not stored", error=repr(error), waiting=len(self._queue), connected=nc.is_connected
                    )
                    await asyncio.sleep(RETRY_S)
                    continue
                for _ in batch:
                    self._queue.popleft()
                self.published = (batch[-1].position, batch[-1].index)
                self._stored.set()

    async def _publish(self, js: JetStreamContext, batch: list[Entry]) -> None:
        """Send all, then wait for what is said of them: a request for each would be a task, an inbox and two timers, too."""
        answers: list[asyncio.Future[PubAck]] = []
        try:
            async with asyncio.timeout(ACK_S):
                for entry in batch:
                    subject = subjects.event(entry.department, entry.kind)
                    headers = {"Nats-Msg-Id": entry.id, "Content-Type": "application/json"}
                    stream = subjects.EVENTS_STREAM
                    answers.append(await js.publish_async(subject, entry.data, stream=stream, headers=headers))
                await asyncio.gather(*answers)
        finally:
            for answer in answers:
                answer.cancel()  # what is not answered is forgotten: the library counts what it waits for
