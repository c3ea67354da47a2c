"""What the context script says a job uses: while it runs, in its report, and last of all where there is none."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from schemas import facts as f
from schemas.measures import JobMeasures
from tests.support.admission_house import House
from tests.support.script_site import Site, script_site
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with script_site(tmp_path_factory.mktemp("house")) as found:
        yield found


async def test_what_a_job_uses_is_told_while_it_runs_and_when_it_is_stopped(site: Site) -> None:
    """All that the VM uses is the job's; here the VM is this machine."""
    here = site.here
    cloud = here.broker.config.cloud
    often = msgspec.structs.replace(cloud, limits=msgspec.structs.replace(cloud.limits, usage_interval_s=2))
    await here.furnish_limits(often)
    heard = await here.hear("ann", "phoenix.measure.hpc.jobs")
    count = "n=0; while [ $n -lt 20000 ]; do n=$((n+1)); done; times"
    job, vm = await site.run(f"trap 'exit 3' TERM; while :; do {count}; done")
    await here.write("executor", f.VmAllocated(unit=job, attempt=1, rank=0, vm=vm, host="h1"))
    (level,) = msgspec.json.decode((await heard.next_msg(20)).data, type=JobMeasures).jobs
    assert (level.unit, level.attempt, level.ranks) == (job, 1, 1)

    async def burnt() -> bool:
        return own_s(await site.output(job)) > 0.2

    await until(burnt, "it burns")
    await here.furnish_limits(cloud)
    own, asked_at = own_s(await site.output(job)), time.time()
    await site.terminate(vm)
    await site.off(vm)
    await here.write("executor", f.VmEnded(unit=job, attempt=1, rank=0, why="terminated"))
    await until(lambda: measured_of(here, job), "what it has used is in the journal")
    (fact,) = await measured_of(here, job)
    assert fact.cpu_seconds >= max(own, level.cpu_seconds) - 0.1
    assert fact.heard_at >= asked_at  # its last word, and not one that was due anyway
    other, _ = await site.run(count)
    await until(lambda: here.service.custody.state.units[other].final, "it ends")
    report = await site.report_of(other)
    assert report.cpu_seconds is not None
    assert report.cpu_seconds >= own_s(await site.output(other)) - 0.1


def own_s(output: str) -> float:
    """By times(1), which says two lines: the shell's own and its children's, `0m1.23s 0m0.01s`."""
    lines = output.split("\n")[:-1]
    words = " ".join(lines[len(lines) // 2 * 2 - 2 : len(lines) // 2 * 2]).split()
    return sum(int(m) * 60 + float(s.rstrip("s")) for m, s in (word.split("m") for word in words))


async def measured_of(here: House, job: str) -> list[f.AttemptMeasured]:
    return [fact for fact in await here.journaled(f.AttemptMeasured) if fact.unit == job]
