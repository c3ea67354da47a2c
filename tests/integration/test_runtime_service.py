"""The shell as a whole on a real broker: proposals, decisions, limits of time, void facts, clocks, versions, endings."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time

import aiohttp
import msgspec
import pytest

from schemas.config import CloudConfig
from schemas.facts import (
    ConfigAdopted,
    Fact,
    HostGranted,
    HostLost,
    JobHeld,
    LeaderStarted,
    LeaderStopped,
    LoadObserved,
)
from services.domain.core import NEVER
from services.domain.custody.meta import Meta, Void
from services.domain.custody.rules import RULES
from services.domain.exits import Exit
from services.domain.refusal import Refused
from services.runtime.clock import StepDetector
from services.runtime.rebuild import replay
from services.runtime.service import Edge, Service
from tests.support.ports import free_port
from tests.support.shells import LOG, World
from tests.support.toy import ToyCore, job, next_job
from tests.support.until import DEADLINE_S, until


async def facts_in_journal(here: World) -> list[tuple[int, Fact]]:
    seen: list[tuple[int, Fact]] = []

    class Recorder(ToyCore):
        def apply(self, fact: Fact, meta: Meta) -> None:
            seen.append((meta.position, fact))

    await replay(here.admin, here.js, None, Recorder, LOG)
    return seen


# ------------------------------------------------------------------------------------------------------------- proposals


async def test_many_proposals_share_envelopes_and_see_each_other(here: World) -> None:
    service = await here.start().leads()
    outcomes = await asyncio.gather(*(service.propose(next_job(service.custody)) for _ in range(300)))
    jobs = [int(fact.job) for outcome in outcomes for fact, _ in outcome.facts]
    assert jobs == list(range(1, 301))
    assert len({outcome.position for outcome in outcomes}) < 10
    assert all(meta.void is None for outcome in outcomes for _, meta in outcome.facts)


async def test_a_refusal_reaches_its_caller_alone(here: World) -> None:
    service = await here.start().leads()

    def refuse(_now: float, _drafted: object) -> list[Fact]:
        raise Refused("invalid", "walltime must be positive", "walltime_s")

    good, bad = await asyncio.gather(
        service.propose(next_job(service.custody)), service.propose(refuse), return_exceptions=True
    )
    assert isinstance(bad, Refused)
    assert (bad.code, bad.field) == ("invalid", "walltime_s")
    assert not isinstance(good, BaseException)


async def test_a_defect_in_one_composition_does_not_end_the_service(here: World) -> None:
    service = await here.start().leads()
    with pytest.raises(ZeroDivisionError):
        await service.propose(lambda _now, _drafted: [job(1 // 0)])
    assert (await service.propose(next_job(service.custody))).facts


async def test_nothing_to_write_is_answered_at_once_with_the_position(here: World) -> None:
    service = await here.start().leads()
    outcome = await service.propose(lambda _now, _drafted: [])
    assert (outcome.facts, outcome.position) == ([], service.position)


async def test_a_repetition_in_the_same_envelope_waits_for_the_first(here: World) -> None:
    service = await here.start().leads()

    def once(_now: float, drafted: object) -> list[Fact]:
        return [] if drafted or service.custody.state.job_last else [job(1)]

    first, second = await asyncio.gather(service.propose(once), service.propose(once))
    assert len(first.facts) == 1
    assert (second.facts, second.position) == ([], first.position)


async def test_the_cause_travels_with_the_facts(here: World) -> None:
    service = await here.start().leads()
    outcome = await service.propose(next_job(service.custody), cause="request-7")
    assert outcome.facts[0][1].cause == "request-7"


async def test_a_void_fact_is_told_to_its_proposer(here: World) -> None:
    service = await here.start().leads()
    outcome = await service.propose(lambda _now, _drafted: [JobHeld(job="99", user="ann")])
    assert outcome.facts[0][1].void is Void.UNIT_UNKNOWN


# ------------------------------------------------------------------------------------------------------------- decisions


async def test_decide_runs_when_facts_come_and_its_facts_come_back(here: World) -> None:
    service = await here.start().leads()
    for _ in range(3):
        await service.propose(next_job(service.custody))
    await until(lambda: service.custody.state.units["3"].final == "cancelled", "the core's decision is folded")


async def test_decide_runs_at_wake_at_though_nothing_arrives(here: World) -> None:
    class Later(ToyCore):
        delay_s = 0.1

    service = await here.start(core=Later).leads()
    late: list[float] = []
    for number in range(3, 18, 3):
        outcome = await service.propose(lambda _now, _drafted, number=number: [job(number)])
        await until(lambda number=number: service.custody.state.units[str(number)].state == "final", "cancelled")
        late.append(service.custody.state.at - outcome.facts[0][1].at - Later.delay_s)
    assert min(late) >= 0.0
    assert sorted(late)[2] < 0.1, "most are on time, however busy the machine is"


async def test_an_envelope_of_another_writer_wakes_decide_within_milliseconds(here: World) -> None:
    service = await here.start(writer="provisioner", core=Regranter).leads()
    await here.write(job(1), writer="admission")
    await until(lambda: service.core.decided, "decided")


class Regranter(ToyCore):
    """Grants a host that does not exist, for as long as there is a job: every grant comes back void."""

    grants = 1

    def __init__(self, custody) -> None:
        super().__init__(custody)
        self.decided = 0

    def decide(self, now: float) -> list[Fact]:
        if not self.custody.state.job_last or self.decided >= self.grants:
            return []
        self.decided += 1
        return [HostGranted(host="h1", dept="hpc")]

    def wake_at(self) -> float:
        return NEVER


class Stubborn(Regranter):
    grants = 1000


async def test_the_same_fact_void_five_times_stops_the_service(here: World) -> None:
    running = here.start(writer="provisioner", core=Stubborn)
    await running.leads()
    await here.write(job(1), writer="admission")
    assert await running.code() == Exit.STUCK
    grants = [fact for _, fact in await facts_in_journal(here) if isinstance(fact, HostGranted)]
    assert len(grants) == 5


async def test_a_slow_decide_leaves_time_for_others(here: World) -> None:
    runs: list[int] = []  # how far was folded when it decided

    class Slow(ToyCore):
        def decide(self, now: float) -> list[Fact]:
            runs.append(self.custody.state.position)
            time.sleep(0.02)
            return []

    service = await here.start(core=Slow).leads()
    runs.clear()
    began = time.monotonic()
    for number in range(1, 150):
        position = await here.write(
            LoadObserved(dept="web", start=0, end=number, utilisation=0, samples=1), writer="scheduler.web"
        )
    await service.wait_for(position, DEADLINE_S)
    busy = len(runs) * 0.02
    assert busy < 0.6 * (time.monotonic() - began) + 0.04
    await until(lambda: runs[-1:] == [position], "it is decided once more after the rest")


async def test_more_facts_than_fit_are_written_in_several_envelopes(here: World) -> None:
    class Many(ToyCore):
        def decide(self, now: float) -> list[Fact]:
            done = self.custody.state.job_last
            return [job(n) for n in range(done + 1, 5001)]

        def apply(self, fact: Fact, meta: Meta) -> None:
            return

    service = await here.start(core=Many).leads()
    await until(lambda: service.custody.state.job_last == 5000, "all are written")
    assert service.position == 1 + 3  # leader.started, then 2000, 2000, 1000
    assert service.custody.state.voids == {}


async def test_proposals_are_served_while_decide_has_more_than_fits(here: World) -> None:
    class Flood(ToyCore):
        def decide(self, now: float) -> list[Fact]:
            return [LoadObserved(dept="web", start=0, end=1, utilisation=0.5, samples=1)] * 5000

        def apply(self, fact: Fact, meta: Meta) -> None:
            return

    service = await here.start(writer="scheduler.web", core=Flood).leads()
    fact = LoadObserved(dept="web", start=1, end=2, utilisation=0.1, samples=1)
    before = service.position
    outcomes = await asyncio.gather(*(service.propose(lambda _now, _drafted: [fact]) for _ in range(20)))
    assert max(o.position for o in outcomes) <= before + 3  # one on its way, one that is decided facts, one of ours


# ----------------------------------------------------------------------------------------------------------------- time


async def test_now_never_lies_before_the_fold(here: World) -> None:
    service = await here.start().leads()
    ahead = time.time() + 0.3
    position = await here.write(HostLost(host="h", reason="r"), writer="executor", at=ahead)
    await service.wait_for(position, DEADLINE_S)
    assert service.now() == ahead
    outcome = await service.propose(next_job(service.custody))
    assert outcome.facts[0][1].at == ahead


@pytest.mark.parametrize("error_s", [3600.0, -3600.0, 0.8])
async def test_a_wrong_clock_does_not_lead(here: World, error_s: float) -> None:
    running = here.start(clock=lambda: time.time() + error_s)
    assert await running.code() == Exit.SKEWED
    assert await facts_in_journal(here) == []  # an envelope an hour ahead would have moved the time of all services


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
async def test_a_clock_that_is_set_while_leading_writes_nothing_more(here: World, step_s: float) -> None:
    offset = [0.0]
    running = here.start(clock=lambda: time.time() + offset[0])
    service = await running.leads()
    await service.propose(next_job(service.custody))
    offset[0] = step_s
    with pytest.raises(Refused):
        await service.propose(next_job(service.custody))
    assert await running.code() == Exit.SKEWED
    assert len(await facts_in_journal(here)) == 2


async def test_the_brokers_verdict_counts_even_if_the_clock_drifts_slowly(here: World) -> None:
    offset = [0.0]
    running = here.start(clock=lambda: time.time() + offset[0])
    service = await running.leads()
    service._engine._steps = StepDetector(lambda: 0.0)  # blind to the step: only the timestamp of the append can tell
    offset[0] = 0.7
    await service.propose(next_job(service.custody))
    assert await running.code() == Exit.SKEWED


async def test_a_slightly_wrong_clock_leads(here: World) -> None:
    service = await here.start(clock=lambda: time.time() + 0.2).leads()
    assert (await service.propose(next_job(service.custody))).facts


async def test_a_slow_append_alone_is_no_skew(here: World) -> None:
    service = await here.start().leads()
    here.server.pause()
    waiting = asyncio.create_task(service.propose(next_job(service.custody)))
    await asyncio.wait({waiting}, timeout=0.8)  # longer than skew_max_s
    here.server.resume()
    assert (await waiting).facts[0][1].void is None


# -------------------------------------------------------------------------------------------------------------- versions


def envelope_of(fact: dict[str, object]) -> bytes:
    return msgspec.msgpack.encode({"v": 1, "id": "f", "writer": "executor", "epoch": 1, "at": 1.0, "facts": [fact]})


async def test_an_unknown_custody_kind_stops_the_service(here: World) -> None:
    running = here.start()
    await running.leads()
    await here.publish(envelope_of({"kind": "host.teleported", "custody": True}), "executor")
    assert await running.code() == Exit.INCOMPATIBLE


async def test_an_unknown_other_kind_is_counted(here: World) -> None:
    service = await here.start().leads()
    position = await here.publish(envelope_of({"kind": "host.admired", "custody": False}), "executor")
    await service.wait_for(position, DEADLINE_S)
    assert service.fold.unknown == 1
    assert service.is_leader


async def test_unknown_custody_rules_stop_the_service(here: World) -> None:
    running = here.start()
    await running.leads()
    await here.write(ConfigAdopted(cloud="c", custody_rules=RULES + 1, config=CloudConfig(name="c", departments=())))
    assert await running.code() == Exit.INCOMPATIBLE


# ---------------------------------------------------------------------------------------------------------------- edges


class Story(Edge):
    """Writes down what it receives."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.service: Service | None = None

    async def start(self, service: Service) -> None:
        self.service = service
        self.told.append("start")

    async def lead(self) -> None:
        assert self.service is not None
        assert self.service.is_leader
        self.told.append("lead")

    async def close(self) -> None:
        assert self.service is not None
        await self.service.propose(next_job(self.service.custody))  # what it has learned last
        self.told.append("close")

    def applied(self, fact: Fact, meta: Meta) -> None:
        self.told.append(type(fact).__name__)

    def settled(self) -> None:
        self.told.append("settled")


async def test_an_edge_is_told_in_order_and_leader_stopped_comes_after_its_close(here: World) -> None:
    await here.write(job(1), writer="admission")  # before its time: not told
    story = Story()
    running = here.start(edges=[story])
    await running.leads()
    await until(lambda: "lead" in story.told, "told that it leads")
    assert await running.stop() == Exit.OK
    assert story.told == [
        "settled", "start", "LeaderStarted", "settled", "lead",
        "JobSubmitted", "settled", "close", "LeaderStopped", "settled",
    ]  # fmt: skip
    last = (await facts_in_journal(here))[-1][1]
    assert last == LeaderStopped(epoch=1)


class Starting(Edge):
    """It would continue to open things after it has been closed."""

    def __init__(self) -> None:
        self.begun, self.closed = False, asyncio.Event()

    async def start(self, service: Service) -> None:
        self.begun = True
        await self.closed.wait()
        raise OSError("the connection is closed")

    async def close(self) -> None:
        self.closed.set()
        for _ in range(3):  # turns of the loop, in which `start` would continue
            await asyncio.sleep(0)


async def test_who_is_told_to_end_while_its_edges_start_ends_in_order(here: World) -> None:
    edge = Starting()
    running = here.start(edges=[edge])
    await until(lambda: edge.begun, "the edge starts")
    assert await running.stop() == Exit.OK


async def test_work_of_an_edge_that_fails_ends_the_service(here: World) -> None:
    async def fails() -> None:
        raise OSError("the outside is gone")

    running = here.start()
    service = await running.leads()
    service.spawn("doomed", fails())
    assert await running.code() == Exit.FAILED


async def test_a_task_that_swallows_cancellations_does_not_keep_the_service(here: World) -> None:
    async def deaf() -> None:
        for _ in range(3):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    running = here.start()
    service = await running.leads()
    codes: list[int] = []
    service.on_end = codes.append
    service.spawn("deaf", deaf())
    service.fail("because")
    assert await running.code() == Exit.FAILED
    assert codes == [Exit.FAILED]


async def test_fail_ends_the_service_with_its_code(here: World) -> None:
    running = here.start()
    service = await running.leads()
    service.fail("because")
    assert await running.code() == Exit.FAILED


async def test_sigterm_ends_in_order(here: World) -> None:
    running = here.start()
    await running.leads()
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running.code() == Exit.OK
    kinds = [type(fact) for _, fact in await facts_in_journal(here)]
    assert kinds == [LeaderStarted, LeaderStopped]


async def test_wait_for_has_a_deadline(here: World) -> None:
    service = await here.start().leads()
    with pytest.raises(TimeoutError):
        await service.wait_for(service.position + 1, 0.05)


# --------------------------------------------------------------------------------------------------------------- metrics


async def test_metrics_and_health_are_served(here: World) -> None:
    port = free_port()
    metrics = msgspec.structs.replace(here.config.metrics, ports={"admission": port})
    service = await here.start(config=msgspec.structs.replace(here.config, metrics=metrics)).leads()
    await service.propose(next_job(service.custody))
    await here.publish(b"garbage", "executor")
    await service.propose(lambda _now, _drafted: [JobHeld(job="99", user="ann")])
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
            text = await answer.text()
        async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
            health = await answer.json()
    for line in (
        'phoenix_facts_applied_total{kind="job.submitted"} 1.0',
        'phoenix_facts_void_total{kind="job.held",reason="unit_unknown"} 1.0',
        "phoenix_garbage_total 1.0",
        "phoenix_reader_position 4.0",
        "phoenix_leader 1.0",
        "phoenix_leader_changes_total 1.0",
        "phoenix_snapshot_position 0.0",
        "phoenix_journal_append_seconds_count 3.0",
    ):
        assert line in text.splitlines(), text
    assert health["leader"] is True
    assert health["caught_up"] is True
