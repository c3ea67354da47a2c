"""Room on a real broker under the monitor's own permissions, and on real files; old figures are never shown as new ones."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from schemas.subjects import journal
from services.monitor.metrics.headroom import STALE_S, STREAMS, Measure, Room, archive_end, nearest
from services.runtime.broker.streams import ensure_streams
from services.runtime.config.file import loads
from services.runtime.config.tables import Config
from services.runtime.journal.archive import Archive
from services.runtime.journal.fold import Stored
from tests.integration.nats_process import CLOUD, NatsProcess
from tests.support.shells import LOG


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def shown(room: Room) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(room)
    return registry


def stored(position: int) -> Stored:
    return Stored(position, "phoenix.journal.admission", b"x" * 50, 1.0)


async def test_streams_are_seen_with_the_monitors_permissions_and_not_shown_when_the_broker_is_gone(
    tmp_path: Path,
) -> None:
    server, time = NatsProcess(tmp_path), Time()
    try:
        await server.start()
        admin, _ = await server.connect("service-admin")
        await ensure_streams(admin.jetstream(timeout=30), server.config)
        door, _ = await server.connect("service-admission")
        await door.jetstream(timeout=30).publish(journal("admission"), b"x" * 1000)
        nc, denials = await server.connect("service-monitor", allow_reconnect=False)
        room = Room(nc.jetstream(timeout=1), server.config, LOG, clock=time, monotonic=time)
        registry = shown(room)
        await room.look()
        assert denials.last_error is None

        def journals(name: str) -> float | None:
            return registry.get_sample_value(name, {"stream": "journal"})

        most = server.config.nats.file_max_mb << 20
        assert journals("phoenix_stream_messages") == 1
        assert 1000 < (journals("phoenix_stream_bytes") or 0) < 2000
        assert journals("phoenix_stream_limit_bytes") == int(most * 0.45)
        assert registry.get_sample_value("phoenix_jetstream_bytes") == journals("phoenix_stream_bytes")
        assert registry.get_sample_value("phoenix_jetstream_limit_bytes") == most
        assert all(registry.get_sample_value("phoenix_stream_bytes", {"stream": s}) is not None for s in STREAMS)
        assert registry.get_sample_value("phoenix_room_seen_timestamp_seconds", {"part": "broker"}) == 1000

        await server.stop()
        time.now += STALE_S - 1
        await room.look()
        assert registry.get_sample_value("phoenix_room_look_failures_total", {"part": "broker"}) == 1
        assert journals("phoenix_stream_messages") == 1  # one look more may come in time
        time.now += 1
        await room.look()
        assert journals("phoenix_stream_messages") is None
        assert registry.get_sample_value("phoenix_jetstream_bytes") is None
        assert registry.get_sample_value("phoenix_room_seen_timestamp_seconds", {"part": "broker"}) == 1000
        assert registry.get_sample_value("phoenix_room_seen_timestamp_seconds", {"part": "files"}) == time.now
        assert registry.get_sample_value("phoenix_disk_free_bytes", {"what": "data"})  # it is looked at apart
    finally:
        await server.stop()


def configured(directory: Path) -> Config:
    return loads(CLOUD, base=directory)


async def test_files_are_added_up(tmp_path: Path) -> None:
    config = configured(tmp_path)
    measure = Measure(config)
    before = await measure.take()
    assert set(before.disks) == {"data", "archive"}  # the broker is on another machine
    assert before.disks["data"].size == os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize
    assert 0 < before.disks["data"].free < before.disks["data"].size
    assert (before.history, before.archive, before.archived) == (0, 0, 0)

    config.nats.store_dir.mkdir(parents=True)
    config.monitor.history_path.write_bytes(b"x" * 100)
    config.monitor.history_path.with_name("history.sqlite-wal").write_bytes(b"x" * 11)
    archive = Archive(config.journal.archive, "today")
    archive.append([stored(1), stored(2)])
    after = await measure.take()
    assert set(after.disks) == {"data", "archive", "nats"}
    assert (after.history, after.archived) == (111, 2)
    assert after.archive == sum(path.stat().st_size for path in config.journal.archive.iterdir())

    archive.append([stored(3)])
    os.utime(config.journal.archive, ns=(1, 1))  # so that it has changed, however coarse the disk's clock is
    again = await measure.take()
    assert again.archive == sum(path.stat().st_size for path in config.journal.archive.iterdir())
    assert again.archived == 3

    first = config.journal.archive / archive.links[0].file
    moved = first.rename(tmp_path / first.name)
    first.symlink_to(moved)
    os.utime(config.journal.archive, ns=(2, 2))
    assert (await measure.take()).archive == again.archive, "a file that lies elsewhere is the archive's all the same"
    lost = moved.stat().st_size
    moved.unlink()
    os.utime(config.journal.archive, ns=(3, 3))
    assert (await measure.take()).archive == again.archive - lost
    measure.close()


async def test_a_file_system_that_hangs_holds_one_thread(tmp_path: Path) -> None:
    config = configured(tmp_path)
    chain = config.journal.archive / "chain"
    config.journal.archive.mkdir(parents=True)
    os.mkfifo(chain)  # opening it to read waits for a writer
    measure = Measure(config)
    hangs = asyncio.ensure_future(measure.take())
    await asyncio.sleep(0)  # it has been handed to the thread
    with pytest.raises(TimeoutError, match="does not answer"):
        await measure.take()
    with chain.open("wb"), pytest.raises(OSError, match="seekable"):  # it answers again
        await hangs
    chain.unlink()
    assert (await measure.take()).archived == 0
    measure.close()


def test_the_archives_end_is_that_of_its_last_whole_line(tmp_path: Path) -> None:
    chain = tmp_path / "chain"
    assert archive_end(chain) == 0
    archive = Archive(tmp_path, "today")
    for position in range(1, 20):
        archive.append([stored(position)])
    assert archive_end(chain) == 19
    chain.write_bytes(chain.read_bytes() + b"20 21 2 abc")  # the machine went down
    assert archive_end(chain) == 19
    chain.write_bytes(b"what\n")
    assert archive_end(chain) == 0


def test_what_is_not_there_will_be_where_its_parent_is(tmp_path: Path) -> None:
    assert nearest(tmp_path / "a" / "b") == tmp_path
