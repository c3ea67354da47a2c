"""What jobs use, at a door on a real broker: levels while they run, one fact when no more can be reported, and no lies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from schemas import facts as f
from schemas.measures import CORES_MAX, JobMeasures
from services.admission.guests.usage_facts import CLOCK_S
from tests.integration.test_admission_resumed import Suspended, job_of
from tests.support.admission_house import House, house
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with house(tmp_path_factory.mktemp("admission")) as found:
        yield found


async def say(here: House, job: Suspended, cpu: Any, peak: Any = None, *, rank: int = 0, attempt: int = 1) -> int:
    told = {"cpu_seconds": cpu, "max_rss_mb": peak}
    return (await here.guest(job.job, attempt, rank).call("POST", "used", told))[0]


async def end(here: House, job: Suspended, *ranks: int) -> None:
    await here.write(
        "executor", *(f.VmEnded(unit=job.job, attempt=job.attempt, rank=r, why="x") for r in ranks or (0,))
    )


async def measured(here: House, job: Suspended, count: int = 1) -> list[tuple[int, float, float | None, int]]:
    """Every such fact of the job, once there are `count` of them."""
    found: list[f.AttemptMeasured] = []

    async def all_there() -> bool:
        found[:] = [fact for fact in await here.journaled(f.AttemptMeasured) if fact.unit == job.job]
        return len(found) >= count

    await until(all_there, "what it has used is in the journal")
    return [(fact.attempt, fact.cpu_seconds, fact.max_rss_mb, fact.ranks) for fact in found]


async def none_measured(here: House, job: Suspended) -> None:
    """Once the fact of a job that ended later is there."""
    other = await job_of(here, "h2")
    assert await say(here, other, 1.0) == 204
    await end(here, other)
    await measured(here, other)
    assert job.job not in [fact.unit for fact in await here.journaled(f.AttemptMeasured)]


@pytest.mark.parametrize("disposal", [f.Disposal.CANCELLED, f.Disposal.TIMEOUT, f.Disposal.KILL, f.Disposal.REQUEUE])
async def test_what_was_said_last_is_a_fact_whatever_the_attempt_ended_of(here: House, disposal: f.Disposal) -> None:
    job = await job_of(here, "h1")
    heard = await here.hear("ann", "phoenix.measure.hpc.jobs")
    assert await say(here, job, 5.0, 100.0) == 204
    (level,) = msgspec.json.decode((await heard.next_msg(5)).data, type=JobMeasures).jobs
    assert (level.unit, level.attempt, level.cpu_seconds, level.max_rss_mb, level.ranks) == (job.job, 1, 5.0, 100.0, 1)
    if disposal is f.Disposal.CANCELLED:
        await here.ask("ann", "job.cancel", {"jobs": [job.job]})
    await job.close(disposal)
    if disposal is f.Disposal.REQUEUE:
        await job.place("h2")  # the old guest is gone for every other call, and still says what it has used
        job.attempt = 1
    assert await say(here, job, 7.5, 90.0) == 204
    await end(here, job)
    assert await measured(here, job) == [(1, 7.5, 100.0, 1)]
    assert await say(here, job, 8.0) == 410


async def test_with_its_host_what_it_said_last_is_not_lost(here: House) -> None:
    job = await job_of(here, "h2")
    assert await say(here, job, 5.0, 100.0) == 204
    await here.write("executor", f.HostLost(host="h2", reason="a test"))
    assert await measured(here, job) == [(1, 5.0, 100.0, 1)]
    await end(here, job)
    await here.write("executor", f.HostCleared(host="h2"))
    await here.write("provisioner", f.HostGranted(host="h2", dept="hpc"))


async def test_a_report_says_it_itself(here: House) -> None:
    job = await job_of(here, "h1")
    assert await say(here, job, 5.0, 100.0) == 204
    assert await here.guest(job.job).report(cpu_seconds=6.0, max_rss_mb=110.0) == 200
    await end(here, job)
    await none_measured(here, job)


async def test_of_a_report_that_does_not_count_what_it_has_used_does(here: House) -> None:
    job = await job_of(here, "h1")
    await job.close(f.Disposal.REQUEUE)
    assert await here.guest(job.job).report(cpu_seconds=6.0, max_rss_mb=110.0, terminated=True) == 410
    await end(here, job)
    assert await measured(here, job) == [(1, 6.0, 110.0, 1)]


async def test_ranks_add_up_and_the_one_that_needed_most_is_the_peak(here: House) -> None:
    job = await job_of(here, "h1", "h2")
    assert await say(here, job, 5.0, 100.0) == 204
    assert await say(here, job, 2.0, 300.0, rank=1) == 204
    assert await here.guest(job.job).report(cpu_seconds=6.0, max_rss_mb=110.0) == 200
    assert await say(here, job, 2.5, 290.0, rank=1) == 204  # it hears later that the job is over
    await end(here, job, 0)
    await end(here, job, 1)
    assert await measured(here, job) == [(1, 8.5, 300.0, 2)]


async def test_each_attempt_of_a_job_that_goes_on_is_told_of(here: House) -> None:
    job = await job_of(here, "h1")
    assert await say(here, job, 5.0) == 204
    await job.close()
    assert await say(here, job, 6.0) == 204
    await job.saved()
    assert await measured(here, job) == [(1, 6.0, None, 1)]
    assert await say(here, job, 6.1) == 503  # it is on no host, and its guest must not get an order to stop
    await job.place("h2")
    await job.allocate()
    await job.started(0)
    await job.until_began()
    assert await say(here, job, 9.0) == 204  # under its old name
    await job.close(f.Disposal.KILL)
    await end(here, job)
    assert await measured(here, job, 2) == [(1, 6.0, None, 1), (2, 9.0, None, 1)]


LIES = (
    b'{"cpu_seconds": NaN}',
    b'{"cpu_seconds": -1}',
    b'{"cpu_seconds": 1e999}',
    b'{"cpu_seconds": "many"}',
    b'{"cpu_seconds": null}',
    b'{"cpu_seconds": 1, "max_rss_mb": -1}',
    b'{"cpu_seconds": 1, "max_rss_mb": 1e9}',
    b"{}",
)


@pytest.mark.parametrize("lie", LIES)
async def test_what_is_no_figure_is_refused(here: House, lie: bytes) -> None:
    job = await job_of(here, "h1")
    assert (await here.guest(job.job).call("POST", "used", lie))[0] == 400
    await end(here, job)
    await none_measured(here, job)


async def test_what_no_machine_could_have_used_is_not_believed(here: House) -> None:
    job = await job_of(here, "h1")
    too_much = CORES_MAX * (CLOCK_S + 3600)  # an hour has not passed since the VM was allocated
    assert await say(here, job, 3.0, 10.0) == 204
    assert await say(here, job, too_much, 20.0) == 204
    assert await here.guest(job.job).report(cpu_seconds=too_much, max_rss_mb=30.0) == 200
    (report,) = [fact for fact in await here.journaled(f.AttemptReported) if fact.unit == job.job]
    assert (report.exit, report.cpu_seconds, report.max_rss_mb) == (0, None, None)
    await end(here, job)
    assert await measured(here, job) == [(1, 3.0, 10.0, 1)]


async def test_a_job_cannot_say_it_itself_nor_for_another(here: House) -> None:
    job, other = await job_of(here, "h1"), await job_of(here, "h2")
    guest = here.guest(job.job)
    guest.headers = here.guest(other.job).headers
    assert (await guest.call("POST", "used", {"cpu_seconds": 1.0}))[0] == 401
    await end(here, job)
    await end(here, other)
    await here.place("web.1", "w1", dept="web")
    await here.write("executor", f.VmAllocated(unit="web.1", attempt=1, rank=0, vm=9, host="w1"))
    assert (await here.guest("web.1").call("POST", "used", {"cpu_seconds": 1.0}))[0] == 400
