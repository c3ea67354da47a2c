"""Launched tasks: a rank's part of `phoenix launch`.

A rank asks for commands by long poll. A `launch` starts this rank's tasks beside the script, in the same room, uid and
cgroup; their output and exits go back as events, numbered per rank and launch, so that repeating a call is harmless.
Order within a task's stream is kept. A task that cannot write for lack of a reader waits: nothing is dropped.
A task that the machine cannot start (it has all processes that it may have) ends with 126 and says so; the others continue.
What tasks wrote and how they ended is `outstanding` until admission has it: the end of a guest waits for that, else the script
on rank 0 would wait for ever for the end of a task.
A task that ends with 0 after its guest had ordered it to end (`told_to_end`) is reported as ended by SIGTERM: what was stopped
on one node must not look like a success to the script on another, whose guest may not have the order yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

from phoenix.local.guest.door import Command, Door, RefusedError, event_data
from phoenix.local.guest.environment import for_task
from phoenix.local.guest.machine import Ended, Launch, Machine, Process, StartError

PIECE_BYTES_MAX = 64 << 10
PENDING_EVENTS_MAX = 64  # × 64 KiB: what one rank holds when admission is slow
BATCH_EVENTS_MAX = 16  # stays below 1.4 MiB of base64 a call
EXIT_CANNOT_START = 126  # as a shell answers for what it cannot execute
EXIT_STOPPED = 128 + signal.SIGTERM
STARTING_MAX = 16  # tasks of one launch that are on their way: each holds five descriptors of the hypervisor meanwhile


class Launches:
    """All launches of one rank, until cancelled."""

    def __init__(
        self,
        door: Door,
        machine: Machine,
        environment: dict[str, str],
        told_to_end: Callable[[], bool],
        ended: Callable[[Ended], None],
    ) -> None:
        """`ended`: called with how each task has."""
        self._ended = ended
        self._door = door
        self._machine = machine
        self._environment = environment
        self._told_to_end = told_to_end
        self._live: dict[str, _Launch] = {}
        self._running: set[asyncio.Task[None]] = set()

    @property
    def outstanding(self) -> bool:
        """A task runs, or what one has said, or its end, has not arrived at the door."""
        return bool(self._running)

    async def serve(self) -> None:
        """Obey commands until cancelled; raises `GoneError` when the attempt is over."""
        after = 0
        async with asyncio.TaskGroup() as group:
            while True:
                for command in await self._door.commands(after):
                    after = max(after, command.n)
                    if command.kind == "launch" and command.id not in self._live:
                        launch = self._live[command.id] = _Launch(
                            self._door, self._machine, self._environment, command, self._told_to_end, self._ended
                        )
                        task = group.create_task(launch.run(), name=f"launch {command.id}")
                        self._running.add(task)
                        task.add_done_callback(self._running.discard)
                    elif command.kind == "signal" and command.id in self._live:
                        self._live[command.id].signal(command.signal)


class _Launch:
    """One launch: its tasks, and the queue of what they said."""

    def __init__(
        self,
        door: Door,
        machine: Machine,
        environment: dict[str, str],
        command: Command,
        told_to_end: Callable[[], bool],
        ended: Callable[[Ended], None],
    ) -> None:
        self._told_to_end = told_to_end
        self._ended = ended
        self._door = door
        self._machine = machine
        self._environment = environment
        self._command = command
        self._processes: list[Process] = []
        self._signals: list[int] = []
        self._starting = asyncio.Semaphore(STARTING_MAX)
        self._events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(PENDING_EVENTS_MAX)

    def signal(self, number: int) -> None:
        # A task that has not started yet hears it when it has.
        self._signals.append(number)
        for process in self._processes:
            process.signal(number)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            sender = group.create_task(self._send())
            async with asyncio.TaskGroup() as tasks:
                for local in range(self._command.tasks):
                    tasks.create_task(self._task(self._command.first + local, local))
            await self._events.put(None)
            await sender

    async def _send(self) -> None:
        """Send events in order, as many as have gathered while the last call was under way."""
        first = 0
        closing = False
        while not closing:
            batch = [await self._events.get()]
            while len(batch) < BATCH_EVENTS_MAX and not self._events.empty():
                batch.append(self._events.get_nowait())
            closing = batch[-1] is None
            events = [event for event in batch if event is not None]
            if events:
                # A launch that admission no longer knows has no listener.
                with contextlib.suppress(RefusedError):
                    await self._door.launch_events(self._command.id, first, events)
                first += len(events)

    async def _task(self, task: int, local: int) -> None:
        command = self._command
        launch = Launch(
            argv=command.argv,
            environment=for_task(self._environment, command, task, local),
            room=self._machine.room.work,
            directory=command.directory,
            sole=False,
        )
        await self._door.awake.wait()
        try:
            async with self._starting:
                process, readers = await self._started(launch)
        except StartError as error:
            await self._events.put(event_data(task, "stderr", f"phoenix: {error}\n".encode()))
            await self._events.put({"task": task, "exit": EXIT_CANNOT_START})
            return
        self._processes.append(process)
        for number in self._signals:
            process.signal(number)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._relay(task, "stdout", readers[0]))
            group.create_task(self._relay(task, "stderr", readers[1]))
            ended = await process.wait()
        self._ended(ended)
        stopped = ended.code == 0 and self._told_to_end()
        await self._events.put({"task": task, "exit": EXIT_STOPPED if stopped else ended.code})

    async def _started(self, launch: Launch) -> tuple[Process, list[Any]]:
        """The process, and the ends of its stdout and stderr.  Raises `StartError`."""
        fds: list[int] = []
        try:
            fds += os.pipe2(os.O_CLOEXEC)
            fds += os.pipe2(os.O_CLOEXEC)
            fds.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            process = await self._machine.run(launch, (fds[4], fds[1], fds[3]))
            readers = [os.fdopen(fds[0], "rb", buffering=0), os.fdopen(fds[2], "rb", buffering=0)]
            fds = [fds[4], fds[1], fds[3]]
            return process, readers
        except OSError as error:
            raise StartError(f"no new process: {error.strerror}") from error
        finally:
            for fd in fds:
                os.close(fd)

    async def _relay(self, task: int, stream: str, pipe: Any) -> None:
        """Pass on one stream until its last writer has closed it."""
        reader = asyncio.StreamReader(limit=PIECE_BYTES_MAX)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while data := await reader.read(PIECE_BYTES_MAX):
                await self._events.put(event_data(task, stream, data))
        finally:
            transport.close()
