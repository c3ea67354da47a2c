"""When a job would start that nobody has submitted: asked of the core, composed as a submission, told to people."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from phoenix.cli.whatif_job import render, shape_of
from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchPolicy, CloudConfig, Quality
from schemas.requests import JobSubmit
from schemas.start_estimate import Foreseen, JobForeseen, JobsForeseen, Sure
from schemas.times import exact
from schemas.validation import Malformed
from services.admission.commands.whatif import Foretelling, changes
from services.scheduler.lookahead.looks import WAITING_MAX, Busy, Looks
from services.scheduler.lookahead.whatif import JOBS_MAX, NotOurs, WhatIf
from tests.support.admission import ANN, Fold
from tests.support.scheduling import cluster, core
from tests.support.world import World, batch


def job(nodes: int = 1, cores: int = 4, **fields: Any) -> f.JobSubmitted:
    shape = {"walltime_s": 600.0, "user": "ann", "dept": "hpc", "name": "x", "payload": "", **fields}
    return f.JobSubmitted(job="1", nodes=nodes, cores=cores, memory_mb=256, **shape)


def data(*jobs: f.JobSubmitted) -> bytes:
    return msgspec.json.encode({"jobs": jobs})


async def told(world: World, *jobs: f.JobSubmitted) -> JobsForeseen:
    """The answer; asking changes nothing."""
    world.settle()
    seat = world.seats["scheduler.hpc"]
    before = seat.custody.dump(), seat.core.dump()
    answer = await WhatIf("hpc", Looks()).answer(core(world), data(*jobs), world.now)
    assert (seat.custody.dump(), seat.core.dump()) == before
    return msgspec.json.decode(answer, type=JobsForeseen)


async def test_on_idle_hosts_it_starts_now_and_so_it_does_when_it_is_submitted() -> None:
    world = cluster(3)
    answer = await told(world, job(nodes=2), job(nodes=1))
    first = answer.found[0].first
    assert answer.now
    assert first is not None
    assert first.start_at == exact(world.now)
    assert answer.found[1].first is None, "who starts at once needs no variants"
    submitted = world.submit(nodes=2, cores=4)
    world.settle()
    assert world.custody.state.units[submitted].hosts == first.hosts


async def test_behind_others_it_starts_when_they_have_run_to_their_limits() -> None:
    world = cluster(2, order="fcfs")
    world.submit(nodes=2, cores=4, walltime_s=100)
    world.settle()
    world.submit(nodes=2, cores=4, walltime_s=50)
    answer = await told(world, job(nodes=2), job(nodes=1))
    assert not answer.now
    first, second = (found.first for found in answer.found)
    assert first is not None
    assert second is not None
    assert (first.start_at, type(first.because)) == (exact(world.now + 150), because.ByWalltimes)
    assert second.start_at == exact(world.now + 150)


async def test_a_shorter_one_would_be_backfilled() -> None:
    world = cluster(2, order="easy")
    world.submit(nodes=1, cores=4, walltime_s=100)
    world.settle()
    world.submit(nodes=2, cores=4, walltime_s=50)
    answer = await told(world, job(walltime_s=600.0), job(walltime_s=90.0))
    long, short = (found.first for found in answer.found)
    assert long is not None
    assert short is not None
    assert (long.start_at, short.start_at) == (exact(world.now + 150), exact(world.now))


async def test_of_an_array_the_first_and_the_last_element() -> None:
    world = cluster(2)
    answer = await told(world, job(array=tuple(range(1, 6)), walltime_s=100.0))
    found = answer.found[0]
    assert found.first is not None
    assert found.last is not None
    assert (answer.at, found.first.start_at, found.last.start_at) == (
        exact(world.now),
        exact(world.now),
        exact(world.now + 200),
    )


async def test_what_can_never_start_is_told_with_its_reason() -> None:
    found = (await told(cluster(2), job(held=True))).found[0].first
    assert found is not None
    assert (found.start_at, type(found.because)) == (None, because.Held)


async def test_only_this_department_and_not_too_much_at_a_time() -> None:
    world, asked = cluster(1), WhatIf("hpc", Looks())
    for wrong in ((), (job(dept="bio"),), (job(),) * (JOBS_MAX + 1)):
        with pytest.raises(NotOurs):
            await asked.answer(core(world), data(*wrong), world.now)
    with pytest.raises(Malformed):
        await asked.answer(core(world), b'{"jobs": [{"nodes": -1}]}', world.now)
    many = [asked.answer(core(world), data(job()), world.now) for _ in range(WAITING_MAX + 2)]
    ends = await asyncio.gather(*many, return_exceptions=True)
    assert sum(isinstance(end, Busy) for end in ends) == 2
    assert sum(isinstance(end, bytes) for end in ends) == WAITING_MAX


def test_variants_change_one_thing_each() -> None:
    policy = BatchPolicy(quality={"fast": Quality(), "slow": Quality()}, quality_default="slow")
    request = JobSubmit(argv=("x",), nodes=5, tasks=10, exclusive=True)
    found = list(changes(request, job(nodes=5, exclusive=True, quality="slow", walltime_s=200.0), policy))
    assert [(name, value) for name, value, _ in found] == [
        ("walltime_s", 100.0),
        ("nodes", 3),
        ("exclusive", False),
        ("best_effort", True),
        ("quality", "fast"),
    ]
    assert found[1][2] == {"nodes": 3, "tasks": 5}
    assert list(changes(request, job(best_effort=True, walltime_s=60.0), BatchPolicy())) == []


def test_only_the_shape_of_a_job_is_sent() -> None:
    """All of a submission's fields, but for those that say what is run, with what, and where its output goes."""
    sent = shape_of(dict.fromkeys(JobSubmit.__struct_fields__, "secret"))
    assert sent.pop("argv") == ["true"]
    content = {"script", "environment", "inputs", "keep", "signal", "directory", "stdout", "stderr", "stdin", "argv"}
    assert set(JobSubmit.__struct_fields__) - set(sent) == content


def foretelling(fold: Fold, starts: dict[str, float | None]) -> Foretelling:
    """The scheduler says of each job when it starts, by its time limit and quality."""

    async def ask(_dept: str, jobs: list[f.JobSubmitted]) -> JobsForeseen:
        best = {True: "best_effort", False: ""}
        times = [starts.get(best[job.best_effort] or f"t{job.walltime_s:.0f}") for job in jobs]
        why = because.ByWalltimes(ends=1)
        texts = [None if at is None else exact(at) for at in times]
        found = [JobForeseen(first=Foreseen(start_at=at, sure=Sure.BY_WALLTIMES, because=why)) for at in texts]
        return JobsForeseen(at=exact(100.0), now=False, found=found)

    return Foretelling(fold.core, ask)


@pytest.mark.parametrize(
    ("starts", "told"),
    [
        (
            {"t600": 500.0, "t300": 200.0, "t150": 100.0, "best_effort": 499.5},
            [("walltime_s", 150.0), ("walltime_s", 300.0)],
        ),
        ({"t600": 500.0, "t300": 500.0, "t150": None, "best_effort": 600.0}, []),
        ({"t600": None, "t300": None, "t150": None, "best_effort": 600.0}, [("best_effort", True)]),
    ],
)
async def test_only_what_starts_earlier_is_told_the_earliest_first(
    starts: dict[str, float | None], told: list[tuple[str, Any]]
) -> None:
    fold = Fold()
    fold.adopt(CloudConfig(name="c1", departments=(batch("hpc"),)))
    fold.host("h1", 4, 4096)
    found = await foretelling(fold, starts).foretell(ANN, "hpc", JobSubmit(script="true", walltime_s=600.0))
    assert found.forecast.start_at == (None if starts["t600"] is None else exact(starts["t600"]))
    assert found.at == exact(100.0)
    assert [(each.field, each.value) for each in found.variants] == told


async def test_what_a_grace_costs_a_claim_is_told_as_when_it_is_submitted() -> None:
    fold = Fold()
    fold.adopt(CloudConfig(name="c1", departments=(batch("hpc", grace_max_s=30.0),)))
    fold.host("h1", 4, 4096)
    for asked_s, waits_s in ((None, UNSET), (0.0, 0.0), (30.0, 31.0)):
        request = JobSubmit(script="true", walltime_s=600.0, grace_s=asked_s)
        found = await foretelling(fold, {}).foretell(ANN, "hpc", request)
        assert found.claim_waits_s == waits_s


def forecast(start_at: float | None, *hosts: str, code: str = "by_walltimes", **params: object) -> dict[str, Any]:
    sure = "cannot_say" if start_at is None else "by_walltimes"
    at = None if start_at is None else exact(start_at)
    return {"start_at": at, "hosts": list(hosts), "sure": sure, "why": {"code": code, **params}}


def answer(**fields: Any) -> dict[str, Any]:
    base = {
        "department": "hpc",
        "at": exact(1_000_000.0),
        "now": False,
        "units": 1,
        "nodes": 2,
        "cores": 4,
        "memory_mb": 256,
    }
    return {**base, "walltime_s": 600.0, "last": None, "variants": [], **fields}


def test_what_people_read() -> None:
    now = render(answer(now=True, forecast=forecast(1_000_000.0, "h1", "h2", ends=0)))
    assert now.splitlines() == [
        "2 hosts, 4 cores and 256 MiB on each, for at most 10m00s, in hpc:",
        "  It would start now on h1, h2.",
        "Nothing was submitted.",
    ]
    with_gpus = render(answer(now=True, forecast=forecast(1_000_000.0, "h1", ends=0), gpus=2)).splitlines()
    assert "4 cores, 256 MiB and 2 GPUs on each" in with_gpus[0]
    saves = render(answer(now=True, forecast=forecast(1_000_000.0, "h1", ends=0), claim_waits_s=31.0)).splitlines()
    assert saves[2] == "  A claim that takes its hosts may wait up to 31s for it."
    shorter = {"field": "walltime_s", "value": 1800.0, "forecast": forecast(1_000_000.0, "h3", ends=0)}
    later = render(answer(forecast=forecast(1_000_090.0, "h1", "h2", ends=2), variants=[shorter])).splitlines()
    assert later[1] == "  It would start at 1970-01-12T13:48:10Z, in 1m30s on h1, h2."
    assert "  How sure: by the time limits of other jobs; most end sooner." in later
    assert "  With --time 0:30:00 it would start now on h3." in later
    never = render(answer(forecast=forecast(None, code="held", unit="9"))).splitlines()
    assert never[1] == "  Its start cannot be predicted."
