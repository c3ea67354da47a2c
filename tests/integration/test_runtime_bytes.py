"""live == replay == snapshot + tail, byte for byte, through kill -9 of a real process at random moments."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from schemas.subjects import JOURNAL_STREAM, SNAPSHOTS
from services.domain.exits import Exit
from services.runtime.broker.objects import Objects
from services.runtime.journal import snapshots
from services.runtime.journal.fold import Fold
from services.runtime.journal.snapshots import Every, Keeper, Snapshots, pack, take
from services.runtime.rebuild import rebuild, replay
from tests.support.nats import NatsServer, running_server
from tests.support.ports import free_port
from tests.support.shells import LOG, World, world
from tests.support.toy import ToyCore, next_job, state_digest
from tests.support.until import DEADLINE_S, until

ROUNDS = 5
SNAPSHOT_EVERY = 150


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with running_server() as started:
        yield started


@pytest.fixture
async def here(server: NatsServer) -> AsyncIterator[World]:
    async with world(server, snapshot_every=SNAPSHOT_EVERY) as made:
        yield made


def configure(here: World, directory: Path) -> Path:
    file = directory / "phoenix.toml"
    file.write_text(
        f"""
[cloud]
name = "toy"
[[department]]
name = "hpc"
kind = "batch"
[nats]
url = "{here.server.url}"
file_max_mb = 256
[runtime]
lease_ttl_s = 1.0
snapshot_every = {SNAPSHOT_EVERY}
[metrics.ports]
admission = {free_port()}
[data]
directory = "."
""",
        encoding="utf-8",
    )
    return file


def start(file: Path, round_: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.support.toy", "--config", str(file), "--instance", f"i{round_}"]
    reaped = f"i{round_ - 1}"
    root = Path(__file__).parents[2]
    with (file.parent / "log").open("ab") as log:
        return subprocess.Popen([*command, "--reaped", reaped], cwd=root, stdout=log, stderr=log)


async def end_of(here: World) -> int:
    return (await here.js.stream_info(JOURNAL_STREAM)).state.last_seq


async def grow(here: World, process: subprocess.Popen[bytes], by: int) -> None:
    """Wait until the process has written `by` more messages."""
    goal = await end_of(here) + by
    for _ in range(2000):
        if await end_of(here) >= goal:
            return
        assert process.poll() is None, "the process has ended"
        await asyncio.sleep(0.005)
    raise AssertionError("the journal does not grow")


async def test_killed_at_random_moments_the_state_is_the_same_bytes(here: World, tmp_path: Path) -> None:
    chance = random.Random(7)
    file = configure(here, tmp_path)
    follower = await here.start("m1", writer=None, name="monitor").caught_up()
    for round_ in range(ROUNDS):
        process = start(file, round_)
        try:
            await grow(here, process, chance.randrange(1, 400))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(60)
    end = await end_of(here)
    await follower.wait_for(end, DEADLINE_S)
    recorded = states(tmp_path)
    wrong: list[int] = []

    def visit(fold: Fold) -> None:
        if fold.position in recorded and recorded[fold.position] != state_digest(fold):
            wrong.append(fold.position)

    replayed = await replay(here.admin, here.js, "admission", ToyCore, LOG, visit)
    assert len(recorded) > ROUNDS
    assert wrong == []
    assert state_digest(follower.fold) == state_digest(replayed)
    assert state_digest(await snapshot_and_tail(here, end)) == state_digest(replayed)
    assert replayed.custody.state.leaders["admission"].epoch == ROUNDS
    assert replayed.custody.state.voids == {}


def states(directory: Path) -> dict[int, str]:
    """What the processes wrote down before they were killed; a last line may be torn."""
    lines = (directory / "states").read_text(encoding="utf-8").splitlines()
    pairs = [line.split(" ") for line in lines]
    return {int(pair[0]): pair[1] for pair in pairs if len(pair) == 2 and len(pair[1]) == 64}


async def snapshot_and_tail(here: World, end: int) -> Fold:
    """The state that a restart would begin with: the admission's snapshot, and the journal after it."""
    service = await here.start("m2", writer=None, name="admission").caught_up()
    await service.wait_for(end, DEADLINE_S)
    assert 0 < service.snapshot_position < end
    return service.fold


async def test_a_process_ends_in_order_at_sigterm_and_starts_from_its_snapshot(here: World, tmp_path: Path) -> None:
    file = configure(here, tmp_path)
    process = start(file, 1)
    await grow(here, process, 50)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, DEADLINE_S) == Exit.OK
    end = await end_of(here)
    service = await here.start("a2").leads()
    assert service.snapshot_position == end  # its predecessor's leader.stopped included
    assert service.predecessor is not None
    assert service.predecessor.stopped


async def test_a_process_without_its_broker_ends_at_sigterm(tmp_path: Path, here: World) -> None:
    file = configure(here, tmp_path)
    await asyncio.to_thread(here.server.stop)
    process = start(file, 1)
    for _ in range(1000):
        if b"Connect call failed" in (tmp_path / "log").read_bytes():
            break
        await asyncio.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, DEADLINE_S) == Exit.OK
    await asyncio.to_thread(here.server.start)


async def test_a_process_with_wrong_arguments_says_so(tmp_path: Path) -> None:
    process = start(tmp_path / "missing.toml", 1)
    assert await asyncio.to_thread(process.wait, DEADLINE_S) == Exit.USAGE
    assert b"missing.toml" in (tmp_path / "log").read_bytes()


# ------------------------------------------------------------------------------------------------------------- snapshots


async def filled(here: World) -> tuple[bytes, bytes]:
    """A journal with some content and a snapshot at its end; returns what a full replay gives."""
    running = here.start("a1")
    service = await running.leads()
    for _ in range(20):
        await service.propose(next_job(service.custody))
    await running.stop()
    return await here.replayed()


@pytest.mark.parametrize(
    "damage",
    [b"", b"short", b"\x00" * 400, None],
    ids=["empty", "short", "zeros", "missing"],
)
async def test_without_a_usable_snapshot_the_journal_is_folded_from_its_start(
    here: World, damage: bytes | None
) -> None:
    whole = await filled(here)
    objects = Objects(here.js, SNAPSHOTS)
    if damage is None:
        await objects.delete("admission")
    else:
        await objects.put("admission", damage)
    service = await here.start("m1", writer=None, name="admission").caught_up()
    assert service.snapshot_position == 0
    assert (service.custody.dump(), service.core.dump()) == whole


async def test_a_snapshot_whose_state_the_core_cannot_load_is_ignored(here: World) -> None:
    whole = await filled(here)
    found = await Snapshots(Objects(here.js, SNAPSHOTS), "admission", LOG).find(await born(here), 1 << 60, 1)
    assert found is not None
    broken = pack(type(found)(**{f: getattr(found, f) for f in found.__struct_fields__} | {"core": b"\xc1"}))
    await Objects(here.js, SNAPSHOTS).put("admission", broken)
    service = await here.start("m1", writer=None, name="admission").caught_up()
    assert (service.custody.dump(), service.core.dump()) == whole


async def born(here: World) -> str:
    return str((await here.js.stream_info(JOURNAL_STREAM)).created)


async def test_a_snapshot_of_another_journal_is_ignored(here: World) -> None:
    await filled(here)
    fold = Fold("admission", ToyCore)
    store = Snapshots(Objects(here.js, SNAPSHOTS), "admission", LOG)
    await store.save(take("admission", "1999-01-01", fold))
    assert await store.find(await born(here), 1000, 1) is None
    await store.save(take("admission", await born(here), fold))
    assert await store.find(await born(here), 1000, 1) is not None
    assert await store.find(await born(here), 1000, 2) is None  # another version of the core
    fold.position = 1001
    await store.save(take("admission", await born(here), fold))
    assert await store.find(await born(here), 1000, 1) is None  # beyond the journal's end


async def test_what_somebody_left_that_ended_while_it_saved_a_snapshot_goes_with_the_next_one(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await here.js.publish(f"$O.{SNAPSHOTS}.C.lost", b"half a snapshot")
    keeper = Keeper(
        Objects(here.js, SNAPSHOTS), "admission", await born(here), Fold("admission", ToyCore), every=1, log=LOG
    )
    await keeper.save()
    assert (await here.js.stream_info(f"OBJ_{SNAPSHOTS}")).state.messages == 3, "it may still be on its way"
    monkeypatch.setattr(snapshots, "CUT_OFF_S", 0.0)
    await keeper.save()
    assert (await here.js.stream_info(f"OBJ_{SNAPSHOTS}")).state.messages == 2
    assert await Objects(here.js, SNAPSHOTS).get("admission")


async def test_a_snapshot_is_rebuilt_from_the_journal(here: World) -> None:
    whole = await filled(here)
    await Objects(here.js, SNAPSHOTS).delete("admission")
    end = await end_of(here)
    made = await rebuild(here.admin, here.js, name="admission", writer="admission", core_factory=ToyCore, log=LOG)
    assert made == end
    fold = Fold("admission", ToyCore)
    keeper = Keeper(Objects(here.js, SNAPSHOTS), "admission", await born(here), fold, every=Every(1), log=LOG)
    await keeper.load(end, ToyCore)
    assert (fold.custody.dump(), fold.core.dump(), fold.own_last) == (*whole, end)


async def test_an_older_snapshot_that_takes_its_time_does_not_replace_a_newer_one(here: World) -> None:
    fold, reached, go = Fold("admission", ToyCore), asyncio.Event(), asyncio.Event()
    asked: list[int] = []

    async def secured(position: int) -> bool:
        asked.append(position)
        reached.set()
        await go.wait()
        return True

    objects, born_at = Objects(here.js, SNAPSHOTS), await born(here)
    keeper = Keeper(objects, "admission", born_at, fold, every=Every(1), log=LOG, secured=secured)
    fold.position = 1
    first = asyncio.create_task(keeper.save())
    await reached.wait()
    fold.position = 2
    second = asyncio.create_task(keeper.save())
    for _ in range(5):  # turns of the loop, in which it would begin
        await asyncio.sleep(0)
    assert asked == [1]
    go.set()
    await asyncio.gather(first, second)
    assert (asked, keeper.position) == ([1, 2], 2)


async def test_snapshots_that_cannot_be_saved_are_told_once(here: World, caplog: pytest.LogCaptureFixture) -> None:
    stored = iter((False, False, True, False, False))

    async def secured(_position: int) -> bool:
        return next(stored)

    objects, fold = Objects(here.js, SNAPSHOTS), Fold("admission", ToyCore)
    keeper = Keeper(objects, "admission", await born(here), fold, every=Every(1), log=LOG, secured=secured)
    for _ in range(5):
        await keeper.save()
    assert caplog.text.count("snapshot not saved") == 2


async def test_a_leader_saves_snapshots_as_it_goes_and_a_standby_does_not(here: World) -> None:
    leader = await here.start("a1").leads()
    standby = await here.start("a2").caught_up()
    for _ in range(SNAPSHOT_EVERY + 10):
        await leader.propose(next_job(leader.custody))
    await until(lambda: leader.snapshot_position > 0, "a snapshot is saved")
    await standby.wait_for(leader.position, DEADLINE_S)
    assert standby.snapshot_position == 0


async def test_a_trimmed_journal_without_a_snapshot_is_said_so(here: World) -> None:
    await filled(here)
    await Objects(here.js, SNAPSHOTS).delete("admission")
    await here.js.purge_stream(JOURNAL_STREAM, seq=5)
    assert await here.start("a2").code() == Exit.FAILED
