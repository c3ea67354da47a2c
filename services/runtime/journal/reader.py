"""The reader: every journal message once, in order, from a position on, without going blind.

An ordered consumer of our own on the JetStream API: the library's resets itself in tasks that are never awaited, and gives up
when the server is not there at that moment.

Rules
  1. A consumer is a pipe that may break at any time.  What it delivered is judged by its own sequence: 1, 2, 3, …; a gap, a
     missed heartbeat, a reconnect, or a stream that is ahead of us without progress means: new consumer from position + 1.
  2. Each incarnation has its own inbox, so nothing of an old pipe can be taken for the new one.
  3. Messages are collected by the subscription's one callback and taken in batches: no task per message.
  4. A client library that has lost itself while reconnecting is distinguished from a broker that is away by asking the broker
     on a new connection; if that one is greeted, the process ends (hangs after reconnects are known of the library: NATS.md
     3.13).
  5. The journal has no gaps but where it was trimmed (S5): a position that does not follow the last one means that what lay
     between is in the archive only.  Then the process ends, and begins again from its snapshot.
  6. Flow control: the server sends no more than we have taken (`acknowledge`), so the client never has to drop.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js.errors import Error as JetStreamError

from schemas.subjects import JOURNAL_STREAM
from services.domain.exits import Exit, Stop
from services.runtime.clock import broker_time
from services.runtime.journal.fold import Stored
from services.runtime.log import Log, message_of

SILENCE_MAX: Final = 3  # heartbeats missed before the pipe counts as broken
LOOK_EVERY: Final = 4  # watchdog ticks between two looks at the stream's end: 2 s at a heartbeat of 0.5 s
STUCK_S: Final = 6.0  # silence after which the client is suspected; a dead connection is noticed after 3 s (`connect`)
PROBES: Final = 4
PROBE_PAUSE_S: Final = 1.5  # a reconnect takes up to 2 s when the broker wakes in the middle of it
INACTIVE_S: Final = 5.0  # the server removes a consumer without a listener
CALL_TIMEOUT_S: Final = 2.0
PAUSE_S: Final = 0.2  # between two questions to a broker that does not answer
PENDING_MAX: Final = 1 << 20  # messages; flow control stops the server long before
_NS: Final = 1_000_000_000


class _Time(msgspec.Struct):
    """What is of interest in an answer of the JetStream API here."""

    ts: str


class Reader:
    """Follows the journal from `start + 1`.  `kick` is called when there is something to take."""

    def __init__(
        self,
        nc: Client,
        js: JetStreamContext,
        *,
        start: int,
        heartbeat_s: float,
        kick: Callable[[], None],
        log: Log,
    ) -> None:
        self.position = start  # of the last message received
        self.end_seen = start  # of the stream, as far as anything has said
        self.recreated = 0
        self._nc, self._js, self._log, self._kick = nc, js, log, kick
        self._heartbeat_s = heartbeat_s
        self._batch: deque[Stored] = deque()
        self._subscription: Subscription | None = None
        self._delivered = 0  # consumer sequence of the last message of this incarnation
        self._heard_at = self._opened_at = time.monotonic()
        self._flow_reply = ""
        self._suspect = asyncio.Event()
        self._trimmed_to = 0  # rule 5

    @property
    def waiting(self) -> bool:
        """True if there is something to take."""
        return bool(self._batch)

    def take(self, limit: int, bytes_max: float = float("inf")) -> list[Stored]:
        """Up to `limit` messages, in journal order, and no more than it takes to have `bytes_max`."""
        taken: list[Stored] = []
        size = 0
        while self._batch and len(taken) < limit and size < bytes_max:
            taken.append(self._batch.popleft())
            size += len(taken[-1].data)
        return taken

    async def acknowledge(self) -> None:
        """Tell the server that everything delivered was taken, if it asked and if that is true."""
        if self._flow_reply and not self._batch:
            reply, self._flow_reply = self._flow_reply, ""
            try:
                await self._nc.publish(reply)
            except nats.errors.Error:
                self.doubt()  # the pipe stalls without this answer

    def doubt(self) -> None:
        """The pipe may have lost something (a reconnect, an error): look now."""
        self._suspect.set()

    async def end(self) -> int:
        """The stream's last sequence, as its leader knows it; waits for a broker that is away."""
        while True:
            try:
                return await self._look()
            except (nats.errors.Error, JetStreamError, TimeoutError):
                await asyncio.sleep(PAUSE_S)

    async def _look(self) -> int:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            end = (await self._js.stream_info(JOURNAL_STREAM)).state.last_seq
        self.end_seen = max(self.end_seen, end)
        return end

    async def ask_time(self) -> float:
        """The broker's clock, UTC seconds.  Raises what the broker raises."""
        reply = await self._nc.request(f"$JS.API.STREAM.INFO.{JOURNAL_STREAM}", timeout=CALL_TIMEOUT_S)
        return broker_time(msgspec.json.decode(reply.data, type=_Time).ts)

    async def open(self) -> None:
        """Start the pipe.  Raises what the broker raises."""
        await self._open()

    async def close(self) -> None:
        await self._unsubscribe()

    async def watch(self) -> None:
        """The watchdog: for ever, renew the pipe whenever rule 1 says so."""
        tick = 0
        position = self.position
        while True:
            await self._tick()
            if self._trimmed_to:
                raise Stop(
                    Exit.FAILED,
                    f"the journal was trimmed up to {self._trimmed_to} while {self.position} was the last folded",
                )
            tick += 1
            looks = tick % LOOK_EVERY == 0
            if self._nc.is_connected and (self._is_broken() or (looks and await self._is_blind(position))):
                await self._renew()
            if looks:
                position = self.position

    async def _tick(self) -> None:
        """One heartbeat, or less if the pipe is doubted and can be renewed at once."""
        if not self._nc.is_connected:  # the doubt, if any, stays set: waiting for it would not wait at all
            await asyncio.sleep(PAUSE_S)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._heartbeat_s):
                await self._suspect.wait()

    async def guard(self, answers: Callable[[], Awaitable[bool]]) -> None:
        """Rule 4, beside the watchdog, which keeps trying.  `answers`: whether the broker greets a new connection.  Several
        greetings in a row: a broker that is just back, and has not been found yet, is no proof."""
        greeted = 0
        while greeted < PROBES:
            await asyncio.sleep(PROBE_PAUSE_S)
            is_silent = time.monotonic() - self._heard_at > STUCK_S
            greeted = greeted + 1 if is_silent and await answers() else 0
        silent_s = time.monotonic() - self._heard_at
        raise Stop(
            Exit.FAILED, f"nothing was received for {silent_s:.0f} s although the broker answers: the client is stuck"
        )

    def _is_broken(self) -> bool:
        silent_s = time.monotonic() - max(self._heard_at, self._opened_at)
        return self._suspect.is_set() or silent_s > SILENCE_MAX * self._heartbeat_s

    async def _is_blind(self, before: int) -> bool:
        """True if the stream is ahead of us and nothing has come since the last look."""
        try:
            end = await self._look()
        except (nats.errors.Error, JetStreamError, TimeoutError):
            return False  # the broker is away; heartbeats decide
        return end > self.position and self.position == before

    async def _renew(self) -> None:
        self._suspect.clear()
        self.recreated += 1
        try:
            await self._open()
            self._log.info("journal reader renewed", position=self.position)
        except (nats.errors.Error, JetStreamError, TimeoutError) as error:
            self._suspect.set()
            self._log.warning("journal reader not renewed", error=message_of(error))
            await asyncio.sleep(self._heartbeat_s)

    async def _open(self) -> None:
        await self._unsubscribe()
        async with asyncio.timeout(CALL_TIMEOUT_S):
            inbox = self._nc.new_inbox()
            self._delivered, self._flow_reply = 0, ""
            self._opened_at = time.monotonic()
            self._subscription = await self._nc.subscribe(
                inbox, cb=self._receiver(inbox), pending_msgs_limit=PENDING_MAX, pending_bytes_limit=0
            )
            await self._create_consumer(inbox)

    async def _unsubscribe(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is None:
            return
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                await subscription.unsubscribe()
        except (nats.errors.Error, TimeoutError):
            return  # the connection is gone, and the subscription with it

    async def _create_consumer(self, inbox: str) -> None:
        config = {
            "deliver_subject": inbox,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self.position + 1,
            "ack_policy": "none",
            "max_deliver": 1,
            "flow_control": True,
            "idle_heartbeat": int(self._heartbeat_s * _NS),
            "inactive_threshold": int(INACTIVE_S * _NS),
            "mem_storage": True,
            "num_replicas": 1,
        }
        request = msgspec.json.encode({"stream_name": JOURNAL_STREAM, "config": config})
        reply = await self._nc.request(f"$JS.API.CONSUMER.CREATE.{JOURNAL_STREAM}", request, timeout=CALL_TIMEOUT_S)
        answer: dict[str, Any] = msgspec.json.decode(reply.data)
        if "error" in answer:
            raise JetStreamError(answer["error"].get("description", "consumer not created"))

    def _receiver(self, inbox: str) -> Callable[[Msg], Any]:
        async def receive(msg: Msg) -> None:
            if self._subscription is None or self._subscription.subject != inbox:
                return  # of an older incarnation (rule 2)
            self._heard_at = time.monotonic()
            if msg.subject == inbox:
                self._control(msg.headers or {}, msg.reply)
            else:
                self._message(msg)

        return receive

    def _control(self, headers: dict[str, str], reply: str) -> None:
        """A heartbeat or a flow control request of the server."""
        stalled = headers.get("Nats-Consumer-Stalled", "")
        if reply or stalled:
            self._flow_reply = reply or stalled
            self._kick()
        last = headers.get("Nats-Last-Consumer")
        if last is not None and int(last) != self._delivered:
            self.doubt()

    def _message(self, msg: Msg) -> None:
        position, delivered, stored_at, pending = numbers(msg.reply)
        self.end_seen = max(self.end_seen, position + pending)
        if delivered != self._delivered + 1:
            self.doubt()
            return
        if position != self.position + 1:
            self._trimmed_to = position - 1
            self.doubt()
            return
        self._delivered = delivered
        self.position = position
        self._batch.append(Stored(position, msg.subject, msg.data, stored_at))
        self._kick()


def numbers(reply: str) -> tuple[int, int, float, int]:
    """Stream sequence, consumer sequence, time of storing, and how many follow, from a delivered message's reply subject.

    $JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<ns>.<pending>
    $JS.ACK.<domain>.<account>.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<ns>.<pending>[.<token>]
    """
    parts = reply.split(".")
    at = 5 if len(parts) == 9 else 7
    return int(parts[at]), int(parts[at + 1]), int(parts[at + 2]) / _NS, int(parts[at + 3])
