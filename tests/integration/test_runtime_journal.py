"""The fenced append against a real broker: lost answers, stale leaders, garbage, a full stream, a dead network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import nats.errors
import pytest
from nats.errors import OutboundBufferLimitError
from nats.js import JetStreamContext
from nats.js.errors import APIError

from schemas.envelope import BYTES_MAX
from schemas.facts import AttemptMeasured, Fact, JobCancelled
from schemas.subjects import JOURNAL_STREAM, journal
from services.domain.exits import Exit
from services.domain.refusal import Refused
from services.runtime.config.tables import Data
from services.runtime.journal.append import SILENT_AFTER, Deposed, Full, Journal, Parcel
from services.runtime.service import Service
from tests.support.nats import NatsServer, running_server
from tests.support.proxy import Proxy
from tests.support.shells import LOG, World, world
from tests.support.toy import ToyCore, job, next_job
from tests.support.until import DEADLINE_S, until


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with running_server() as started:
        yield started


@pytest.fixture
async def here(server: NatsServer, proxy: Proxy) -> AsyncIterator[World]:
    async with world(server) as made:  # ends before the proxy does, so that services can end in order
        yield made


@pytest.fixture
async def proxy(server: NatsServer) -> AsyncIterator[Proxy]:
    async with Proxy(server.port) as made:
        yield made


def through(proxy: Proxy, here: World, **runtime: float):
    """The configuration of a service that reaches its broker through `proxy`."""
    nats = msgspec.structs.replace(here.config.nats, url=proxy.url)
    timing = msgspec.structs.replace(here.config.runtime, **runtime)
    return msgspec.structs.replace(here.config, nats=nats, runtime=timing)


async def test_each_envelope_expects_the_last_one_folded_and_has_an_id(here: World) -> None:
    service = await here.start().leads()
    await service.propose(next_job(service.custody))
    last = await here.js.get_last_msg(JOURNAL_STREAM, journal("admission"))
    assert last.headers is not None
    assert last.headers["Nats-Expected-Last-Subject-Sequence"] == "1"
    assert last.headers["Nats-Msg-Id"]
    assert last.seq == 2


async def test_a_lost_answer_is_resolved_and_nothing_is_stored_twice(here: World, proxy: Proxy) -> None:
    service = await here.start(config=through(proxy, here)).leads()
    proxy.mute()
    waiting = asyncio.create_task(service.propose(next_job(service.custody)))
    await until_stored(here, 2)
    proxy.heal()
    outcome = await waiting
    assert outcome.position == 2
    assert [fact.job for fact, _ in outcome.facts] == ["1"]
    after = await service.propose(next_job(service.custody))
    assert after.position == 3
    assert (await here.js.stream_info(JOURNAL_STREAM)).state.last_seq == 3


async def until_stored(here: World, sequence: int) -> None:
    for _ in range(1000):
        if (await here.js.stream_info(JOURNAL_STREAM)).state.last_seq >= sequence:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"message {sequence} was not stored")


async def test_what_never_arrived_is_sent_again(here: World, proxy: Proxy) -> None:
    service = await here.start(config=through(proxy, here)).leads()
    proxy.cut()
    waiting = asyncio.create_task(service.propose(next_job(service.custody)))
    await until(lambda: not service.nc.is_connected, "disconnected")
    proxy.heal()
    assert (await waiting).position == 2


async def test_a_stale_leader_is_refused_stores_nothing_and_exits(here: World, proxy: Proxy, tmp_path: Path) -> None:
    kept = msgspec.structs.replace(through(proxy, here), data=Data(directory=tmp_path))
    old = here.start("old", config=kept)
    service = await old.leads()
    proxy.mute()  # it still speaks, and hears nothing
    new = await here.start("new").leads()
    stale = asyncio.create_task(service.propose(next_job(service.custody)))
    await asyncio.wait({stale}, timeout=0.5)
    proxy.heal()
    assert await old.code() == Exit.DEPOSED
    with pytest.raises(Refused):
        await stale
    assert new.custody.state.job_last == 0
    assert new.custody.state.leaders["admission"].instance == "new"
    again = await here.start("old", config=kept).caught_up()
    told = {"reason": "deposed"}
    assert again.registry.get_sample_value("phoenix_appends_refused_total", told) == 1, "it outlives its process"


async def test_a_foreign_envelope_on_the_own_subject_deposes(here: World) -> None:
    running = here.start()
    await running.leads()
    await here.write(job(1), writer="admission")
    assert await running.code() == Exit.DEPOSED


async def test_garbage_is_counted_void_and_followed_by_the_next_envelope(here: World) -> None:
    service = await here.start().leads()
    follower = await here.start("m1", writer=None, name="monitor").caught_up()
    position = await here.publish(b"\x00 this is no envelope")
    await here.publish(b"nor this", writer="executor")
    await service.propose(next_job(service.custody))
    for each in (service, follower):
        await each.wait_for(position + 2, DEADLINE_S)
        assert each.fold.garbage == 2
        assert each.custody.state.job_last == 1
    assert service.custody.dump() == follower.custody.dump()


async def test_garbage_that_arrives_before_it_is_folded_costs_one_more_try(here: World) -> None:
    """The writer expects 0, garbage is stored as 1: refused, not deposed, folded past, sent again."""
    await here.publish(b"garbage")
    folded = 0

    async def fold(position: int, _timeout_s: float) -> None:
        nonlocal folded
        folded = position

    parcel = Parcel("me-1", b"anything")
    await plain_journal(here, lambda: folded, fold).append(parcel)
    assert (parcel.attempts, folded) == (2, 1)


async def test_an_own_message_that_is_stored_already_is_recognised_by_its_id(here: World) -> None:
    """The answer to the first try was lost and the reader has not seen it: refused by the fence, and yet it is ours."""
    await here.publish(b"anything", **{"Nats-Msg-Id": "me-1"})

    async def fold(_position: int, _timeout_s: float) -> None:
        raise AssertionError("it is stored: there is nothing to wait for")

    parcel = Parcel("me-1", b"anything")
    await plain_journal(here, lambda: 0, fold).append(parcel)
    assert parcel.attempts == 1
    assert (await here.js.stream_info(JOURNAL_STREAM)).state.messages == 1


async def test_a_journal_trimmed_too_far_is_said_so(here: World) -> None:
    running = here.start()
    service = await running.leads()
    await here.js.purge_stream(JOURNAL_STREAM)
    with pytest.raises(Refused, match="has stopped leading"):
        await service.propose(next_job(service.custody))
    assert not service.is_leader
    assert await running.code() == Exit.FAILED


async def test_another_instances_message_deposes(here: World) -> None:
    await here.write(job(1), writer="admission", id="other-1")

    async def fold(_position: int, _timeout_s: float) -> None:
        raise AssertionError("a deposed writer folds nothing more")

    with pytest.raises(Deposed, match="message 1 of"):
        await plain_journal(here, lambda: 0, fold).append(Parcel("me-1", b"anything"))


class Unanswered:
    """A broker that reads and does not write: what nats-server is like after a full disk (test_up_full_disk.py)."""

    def __init__(self, js: JetStreamContext) -> None:
        self.get_last_msg = js.get_last_msg
        self.asked = 0

    async def publish(self, *_args: object, **_options: object) -> None:
        self.asked += 1
        raise nats.errors.TimeoutError


async def test_a_broker_that_answers_reads_and_no_append_is_said_to_store_nothing(here: World) -> None:
    async def fold(_position: int, _timeout_s: float) -> None:
        raise AssertionError("nothing was stored")

    broker = Unanswered(here.js)
    silent = plain_journal(here, lambda: 0, fold, js=broker)
    for tries in (SILENT_AFTER, SILENT_AFTER + 1):  # the second time it is known
        with pytest.raises(Full, match="stores nothing"):
            await silent.append(Parcel("me-1", b"anything"))
        assert broker.asked == tries


def plain_journal(here: World, expected, fold, js=None) -> Journal:
    return Journal(
        js or here.js,
        "admission",
        expected=expected,
        wait_for=fold,
        is_own=lambda message_id: message_id.startswith("me-"),
        clock=lambda: 0.0,
        log=LOG,
    )


async def test_a_journal_that_is_nearly_full_takes_what_ends_and_nothing_that_begins(server: NatsServer) -> None:
    async with world(server, file_max_mb=8) as here:  # 3.6 MB of journal
        service = await here.start().leads()
        with pytest.raises(Refused, match="journal is nearly full") as refused:
            await submit_all(service, 50, "x" * 100_000)
        assert refused.value.code == "unavailable"
        assert (service.room.scarce, service.journal_full) == (True, False)
        cancelled = [
            JobCancelled(job=name, user="ann")
            for name, unit in service.custody.state.units.items()
            if unit.final is None
        ]
        outcome = await service.propose(lambda _now, _drafted: list(cancelled))
        assert {meta.void for _, meta in outcome.facts} == {None}
        await make_room(here)
        await until(lambda: not service.room.scarce, "it has room again")
        assert (await service.propose(next_job(service.custody))).facts[0][1].void is None


async def test_what_a_core_would_begin_waits_for_room_and_what_it_ends_does_not(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Eager(ToyCore):
        """Once it may, it submits a second job and cancels the first one."""

        may = False

        def decide(self, _now: float) -> list[Fact]:
            if not self.may:
                return []
            known = self.custody.state.units
            begun = [job(2)] if "2" not in known else []
            ended = [JobCancelled(job="1", user="")] if known["1"].final is None else []
            return begun + ended

    monkeypatch.setattr("services.runtime.journal.headroom.LOOK_S", 3600.0)  # what the broker says is said here
    service = await here.start(core=Eager).leads()
    await until(lambda: " 0.0 MiB" not in service.room.why, "it has been looked at")
    await service.propose(lambda _now, _drafted: [job(1)])
    service.room.looked(1, 1, 1 << 40)
    Eager.may = True
    service.wake()
    await until(lambda: service.custody.state.units["1"].final, "what ends is written")
    assert "2" not in service.custody.state.units
    service.room.looked(0, 1, 1 << 40)
    await until(lambda: "2" in service.custody.state.units, "there is room again")


async def test_a_full_journal_refuses_clearly_and_recovers(server: NatsServer) -> None:
    async with world(server, file_max_mb=8) as here:  # 3.6 MB of journal
        service = await here.start().leads()
        await service.propose(lambda _now, _drafted: [job(1)])
        for size in (400_000, 4_000):
            with pytest.raises(APIError, match="maximum bytes"):
                await fill_up(here, size)
        with pytest.raises(Refused, match="journal is full") as refused:
            await tell(service, 20)
        assert refused.value.code == "unavailable"
        assert service.journal_full
        assert service.is_leader
        await make_room(here)
        await until(lambda: not service.room.scarce, "it has room again")
        outcome = await service.propose(next_job(service.custody))
        assert outcome.facts[0][1].void is None
        assert not service.journal_full


async def fill_up(here: World, size: int) -> None:
    for number in range(1000):
        await here.write(job(1, payload="x" * size), writer="scheduler.old", id=f"{size}-{number}")


async def tell(service: Service, count: int) -> None:
    """What neither begins nor changes anything."""
    measured = [AttemptMeasured(unit="1", attempt=1, cpu_seconds=1.0, heard_at=1.0)] * 100
    for _ in range(count):
        await service.propose(lambda _now, _drafted: list(measured))


async def submit_all(service: Service, count: int, payload: str) -> None:
    for number in range(1, count):
        await service.propose(lambda _now, _drafted, n=number: [job(n, payload=payload)])


async def make_room(here: World) -> None:
    info = await here.js.stream_info(JOURNAL_STREAM)
    info.config.max_bytes = (info.config.max_bytes or 0) + 500_000
    await here.js.update_stream(info.config)


async def test_a_full_outbound_buffer_is_back_pressure_not_a_loss(here: World, proxy: Proxy) -> None:
    service = await here.start(config=through(proxy, here, lease_ttl_s=1.0)).leads()
    proxy.cut()
    await until(lambda: not service.nc.is_connected, "disconnected")
    with pytest.raises(OutboundBufferLimitError):
        await fill(service)
    waiting = asyncio.create_task(service.propose(next_job(service.custody)))
    await asyncio.wait({waiting}, timeout=0.3)
    assert not waiting.done()
    proxy.heal()
    assert (await waiting).position == 2


async def fill(service: Service) -> None:
    for _ in range(100):
        await service.nc.publish("phoenix.signal.site.ann.noise", b"x" * 500_000)


async def test_a_request_that_can_never_fit_is_refused_and_the_next_is_served(here: World) -> None:
    service = await here.start().leads()
    with pytest.raises(Refused) as refused:
        await service.propose(lambda _now, _drafted: [job(1, payload="x" * (BYTES_MAX + 1))])
    assert refused.value.code == "limit"
    assert (await service.propose(next_job(service.custody))).position == 2


async def test_large_requests_are_split_over_envelopes(here: World) -> None:
    service = await here.start().leads()
    big = "x" * 300_000

    def compose(_now: float, drafted: object):
        assert isinstance(drafted, list)
        return [job(service.custody.state.job_last + len(drafted) + 1, payload=big)]

    outcomes = await asyncio.gather(*(service.propose(compose) for _ in range(7)))
    positions = {outcome.position for outcome in outcomes}
    assert len(positions) == 4  # 900,000 bytes: two of a little more than 300,000 fit into one envelope
    assert service.custody.state.job_last == 7
