"""The life of a guest: fetch the work, run it, report the outcome, power off.

    job, rank 0    boot → checkpoint, inputs → began → script → output, kept files → report → power off, or the next job
    job, rank > 0  boot → began → launched tasks until it is terminated or learns that the attempt is gone
    instance       boot → program on a free port → healthy → began with its address → until it ends or is terminated

Rules:
1. The script is data: it is written to a file and executed by its own #! line (/bin/sh when it has none).
2. A job powers off by itself only after its report was acknowledged or the attempt is gone (PROTOCOL, Guests).
3. A script that was stopped reports a success only: its 143 is no failure of the job (`attempt.reported`).  A script that
   learns first that it must stop, the hypervisor or the guest ("gone"), sends SIGTERM, once; the script has its grace either
   way. The report tells whether the script still ran then (`terminated`): custody judges its 0.
4. Time limits are the scheduler's, not the guest's.
5. Whatever raises here, the VM ends and the hypervisor kills what is left in it.  What the machine could not start, or has
   lost, is not reported as an end of the job: the attempt breaks with its VM, and the job runs again.
6. A job may ask for a signal of its own some time before its limit (`--signal`): the guest counts from its `began`, without the
   time in which it is suspended, as the limit does. Stopped before that it receives the same signal instead of SIGTERM, and has
   its grace; afterwards SIGTERM, as every script.
7. After a job on one node that ended with 0 the VM may stay for another one, if admission allows it: then the machine is made
   new, and whatever this object knows of the job before is forgotten, before anything is asked about the next.
8. While the VM is suspended the room is elsewhere: it is touched, and a program started, only while the VM is awake.
9. What a program writes is sent from its start on, and the rest of it in every ending: an instance that never becomes healthy
   has nothing else to say why.  What its health path answers goes with how busy it is, once a second; how it has ended by
   itself, exit code, signal, memory full, before its VM is gone.
10. What a job has used is reported while it runs, and in every ending but a report that counted, which contains it (`use`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import aiohttp

from phoenix.local.guest.door import CHUNK_BYTES, Boot, Door, GoneError, RefusedError, Report
from phoenix.local.guest.environment import for_instance, for_job
from phoenix.local.guest.health import Health
from phoenix.local.guest.launch import Launches
from phoenix.local.guest.machine import Ended, Launch, LostError, Machine, Process, StartError
from phoenix.local.guest.output import Output
from phoenix.local.guest.search import NAMES_MAX, search
from phoenix.local.guest.use import Use
from phoenix.local.guest.workdir import UnsafeNameError, collide
from phoenix.local.port_claims import PASSING, NoPortError, choose

SHORT_JOB_S = 0.25  # most trivial jobs end within: their guest never starts pump and long poll
MEMORY_CHECK_S = 0.5
MEASURE_S = 1.0  # as often as a load balancer says something
BUSY_MAX = 1000.0  # the contract's; a share of a core is never so small
# Loading a program takes tens of milliseconds of CPU, on a twentieth of a core half a second, for which users wait: until it
# is healthy, and no longer than this, an instance is not limited. (A real VM boots on its host's time as well.)
FREE_START_S = 1.0
REST_S = 2.0
ENDED_S = 5.0
NOTE_CHARS_MAX = 4096  # the contract's
OUT_OF_MEMORY = "out of memory"
GRACE_S = 0.3  # where admission names none
GRACE_MAX_S = 3600.0


class Guest:
    """What runs in one VM."""

    def __init__(self, door: Door, machine: Machine, session: aiohttp.ClientSession) -> None:
        self.door = door
        self.machine = machine
        self._session = session
        self.stopping = False  # the hypervisor has sent SIGTERM, and kills when the grace is over
        self._forget()

    def _forget(self) -> None:
        """Know nothing of any job."""
        self.boot: Boot | None = None
        self.process: Process | None = None
        self.launches: Launches | None = None
        self.dismissed = False  # this guest has, because the attempt is over
        self.terminated = False  # one of them has while the script ran
        self.told_to_end = False  # one of them has, whatever ran here
        self.warned = False  # the job has heard the signal that it wished before its time limit
        self.began_s = 0.0  # time.monotonic()
        self.slept_s = 0.0  # for how long it has been suspended
        self._slept_since: float | None = None
        self.output: Output | None = None
        self.health: Health | None = None  # of an instance
        self.use: Use | None = None  # of a job that has begun
        self._notes: list[str] = []
        self._stays = False

    async def run(self) -> str:
        """Live; returns why the VM powers off."""
        why = await self._live()
        while self._stays and not self.stopping:
            why = await self._live()
        return why

    async def _live(self) -> str:
        """One job, or an instance; the next one if this VM has had one."""
        try:
            if self._stays:
                await self._start_over()
            self.boot = await self.door.boot()
            self.machine.settle(self.boot.department)
            why = await (self._serve if self.boot.kind == "instance" else self._work)(self.boot)
        except* GoneError:
            self._stays, why = False, "gone"
        except* (RefusedError, StartError, LostError, UnsafeNameError, OSError) as group:
            self._stays, why = False, "; ".join(str(error) for error in _leaves(group))
        if self.use is not None and why != "reported":
            await self.use.say_last(REST_S)
        return why

    async def _start_over(self) -> None:
        """Rule 7."""
        self.close()
        self._forget()
        await self.machine.renew()
        following = await self.door.next()
        self.door.rebind(following.id, following.token)

    @property
    def outstanding(self) -> bool:
        """Of launched tasks: one runs, or what it has said, or its end, is still to be sent."""
        return self.launches is not None and self.launches.outstanding

    def look(self) -> None:
        """At what the job has used, before it is killed: what is left has no reader."""
        if self.use is not None:
            self.use.look()

    def sleep(self) -> None:
        """The machine is suspended from now on."""
        self._slept_since = time.monotonic()

    def wake(self) -> None:
        if self._slept_since is not None:
            self.slept_s += time.monotonic() - self._slept_since
            self._slept_since = None

    async def _work(self, boot: Boot) -> str:
        room = self.machine.room
        room.write("token", self.door.job_token.encode())
        environment = for_job(boot, self.machine, self.door.url, self.door.phoenix_id)
        use = Use(self.door, self.machine, boot.usage_interval_s)
        launches = self.launches = Launches(self.door, self.machine, environment, lambda: self.told_to_end, use.ended)
        await self._furnish(boot)
        if boot.rank != 0:
            await self.door.began(None)
            self.use = use
            async with asyncio.TaskGroup() as group:
                group.create_task(use.tell())
                await launches.serve()
        room.write("script", (boot.script or "").encode(), 0o700)
        await self.door.began(None)
        self.use = use
        self.began_s = time.monotonic()
        ended = await self._run_script(boot, environment, launches)
        return await self._finish(boot, ended, time.monotonic() - self.began_s)

    async def _furnish(self, boot: Boot) -> None:
        """What is there before the script: the last checkpoint's files, and of the inputs what they have not replaced."""
        saved = [file.name for file in boot.checkpoint.files] if boot.checkpoint is not None else []
        for name in saved:
            await self._fetch(name, self.door.get_checkpoint)
        for wanted in boot.inputs:
            if not any(collide(wanted.name, name) for name in saved):
                await self._fetch(wanted.name, self.door.get_input)

    async def _fetch(self, name: str, get: Callable[[str, Callable[[bytes, bool], None]], Awaitable[None]]) -> None:
        fd = self.machine.room.create_input(name)

        def write(chunk: bytes, first: bool) -> None:
            if first:
                os.ftruncate(fd, 0)
            view = memoryview(chunk)
            while view:
                view = view[os.write(fd, view) :]

        try:
            await get(name, write)
        finally:
            os.close(fd)

    async def _run_script(self, boot: Boot, environment: dict[str, str], launches: Launches) -> Ended:
        room = self.machine.room
        script = room.file("script")
        shebang = (boot.script or "").startswith("#!")
        launch = Launch(
            argv=[script, *boot.argv] if shebang else ["/bin/sh", script, *boot.argv],
            environment=environment,
            room=room.work,
            directory=boot.directory,
            note=room.file("note"),
            stdin=boot.stdin,
        )
        self.process = await self._start(launch)
        return await self._attend(self.process, launches)

    async def _start(self, launch: Launch) -> Process:
        """Start the program that is the VM's purpose, its output going to files in the room."""
        await self.door.awake.wait()
        room = self.machine.room
        endless = self.boot is not None and self.boot.kind == "instance"
        self.output = Output(self.door, room.create("stdout"), room.create("stderr"), endless)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return await self.machine.run(launch, (null, self.output.streams[0].fd, self.output.streams[1].fd))
        finally:
            os.close(null)

    async def _attend(self, process: Process, launches: Launches | None) -> Ended:
        """Stream output and serve launches while the process runs; an instance tells how busy it is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHORT_JOB_S):
                return await process.wait()
        assert self.output is not None
        try:
            async with asyncio.TaskGroup() as group:
                helpers = [
                    group.create_task(self.output.pump()),
                    group.create_task(self._watch_memory(process)),
                    group.create_task(self._warn(process)),
                ]
                if self.use is not None:
                    helpers.append(group.create_task(self.use.tell()))
                if launches is not None:
                    helpers.append(group.create_task(launches.serve()))
                if self.health is not None:
                    helpers += [group.create_task(self._measure()), group.create_task(self.health.watch())]
                ended = await process.wait()
                for helper in helpers:
                    helper.cancel()
        except* GoneError:
            ended = await self._dismiss(process)
        return ended

    async def _dismiss(self, process: Process) -> Ended:
        """The attempt is over (rule 3): a reclaimed job learns it here, often before the hypervisor gets the order to end its
        VM."""
        if self.stopping:
            return await process.wait()
        self.dismissed = True
        if not self.ask_to_end():
            process.signal(signal.SIGTERM, everyone=True)
        process.signal(signal.SIGCONT, everyone=True)  # a stopped process hears SIGTERM only when it continues
        grace_s = self.boot.grace_s if self.boot is not None else None
        try:
            async with asyncio.timeout(GRACE_S if grace_s is None else min(grace_s, GRACE_MAX_S)):
                return await process.wait()
        except TimeoutError:
            self.look()
            process.signal(signal.SIGKILL, everyone=True)
            return await process.wait()

    def put_down(self, why: str) -> bool:
        """The hypervisor kills everything: `why` goes into the report and among the last words.  False if there is no script
        of whose end it could tell."""
        self._notes.insert(0, why)
        if self.output is None or self.process is None:
            return False
        with contextlib.suppress(OSError):  # the disk may be full
            os.write(self.output.streams[1].fd, f"phoenix: {why}\n".encode())
        return True

    def ask_to_end(self) -> bool:
        """Send what the job wishes to hear when it is stopped (rule 6); False if that is SIGTERM: then the caller does."""
        self.told_to_end = True
        if self.use is not None:
            self.use.hurry()
        self.terminated |= self.process is not None and self.process.runs
        wish = self.boot.signal if self.boot is not None else None
        if wish is None or self.warned:
            return False
        if self.process is not None:
            self.process.warn(wish.number, script=wish.script)
        return True  # what other ranks run hears it by `phoenix launch`

    async def _warn(self, process: Process) -> None:
        """Rule 6: the job's signal, so long before its time limit."""
        wish, walltime_s = (self.boot.signal, self.boot.walltime_s) if self.boot is not None else (None, None)
        if wish is None or walltime_s is None:
            return
        while True:
            await self.door.awake.wait()
            left_s = self.began_s + self.slept_s + walltime_s - wish.before_s - time.monotonic()
            if left_s <= 0:
                break
            await asyncio.sleep(left_s)
        self.warned = True
        process.warn(wish.number, script=wish.script)

    async def _measure(self) -> None:
        """Tell how busy the program is (`schemas.measures`): all that it has started, over the cores that it may use; and
        whether it is well."""
        assert self.health is not None
        machine = self.machine
        cores = machine.cores * machine.core_share
        before, began = machine.used(), time.monotonic()
        while True:
            await asyncio.sleep(MEASURE_S)
            used, now = machine.used(), time.monotonic()
            busy = max(0.0, used.cpu_seconds - before.cpu_seconds) / (now - began) / cores
            with contextlib.suppress(RefusedError):
                load = round(min(busy, BUSY_MAX), 4), round(now - began, 3), used.memory_kb / 1024
                await self.door.usage(*load, self.health.ready, self.health.answer)
            before, began = used, now

    async def _watch_memory(self, process: Process) -> None:
        """Version 1 groups kill one process only; a script that shrugs that off would run on, maimed."""
        while True:
            await asyncio.sleep(MEMORY_CHECK_S)
            if self.machine.killed_for_memory():
                process.signal(9, everyone=True)

    async def _finish(self, boot: Boot, ended: Ended, seconds: float) -> str:
        assert self.output is not None
        assert self.use is not None
        self.use.ended(ended)
        await self.door.awake.wait()
        await self.output.flush()
        if ended.code != 0 and (self.stopping or self.dismissed):
            return "gone" if self.dismissed else "stopped"
        await self._keep(boot)
        if self.machine.killed_for_memory():
            self._notes.insert(0, OUT_OF_MEMORY)
        self._notes += [note for note in (self.machine.room.note(), self.output.note()) if note]
        cpu_seconds, max_rss_mb = self.use.final()
        self._stays = await self.door.report(
            Report(
                exit=ended.code,
                signal=ended.signal,
                seconds=seconds,
                cpu_seconds=cpu_seconds,
                max_rss_mb=max_rss_mb,
                note=_told(self._notes),
                stay=ended.code == 0 and boot.ranks == 1 and not self.stopping,
                terminated=self.terminated,
            )
        )
        return "reported"

    async def _keep(self, boot: Boot) -> None:
        """Send the files that match `keep`, from where the script ran; one that cannot be sent is noted."""
        room = self.machine.room
        directory = boot.directory if boot.directory and room.note() is None else room.work
        found = await search(directory, boot.keep, room.uid)
        if len(found.names) > NAMES_MAX:
            self._notes.append(f"only the first {NAMES_MAX} files were stored")
        elif not found.whole:
            self._notes.append("not all files were stored: there are too many to scan")
        for name in found.names[:NAMES_MAX]:
            try:
                with room.open_kept(directory, name) as fd:
                    await self.door.put_file(name, lambda fd=fd: _chunks(fd))  # type: ignore[misc]
            except (OSError, UnsafeNameError, RefusedError) as error:
                why = f"{name} was not stored: {error.why if isinstance(error, RefusedError) else error}"
                self._notes.append(os.fsencode(why).decode(errors="backslashreplace"))  # a file's name need not be text

    async def _serve(self, boot: Boot) -> str:
        """Its port is claimed as long as it lives: from the choice to the program's bind no other process takes it."""
        if boot.port:
            return await self._serve_at(boot, boot.port)
        try:
            port, claim = choose(PASSING)
        except NoPortError as error:
            return str(error)
        with claim:
            return await self._serve_at(boot, port)

    async def _serve_at(self, boot: Boot, port: int) -> str:
        room, machine = self.machine.room, self.machine
        room.write("token", self.door.job_token.encode())
        environment = for_instance(boot, machine, self.door.url, self.door.phoenix_id, port)
        if boot.script is None and machine.programs.web_instance is None:
            return "no python3 that the instance's user may read: the default web program cannot run"
        if boot.script is None:
            argv = [*(machine.programs.web_instance or ()), *boot.argv]
        else:
            room.write("script", boot.script.encode(), 0o700)
            shebang = boot.script.startswith("#!")
            argv = [room.file("script"), *boot.argv] if shebang else ["/bin/sh", room.file("script"), *boot.argv]
        launch = Launch(argv, environment, room.work, boot.directory, room.file("note"), serves=True)
        self.machine.limit_cpu(False)
        self.process = await self._start(launch)
        self.health = Health(self._session, port, boot.health_path)
        if await self._is_up(self.process, self.health):
            await self.door.began(f"127.0.0.1:{port}")
            told, ended = "", await self._attend(self.process, None)
        else:
            told, ended = " before it was healthy", await self.process.wait()
        await self._send_rest()
        if self.stopping or self.dismissed:
            return "stopped" if self.stopping else "gone"
        await self._say_ended(ended)
        return f"the instance ended with {ended.code}{told}: {self._last_words()}"

    async def _say_ended(self, ended: Ended) -> None:
        """How, before the VM is gone and it can no longer be read; a service that is away does not keep it."""
        with contextlib.suppress(TimeoutError, GoneError, RefusedError):
            async with asyncio.timeout(ENDED_S):
                await self.door.ended(ended.exit, ended.signal, self.machine.killed_for_memory())

    async def _is_up(self, process: Process, health: Health) -> bool:
        """Wait until the program is healthy (True) or over; what it writes and answers meanwhile says why it does not come up
        (rule 9)."""
        assert self.output is not None
        over = asyncio.ensure_future(process.wait())
        healthy = asyncio.ensure_future(health.start())
        pump = asyncio.ensure_future(_both(self.output.pump(), self._measure()))
        try:
            await asyncio.wait({over, healthy, pump}, timeout=FREE_START_S, return_when=asyncio.FIRST_COMPLETED)
            self.machine.limit_cpu(True)
            await asyncio.wait({over, healthy, pump}, return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                pump.result()  # it never returns
            return healthy.done() and not over.done()
        except GoneError:
            await self._dismiss(process)
            return False
        finally:
            for helper in (over, healthy, pump):
                helper.cancel()
            await asyncio.gather(over, healthy, pump, return_exceptions=True)

    async def _send_rest(self) -> None:
        """What an instance has written last, whatever its end."""
        assert self.output is not None
        with contextlib.suppress(TimeoutError, GoneError, RefusedError):
            async with asyncio.timeout(REST_S):
                await self.output.flush()

    def _last_words(self) -> str:
        """The end of stderr, for the reason of an instance's death."""
        assert self.output is not None
        fd = self.output.streams[1].fd
        size = os.fstat(fd).st_size
        return os.pread(fd, 200, max(0, size - 200)).decode(errors="replace").strip()

    def close(self) -> None:
        """Give back the descriptors."""
        if self.output is not None:
            self.output.close()
            self.output = None


def _told(notes: list[str]) -> str | None:
    """All of them, as far as the contract takes them: a note that is too long would lose the report."""
    text = "; ".join(notes)
    return (text if len(text) <= NOTE_CHARS_MAX else text[: NOTE_CHARS_MAX - 1] + "…") or None


async def _both(one: Coroutine[Any, Any, None], other: Coroutine[Any, Any, None]) -> None:
    await asyncio.gather(one, other)


async def _chunks(fd: int) -> AsyncIterator[bytes]:
    offset = 0
    while chunk := os.pread(fd, CHUNK_BYTES, offset):
        offset += len(chunk)
        yield chunk


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
