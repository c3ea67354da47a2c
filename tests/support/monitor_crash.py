"""The monitor killed around each step that keeps something: what may be lost then, and how it is looked for.

    async with crashes(server, directory) as scene:
        await scene.strike(POINTS[0])        # a monitor that is killed there, while facts arrive
        await scene.settle()                 # one that is not; then everything is compared

What must hold
  After each kill (`whole`): the archive's chain is whole, archive and stream together are what was written, message by message,
  none missing and none twice, and the last message of each writer's subject is in the stream (PROTOCOL S5).
  After the end (`compare`): the history is the one that a rebuild makes, row by row; each fact was published as one event; the
  monitor's snapshot is the fold of all that was written.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Final

import msgspec
import orjson

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchPolicy, CloudConfig, Department
from schemas.envelope import Envelope, encode
from schemas.subjects import EVENTS_STREAM, JOURNAL_STREAM, SNAPSHOTS, journal
from services.domain.custody.rules import RULES
from services.domain.exits import Exit
from services.monitor.core.monitor import MonitorCore
from services.monitor.explain.record import parts
from services.monitor.history.schema import dump
from services.monitor.history.takeover import make_anew
from services.runtime.broker.objects import Objects
from services.runtime.config.tables import Config, Data, JournalKept, Metrics, Monitor
from services.runtime.config.text import dump_toml
from services.runtime.journal import snapshots
from services.runtime.journal.archive import Archive
from services.runtime.journal.trimmed import read_mark
from tests.support.monitor_struck import POINTS, Point
from tests.support.nats import NatsServer
from tests.support.ports import free_port
from tests.support.shells import LOG, World, clean_world, until

ROOT: Final = Path(__file__).resolve().parents[2]
KEPT: Final = 10  # messages in the stream: with each step of the archivist some twenty go
EVERY: Final = 5  # messages between two snapshots of the monitor's
BEGAN: Final = 1_700_000_000.0
STEP_S: Final = 600.0  # of the journal's time between two messages: a day in a strike or two, so that sums are cut too
DIES_S: Final = 60.0
PACE_S: Final = 0.05  # between two handfuls of facts
AHEAD_MAX: Final = 60  # messages that the monitor has not stored: enough for a trim; on a busy machine it is not outrun
CLOUD: Final = CloudConfig(name="c", departments=(Department(name="hpc", kind="batch", batch=BatchPolicy()),))
WHY: Final = because.Reclaimed()
Step = tuple[str, f.Fact]


def story() -> Iterator[Step]:
    """Jobs that follow each other on a host, one in three preempted once; for ever."""
    yield "provisioner", f.ConfigAdopted(cloud="x", custody_rules=RULES, config=CLOUD)
    yield "executor", f.HostDescribed(host="h1", one_id=1, cores=4, memory_mb=1000)
    yield "executor", f.HostCleared(host="h1")
    yield "provisioner", f.HostGranted(host="h1", dept="hpc")
    for number in count(1):
        job = str(number)
        yield (
            "admission",
            f.JobSubmitted(job=job, dept="hpc", user=f"u{number % 3}", name="j", payload="p", walltime_s=60.0),
        )
        for attempt in range(1, 2 + (number % 3 == 0)):
            yield "scheduler.hpc", f.UnitPlaced(unit=job, attempt=attempt, hosts=("h1",), cores=1, memory_mb=100)
            yield "admission", f.AttemptBegan(unit=job, attempt=attempt)
            if number % 3 == 0 and attempt == 1:
                yield "scheduler.hpc", f.AttemptClosed(unit=job, attempt=1, disposal=f.Disposal.REQUEUE, why=WHY)
        yield "admission", f.AttemptReported(unit=job, attempt=attempt, exit=number % 2)


class Scene:
    def __init__(self, here: World, directory: Path) -> None:
        self.here, self.directory = here, directory
        self.config: Config = msgspec.structs.replace(
            here.config,
            cloud=CLOUD,
            data=Data(directory=directory),
            metrics=Metrics(ports={"monitor": free_port()}),
            monitor=Monitor(listen=f"127.0.0.1:{free_port()}", history_path=directory / "history.sqlite"),
            journal=JournalKept(keep_messages=KEPT, archive=directory / "archive"),
            runtime=msgspec.structs.replace(here.config.runtime, snapshot_every=EVERY),
        )
        self.written: list[tuple[int, str, bytes]] = []
        self.kills = 0
        self._story = story()
        self._nursery: subprocess.Popen[bytes]
        self._pid = 0

    def open(self) -> None:
        file = self.directory / "cloud.toml"
        file.write_text(dump_toml(self.config))
        with (self.directory / "monitor.log").open("ab") as log:
            self._nursery = subprocess.Popen(
                [sys.executable, "-m", "tests.support.monitor_struck", str(file)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    async def close(self) -> None:
        """Nothing outlives it, however a strike has ended."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        assert self._nursery.stdin is not None
        self._nursery.stdin.close()
        await asyncio.to_thread(self._nursery.wait, DIES_S)

    # ------------------------------------------------------------------------------------------------------- the monitor

    async def start(self, point: Point | None) -> None:
        assert self._nursery.stdin is not None
        self._nursery.stdin.write(b"-\n" if point is None else b"%d\n" % POINTS.index(point))
        self._nursery.stdin.flush()
        self._pid = await self._told("pid")

    async def ended(self) -> int:
        code = await self._told("code")
        self._pid = 0
        return code

    async def _told(self, what: str) -> int:
        assert self._nursery.stdout is not None
        line = await asyncio.wait_for(asyncio.to_thread(self._nursery.stdout.readline), DIES_S)
        said, _, number = line.decode().partition(" ")
        assert said == what, line
        return int(number)

    async def strike(self, point: Point) -> None:
        """Facts arrive until the monitor has died at `point`."""
        await self.start(point)
        ending = asyncio.create_task(self.ended())
        end = asyncio.get_running_loop().time() + DIES_S
        while not ending.done():
            assert asyncio.get_running_loop().time() < end, f"not reached: {point.title}"
            if len(self.written) - self._history_at() < AHEAD_MAX:
                await self.write(4)
                await self.others_save()
            await asyncio.wait({ending}, timeout=PACE_S)
        assert await ending == -signal.SIGKILL, point.title
        self.kills += 1
        await self.whole(point.title)

    async def settle(self) -> None:
        """Facts arrive, no process is killed, and everything is as it should be."""
        await self.start(None)
        await self.write(20)
        await self.others_save()
        end = self.written[-1][0]
        await until(lambda: self._history_at() == end, "the history is up to date", DIES_S)
        os.kill(self._pid, signal.SIGTERM)
        assert await self.ended() == Exit.OK, "told to end, it ends in order"
        await self.whole("the end")
        await self.compare()

    def _history_at(self) -> int:
        if not self.config.monitor.history_path.exists():
            return 0
        with contextlib.closing(sqlite3.connect(f"file:{self.config.monitor.history_path}?mode=ro", uri=True)) as db:
            try:
                found = db.execute("SELECT value FROM meta WHERE key = 'position'").fetchone()
            except sqlite3.OperationalError:  # it is being made
                return 0
        return int(found[0]) if found else 0

    # -------------------------------------------------------------------------------------------------------- the others

    async def write(self, messages: int) -> None:
        for writer, fact in (next(self._story) for _ in range(messages)):
            number = len(self.written) + 1
            at = BEGAN + number * STEP_S
            data = encode(Envelope(id=f"{writer}-{number}", writer=writer, epoch=1, at=at, facts=(fact,)))
            position = await self.here.publish(data, writer)
            self.written.append((position, journal(writer), data))

    async def others_save(self) -> None:
        """The other services' snapshots, as far as the archivist asks: of their position."""
        objects, born = Objects(self.here.js, SNAPSHOTS), await self._born()
        for name in self.config.processes():
            if name != "monitor":
                mine = snapshots.Snapshot(
                    name=name,
                    journal=born,
                    position=self.written[-1][0],
                    own_last=0,
                    rules=RULES,
                    core_version=1,
                    custody=b"",
                    core=b"",
                )
                await objects.put(name, snapshots.pack(mine))

    async def _born(self) -> str:
        return str((await self.here.js.stream_info(JOURNAL_STREAM)).created)

    # ------------------------------------------------------------------------------------------------------- the verdict

    async def whole(self, when: str) -> None:
        """What must hold after each kill."""
        born = await self._born()
        archive = Archive(self.config.journal.archive, born)
        mark = await read_mark(Objects(self.here.js, SNAPSHOTS), born)
        assert archive.end >= mark, f"{when}: what is marked as trimmed is archived"
        broken = self.config.monitor.history_path.with_suffix(".broken")
        assert not broken.exists(), f"{when}: a history that was set aside would be made again, and look well"
        kept = [(m.position, m.subject, m.data) for m in archive.read()]
        assert kept == self.written[: archive.end], f"{when}: the archive is what was written"
        found = [
            (m.position, m.subject, m.data)
            async for part in parts(
                self.here.admin, self.here.js, archive if mark else None, mark, self.written[-1][0], LOG
            )
            for m in part
        ]
        assert found == self.written, f"{when}: archive and stream are what was written"
        for subject, position in {subject: position for position, subject, _ in self.written}.items():
            last = await self.here.js.get_last_msg(JOURNAL_STREAM, subject)
            assert last.seq == position, f"{when}: the last message of {subject} is there"

    async def compare(self) -> None:
        """What must hold at the end."""
        end = self.written[-1][0]
        path = self.config.monitor.history_path
        assert await make_anew(self.config, self.here.admin, LOG) == end
        assert rows(path.with_suffix(".rebuilt")) == rows(path), "the history is the one that a rebuild makes"
        for made in path.parent.glob("history.rebuilt*"):
            made.unlink()  # the next monitor continues with its own
        assert await self._events() == [f"{position}.0" for position, _, _ in self.written], "each fact is one event"
        saved = await Objects(self.here.js, SNAPSHOTS).get("monitor")
        assert saved is not None
        snapshot = snapshots.unpack(saved)
        assert snapshot.position == end, "the snapshot is of the end"
        folded = await self.here.replayed(MonitorCore, self.config.journal.archive)
        assert (snapshot.custody, snapshot.core) == folded, "the snapshot is the fold of all"

    async def _events(self) -> list[str]:
        """The ids of all events, in order."""
        subscription = await self.here.js.subscribe("phoenix.event.>", stream=EVENTS_STREAM, ordered_consumer=True)
        last = (await self.here.js.stream_info(EVENTS_STREAM)).state.last_seq
        found = []
        while len(found) < last:
            found.append(orjson.loads((await subscription.next_msg(DIES_S)).data)["id"])
        await subscription.unsubscribe()
        return found


def rows(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        return list(dump(db))


@contextlib.asynccontextmanager
async def crashes(server: NatsServer, directory: Path) -> AsyncIterator[Scene]:
    async with clean_world(server) as here:
        scene = Scene(here, directory)
        scene.open()
        try:
            yield scene
        finally:
            await scene.close()
