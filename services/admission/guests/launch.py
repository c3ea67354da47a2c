"""The launch channel: how a script on rank 0 runs tasks on all its nodes.  In memory, long polls on both sides.

    rank 0   POST launch ──▶ commands of every rank ──▶ each rank runs its block of tasks
    rank r   POST events ──▶ events, numbered ──▶ rank 0 GET events (what it has got is forgotten)

Rules
  1. Tasks go to ranks in blocks, the first ranks one more where it does not come out even.
  2. A launch id starts once; a rank's events are counted, so a repeated call adds nothing.
  3. Nothing is dropped: without a reader, the writer has to wait (`Full`, HTTP 503), and its task waits on its pipe.
  4. Nothing here is a fact.  A restart of admission loses launches under way; numbers start at the clock, so that what a guest
     has seen before never hides what comes after.
  5. A call that holds much is refused, and so are many that do until ranks have fetched what was there before: what is held is
     bounded, per attempt and in total.  A poll for commands beyond a number returns those up to it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from schemas.requests import ARGUMENTS_MAX, VARIABLES_MAX, Argument, FilePath, problem_of_exec
from schemas.units import count
from schemas.validation import WORDS
from services.domain.refusal import Refused

LAUNCHES_MAX: Final = 1000  # of one attempt
COMMANDS_MAX: Final = 10_000
TASKS_MAX: Final = 100_000
RANK_TASKS_MAX: Final = 4096  # of one launch on one rank; a machine's own limit of processes is lower
HELD_MAX_BYTES: Final = 8 << 20  # of one attempt's commands
HELD_IN_ALL_MAX_BYTES: Final = 128 << 20
COMMAND_BYTES: Final = 512  # what a command costs beside what it says
UNREAD_MAX_BYTES: Final = 8 << 20  # of one launch: then writers wait
EVENTS_MAX_BYTES: Final = 4 << 20  # of one answer
ATTEMPTS_MAX: Final = 2000  # with a launch under way
LAUNCH_ID: Final = "[A-Za-z0-9._-]{1,128}"


class Full(Exception):
    """There is no reader: the writer comes back later."""


class LaunchBody(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks to start on all ranks of the job.  `id`: id of the launch, chosen by the caller; `argv`: command with its
    arguments; `environment`: environment variables of the tasks; `tasks`: number of tasks; `directory`: working directory;
    null: the job's."""

    id: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=128,
            pattern=f"^{LAUNCH_ID}$",
            extra={WORDS: "a name of 1 to 128 letters, digits, '.', '_' and '-' only"},
        ),
    ]
    argv: Annotated[tuple[Argument, ...], Meta(min_length=1, max_length=ARGUMENTS_MAX)]
    environment: Annotated[dict[str, Argument], Meta(max_length=VARIABLES_MAX)] = {}
    tasks: Annotated[int, Meta(ge=1, le=TASKS_MAX)] = 1
    directory: FilePath | None = None
    overcommit: bool = False  # more tasks than the job has cores


class EventBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Output or end of a task.  `stream`: the stream that `data` is of; null: none; `exit`: exit code of the task; null: it
    runs."""

    task: Annotated[int, Meta(ge=0, le=TASKS_MAX)]
    stream: Literal["stdout", "stderr"] | None = None
    data: str | None = None  # base64, passed on as it came
    exit: int | None = None


class EventsBody(msgspec.Struct, frozen=True, kw_only=True):
    """Output and exit codes of this rank's tasks.  `events`: the events, in order; `first`: number of the first of them, so
    that repeating the call is harmless."""

    events: Annotated[tuple[EventBody, ...], Meta(max_length=10_000)]
    first: Annotated[int, Meta(ge=0)]


class SignalBody(msgspec.Struct, frozen=True, kw_only=True):
    """A signal for all tasks of a launch.  `signal`: number of the signal."""

    signal: Annotated[int, Meta(ge=1, le=64)]


class Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command of `phoenix launch` for one rank.  `n`: number of the command; numbers grow; `kind`: start tasks, or send a
    signal to them; `id`: id of the launch; `argv`: command with its arguments; `environment`: environment variables of the
    tasks; `first`: number of this rank's first task; `tasks`: how many tasks this rank starts; `directory`: working
    directory; null: the job's; `signal`: of `signal`, number of the signal."""

    n: int
    kind: Literal["launch", "signal"]
    id: str
    argv: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    first: int = 0
    tasks: int = 0
    directory: str | None = None
    signal: int = 0


class LaunchEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Output or end of a task.  `n`: number of the event; numbers grow; `rank`: the rank that runs the task; `stream`: the
    stream that `data` is of; null: none; `data`: output of the task, in base64; `exit`: exit code of the task; null: it
    runs."""

    n: int
    rank: int
    task: int
    stream: str | None = None
    data: str | None = None
    exit: int | None = None


def refuse_beyond(tasks: int, cores: int) -> None:
    """As srun: tasks that share a core are wanted by few, and are a slip of most.  Raises `Refused`."""
    if tasks > cores:
        beyond = f"{count(tasks, 'task')} on the {count(cores, 'core')} of this job"
        raise Refused("invalid", f"{beyond}: submit it with more (-n, -c), or launch with --overcommit", "tasks")


class _Launch:
    __slots__ = ("events", "held_bytes", "seen", "unfetched", "unread_bytes")

    def __init__(self, held_bytes: int, unfetched: int) -> None:
        self.held_bytes = held_bytes  # by its commands
        self.unfetched = unfetched  # ranks that have not fetched it
        self.events: list[LaunchEvent] = []
        self.seen: dict[int, int] = {}  # rank -> events taken
        self.unread_bytes = 0


class _Attempt:
    """All launches of one attempt."""

    __slots__ = ("changed", "commands", "held_bytes", "launches", "n")

    def __init__(self, ranks: int) -> None:
        self.commands: list[list[Command]] = [[] for _ in range(ranks)]
        self.launches: dict[str, _Launch] = {}
        self.held_bytes = 0
        self.changed = asyncio.Event()
        self.n = int(time.time() * 1e6)  # counted more slowly than microseconds pass

    def next(self) -> int:
        self.n += 1
        return self.n

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


Key = tuple[str, int]  # unit, attempt


class Launches:
    def __init__(self) -> None:
        self._attempts: dict[Key, _Attempt] = {}
        self._held_bytes = 0

    def forget(self, unit: str) -> None:
        """The unit's attempt changed or ended: pollers ask again and learn it."""
        for key in [key for key in self._attempts if key[0] == unit]:
            self._drop(key)

    def _drop(self, key: Key) -> None:
        attempt = self._attempts.pop(key)
        self._held_bytes -= attempt.held_bytes
        attempt.wake()

    def launch(self, key: Key, ranks: int, body: LaunchBody) -> None:
        attempt = self._attempt(key, ranks)
        if body.id in attempt.launches:
            return
        if len(attempt.launches) >= LAUNCHES_MAX:
            raise Refused("limit", f"at most {LAUNCHES_MAX} launches in one attempt", "id")
        mine = [(rank, tasks) for rank, tasks in enumerate(blocks(body.tasks, len(attempt.commands))) if tasks]
        self._check(attempt, body, held := _held(body, len(mine)), most=max(len(tasks) for _, tasks in mine))
        attempt.launches[body.id] = _Launch(held, len(mine))
        attempt.held_bytes += held
        self._held_bytes += held
        for rank, tasks in mine:
            command = Command(
                n=attempt.next(),
                kind="launch",
                id=body.id,
                argv=body.argv,
                environment=body.environment,
                first=tasks.start,
                tasks=len(tasks),
                directory=body.directory,
            )
            attempt.commands[rank].append(command)
        attempt.wake()

    def _check(self, attempt: _Attempt, body: LaunchBody, held: int, most: int) -> None:
        """Rule 5.  Raises `Refused`."""
        if problem := problem_of_exec(body.argv, body.environment):
            field, message = problem
            raise Refused("invalid", message, field)
        if most > RANK_TASKS_MAX:
            message = (
                f"{body.tasks} tasks are {most} on one node of this job, and at most {RANK_TASKS_MAX} are possible"
            )
            raise Refused("limit", message, "tasks")
        if attempt.held_bytes + held > HELD_MAX_BYTES or self._held_bytes + held > HELD_IN_ALL_MAX_BYTES:
            raise Refused("limit", "nodes have not yet fetched the previous launch: launch this again when they have")

    def signal(self, key: Key, launch: str, number: int) -> None:
        attempt = self._attempts.get(key)
        if attempt is None or launch not in attempt.launches:
            raise _unknown(launch)
        for commands in attempt.commands:
            if len(commands) < COMMANDS_MAX:
                commands.append(Command(n=attempt.next(), kind="signal", id=launch, signal=number))
        attempt.wake()

    async def commands(self, key: Key, ranks: int, rank: int, after: int, wait_s: float) -> Sequence[Command]:
        """This rank's commands beyond number `after`, waiting for one if there is none."""
        attempt = self._attempt(key, ranks)
        deadline = time.monotonic() + wait_s
        while True:
            self._forget_fetched(attempt, rank, after)
            found = list(attempt.commands[rank])
            if found or self._attempts.get(key) is not attempt or not await _wait(attempt, deadline):
                return found

    def _forget_fetched(self, attempt: _Attempt, rank: int, after: int) -> None:
        commands = attempt.commands[rank]
        fetched = [command for command in commands if command.n <= after]
        if not fetched:
            return
        attempt.commands[rank] = commands[len(fetched) :]
        for command in fetched:
            launch = attempt.launches[command.id]
            launch.unfetched -= command.kind == "launch"
            if command.kind == "launch" and not launch.unfetched:
                attempt.held_bytes -= launch.held_bytes
                self._held_bytes -= launch.held_bytes

    def add_events(self, key: Key, rank: int, launch: str, body: EventsBody) -> None:
        """Raises `Full`, and `Refused` for a launch that is not known."""
        attempt = self._attempts.get(key)
        known = attempt.launches.get(launch) if attempt else None
        if attempt is None or known is None:
            raise _unknown(launch)
        if known.unread_bytes > UNREAD_MAX_BYTES:
            raise Full
        seen = known.seen.get(rank, body.first)  # a rank that counts on after our restart is believed
        fresh = body.events[max(0, seen - body.first) :]
        for event in fresh:
            given: dict[str, Any] = {"task": event.task, "stream": event.stream, "data": event.data, "exit": event.exit}
            known.events.append(LaunchEvent(n=attempt.next(), rank=rank, **given))
            known.unread_bytes += _size(event.data)
        known.seen[rank] = max(seen, body.first + len(body.events))
        attempt.wake()

    async def events(self, key: Key, launch: str, after: int, wait_s: float) -> Sequence[LaunchEvent]:
        """Events beyond number `after`; those up to it are forgotten.  Waits for one if there is none."""
        deadline = time.monotonic() + wait_s
        while True:
            attempt = self._attempts.get(key)
            known = attempt.launches.get(launch) if attempt else None
            if attempt is None or known is None:
                raise _unknown(launch)
            self._forget_read(known, after)
            if known.events or not await _wait(attempt, deadline):
                return _bounded(known.events)

    def _forget_read(self, known: _Launch, after: int) -> None:
        if known.events and known.events[0].n <= after:
            known.events = [event for event in known.events if event.n > after]
            known.unread_bytes = sum(_size(event.data) for event in known.events)

    def _attempt(self, key: Key, ranks: int) -> _Attempt:
        found = self._attempts.get(key)
        if found is None:
            if len(self._attempts) >= ATTEMPTS_MAX:  # without launches there is nothing to lose
                for other in [k for k, a in self._attempts.items() if not a.launches]:
                    self._drop(other)
            found = self._attempts[key] = _Attempt(ranks)
        return found


def blocks(tasks: int, ranks: int) -> list[range]:
    """Task numbers of each rank."""
    share, more = divmod(tasks, ranks)
    starts = [rank * share + min(rank, more) for rank in range(ranks + 1)]
    return [range(starts[rank], starts[rank + 1]) for rank in range(ranks)]


def _held(body: LaunchBody, ranks: int) -> int:
    words = sum(len(word) for word in body.argv) + sum(len(k) + len(v) for k, v in body.environment.items())
    return words + COMMAND_BYTES * ranks


def _size(data: str | None) -> int:
    return 64 if data is None else 64 + len(data)


def _bounded(events: list[LaunchEvent]) -> list[LaunchEvent]:
    size = 0
    for number, event in enumerate(events):
        size += _size(event.data)
        if size > EVENTS_MAX_BYTES and number:
            return events[:number]
    return list(events)


async def _wait(attempt: _Attempt, deadline: float) -> bool:
    """False when the deadline has passed."""
    try:
        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
            await attempt.changed.wait()
    except TimeoutError:
        return False
    return True


def _unknown(launch: str) -> Refused:
    return Refused("unknown", f"there is no launch {launch[:128]} in this attempt", "id")
