"""Leadership against a real broker: one leads, the other follows hot, and takes over in each of the ways a leader ends.

Where something happens at once, leases last `LONG_S`: waiting for an expiry, or for a replica's own next look, would be late.
Where a lease expires, it is the broker's clock that is read.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta

import msgspec
import pytest
from nats.js.errors import NotFoundError

from schemas.subjects import LEASES
from services.domain.exits import Exit
from services.domain.refusal import Refused
from services.runtime.journal.leader import Lease, LeaseLost
from tests.support.nats import NatsServer, running_server
from tests.support.shells import LOG, Running, World, world
from tests.support.toy import next_job
from tests.support.until import DEADLINE_S, until

TTL_S = 1.0
EXPIRY_S = 4.0  # where one leads first: a busy machine may renew no lease for a second
LONG_S = 3600.0  # a candidate looks again after a quarter of it: no test waits so long
KEY = f"$KV.{LEASES}.admission"


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with running_server() as started:
        yield started


@pytest.fixture
async def here(server: NatsServer) -> AsyncIterator[World]:
    async with world(server, lease_ttl_s=TTL_S) as made:
        yield made


@pytest.fixture
async def led(server: NatsServer) -> AsyncIterator[World]:
    """For a leader that crashes: until then it keeps its lease."""
    async with world(server, lease_ttl_s=EXPIRY_S) as made:
        yield made


@pytest.fixture
async def calm(server: NatsServer) -> AsyncIterator[World]:
    """No lease expires, and none is renewed, while a test runs."""
    async with world(server, lease_ttl_s=LONG_S) as made:
        yield made


async def written(here: World) -> tuple[str, datetime]:
    """Who has written the lease last, and when, by the broker; asked again if it has just expired."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with contextlib.suppress(NotFoundError):
                entry = await here.js.get_last_msg(f"KV_{LEASES}", KEY)
                assert entry.time is not None
                return msgspec.json.decode(entry.data or b"")["instance"], entry.time


async def crash(running: Running) -> None:
    """As far as the broker can tell, kill -9: the connection is gone, nothing was said."""
    running.service.nc._transport.close()
    running.task.cancel()
    await until(running.task.done, "crashed")


async def test_the_standby_folds_all_the_time_and_decides_nothing(here: World) -> None:
    leader = await here.start("a1").leads()
    standby = await here.start("a2").caught_up()
    outcome = await leader.propose(next_job(leader.custody))
    await standby.wait_for(outcome.position, DEADLINE_S)
    assert standby.custody.dump() == leader.custody.dump()
    assert not standby.is_leader
    with pytest.raises(Refused, match="does not lead"):
        await standby.propose(next_job(standby.custody))


async def test_an_orderly_end_hands_over_at_once(calm: World) -> None:
    first = calm.start("a1")
    await first.leads()
    second = calm.start("a2")
    await second.caught_up()
    assert await first.stop() == Exit.OK
    service = await second.leads()
    assert service.epoch == 2
    assert service.predecessor is not None
    assert (service.predecessor.instance, service.predecessor.stopped) == ("a1", True)


async def test_a_crashed_leader_is_succeeded_when_its_lease_expires(led: World) -> None:
    first = led.start("a1")
    await first.leads()
    second = led.start("a2")
    await second.caught_up()
    _, last = await written(led)
    await crash(first)
    service = await second.leads()
    holder, taken = await written(led)
    assert holder == "a2"
    assert taken - last >= timedelta(seconds=EXPIRY_S)
    assert service.predecessor is not None
    assert not service.predecessor.stopped


async def test_a_reaped_instance_is_succeeded_at_once(calm: World) -> None:
    first = calm.start("a1")
    await first.leads()
    await crash(first)
    service = await calm.start("a1-again", reaped=["a1"]).leads()
    assert service.epoch == 2
    assert "a1" in service.reaped


async def test_an_instance_that_was_not_reaped_is_waited_for(led: World) -> None:
    first = led.start("a1")
    await first.leads()
    holder, last = await written(led)
    await crash(first)
    await led.start("a3", reaped=["a2"]).leads()
    then, taken = await written(led)
    assert (holder, then) == ("a1", "a3")
    assert taken - last >= timedelta(seconds=EXPIRY_S)


async def test_the_lease_names_its_holder(calm: World) -> None:
    service = await calm.start("a1").leads()
    assert (await written(calm))[0] == "a1"
    assert 0 < service.lease_left_s() <= LONG_S


async def test_who_finds_another_holder_exits(here: World) -> None:
    running = here.start("a1")
    await running.leads()
    await here.js.publish(KEY, b'{"instance": "intruder", "process": "p"}')  # whatever was renewed a moment before
    assert await running.code() == Exit.DEPOSED


async def test_a_new_leader_folds_everything_before_it_decides(here: World) -> None:
    first = here.start("a1")
    service = await first.leads()
    for _ in range(50):
        await service.propose(next_job(service.custody))
    await first.stop()
    second = await here.start("a2").leads()
    assert second.custody.state.job_last == 50
    assert (await second.propose(next_job(second.custody))).facts[0][1].void is None
    assert second.custody.state.voids == {}


def lease(here: World, process: str, *reaped: str) -> Lease:
    named = frozenset(reaped)
    return Lease(here.js, "executor", instance=f"i-{process}", process=process, ttl_s=LONG_S, reaped=named, log=LOG)


async def test_only_one_of_two_candidates_gets_it(calm: World) -> None:
    first, second = lease(calm, "p1"), lease(calm, "p2")
    await first.acquire()
    assert not await second._try()
    assert first.left_s() > 0
    assert second.left_s() == 0


async def test_an_expired_lease_that_is_still_free_is_taken_again(calm: World) -> None:
    mine = lease(calm, "p1")
    await mine.acquire()
    await calm.js.purge_stream(f"KV_{LEASES}")
    await mine._recover()
    assert mine.left_s() > 0


async def test_a_lost_answer_to_a_renewal_is_told_from_another_holder(calm: World) -> None:
    mine = lease(calm, "p1")
    await mine.acquire()
    revision = mine._revision
    assert await mine._write(revision)
    mine._revision = revision  # the answer with the new one was lost
    assert not await mine._write(mine._revision)
    await mine._recover()
    assert mine.left_s() > 0


async def test_lost_to_another_is_lost(calm: World) -> None:
    mine, other = lease(calm, "p1"), lease(calm, "p2", "i-p1")
    await mine.acquire()
    await other.acquire()
    with pytest.raises(LeaseLost, match="i-p2"):
        await mine._recover()


async def test_released_means_free_for_the_next_at_once(calm: World) -> None:
    mine, other = lease(calm, "p1"), lease(calm, "p2")
    await mine.acquire()
    await mine.release()
    assert mine.left_s() == 0
    assert await other._try()
