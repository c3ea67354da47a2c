"""The journal is trimmed on a real broker, and only a reader that would have folded a hole notices (PROTOCOL S5)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from schemas.subjects import JOURNAL_STREAM
from services.domain.exits import Exit, Stop
from services.monitor.explain.record import parts
from services.monitor.history.archivist import Archivist
from services.runtime.config.tables import JournalKept
from services.runtime.journal.archive import Archive
from services.runtime.rebuild import rebuild, replay
from services.runtime.service import Service
from tests.support.shells import LOG, Running, World
from tests.support.toy import ToyCore, job, next_job

KEPT = 5


def archivist(here: World, directory: Path, services: tuple[str, ...] = ("admission",)) -> Archivist:
    return Archivist(here.admin, here.js, directory, KEPT, services, LOG)


async def written(here: World) -> Service:
    """A leader that has written 20 messages and kept a snapshot of them; one of another writer lies among the first."""
    running = here.start()
    service = await running.leads()
    await here.write(job(900), writer="scheduler.old", id="old-1")
    for _ in range(20):
        await service.propose(next_job(service.custody))
    assert await running.stop() == 0  # a snapshot is saved at the end
    return service


def from_the_start(here: World, instance: str, archive: Path) -> Running:
    """One whose snapshot cannot be used."""
    config = msgspec.structs.replace(here.config, journal=JournalKept(archive=archive))
    running = here.start(instance, config=config)
    running.service.use_snapshots = False
    return running


async def positions(here: World) -> list[int]:
    info = (await here.js.stream_info(JOURNAL_STREAM)).state
    found = []
    for position in range(info.first_seq, info.last_seq + 1):
        try:
            found.append((await here.js.get_msg(JOURNAL_STREAM, position)).seq or 0)
        except Exception:
            continue
    return found


async def trimmed(here: World, directory: Path) -> int:
    to = await archivist(here, directory).look(step_min=1)
    assert to
    return to


async def test_what_is_old_goes_into_the_archive_and_each_writers_last_message_stays(
    here: World, tmp_path: Path
) -> None:
    await written(here)
    before = await positions(here)
    whole = await here.replayed()
    to = await trimmed(here, tmp_path / "archive")
    assert to == before[-1] - KEPT
    old = [p for p in await positions(here) if p <= to]
    assert len(old) == 1, "of scheduler.old alone the last message is so old"
    journal = str((await here.js.stream_info(JOURNAL_STREAM)).created)
    assert [m.position for m in Archive(tmp_path / "archive", journal).read()] == before[: before.index(to) + 1]
    fold = await replay(here.admin, here.js, None, ToyCore, LOG, archive=tmp_path / "archive")
    assert (fold.custody.dump(), fold.core.dump()) == whole


async def test_a_service_goes_on_from_its_snapshot_and_appends(here: World, tmp_path: Path) -> None:
    before = await written(here)
    await trimmed(here, tmp_path / "archive")
    service = await here.start("a2").leads()
    outcome = await service.propose(next_job(service.custody))
    assert outcome.facts[0][1].void is None
    assert service.custody.state.job_last == before.custody.state.job_last + 1


async def test_a_service_without_a_snapshot_folds_the_archive_first(here: World, tmp_path: Path) -> None:
    before = await written(here)
    await trimmed(here, tmp_path / "archive")
    service = await from_the_start(here, "a2", tmp_path / "archive").leads()
    outcome = await service.propose(next_job(service.custody))
    assert outcome.facts[0][1].void is None
    assert service.custody.state.job_last == before.custody.state.job_last + 1


async def test_who_needs_the_archive_and_has_none_stops_and_says_so(here: World, tmp_path: Path) -> None:
    await written(here)
    await trimmed(here, tmp_path / "elsewhere")
    assert await from_the_start(here, "a2", tmp_path / "none").code() == Exit.FAILED
    with pytest.raises(Stop, match="its archive is needed"):
        await here.replayed()


async def test_a_snapshot_is_made_anew_from_archive_and_stream(here: World, tmp_path: Path) -> None:
    service = await written(here)
    await trimmed(here, tmp_path / "archive")
    position = await rebuild(
        here.admin,
        here.js,
        name="admission",
        writer="admission",
        core_factory=ToyCore,
        log=LOG,
        archive=tmp_path / "archive",
    )
    assert position == service.position


async def test_nothing_goes_while_a_service_has_no_snapshot(here: World, tmp_path: Path) -> None:
    await written(here)
    before = await positions(here)
    assert await archivist(here, tmp_path, ("admission", "executor")).look(step_min=1) == 0
    assert await positions(here) == before


async def test_a_crash_between_archive_and_purge_loses_nothing(
    here: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(here)
    whole = await here.replayed()

    async def crash(*_: object) -> None:
        raise OSError("no power")

    with monkeypatch.context() as cut:
        cut.setattr("services.monitor.history.archivist.write_mark", crash)
        with pytest.raises(OSError, match="no power"):
            await archivist(here, tmp_path).look(step_min=1)
    assert await here.replayed() == whole
    running = here.start("a2")
    service = await running.leads()
    await service.propose(next_job(service.custody))
    await running.stop()
    whole = await here.replayed()
    with monkeypatch.context() as cut:
        cut.setattr(Archivist, "_purge", crash)
        with pytest.raises(OSError, match="no power"):
            await archivist(here, tmp_path).look(step_min=1)
    fold = await replay(here.admin, here.js, None, ToyCore, LOG, archive=tmp_path)
    assert (fold.custody.dump(), fold.core.dump()) == whole


async def test_a_reader_that_lags_behind_ends_rather_than_fold_a_hole(here: World, tmp_path: Path) -> None:
    await written(here)
    follower = here.start("m1", writer=None, name="monitor")
    service = await follower.caught_up()
    assert service._reader is not None
    await service._reader.close()  # it sleeps while the others continue
    running = here.start("a2")
    leader = await running.leads()
    for _ in range(20):
        await leader.propose(next_job(leader.custody))
    await running.stop()
    behind = service.position
    to = await trimmed(here, tmp_path / "archive")
    assert behind < to
    service._reader.doubt()
    assert await follower.code() == Exit.FAILED


async def test_a_record_is_the_same_before_and_after_the_journal_was_trimmed(here: World, tmp_path: Path) -> None:
    await written(here)
    info = await here.js.stream_info(JOURNAL_STREAM)
    to, journal = info.state.last_seq, str(info.created)

    async def recorded(archive: Archive | None, mark: int) -> list[bytes]:
        return [m.data async for part in parts(here.admin, here.js, archive, mark, to, LOG) for m in part]

    before = await recorded(None, 0)
    assert len(before) == to
    whole = [m async for part in parts(here.admin, here.js, None, 0, to, LOG) for m in part]
    ahead = Archive(tmp_path / "ahead", journal)
    ahead.append(whole[:9])
    assert await recorded(ahead, 4) == before, "what is in both, as after a crash, is returned once"
    mark = await trimmed(here, tmp_path / "archive")
    assert await recorded(Archive(tmp_path / "archive", journal), mark) == before
