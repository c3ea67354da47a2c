"""The reader against a real broker: it never goes blind for long, misses nothing, and repeats nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from schemas.subjects import JOURNAL_STREAM
from services.domain.exits import Exit
from services.runtime.journal import reader
from services.runtime.rebuild import replay
from tests.support.nats import NatsServer, running_server
from tests.support.shells import LOG, World, world
from tests.support.toy import ToyCore, job, next_job
from tests.support.until import DEADLINE_S, until

BLIND_MAX_S = 12.0  # on a busy machine; the default consumer of the client library stays blind for 18 s (NATS.md 3.6)


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with running_server() as started:
        yield started


@pytest.fixture
async def here(server: NatsServer) -> AsyncIterator[World]:
    async with world(server) as made:
        yield made


async def publish_until_stored(here: World, number: int) -> int:
    """A journal message of another writer, as soon as the broker takes one."""
    async with asyncio.timeout(3 * DEADLINE_S):
        while True:
            try:
                return await here.write(job(number), writer="admission", id=f"w-{number}")
            except Exception:
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("fault", [NatsServer.restart, lambda s: (s.kill(), s.start())], ids=["restart", "kill -9"])
async def test_a_follower_sees_again_soon_after_the_broker_came_back(
    here: World, fault: Callable[[NatsServer], object]
) -> None:
    service = await here.start("m1", writer=None, name="monitor").caught_up()
    await here.write(job(1), writer="admission", id="w-1")
    await asyncio.to_thread(fault, here.server)
    await until(lambda: here.admin.is_connected, "the admin is connected again")
    position = await publish_until_stored(here, 2)
    await service.wait_for(position, BLIND_MAX_S)
    assert (service.custody.dump(), service.core.dump()) == await here.replayed()


async def test_a_leader_survives_a_restart_of_the_broker(here: World) -> None:
    running = here.start()
    service = await running.leads()
    await service.propose(next_job(service.custody))
    await asyncio.to_thread(here.server.restart)
    outcome = await service.propose(next_job(service.custody))
    assert outcome.facts[0][1].void is None
    assert service.is_leader
    assert service.custody.state.job_last == 2


async def test_how_far_it_is_behind_is_told_whether_the_fold_or_the_pipe_is_stuck(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = await here.start("m1", writer=None, name="monitor").caught_up()
    pipe = service._reader
    assert pipe is not None
    assert service.reader_lag == 0
    with monkeypatch.context() as stuck:
        stuck.setattr(pipe, "take", lambda *_: [])
        for number in (1, 2, 3):
            await here.write(job(number), writer="admission", id=f"w-{number}")
        await until(lambda: service.reader_lag == 3, "three are stored and not folded")
    service._engine.kick()
    await until(lambda: service.reader_lag == 0, "they are folded")
    assert pipe._subscription is not None
    await pipe._subscription.unsubscribe()
    for number in (4, 5):
        await here.write(job(number), writer="admission", id=f"w-{number}")
    assert await pipe.end() == 5
    assert service.reader_lag == 2, "the broker was asked, and nothing has come"
    await until(lambda: service.reader_lag == 0, "the pipe is a new one")


async def test_a_broker_that_falls_silent_and_wakes_loses_nothing(here: World) -> None:
    service = await here.start().leads()
    here.server.pause()
    waiting = asyncio.create_task(service.propose(next_job(service.custody)))
    await until(lambda: service.lease_left_s() == 0.0, "the lease is over: calls to the outside stop")
    assert not waiting.done()
    here.server.resume()
    assert (await waiting).facts[0][1].void is None
    await until(lambda: service.lease_left_s() > 0, "the lease is held again")
    assert (service.custody.dump(), service.core.dump()) == await here.replayed()


async def test_a_consumer_that_vanishes_is_made_anew(here: World) -> None:
    service = await here.start("m1", writer=None, name="monitor").caught_up()
    for consumer in await here.js.consumers_info(JOURNAL_STREAM):
        await here.js.delete_consumer(JOURNAL_STREAM, consumer.name)
    position = await here.write(job(1), writer="admission")
    await service.wait_for(position, BLIND_MAX_S)
    assert service.reader_renewed >= 1


async def test_consumers_do_not_pile_up(here: World) -> None:
    service = await here.start("m1", writer=None, name="monitor").caught_up()
    for n in range(5):
        service._reader.doubt()
        await until(lambda n=n: service.reader_renewed > n, "renewed")
    await until_consumers(here, 1)


async def until_consumers(here: World, count: int) -> None:
    for _ in range(150):  # the server removes one without a listener after 5 s
        if len(await here.js.consumers_info(JOURNAL_STREAM)) <= count:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"more than {count} consumers are left")


async def test_a_long_journal_is_replayed_in_order_without_loss(here: World) -> None:
    """More bytes than flow control lets through at once."""
    payload = "x" * 20_000
    async with asyncio.TaskGroup() as group:
        for number in range(1, 1501):
            group.create_task(here.write(job(number, payload=payload), writer="admission", id=f"w-{number}"))
    fold = await replay(here.admin, here.js, None, ToyCore, LOG)
    assert fold.position == 1500
    assert sum(fold.applied.values()) + sum(fold.voided.values()) == 1500


async def test_a_closed_connection_ends_the_process(here: World, caplog: pytest.LogCaptureFixture) -> None:
    running = here.start()
    service = await running.leads()
    await service.nc._close(service.nc.CLOSED)  # what the client does by itself once it gives up
    assert await running.code() == Exit.FAILED
    assert "was closed permanently" in caplog.text


async def test_a_consumer_that_beats_but_delivers_nothing_is_found_out(here: World) -> None:
    """Heartbeats alone do not prove sight: the watchdog compares with the stream's end."""
    service = await here.start("m1", writer=None, name="monitor").caught_up()
    later = datetime.now(UTC) + timedelta(hours=1)
    for consumer in await here.js.consumers_info(JOURNAL_STREAM):
        await here.js.pause_consumer(JOURNAL_STREAM, consumer.name, later.isoformat())
    position = await here.write(job(1), writer="admission")
    await service.wait_for(position, BLIND_MAX_S)


@pytest.mark.timeout(30)
async def test_a_doubt_while_disconnected_does_not_spin(server: NatsServer, here: World) -> None:
    """It did: an event that stays set is no wait, and the loop never got to the reconnect."""
    running = here.start("m1", writer=None, name="monitor")
    service = await running.caught_up()
    await asyncio.to_thread(server.stop)
    await until(lambda: not service.nc.is_connected, "disconnected")
    service._reader.doubt()
    await asyncio.sleep(0.3)
    await asyncio.to_thread(server.start)
    position = await publish_until_stored(here, 1)
    await service.wait_for(position, BLIND_MAX_S)


async def test_a_client_that_lost_itself_ends_the_process(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library neither reads nor reconnects any more, and does not say so."""
    monkeypatch.setattr(reader, "STUCK_S", 1.0)
    running = here.start()
    service = await running.leads()
    service.nc._ping_interval_task.cancel()
    service.nc._reading_task.cancel()
    assert await running.code() == Exit.FAILED


async def test_a_silent_broker_is_not_taken_for_a_lost_client(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "STUCK_S", 0.5)
    running = here.start()
    service = await running.leads()
    here.server.pause()
    await asyncio.wait({running.task}, timeout=3.0)
    assert not running.task.done()
    here.server.resume()
    assert (await service.propose(next_job(service.custody))).facts[0][1].void is None
