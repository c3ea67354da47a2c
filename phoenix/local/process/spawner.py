"""The hypervisor's end of the nursery: start a process, signal it, learn how it ended.

Theory of operation. One `Spawner` owns one `zygote.py` process and one stream socket to it. Requests are queued and
written without ever blocking the event loop; descriptors travel with the first byte of their frame. Answers resolve
futures. If the nursery dies, its children die with it (PDEATHSIG), so every process still awaited is lost, which is no
failure of its own, and the next request starts a new nursery.
"""

from __future__ import annotations

import array
import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phoenix.local.guest.machine import Ended, Launch, LostError, StartError
from phoenix.local.process import nursery, processes

# What `-I` leaves out is where this package is: it comes last, so that nothing there stands for what belongs to Python.
ZYGOTE_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]); from phoenix.local.process.nursery import main; sys.exit(main())"
)
PACKAGES = str(Path(__file__).resolve().parents[3])
READ_BYTES = 1 << 16
START_DEADLINE_S = 30.0  # to fork and to execute takes milliseconds; a machine that needs longer is out of order
# of this process's descriptors: with all that may be launched three quarters are left for everything else
FDS_A_LAUNCHED = 8
CLOSE_DEADLINE_S = 12.0  # the nursery gives its own killing ten seconds


@dataclass(frozen=True, slots=True)
class Containment:
    """What one VM's processes are held in: cgroup directories, an own uid, limits, and the marker they carry.

    `devices`: device node -> whether they can open it; nodes that are not there are as on the machine."""

    cgroups: tuple[str, ...] = ()
    uid: int | None = None
    rlimits: dict[str, int] = field(default_factory=dict)
    marker: str | None = None
    devices: dict[str, bool] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        return {"cgroups": list(self.cgroups), "uid": self.uid, "rlimits": self.rlimits, "marker": self.marker}


class ChildProcess:
    """A process that was started."""

    def __init__(self, spawner: Spawner, ident: int, held: Containment) -> None:
        self._spawner = spawner
        self._ident = ident
        self._held = held
        self.pid = 0
        loop = asyncio.get_running_loop()
        self.started: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[Ended] = loop.create_future()

    @property
    def runs(self) -> bool:
        """False once it has ended, also if the nursery has not told so yet."""
        return not self.ended.done() and processes.state(self.pid) not in "ZX"

    async def wait(self) -> Ended:
        """Wait until it has ended; cancelling the wait leaves the process alone.  Raises `LostError`."""
        return await asyncio.shield(self.ended)

    def signal(self, number: int, *, everyone: bool = False) -> None:
        """Signal its process group, or every process of its VM; nothing happens when it has ended."""
        if not self.ended.done():
            self._spawner.signal(self._ident, number, self._held if everyone else None)

    def warn(self, number: int, *, script: bool) -> None:
        """Signal the process alone (`script`), or only what it has started in its process group."""
        if not self.ended.done():
            self._spawner.warn(self._ident, number, self._held, script)


class Spawner:
    """Starts processes through one nursery."""

    def __init__(self) -> None:
        self._nursery: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._processes: dict[int, ChildProcess] = {}
        self._outbox: deque[tuple[memoryview, tuple[int, ...]]] = deque()
        self._inbox = bytearray()
        self._last_ident = 0
        self.hides = False  # other users' processes from each job (zygote.py rule 10)
        self.network: int | None = None  # a descriptor of the jobs' network namespace (zygote.py rule 11)
        self.on_start: Callable[[int], None] = lambda _pid: None

    @property
    def pid(self) -> int | None:
        """The nursery's pid, None while there is none."""
        return self._nursery.pid if self._nursery is not None else None

    def start(self) -> None:
        """Start the nursery; it needs no file but the interpreter's own."""
        ours, theirs = socket.socketpair()
        words = [nursery.HIDE] if self.hides else []
        words += [f"{nursery.NETWORK}{self.network}"] if self.network is not None else []
        with theirs:
            self._nursery = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", ZYGOTE_PROGRAM, PACKAGES, *words],
                pass_fds=() if self.network is None else (self.network,),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={"PATH": os.defpath},
                cwd="/",
                start_new_session=True,
            )
        self.on_start(self._nursery.pid)
        ours.setblocking(False)
        self._socket = ours
        asyncio.get_running_loop().add_reader(ours, self._readable)

    async def close(self) -> None:
        """Close the socket and wait until the nursery has killed everything and is gone."""
        self._hang_up()
        if self._nursery is not None:
            nursery, self._nursery = self._nursery, None
            try:
                await asyncio.to_thread(nursery.wait, CLOSE_DEADLINE_S)
            except subprocess.TimeoutExpired:
                nursery.kill()
                await asyncio.to_thread(nursery.wait)
        self._bury_all()

    async def run(self, launch: Launch, held: Containment, stdio: tuple[int, int, int]) -> ChildProcess:
        """Start one process with these descriptors as its stdin, stdout and stderr.

        The descriptors stay the caller's; they are duplicated before this returns. Raises `StartError`.
        """
        if not launch.sole and len(self._processes) >= (most := _open_files() // FDS_A_LAUNCHED):
            raise StartError(f"all {most} processes that may be launched on this hypervisor are in use")
        self._revive()
        ident = self._next_ident()
        process = self._processes[ident] = ChildProcess(self, ident, held)
        request = {
            "op": "run",
            "id": ident,
            "argv": list(launch.argv),
            "environment": dict(launch.environment),
            "room": launch.room,
            "directory": launch.directory,
            "note": launch.note,
            "stdin": launch.stdin,
            "sole": launch.sole,
            "serves": launch.serves,
            "devices": held.devices,
            **held.fields(),
        }
        self._send(request, tuple(os.dup(fd) for fd in stdio))
        try:
            async with asyncio.timeout(START_DEADLINE_S):
                await asyncio.shield(process.started)
        except TimeoutError as error:
            process.signal(signal.SIGKILL)
            raise StartError(f"the nursery did not start {launch.argv[0]} within {START_DEADLINE_S:g} s") from error
        except asyncio.CancelledError:
            process.signal(signal.SIGKILL)
            raise
        return process

    def signal(self, ident: int, number: int, held: Containment | None) -> None:
        fields = held.fields() if held is not None else {}
        self._send({"op": "signal", "id": ident, "signal": number, **fields})

    def warn(self, ident: int, number: int, held: Containment, script: bool) -> None:
        self._send({"op": "warn", "id": ident, "signal": number, "script": script, **held.fields()})

    def _next_ident(self) -> int:
        self._last_ident += 1
        return self._last_ident

    def _revive(self) -> None:
        if self._nursery is None or self._nursery.poll() is not None or self._socket is None:
            self._hang_up()
            self._bury_all()
            self.start()

    def _send(self, request: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        body = json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")
        self._outbox.append((memoryview(nursery.HEADER.pack(len(body), request["id"]) + body), fds))
        if len(self._outbox) == 1:
            self._writable()

    def _writable(self) -> None:
        """Write what the socket takes; the rest goes when it is writable again."""
        if self._socket is None:
            self._drop_outbox()
            return
        loop = asyncio.get_running_loop()
        while self._outbox:
            frame, fds = self._outbox[0]
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
            try:
                sent = self._socket.sendmsg([frame], ancillary)
            except BlockingIOError:
                loop.add_writer(self._socket, self._writable)
                return
            except OSError:
                self._lost()
                return
            for fd in fds:
                os.close(fd)
            self._outbox[0] = (frame[sent:], ())
            if sent == len(frame):
                self._outbox.popleft()
        loop.remove_writer(self._socket)

    def _readable(self) -> None:
        if self._socket is None:
            return
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost()
            return
        self._inbox += data
        while len(self._inbox) >= nursery.ANSWER.size:
            (size,) = nursery.ANSWER.unpack_from(self._inbox)
            if len(self._inbox) < nursery.ANSWER.size + size:
                return
            message = json.loads(self._inbox[nursery.ANSWER.size : nursery.ANSWER.size + size])
            del self._inbox[: nursery.ANSWER.size + size]
            self._hear(message)

    def _hear(self, message: dict[str, Any]) -> None:
        event, ident = message["event"], message["id"]
        process = self._processes.get(ident)
        if process is None:
            return
        if event == "started":
            process.pid = message["pid"]
            _resolve(process.started)
        elif event == "refused" and not process.started.done():
            del self._processes[ident]
            process.started.set_exception(StartError(f"no new process: {message['why']}"))
            process.ended.cancel()
        elif event == "ended":
            del self._processes[ident]
            process.ended.set_result(
                Ended(message["exit"], message["signal"], message["cpu_seconds"], message["max_rss_kb"])
            )

    def _lost(self) -> None:
        """The nursery is gone: whatever it had started has died with it."""
        self._hang_up()
        self._bury_all()

    def _hang_up(self) -> None:
        if self._socket is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._socket)
            loop.remove_writer(self._socket)
            self._socket.close()
            self._socket = None
        self._drop_outbox()
        self._inbox.clear()

    def _drop_outbox(self) -> None:
        for _, fds in self._outbox:
            for fd in fds:
                os.close(fd)
        self._outbox.clear()

    def _bury_all(self) -> None:
        for process in self._processes.values():
            _resolve(process.started)
            if not process.ended.done():
                process.ended.set_exception(
                    LostError("the hypervisor's nursery died, and every process of its VMs with it")
                )
                process.ended.exception()  # not every process is waited for
        self._processes.clear()


def _open_files() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
