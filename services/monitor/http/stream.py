"""The page's picture, its timeline, and server-sent events of what changes: one renderer, however many look.

Theory of operation
  A new listener gets the whole picture, then what changes.  One loop compares the picture with what was last sent and renders
  each change once; all listeners of a scope get the same bytes.  Without listeners nothing is rendered.

      facts ──▶ fold ──▶ Picture.refresh ──▶ changes since the last message ──▶ one frame a scope ──▶ each listener's queue

Rules
  1. At most one message each `TELL_S`, and of a queue each `QUEUE_S`: what changes twice in between is sent once.
  2. Every frame's id is the position of the journal that it is of.  A client that returns with `Last-Event-ID`, or `after`,
     gets the picture with every decision behind that id, or `missed`.
  3. A listener that does not read is dropped when `FRAMES_MAX` frames wait for it; it comes back for the picture.  Memory for
     a listener is bounded by that, and frames are shared.
  4. At most `LISTENERS_MAX` at once, and `PER_USER_MAX` of one user.
  5. Access is checked again each `ASK_AGAIN_S`: a revoked token ends the stream.
  6. A listener receives something at least each `HEARTBEAT_S`, if only that there is nothing: silence is a monitor that hangs,
     and the page shows that (`live.js`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Final

import orjson
from aiohttp import web

from services.monitor.core.monitor import MonitorCore
from services.monitor.core.series import POINTS_MAX, STEPS, of_point
from services.monitor.events import Publisher
from services.monitor.http.access import Access, Fault, json_answer
from services.monitor.http.page_state import Part, Picture
from services.monitor.http.parameters import integer_of, time_of
from services.monitor.parts import in_parts
from services.monitor.views.times import iso, not_before
from services.monitor.views.views import Views
from services.runtime.clock import Clock, system_clock

TELL_S: Final = 0.25
QUEUE_S: Final = 1.0  # a queue of 200 rows is 70 kB: once a second is as fast as anybody reads it
HEARTBEAT_S: Final = 2.0  # the page waits for four of them
ASK_AGAIN_S: Final = 10.0
BEAT: Final = b"event: beat\ndata: {}\n\n"  # without an id: it is of no position
FRAMES_MAX: Final = 40  # ten seconds of the fastest telling
LISTENERS_MAX: Final = 64  # pages open at once; each costs a socket, and its frames while it is slow
PER_USER_MAX: Final = 16
SEND_S: Final = 20.0  # a peer that takes nothing for so long is gone
RETRY_MS: Final = 1000
HOUR_S: Final = 3600.0


class Listener:
    """`scope` None: everything.  `position`: of the picture it was given.  `gone` is set when it is to end; `slow`: because it
    does not read."""

    def __init__(self, user: str, scope: str | None, position: int) -> None:
        self.user, self.scope, self.position = user, scope, position
        self.frames: asyncio.Queue[bytes] = asyncio.Queue(FRAMES_MAX)
        self.gone = asyncio.Event()
        self.slow = False

    def give(self, frame: bytes) -> None:
        try:
            self.frames.put_nowait(frame)
        except asyncio.QueueFull:  # rule 3
            self.slow = True
            self.gone.set()


class Stream:
    def __init__(
        self,
        core: MonitorCore,
        views: Views,
        publisher: Publisher,
        access: Access,
        clock: Clock = system_clock,
        connected: Callable[[], bool] = lambda: True,
    ) -> None:
        self.core, self.publisher, self.access = core, publisher, access
        self.now = not_before(core.custody, clock)
        self.picture = Picture(core, views, publisher, connected)
        self.listeners: list[Listener] = []
        self.dropped = 0  # listeners, for being slow
        self._joined = asyncio.Event()
        self._told = 0  # version of the picture
        self._told_position = 0
        self._told_hosts: frozenset[str] = frozenset()
        self._told_departments: frozenset[str] = frozenset()
        self._told_point = 0.0
        self._queues_at = float("-inf")
        self._told_queues: dict[str, int] = {}
        self._is_queue_due = False

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/picture", self.show),
            web.get("/v1/timeline", self.timeline),
            web.get("/v1/stream", self.follow),
        ]

    # --------------------------------------------------------------------------------------------------------- handlers

    async def show(self, request: web.Request) -> web.Response:
        scope = self.access.scope(request)
        await in_parts(self.picture.views.refreshing())
        self._refresh()
        return web.Response(body=self.picture.whole(scope), content_type="application/json")

    async def timeline(self, request: web.Request) -> web.Response:
        self.access.who(request)
        now = self.now()
        since = time_of(request, "since", now - HOUR_S)
        points = integer_of(request, "points", POINTS_MAX, POINTS_MAX, least=1)
        found = self.core.series.timeline(since, points, now)
        return json_answer({**found, "at": [iso(at) for at in found["at"]]})

    async def follow(self, request: web.Request) -> web.StreamResponse:
        scope, user = self.access.scope(request), self.access.who(request).user
        after = integer_of(request, "after", 0) if "after" in request.query else None
        told = request.headers.get("Last-Event-ID", "")  # a browser sends it again: what is none counts as none
        behind = int(told) if told.isascii() and told.isdecimal() and len(told) < 19 else after
        await in_parts(self.picture.views.refreshing())
        listener, picture = self._join(user, scope, behind)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        try:
            await answer.prepare(request)
            await _send(answer, b"retry: %d\n\n" % RETRY_MS + picture)
            await self._forward(request, answer, listener)
        except (ConnectionResetError, TimeoutError, Fault):
            pass  # it has gone, takes nothing, or may not listen any more: the usual ends of a stream
        finally:
            self.listeners.remove(listener)
            if listener.slow and request.transport is not None:
                request.transport.abort()  # it does not read: an orderly end would wait for it
        return answer

    def _join(self, user: str, scope: str | None, behind: int | None) -> tuple[Listener, bytes]:
        """A new listener and its first frame; what changes from here on is in its queue."""
        mine = sum(1 for listener in self.listeners if listener.user == user)
        if len(self.listeners) >= LISTENERS_MAX or mine >= PER_USER_MAX:
            text = f"{len(self.listeners)} pages listen already, {mine} of them yours; at most {LISTENERS_MAX}, and "
            raise Fault(429, "limit", f"{text}{PER_USER_MAX} of one user: close some")
        if self.listeners:
            self._refresh()  # what the others have not received yet is still to be sent
        else:
            self.tell()
        listener = Listener(user, scope, self.picture.position)
        self.listeners.append(listener)
        self._joined.set()
        return listener, _event("picture", self.picture.position, self.picture.whole(scope, behind))

    async def _forward(self, request: web.Request, answer: web.StreamResponse, listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        while not listener.gone.is_set():
            frame = BEAT
            with contextlib.suppress(TimeoutError):
                frame = await asyncio.wait_for(listener.frames.get(), HEARTBEAT_S)
            if loop.time() - asked_at >= ASK_AGAIN_S:
                asked_at = loop.time()
                self.access.who(request)  # rule 5
            if frame:
                await _send(answer, frame)

    # ----------------------------------------------------------------------------------------------------------- telling

    async def run(self) -> None:
        """Send what changes, as long as there are listeners."""
        watcher = self.publisher.watch()
        try:
            while True:
                await self._joined.wait()
                idle_s = QUEUE_S if self._is_queue_due else STEPS[0][0] / 1000  # a point is due though nothing happens
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(watcher.wait(), idle_s)
                watcher.clear()
                if self.listeners:
                    await in_parts(self.picture.views.refreshing())
                    self.tell()
                    await asyncio.sleep(TELL_S)
                else:
                    self._joined.clear()
        finally:
            self.publisher.unwatch(watcher)

    def close(self) -> None:
        """End every stream, in order: the process ends."""
        for listener in self.listeners:
            listener.gone.set()
            while not listener.frames.empty():
                listener.frames.get_nowait()
            listener.frames.put_nowait(b"")

    def tell(self) -> None:
        """Give every listener what has changed since the last telling."""
        self._refresh()
        frames: dict[tuple[str | None, int], bytes] = {}
        shared = [*self._hosts(), *self._points(), *self._alerts()]
        queues = self._queues()
        for listener in self.listeners:
            behind = max(self._told_position, listener.position)
            key = listener.scope, behind
            if key not in frames:
                own = [*self._departments(listener.scope), *queues.get(listener.scope, [])]
                frames[key] = b"".join([*shared, *own, *self._decisions(listener.scope, behind)])
            if frames[key] and not listener.gone.is_set():
                listener.give(frames[key])
                self.dropped += listener.slow
        picture = self.picture
        self._told, self._told_position = picture.version, picture.position
        self._told_hosts, self._told_departments = frozenset(picture.hosts), frozenset(picture.departments)

    def _refresh(self) -> None:
        self.picture.refresh(self.now())

    def _is_new(self, part: Part) -> bool:
        return part.version > self._told

    def _hosts(self) -> Iterator[bytes]:
        rows = [part.body for part in self.picture.hosts.values() if self._is_new(part)]
        removed = sorted(self._told_hosts - self.picture.hosts.keys())
        if rows or removed:
            timeline = self.core.state.timeline
            owners = orjson.dumps(timeline[-1][1] if timeline else {})
            body = b'"hosts":[%b],"removed":%b,"owners":%b' % (b",".join(rows), orjson.dumps(removed), owners)
            yield self._event("hosts", body)

    def _departments(self, scope: str | None) -> Iterator[bytes]:
        picture = self.picture
        rows = [
            picture.department(name, scope)
            for name, part in picture.departments.items()
            if self._is_new(part) or (scope in (None, name) and self._is_new(picture.waiting[name]))
        ]
        removed = sorted(self._told_departments - picture.departments.keys())
        if rows or removed:
            body = b'"departments":[%b],"removed":%b' % (b",".join(rows), orjson.dumps(removed))
            yield self._event("departments", body)

    def _queues(self) -> dict[str | None, list[bytes]]:
        """Rule 1: of the departments that have listeners."""
        now = asyncio.get_running_loop().time()
        scopes = {listener.scope for listener in self.listeners}
        found: dict[str | None, list[bytes]] = {}
        self._is_queue_due = bool(scopes) and now - self._queues_at < QUEUE_S
        if self._is_queue_due or not scopes:
            return found
        self._queues_at = now
        for name in self.picture.departments:
            if scopes & {None, name}:
                body, version = self.picture.queue(name), self.picture.queues[name].version
                if self._told_queues.get(name) != version:
                    self._told_queues[name] = version
                    event = self._event("queue", b'"queue":{%b:%b}' % (orjson.dumps(name), body))
                    found.setdefault(None, []).append(event)
                    found.setdefault(name, []).append(event)
        return found

    def _decisions(self, scope: str | None, behind: int) -> Iterator[bytes]:
        fresh = self.picture.decisions.after(behind)
        rows = [one.body for one in fresh if scope in (None, one.department)]
        if rows:
            yield self._event("decisions", b'"decisions":[%b]' % b",".join(rows))

    def _alerts(self) -> Iterator[bytes]:
        if self._is_new(self.picture.alerts):
            yield self._event("alerts", b'"alerts":%b' % self.picture.alerts.body)

    def _points(self) -> Iterator[bytes]:
        point = self.core.series.newest(self.now())
        if point.at > self._told_point:
            self._told_point = point.at
            told = of_point(point, STEPS[0][0] / 1000)
            yield _event("point", self.picture.position, orjson.dumps({**told, "at": iso(point.at)}))

    def _event(self, name: str, members: bytes) -> bytes:
        picture = self.picture
        at = orjson.dumps(iso(picture.at))
        return _event(name, picture.position, b'{"position":%d,"at":%b,%b}' % (picture.position, at, members))


def _event(name: str, position: int, body: bytes) -> bytes:
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (position, name.encode(), body)


async def _send(answer: web.StreamResponse, frame: bytes) -> None:
    async with asyncio.timeout(SEND_S):
        await answer.write(frame)
