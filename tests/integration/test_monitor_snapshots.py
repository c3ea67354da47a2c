"""The monitor starts from its snapshot, on a real broker: what it had told is there, and the journal can be trimmed."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import orjson
import pytest

from schemas import facts as f
from schemas.config import BatchPolicy, CloudConfig, Department
from schemas.subjects import EVENTS_STREAM, JOURNAL_STREAM, SNAPSHOTS
from services.domain.custody.rules import RULES
from services.domain.exits import Stop
from services.monitor import edge
from services.monitor.core.monitor import MonitorCore
from services.monitor.edge import MonitorEdge
from services.monitor.explain.journal_facts import JournalFacts
from services.monitor.history import file
from services.monitor.history import reads as history_reads
from services.monitor.history.archivist import Archivist
from services.monitor.history.reads import Filter
from services.monitor.history.schema import dump
from services.monitor.history.takeover import make_anew
from services.runtime import engine
from services.runtime.broker.objects import Objects
from services.runtime.broker.streams import ensure_streams
from services.runtime.config.tables import Config, JournalKept, Monitor
from services.runtime.journal import archive, trimmed
from services.runtime.journal.archive import Archive, Broken
from services.runtime.journal.fold import Stored
from services.runtime.journal.reader import Reader
from services.runtime.journal.trimmed import MARK, Mark, read_mark, write_mark
from services.runtime.service import Service
from tests.support.full_disk import full
from tests.support.shells import LOG, Running, World, drop_streams
from tests.support.toy import job
from tests.support.until import DEADLINE_S, until

CLOUD = CloudConfig(name="c", departments=(Department(name="hpc", kind="batch", batch=BatchPolicy()),))


class Site:
    """A monitor on a broker; its history and its archive lie in `directory`."""

    def __init__(self, here: World, directory: Path, snapshot_every: int = 5000) -> None:
        self.here, self.directory = here, directory
        self.config: Config = msgspec.structs.replace(
            here.config,
            monitor=Monitor(listen="127.0.0.1:0", history_path=directory / "history.sqlite"),
            journal=JournalKept(keep_messages=0, archive=directory / "archive"),
            runtime=msgspec.structs.replace(here.config.runtime, snapshot_every=snapshot_every),
        )
        self.edge: MonitorEdge
        self.running: Running
        self.number = 0

    def begin(self) -> Running:
        self.edge = MonitorEdge(self.config)
        options = {"core": self.edge.make_core, "config": self.config, "edges": [self.edge]}
        self.running = self.here.start(f"m{id(self.edge)}", writer=None, name="monitor", **options)
        return self.running

    async def up(self) -> Service:
        service = await self.begin().caught_up()
        await until(lambda: hasattr(self.edge, "archivist"), "the edge has started")
        await service.wait_for((await self.here.js.stream_info(JOURNAL_STREAM)).state.last_seq, DEADLINE_S)
        return service

    async def down(self) -> None:
        assert await self.running.stop() == 0

    async def kill(self) -> None:
        """Nothing is saved any more."""
        self.running.service.fail("killed")
        assert await self.running.code() == 1

    async def write(self, count: int) -> None:
        if not self.number:
            adopted = f.ConfigAdopted(cloud="x", custody_rules=RULES, config=CLOUD)
            await self.here.write(adopted, writer="provisioner", id="adopted")
        for _ in range(count):
            self.number += 1
            await self.here.write(job(self.number), writer="admission", id=f"job-{self.number}")

    def events(self) -> list[str]:
        return [entry.id for entry in self.edge.publisher.ring]

    async def stored(self) -> list[str]:
        state = (await self.here.js.stream_info(EVENTS_STREAM)).state
        found = []
        for number in range(state.first_seq, state.last_seq + 1):
            message = await self.here.js.get_msg(EVENTS_STREAM, number, direct=True)
            found.append(orjson.loads(message.data or b"")["id"])
        return found

    async def jobs(self) -> list[str]:
        found = await self.edge.history.ask(history_reads.jobs, Filter(), 0)
        return sorted((row["unit"] for row in found["jobs"]), key=int)

    def archivist(self, keep: int) -> Archivist:
        return Archivist(self.here.admin, self.here.js, self.directory / "archive", keep, ("monitor",), LOG)


def state(service: Service) -> tuple[bytes, bytes]:
    return service.custody.dump(), service.fold.core.dump()


async def test_a_restart_goes_on_from_the_snapshot_and_shows_what_was(here: World, tmp_path: Path) -> None:
    site = Site(here, tmp_path)
    await site.write(5)
    await site.up()
    await site.down()
    await site.write(3)
    service = await site.up()
    assert sum(service.fold.applied.values()) == 3, "only what came after the snapshot was folded"
    assert state(service) == await here.replayed(MonitorCore)
    assert site.events() == [f"{n}.0" for n in range(1, 10)], "the events before it were read back"
    assert await site.jobs() == [str(n) for n in range(1, 9)]
    await site.down()
    assert await site.stored() == [f"{n}.0" for n in range(1, 10)], "none is published twice"


async def test_a_killed_monitor_goes_on_from_its_last_snapshot(here: World, tmp_path: Path) -> None:
    site = Site(here, tmp_path)
    await site.write(5)
    await site.up()
    await site.down()
    await site.up()
    await site.write(2)
    await site.running.service.wait_for(8, DEADLINE_S)
    await site.kill()
    service = await site.up()
    assert sum(service.fold.applied.values()) == 2
    assert state(service) == await here.replayed(MonitorCore)
    await site.edge.history.flush()
    assert await site.jobs() == [str(n) for n in range(1, 8)]


async def test_who_has_lost_the_history_or_the_events_folds_from_the_beginning(here: World, tmp_path: Path) -> None:
    site = Site(here, tmp_path)
    await site.write(5)
    await site.up()
    await site.down()
    (tmp_path / "history.sqlite").unlink()
    service = await site.up()
    assert sum(service.fold.applied.values()) == 6
    await site.edge.history.flush()
    assert await site.jobs() == ["1", "2", "3", "4", "5"]
    await site.down()
    await drop_streams(here.js, here.server, EVENTS_STREAM)
    await ensure_streams(here.js, here.config)
    service = await site.up()
    assert sum(service.fold.applied.values()) == 6
    await site.down()
    assert await site.stored() == [f"{n}.0" for n in range(1, 7)]


async def test_the_journal_is_trimmed_and_a_lost_history_comes_from_the_archive(here: World, tmp_path: Path) -> None:
    site = Site(here, tmp_path)
    await site.write(20)
    await site.up()
    assert await site.archivist(keep=5).look(step_min=1) == 0, "no snapshot yet"
    await site.down()
    assert await site.archivist(keep=5).look(step_min=1) == 16
    facts = await JournalFacts(here.js, tmp_path / "archive").get([*range(1, 22), 99])
    assert {position: f.kind_of(envelope.facts[0]) for position, envelope in facts.items()} == {
        1: "config.adopted",
        **dict.fromkeys(range(2, 22), "job.submitted"),
    }, "a story is read from archive and stream alike"
    service = await site.up()
    assert sum(service.fold.applied.values()) == 0
    await site.down()
    (tmp_path / "history.sqlite").unlink()
    service = await site.up()
    assert sum(service.fold.applied.values()) == 21
    await site.edge.history.flush()
    assert await site.jobs() == [str(n) for n in range(1, 21)]


def rows(path: Path) -> list[str]:
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return list(dump(db))
    finally:
        db.close()


async def test_a_history_made_anew_is_the_same_and_is_taken_over(here: World, tmp_path: Path) -> None:
    site = Site(here, tmp_path)
    await site.write(20)
    await site.up()
    await site.down()
    assert await site.archivist(keep=5).look(step_min=1) == 16
    await site.up()
    assert await make_anew(site.config, here.admin, LOG) == 21
    assert rows(tmp_path / "history.rebuilt") == rows(tmp_path / "history.sqlite")
    await site.write(3)
    await site.down()
    with sqlite3.connect(tmp_path / "history.sqlite") as spoilt:
        spoilt.execute("DELETE FROM jobs")
    service = await site.up()
    assert sum(service.fold.applied.values()) == 3, "it continues where the rebuild ended"
    assert state(service) == await here.replayed(MonitorCore, tmp_path / "archive")
    assert await site.jobs() == [str(n) for n in range(1, 24)]
    assert not {"history.rebuilding", "history.rebuilt", "history.rebuilt-snapshot"} & set(os.listdir(tmp_path))


async def test_what_a_snapshot_stands_for_is_in_the_file_before_it_is_saved(
    here: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge, "COMMIT_S", 60.0)  # nothing else commits
    site = Site(here, tmp_path)
    await site.up()
    await site.write(3)
    await site.running.service.wait_for(4, DEADLINE_S)
    assert not [line for line in rows(tmp_path / "history.sqlite") if line.startswith("jobs ")]
    assert await site.edge.secured(4)
    assert len([line for line in rows(tmp_path / "history.sqlite") if line.startswith("jobs ")]) == 3


async def test_on_a_full_disk_the_monitor_serves_and_its_history_catches_up(
    here: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(edge, "COMMIT_S", 0.02)
    monkeypatch.setattr(file, "RETRY_S", 0.02)
    caplog.set_level("INFO", "phoenix")
    site = Site(here, tmp_path)
    await site.write(5)
    service = await site.up()
    await site.edge.history.flush()
    before = rows(tmp_path / "history.sqlite")
    registry, since = service.registry, "phoenix_history_stands_still_since_timestamp_seconds"
    await until(lambda: registry.get_sample_value(since) == 0, "it says that nothing stands still")
    with full(tmp_path / "history.sqlite-wal"):
        await site.write(20)
        await service.wait_for(26, 10.0)
        await until(lambda: site.edge.history.still, "the history stands still")
        assert (registry.get_sample_value(since) or 0) > 0
        [told] = service.health()["ailing"]  # type: ignore[misc]
        assert "the history has not been written since" in told
        assert len(site.edge.core.state.jobs) == 25, "the page and metrics are of now"
        await service._keeper.save()
        assert service.snapshot_position == 0, "no snapshot goes beyond what is stored"
        assert await site.archivist(keep=5).look(step_min=1) == 0
        assert rows(tmp_path / "history.sqlite") == before
    await until(lambda: site.edge.history.still is None, "it continues by itself")
    assert service.health()["ailing"] == []
    await until(lambda: "history written again" in caplog.text, "the log says so")
    assert caplog.text.count("history not written") == caplog.text.count("history written again") == 1
    assert await site.jobs() == [str(n) for n in range(1, 26)]
    await site.down()
    assert service.snapshot_position == 26
    assert await make_anew(site.config, here.admin, LOG) == 26
    assert rows(tmp_path / "history.rebuilt") == rows(tmp_path / "history.sqlite")


async def test_a_monitor_that_cannot_open_its_history_serves_and_starts_again_when_it_can(
    here: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BUSY_S", "RETRY_S"):
        monkeypatch.setattr(file, name, 0.01)
    monkeypatch.setattr(edge, "COMMIT_S", 0.02)
    site = Site(here, tmp_path)
    await site.write(5)
    await site.up()
    await site.down()
    with closing(sqlite3.connect(tmp_path / "history.sqlite")) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        await site.write(3)
        service = await site.up()
        assert site.edge.history.still is not None
        assert sum(service.fold.applied.values()) == 3, "its snapshot is used"
        assert len(site.edge.core.state.jobs) == 8
    assert await site.running.code() == 1
    service = await site.up()
    assert sum(service.fold.applied.values()) == 3, "no snapshot was saved of what is not stored"
    assert await site.jobs() == [str(n) for n in range(1, 9)]


async def test_a_monitor_that_dies_while_it_catches_up_goes_on_from_a_snapshot_of_then(
    here: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once in the archive, once in the stream."""
    monkeypatch.setattr(archive, "SEGMENT_MAX", 10)
    monkeypatch.setattr(trimmed, "SLICE", 10)
    monkeypatch.setattr(engine, "BATCH_MAX", 10)
    site = Site(here, tmp_path, snapshot_every=2)
    await site.write(99)
    await site.up()
    await site.down()
    assert await site.archivist(keep=40).look(step_min=1) == 60
    (tmp_path / "history.sqlite").unlink()
    fourth = sorted((tmp_path / "archive").glob("*.segment"))[3]
    whole = fourth.read_bytes()
    fourth.write_bytes(whole[:-1])
    assert await site.begin().code() == 1, "it dies of the fourth segment"
    fourth.write_bytes(whole)

    async def never(_reader: Reader) -> int:
        return 1000

    with monkeypatch.context() as endless:
        endless.setattr(Reader, "end", never)
        running = site.begin()
        await until(lambda: running.service.snapshot_position >= 80, "a snapshot is saved on the way")
        assert not running.service.caught_up
        assert sum(running.service.fold.applied.values()) <= 80, "it went on from the archive's third segment"
        running.service.fail("killed")
        assert await running.code() == 1
    service = await site.up()
    assert sum(service.fold.applied.values()) <= 20
    assert state(service) == await here.replayed(MonitorCore, tmp_path / "archive")
    assert await make_anew(site.config, here.admin, LOG) == 100
    await site.down()
    assert rows(tmp_path / "history.rebuilt") == rows(tmp_path / "history.sqlite")


async def test_a_mark_of_another_journal_is_none(here: World) -> None:
    objects, journal = Objects(here.js, SNAPSHOTS), str((await here.js.stream_info(JOURNAL_STREAM)).created)
    await write_mark(objects, Mark(journal="another", end=7))
    assert (await read_mark(objects, journal), await read_mark(objects, "another")) == (0, 7)
    await objects.delete(MARK)


async def test_a_second_rebuild_is_refused_while_one_runs(here: World, tmp_path: Path) -> None:
    site = Site(here, tmp_path)
    await site.write(3)
    both = await asyncio.gather(*(make_anew(site.config, here.admin, LOG) for _ in "ab"), return_exceptions=True)
    assert [one for one in both if not isinstance(one, BaseException)] == [4]
    assert [str(one) for one in both if isinstance(one, Stop)] == [
        f"another rebuild of {tmp_path / 'history.sqlite'} is running: wait for it"
    ]
    assert await make_anew(site.config, here.admin, LOG) == 4


async def test_an_archive_that_reaches_beyond_the_journal_is_told_and_nothing_is_purged(
    here: World, tmp_path: Path
) -> None:
    site = Site(here, tmp_path)
    await site.write(20)
    await site.up()
    await site.down()
    journal = str((await here.js.stream_info(JOURNAL_STREAM)).created)
    Archive(tmp_path / "archive", journal).append(
        [Stored(n, "phoenix.journal.admission", b"", 1.0) for n in range(1, 30)]
    )
    with pytest.raises(Broken, match="reaches 29, the journal ends at 21"):
        await site.archivist(keep=5).look(step_min=1)
    assert (await here.js.stream_info(JOURNAL_STREAM)).state.messages == 21


async def test_a_rebuild_that_cannot_read_the_archive_changes_nothing(here: World, tmp_path: Path) -> None:
    site = Site(here, tmp_path)
    await site.write(20)
    await site.up()
    await site.down()
    await site.archivist(keep=5).look(step_min=1)
    before = rows(tmp_path / "history.sqlite")
    (tmp_path / "archive" / "chain").unlink()
    with pytest.raises(Stop, match="its archive cannot be read"):
        await make_anew(site.config, here.admin, LOG)
    service = await site.up()
    assert sum(service.fold.applied.values()) == 0
    await site.down()
    assert rows(tmp_path / "history.sqlite") == before


async def test_a_rebuild_names_what_was_moved_away_and_works_when_it_is_back(
    here: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "SEGMENT_MAX", 5)
    site = Site(here, tmp_path)
    await site.write(20)
    await site.up()
    await site.down()
    await site.archivist(keep=5).look(step_min=1)
    first, second = sorted((tmp_path / "archive").glob("*.segment"))[:2]
    cold = tmp_path / "cold"
    cold.mkdir()
    for segment in (first, second):
        segment.rename(cold / segment.name)
    with pytest.raises(Stop, match=f"cannot be read: {first}, and 1 more, the last of them {second.name}, is missing"):
        await make_anew(site.config, here.admin, LOG)
    await site.up()
    await site.write(20)
    await site.running.service.wait_for(41, 10.0)
    await site.down()
    assert await site.archivist(keep=5).look(step_min=1) == 36, "the archive continues without them"
    facts = await JournalFacts(here.js, tmp_path / "archive").get([7, 12, 40])
    assert sorted(facts) == [12, 40], "a story lacks what is in them, and nothing else"
    (cold / first.name).rename(first)
    second.symlink_to(cold / second.name)
    assert await make_anew(site.config, here.admin, LOG) == 41
    assert rows(tmp_path / "history.rebuilt") == rows(tmp_path / "history.sqlite")


async def test_others_have_their_turn_between_two_slices_of_the_journal(
    here: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever waits to be folded: heartbeats, reads, requests do not wait for its end."""
    site = Site(here, tmp_path)
    await site.write(300)
    monkeypatch.setattr(engine, "SLICE_BYTES", 2_000)
    turns, taken = 0, []
    take = Reader.take

    def noted(reader: Reader, limit: int, bytes_max: float = 0.0) -> list[Stored]:
        some = take(reader, limit, bytes_max)
        if some:
            taken.append((turns, [len(one.data) for one in some]))
        return some

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(Reader, "take", noted)
    beside = asyncio.create_task(others())
    await site.up()
    beside.cancel()
    assert len(taken) > 10
    assert all(sum(sizes[:-1]) < 2_000 for _, sizes in taken)
    assert len({when for when, _ in taken}) == len(taken), "two slices between two turns of another task"
