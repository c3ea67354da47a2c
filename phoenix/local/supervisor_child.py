"""One child of the supervisor: started, watched, started again when it ends, and never left behind.

Rules
  1. A child that ends without being asked to is started again: at once if it had run for a while, else after a pause that
     doubles up to `PAUSE_MAX_S`.  After an exit code that a restart cannot mend the pause is the longest from the start.
  2. Every start of a service has an instance name of its own, and names the instances that are known to be dead
     (`--reaped`): their successor need not wait for their lease (PROTOCOL X8).
  3. No child outlives the supervisor: the kernel sends `death_signal` when the supervisor dies, however it dies.
  4. A child has a session of its own: Ctrl-C in the terminal reaches the supervisor only, which stops children in order.
  5. Listening sockets are the supervisor's (`Spec.listen`), and given to each process that it starts.  So no other process on
     this machine, a job say, can take a port while its process restarts; and clients that connect meanwhile wait in the
     kernel's queue and is served by the next process.  What jobs reach (`Spec.doors`) has a second socket in their network.
  6. A child's output goes to its log file, which is bounded; arguments and environment of a child hold no secret.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol, runtime_checkable

from phoenix.local.network.namespace import JobsNetwork
from services.runtime.http.given import spelled

PAUSE_FIRST_S: Final = 0.1
PAUSE_MAX_S: Final = 5.0
SETTLED_S: Final = 10.0  # a child that ran for so long had started well
HOPELESS: Final = frozenset((2, 4, 5, 7))  # services.domain.exits: USAGE, INCOMPATIBLE, STUCK, POLICY
LOG_MAX_BYTES: Final = 32 << 20  # per process; one older file is kept
REAPED_MAX: Final = 8  # instances named to a successor: the last leader is among them
LEFTOVER_S: Final = 5.0  # a killed process frees its ports within milliseconds, unless the disk hangs
# in its environment: the sockets of its first address, as HAProxy writes them: fd@5,fd@9
LISTEN: Final = "PHOENIX_LISTEN"
BACKLOG: Final = 1024  # connections that wait for a process; what HAProxy asks for with its default of connections
_PR_SET_PDEATHSIG: Final = 1
_libc = ctypes.CDLL(None, use_errno=True)

Health = Literal["stopped", "starting", "ok", "failing", "restarting"]


@runtime_checkable
class Follows(Protocol):
    """A probe that is notified of each start of its child."""

    def started(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a child is.  `probe`: True once it does its work.  `stop_s`: from SIGTERM to SIGKILL.  `listen`: addresses of the
    sockets that it is given (rule 5); a connection to one says nothing of its health.  `doors`: those that jobs reach.
    `keeps`: descriptors that it is given besides.  `beats`: it says that it lives."""

    name: str
    argv: tuple[str, ...]
    probe: Callable[[], Awaitable[bool]]
    service: bool = False  # takes --instance and --reaped
    death_signal: int = signal.SIGKILL
    stop_s: float = 8.0
    url: str = ""
    listen: tuple[tuple[str, int], ...] = ()
    doors: tuple[tuple[str, int], ...] = ()
    keeps: tuple[int, ...] = ()
    beats: bool = False


@dataclass(slots=True)
class Child:
    """A running or restarting child.  `note` is called at every start and end."""

    spec: Spec
    log: Path
    note: Callable[[str], None]
    changed: Callable[[], None] = lambda: None  # a process id has changed
    reaped: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)  # of a child that beats
    network: JobsNetwork | None = None  # of jobs, if it is their own
    health: Health = "stopped"
    restarts: int = 0
    instance: str = ""
    since: float = 0.0
    exit_code: int | None = None
    _process: subprocess.Popen[bytes] | None = None
    _listeners: dict[tuple[str, int], list[socket.socket]] = field(default_factory=dict)
    _task: asyncio.Task[None] | None = None
    _stopping: bool = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    def start(self) -> None:
        """Start it, and again whenever it ends.  Raises OSError if one of its addresses is taken."""
        self._stopping = False
        for address in self.spec.listen:
            if address not in self._listeners:
                self._listeners[address] = _listening(self.spec.name, address, self._network_of(address))
        self._task = asyncio.create_task(self._keep(), name=f"keep {self.spec.name}")

    async def probe(self) -> bool:
        """Ask it once, and remember the answer as its health."""
        if self.pid is None:
            return False
        well = await self.spec.probe()
        if well:
            self.health = "ok"
        elif self.health == "ok":
            self.health = "failing"
        return well

    @property
    def ailing(self) -> list[str]:
        """The last report of something that needs attention, though it does its work."""
        return list(getattr(self.spec.probe, "ailing", ())) if self.health == "ok" else []

    @property
    def stuck(self) -> str:
        """Why only another start mends it, as its probe says; or nothing."""
        return str(getattr(self.spec.probe, "stuck", ""))

    def dead(self) -> list[str]:
        """Instances that are known to be dead, once the present one is."""
        return [*self.reaped, *([self.instance] if self.instance else [])][-REAPED_MAX:]

    def signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    async def renew(self, why: str, hard: bool = False) -> None:
        """End it though it runs, and let rule 1 start it again; returns when that one is gone."""
        if self._stopping:
            return
        self.note(f"{self.spec.name}: {why}; it is started again")
        await self._end(hard)

    async def stop(self, hard: bool = False) -> None:
        """SIGTERM, SIGKILL when it takes too long; returns when it is gone."""
        self._stopping = True
        await self._end(hard)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        while self._listeners:
            _close(self._listeners.popitem()[1])
        self.health = "stopped"

    async def _end(self, hard: bool) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        self.signal(signal.SIGKILL if hard else signal.SIGTERM)
        try:
            async with asyncio.timeout(self.spec.stop_s):
                await _ended(process)
        except TimeoutError:
            self.note(f"{self.spec.name}: did not stop within {self.spec.stop_s:.0f} s, killed")
            self.signal(signal.SIGKILL)
            await _ended(process)

    async def _keep(self) -> None:
        """Rule 1."""
        pause_s = PAUSE_FIRST_S
        while not self._stopping:
            try:
                process = self._spawn()
            except OSError as error:  # its log cannot be opened, or there are too many processes: later, perhaps
                self.note(f"{self.spec.name}: cannot be started: {error}; again in {PAUSE_MAX_S:.1f} s")
                await asyncio.sleep(PAUSE_MAX_S)
                continue
            code = await _ended(process)
            if self._stopping:
                return
            lived_s = time.time() - self.since
            self._forget(code)
            pause_s = PAUSE_FIRST_S if lived_s > SETTLED_S else min(PAUSE_MAX_S, pause_s * 2)
            wait_s = PAUSE_MAX_S if code in HOPELESS else pause_s
            self.note(
                f"{self.spec.name}: ended with {_told(code)} after {lived_s:.1f} s; again in {wait_s:.1f} s (see {self.log})"
            )
            await asyncio.sleep(wait_s)

    def _forget(self, code: int) -> None:
        self.restarts += 1
        self.exit_code = code
        self.health = "restarting"
        self.reaped = self.dead()

    def _spawn(self) -> subprocess.Popen[bytes]:
        argv = list(self.spec.argv)
        if self.spec.service:
            self.instance = f"{self.spec.name}-{secrets.token_hex(4)}"
            argv += ["--instance", self.instance]
            argv += ["--reaped", ",".join(self.reaped)] if self.reaped else []
        given = [listener.fileno() for found in self._listeners.values() for listener in found]
        rotate(self.log)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                argv,
                env=os.environ
                | self._first()
                | spelled(self._listeners)
                | (self.environment if self.spec.beats else {}),
                pass_fds=(*given, *self.spec.keeps),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_bound_to(os.getpid(), self.spec.death_signal),  # noqa: PLW1509  # it has one thread
            )
        if isinstance(self.spec.probe, Follows):
            self.spec.probe.started()
        self.since, self.health = time.time(), "starting"
        self.changed()
        return self._process

    def _network_of(self, address: tuple[str, int]) -> JobsNetwork | None:
        return self.network if address in self.spec.doors else None

    def _first(self) -> dict[str, str]:
        found = next(iter(self._listeners.values()), [])
        return {LISTEN: ",".join(f"fd@{listener.fileno()}" for listener in found)} if found else {}


def _listening(name: str, address: tuple[str, int], network: JobsNetwork | None) -> list[socket.socket]:
    """Rule 5: a socket for each address that the host has, and another one in `network`.  Raises OSError."""
    host, port = address
    made: list[socket.socket] = []
    try:
        if not host:
            made.append(socket.create_server(address, family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True))
        else:
            found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, place in dict.fromkeys((family, str(place[0])) for family, _, _, _, place in found):
                made.append(socket.create_server((place, port), family=family, backlog=BACKLOG))
        made += [network.beside(listener, BACKLOG) for listener in made] if network is not None else []
    except OSError as error:
        _close(made)
        raise OSError(error.errno, f"{name} cannot listen at {host}:{port}: {os.strerror(error.errno or 0)}") from error
    return made


def _close(listeners: list[socket.socket]) -> None:
    for listener in listeners:
        listener.close()


def rotate(log: Path) -> None:
    """Keep a log below its limit (rule 6)."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > LOG_MAX_BYTES:
            log.replace(log.with_suffix(".log.1"))


def truncate(log: Path) -> None:
    """The same while the child writes: copied, then cut; its descriptor appends, so it continues at the start.  On a full disk
    it grows on, until it can be copied."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > LOG_MAX_BYTES:
            log.with_suffix(".log.1").write_bytes(log.read_bytes())
            os.truncate(log, 0)


def tail(log: Path, lines: int = 5) -> list[str]:
    """The last lines of a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []


def started_at(pid: int) -> int | None:
    """When a process was started, in clock ticks since boot; None if it is gone or only waits to be reaped.  With the pid it
    names one process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] == "Z" else int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def kill_leftover(pid: int, start: int) -> bool:
    """Kill a process of a supervisor that has died, if it is still that one, and wait for its end; True if it was there."""
    if started_at(pid) != start:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + LEFTOVER_S
    while started_at(pid) == start and time.monotonic() < deadline:
        time.sleep(0.01)
    return True


def _bound_to(parent: int, number: int) -> Callable[[], None]:
    """Rule 3; a parent that died between fork and prctl is noticed by the changed parent id."""

    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return prepare


async def _ended(process: subprocess.Popen[bytes]) -> int:
    """The exit code, without a thread and without a signal handler."""
    if process.poll() is None:
        loop = asyncio.get_running_loop()
        gone: asyncio.Future[None] = loop.create_future()
        descriptor = os.pidfd_open(process.pid)
        loop.add_reader(descriptor, lambda: _settle(gone))
        try:
            await gone
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
    return process.wait()


def _settle(gone: asyncio.Future[None]) -> None:
    if not gone.done():
        gone.set_result(None)


def _told(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
