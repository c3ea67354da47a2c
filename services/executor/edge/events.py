"""OpenNebula's event stream: the hook manager's ZeroMQ publisher, as far as it names a VM or host to look at.

Theory of operation
  The publisher sends two frames, a topic and a base64 XML.  The topic `EVENT STATE VM/<STATE>/<LCM_STATE>/<id> ` holds all
  that a hint needs, and states stand before ids, so ZeroMQ's prefix filter works at the publisher: we subscribe to the states
  in which something follows for us (RUNNING, UNKNOWN, the failures, whatever is not ACTIVE) and to hosts' states.  Of a launch
  one event of four is sent, of an end one of two.  The second frame is never decoded: it holds whole templates.

Rules
  1. What comes is untrusted: no signature, no encryption, whatever the address answers.  A topic of another shape, or longer
     than TOPIC_MAX, is counted and forgotten; a message beyond MESSAGE_MAX ends the connection (ZeroMQ does).
  2. ZeroMQ connects again by itself, for ever, and asks a silent peer for a sign of life; each end and begin is reported, since
     what was published between them is lost.
  3. Nothing here decides anything: `event_hints` judges how far a hint is relied on.
  Source: the recorded stream (tests/conformance/recordings/events.jsonl.gz); upstream `src/hm`.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol

import pyone
import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from services.executor.core.calls import Phase, phase_of
from services.executor.edge.event_hints import SETTLED
from services.executor.edge.metrics import ExecutorMetrics

TOPIC_MAX: Final = 128  # the longest state names and a 64-bit id have 80
MESSAGE_MAX: Final = 8 << 20  # a VM with its whole template: a context of some MiB in base64
WAITING_MAX: Final = 10_000  # messages of about 3 KB that wait to be read; beyond it the publisher drops
BATCH_MAX: Final = 500  # read at once before others have their turn
HEARTBEAT_MS: Final = 2_000
DEAD_MS: Final = 6_000
AGAIN_MS: Final = 100
AGAIN_MAX_MS: Final = 5_000
NAMES_MAX: Final = 256  # pairs that are remembered; there are about 80 in use, and forging more gains nothing
_TOPIC: Final = re.compile(rb"EVENT STATE (VM|HOST)/([A-Z_]{1,40})/([A-Z_]{0,48})/([0-9]{1,18}) ?\Z")


class Told(NamedTuple):
    """One event.  `phase` None: it is about the host with that id."""

    id: int
    phase: Phase | None


class Listener(Protocol):
    """Who hears of it."""

    def told(self, told: Told) -> None: ...

    def connection(self, connected: bool) -> None: ...


def topics() -> Iterator[bytes]:
    """The prefixes that are subscribed to."""
    active = pyone.VM_STATE.ACTIVE
    for lcm in pyone.LCM_STATE:
        if phase_of(active, lcm) in SETTLED:
            yield f"EVENT STATE VM/{active.name}/{lcm.name}/".encode()
    for state in pyone.VM_STATE:
        if phase_of(state, 0) in SETTLED or state is pyone.VM_STATE.PENDING:
            yield f"EVENT STATE VM/{state.name}/".encode()
    yield b"EVENT STATE HOST/"


def read_topic(topic: bytes) -> Told | None:
    """What a topic says; None if it does not belong to this cloud."""
    match = _TOPIC.match(topic) if len(topic) <= TOPIC_MAX else None
    if match is None:
        return None
    kind, state, lcm, number = match.groups()
    if kind == b"HOST":
        return Told(int(number), None)
    phase = _phase(state.decode(), lcm.decode())
    return None if phase is None else Told(int(number), phase)


@functools.lru_cache(NAMES_MAX)
def _phase(state: str, lcm: str) -> Phase | None:
    """None: a name that OpenNebula has not."""
    states, lcms = pyone.VM_STATE.__members__, pyone.LCM_STATE.__members__
    return phase_of(states[state], lcms[lcm]) if state in states and lcm in lcms else None


class EventStream:
    """Listens at `address` (``tcp://HOST:PORT``) until it is cancelled."""

    def __init__(self, address: str, listener: Listener, metrics: ExecutorMetrics) -> None:
        self._address, self._listener, self._metrics = address, listener, metrics

    async def listen_forever(self) -> None:
        context: Any = zmq.asyncio.Context()
        socket = context.socket(zmq.SUB, socket_class=zmq.Socket)
        try:
            _set_up(socket)
            monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
            socket.connect(self._address)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch(monitor), name="events-connection")
                group.create_task(self._hear(socket), name="events")
        finally:
            socket.disable_monitor()
            context.destroy(linger=0)

    async def _watch(self, monitor: Any) -> None:
        """Rule 2."""
        while True:
            event = (await recv_monitor_message(monitor))["event"]
            self._listener.connection(event == zmq.EVENT_HANDSHAKE_SUCCEEDED)

    async def _hear(self, socket: Any) -> None:
        """By the socket's own descriptor: zmq.asyncio's futures, two a message, cost more than all that is done with it.  The
        descriptor announces once that something has come, so everything is read before it is waited for again."""
        loop, descriptor, come = asyncio.get_running_loop(), socket.fileno(), asyncio.Event()
        loop.add_reader(descriptor, come.set)
        try:
            while True:
                come.clear()
                if self._take_batch(socket):
                    await asyncio.sleep(0)
                else:
                    await come.wait()
        finally:
            loop.remove_reader(descriptor)

    def _take_batch(self, socket: Any) -> bool:
        """True: more may have come."""
        for _ in range(BATCH_MAX):
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return False
            self._take(frames)
        return True

    def _take(self, frames: list[bytes]) -> None:
        told = read_topic(frames[0])
        if told is None:
            self._metrics.heard("malformed")
            return
        self._metrics.heard("host" if told.phase is None else "vm")
        self._listener.told(told)


def _set_up(socket: Any) -> None:
    for option, value in (
        (zmq.RCVHWM, WAITING_MAX),
        (zmq.MAXMSGSIZE, MESSAGE_MAX),
        (zmq.LINGER, 0),
        (zmq.HEARTBEAT_IVL, HEARTBEAT_MS),
        (zmq.HEARTBEAT_TIMEOUT, DEAD_MS),
        (zmq.RECONNECT_IVL, AGAIN_MS),
        (zmq.RECONNECT_IVL_MAX, AGAIN_MAX_MS),
    ):
        socket.setsockopt(option, value)
    for prefix in topics():
        socket.subscribe(prefix)
