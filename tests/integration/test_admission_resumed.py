"""A job that is suspended and resumed elsewhere, on a real broker: its guest keeps its name, and its output is one stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from schemas import facts as f
from schemas import reasons as because
from tests.support.admission_house import House, house
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
VM = iter(range(100, 10_000))
WHY = because.Reclaimed()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with house(tmp_path_factory.mktemp("admission")) as found:
        yield found


class Suspended:
    """A job and its VMs, life by life."""

    def __init__(self, here: House, job: str, hosts: tuple[str, ...]) -> None:
        self.here, self.job, self.hosts = here, job, hosts
        self.attempt = 1
        self.vms = [next(VM) for _ in hosts]

    async def allocate(self) -> None:
        ranks = enumerate(self.hosts)
        facts = [
            f.VmAllocated(unit=self.job, attempt=self.attempt, rank=rank, vm=self.vms[rank], host=host)
            for rank, host in ranks
        ]
        await self.here.write("executor", *facts)
        assert all(f"{self.job}/{self.attempt}/{rank}" in self.custody.vms for rank in range(len(self.hosts)))

    async def started(self, *ranks: int) -> None:
        facts = [f.VmStarted(unit=self.job, attempt=self.attempt, rank=rank) for rank in ranks]
        await self.here.write("executor", *facts)

    async def close(self, disposal: f.Disposal = f.Disposal.SUSPEND) -> None:
        fact = f.AttemptClosed(unit=self.job, attempt=self.attempt, disposal=disposal, why=WHY)
        await self.here.write("scheduler.hpc", fact)

    async def saved(self) -> None:
        facts = [
            f.VmEnded(unit=self.job, attempt=self.attempt, rank=r, why=f.SUSPENDED) for r in range(len(self.hosts))
        ]
        await self.here.write("executor", *facts)

    async def place(self, *hosts: str) -> None:
        self.attempt, self.hosts = self.attempt + 1, hosts
        await self.here.place(self.job, *hosts, attempt=self.attempt)

    @property
    def custody(self) -> Any:
        return self.here.service.custody.state

    @property
    def unit(self) -> Any:
        return self.custody.units[self.job]

    async def began_facts(self) -> list[int]:
        return [fact.attempt for fact in await self.here.journaled(f.AttemptBegan) if fact.unit == self.job]

    async def until_began(self) -> None:
        await until(lambda: self.unit.began_at is not None, "it has begun again")


async def job_of(here: House, *hosts: str, **asked: Any) -> Suspended:
    answer = await here.ask("ann", "job.submit", {"script": "echo hi", "nodes": len(hosts), **asked})
    assert "type" not in answer, answer
    job = Suspended(here, answer["job"], hosts)
    await here.place(job.job, *hosts)
    await job.allocate()
    await job.started(*range(len(hosts)))
    await asyncio.gather(*(here.guest(job.job, rank=rank).began() for rank in range(len(hosts))))
    assert job.unit.began_at is not None
    return job


async def output(here: House, job: str, attempt: str = "latest") -> tuple[str, str]:
    url = f"{here.url}/v1/jobs/{job}/output?attempt={attempt}"
    async with here.session.get(url, headers=here.headers("ann")) as answer:
        return await answer.text(), answer.headers["Phoenix-End"]


async def places(here: House, job: str) -> tuple[str, str]:
    """The attempt that is read, and the one that began its output."""
    async with here.session.get(f"{here.url}/v1/jobs/{job}/output", headers=here.headers("ann")) as answer:
        return answer.headers["Phoenix-Attempt"], answer.headers["Phoenix-Began"]


async def test_everything_goes_on_under_the_old_name(here: House) -> None:
    job = await job_of(here, "h1")
    guest, name = here.guest(job.job), job.job
    assert (await guest.call("PUT", "output/stdout?offset=0", b"one\n"))[0] == 204
    assert (await guest.call("PUT", "files/early", b"1"))[0] == 204
    await job.close()
    # Being saved: no guest may get the answer "gone", or the job would end itself before it is.
    for method, path in (("GET", "boot"), ("GET", "commands?wait_s=0"), ("POST", "began")):
        assert (await guest.call(method, path, {} if method == "POST" else None))[0] == 503
    assert (await guest.call("PUT", "output/stdout?offset=4", b"two\n"))[0] == 204
    assert await guest.report(exit=3) == 503
    await job.saved()
    assert (await guest.call("GET", "boot"))[0] == 503
    assert await output(here, name) == ("one\ntwo\n", "false")  # it is suspended, not over
    await job.place("h2")
    assert (await guest.call("GET", "commands?wait_s=0"))[0] == 503  # placed, and not bound
    await job.allocate()
    assert await job.began_facts() == [1]
    await job.started(0)
    await job.until_began()
    assert (await guest.call("PUT", "output/stdout?offset=8", b"three\n"))[0] == 204
    assert (await guest.call("PUT", "files/late", b"2"))[0] == 204
    assert (await guest.json("POST", "checkpoint", {"percent": 50}))["status"] == "acknowledged"
    boot = await guest.json("GET", "boot")
    assert (boot["attempt"], boot["checkpoint"]["attempt"]) == (2, 2)
    assert await places(here, name) == ("2", "1")
    assert await guest.json("GET", "commands?wait_s=0") == {"commands": []}
    for attempt in ("latest", "1", "2"):
        assert await output(here, name, attempt) == ("one\ntwo\nthree\n", "false")
    async with here.session.get(f"{here.url}/v1/jobs/{name}/files", headers=here.headers("ann")) as answer:
        assert [file["name"] for file in (await answer.json())["files"]] == ["early", "late"]
    assert await guest.report(exit=3) == 200
    assert job.unit.final == "failed"
    assert [x.attempt for x in await here.journaled(f.AttemptReported) if x.unit == name] == [2]
    assert await job.began_facts() == [1, 2]
    assert (await guest.call("GET", "boot"))[0] == 410


async def test_a_gang_begins_again_when_all_of_it_runs_and_a_restart_of_the_door_does_not_miss_it(here: House) -> None:
    job = await job_of(here, "h1", "h2")
    leader, other = here.guest(job.job), here.guest(job.job, rank=1)
    assert (await leader.call("POST", "launch", {"id": "x", "argv": ["a"], "environment": {}, "tasks": 2}))[0] == 202
    await job.close()
    await job.saved()
    await job.place("h2", "h1")
    await job.allocate()
    await job.started(0)
    commands = (await other.json("GET", "commands?after=0&wait_s=0"))["commands"]
    assert [command["id"] for command in commands] == ["x"]  # what was launched continues
    assert job.unit.began_at is None
    await here.running.stop()
    fact = f.VmStarted(unit=job.job, attempt=2, rank=1)
    await here.publish("executor", fact)  # no process listens
    await here.start("a2")
    await job.until_began()
    assert await job.began_facts() == [1, 2]
    assert [await guest.began() for guest in (leader, other)] == [204, 204]
    assert await leader.report() == 200


async def test_a_moved_job_was_never_away_for_long(here: House) -> None:
    job = await job_of(here, "h1")
    guest = here.guest(job.job)
    await job.close(f.Disposal.MIGRATE)
    assert (await guest.call("GET", "boot"))[0] == 503
    await job.place("h2")
    assert (await guest.call("GET", "boot"))[0] == 503
    assert await guest.report(exit=1) == 503
    await job.allocate()
    assert (await guest.json("GET", "boot"))["nodes"] == ["h2"]
    await job.started(0)
    await job.until_began()
    assert await guest.report() == 200
    assert job.unit.final == "completed"


async def test_a_success_while_it_is_being_saved_counts(here: House) -> None:
    job = await job_of(here, "h1")
    await job.close()
    assert await here.guest(job.job).report() == 200
    assert job.unit.final == "completed"


async def test_suspended_twice_it_has_one_name_and_one_stream(here: House) -> None:
    job = await job_of(here, "h1")
    guest = here.guest(job.job)
    for n, host in enumerate(("h2", "h1")):
        assert (await guest.call("PUT", f"output/stdout?offset={2 * n}", b"%d\n" % n))[0] == 204
        await job.close()
        await job.saved()
        await job.place(host)
        await job.allocate()
        await job.started(0)
        await job.until_began()
    assert await guest.report() == 200
    assert await output(here, job.job) == ("0\n1\n", "true")
    assert await job.began_facts() == [1, 2, 3]


async def test_what_begins_anew_has_a_new_name_and_the_old_one_is_gone(here: House) -> None:
    job = await job_of(here, "h1")
    guest = here.guest(job.job)
    assert (await guest.call("PUT", "output/stdout?offset=0", b"lost\n"))[0] == 204
    await job.close()
    await here.write("executor", f.VmEnded(unit=job.job, attempt=1, rank=0, why="host_lost"))
    assert (await guest.call("GET", "boot"))[0] == 410
    job.vms = [next(VM)]
    await job.place("h2")
    await job.allocate()
    assert (await guest.call("GET", "boot"))[0] == 410
    anew = here.guest(job.job, attempt=2)
    assert await anew.began() == 204
    assert (await anew.call("PUT", "output/stdout?offset=0", b"new\n"))[0] == 204
    assert [(await output(here, job.job, attempt))[0] for attempt in ("1", "2")] == ["lost\n", "new\n"]
    assert await anew.report() == 200
