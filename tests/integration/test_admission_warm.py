"""A guest that has done its job asks for the next one, on a real broker: who may stay, and what it is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from schemas import facts as f
from schemas import reasons as because
from schemas.config import CloudConfig, Warm
from services.admission.guests.tokens import job_token
from tests.support.admission_house import CLOUD_ID, Guest, House, house

pytestmark = pytest.mark.asyncio(loop_scope="module")
VM = iter(range(100, 10_000))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with house(tmp_path_factory.mktemp("admission")) as found:
        await warm(found)
        yield found


def with_warm(cloud: CloudConfig, **wish: Any) -> CloudConfig:
    departments = []
    for department in cloud.departments:
        if department.batch is not None:
            settings = msgspec.structs.replace(department.batch.warm, **wish)
            department = msgspec.structs.replace(
                department, batch=msgspec.structs.replace(department.batch, warm=settings)
            )
        departments.append(department)
    return msgspec.structs.replace(cloud, departments=tuple(departments))


async def warm(here: House, **wish: Any) -> None:
    """VMs are kept warm; `wish` says how."""
    settings = {**msgspec.structs.asdict(Warm()), "idle_s": 60.0, **wish}
    await here.furnish_limits(with_warm(here.broker.config.cloud, **settings))


async def running(here: House, user: str = "ann", host: str = "h1", vm: int | None = None, **asked: Any) -> str:
    """A job that runs on `host`, in this VM."""
    answer = await here.ask(user, "job.submit", {"script": "echo hi", **asked})
    assert "type" not in answer, answer
    job: str = answer["job"]
    await here.place(job, host)
    await bind(here, job, next(VM) if vm is None else vm, host)
    return job


async def bind(here: House, job: str, vm: int, host: str = "h1", attempt: int = 1) -> None:
    await here.write("executor", f.VmAllocated(unit=job, attempt=attempt, rank=0, vm=vm, host=host))
    assert here.service.custody.index.vm_ids[vm] == f"{job}/{attempt}/0"


async def done(here: House, job: str, **told: Any) -> Any:
    guest = here.guest(job)
    await guest.began()
    return await guest.json("POST", "report", {"exit": 0, "seconds": 1.0, "stay": True, **told})


def number(here: House, job: str) -> int:
    return here.service.custody.state.vms[f"{job}/1/0"].vm


async def parked_facts(here: House, job: str) -> int:
    return len([x for x in await here.journaled(f.VmParked) if x.unit == job])


STAYS = {"status": "acknowledged", "stay": True}
GOES = {"status": "acknowledged"}
WAIT = "next?wait_s=20"


async def test_a_vm_stays_and_is_given_the_next_job_under_a_new_name(here: House) -> None:
    first = await running(here)
    vm = number(here, first)
    assert await done(here, first) == STAYS
    assert here.service.custody.state.vms[f"{first}/1/0"].parked_at is not None
    guest = here.guest(first)
    assert (await guest.call("POST", "next"))[0] == 204
    waiting = [asyncio.create_task(guest.call("POST", WAIT)) for _ in range(2)]
    await asyncio.sleep(0)
    second = await running(here, vm=vm)
    answers = [await task for task in waiting]
    told = msgspec.json.decode(answers[0][1])
    assert answers == [answers[0]] * 2  # asked twice, answered the same
    assert (told["id"], told["unit"], told["attempt"], told["rank"]) == (f"{CLOUD_ID}/{second}/1/0", second, 1, 0)
    following = here.guest(second)
    assert following.headers == {"Authorization": f"Bearer {told['token']}"}
    assert (await following.json("GET", "boot"))["unit"] == second
    assert msgspec.json.decode((await guest.call("POST", "next"))[1]) == told  # the answer was lost
    assert await following.began() == 204
    assert (await guest.call("GET", "boot"))[0] == 410  # the old name is over for everything else
    assert await following.report() == 200
    assert await parked_facts(here, first) == 1
    assert await parked_facts(here, second) == 0  # it did not offer to stay


async def test_a_report_whose_answer_was_lost_is_answered_the_same_again(here: House) -> None:
    first = await running(here)
    vm = number(here, first)
    assert await done(here, first) == STAYS

    async def again(**told: Any) -> tuple[int, Any]:
        status, content = await here.guest(first).call("POST", "report", {"exit": 0, "stay": True, **told})
        return status, msgspec.json.decode(content)

    assert await again() == (200, STAYS)
    second = await running(here, vm=vm)  # the VM is the next job's before its guest has heard of its own report
    assert await again() == (200, STAYS)
    assert (await again(stay=False))[0] == 410
    assert (await again(exit=1))[0] == 410
    guest = here.guest(second)
    await guest.began()
    assert await guest.report() == 200
    assert (await again())[0] == 410
    assert await parked_facts(here, first) == 1


async def test_the_jobs_own_token_does_not_ask_for_what_comes_after_it(here: House) -> None:
    job = await running(here)
    assert await done(here, job) == STAYS
    guest = here.guest(job)
    for headers in ({}, here.guest(job, attempt=2).headers, job_headers(guest)):
        guest.headers = headers
        assert (await guest.call("POST", "next"))[0] == 401


def job_headers(guest: Guest) -> dict[str, str]:
    return {"Authorization": f"Bearer {job_token(guest.headers['Authorization'].split()[1])}"}


@pytest.mark.parametrize("why", ["failed", "does not offer", "two nodes", "off", "full", "cordoned"])
async def test_who_does_not_stay(here: House, why: str) -> None:
    asked, told, host = {"nodes": 2} if why == "two nodes" else {}, {}, "h1"
    if why == "off":
        await warm(here, idle_s=0.0)
    elif why == "full":
        await warm(here, vms_max=0)
    elif why == "cordoned":
        host = "h2"
    elif why == "failed":
        told = {"exit": 3}
    elif why == "does not offer":
        told = {"stay": False}
    if asked:
        job = str((await here.ask("ann", "job.submit", {"script": "echo hi", **asked}))["job"])
        await here.place(job, "h1", "h2")
        for rank, name in enumerate(("h1", "h2")):
            fact = f.VmAllocated(unit=job, attempt=1, rank=rank, vm=next(VM), host=name)
            await here.write("executor", fact)
        await asyncio.gather(here.guest(job).began(), here.guest(job, rank=1).began())
    else:
        job = await running(here, host=host)
    if why == "cordoned":
        assert "type" not in await here.ask(
            "root", "host.cordon", {"host": "h2", "reason": "a test"}, department="operators"
        )
    assert await done(here, job, **told) == GOES
    assert await parked_facts(here, job) == 0
    if why != "does not offer":
        assert (await here.guest(job).call("POST", "next"))[0] == 410
    else:  # it asks all the same, and is parked then; once
        assert [(await here.guest(job).call("POST", "next"))[0] for _ in range(2)] == [204, 204]
        assert await parked_facts(here, job) == 1
    await warm(here)
    if why == "cordoned":
        await here.ask("root", "host.uncordon", {"host": "h2", "reason": ""}, department="operators")


@pytest.mark.parametrize(
    ("share", "user", "given"), [("user", "bob", False), ("user", "ann", True), ("department", "bob", True)]
)
async def test_whose_next_job_it_may_be(here: House, share: str, user: str, given: bool) -> None:
    await warm(here, share=share)
    first = await running(here, "ann")
    vm = number(here, first)
    assert await done(here, first) == STAYS
    second = await running(here, user, vm=vm)
    status, content = await here.guest(first).call("POST", WAIT)
    assert status == (200 if given else 410)
    assert second in content.decode() if given else msgspec.json.decode(content)["code"] == "gone"
    await warm(here)


async def test_a_vm_that_ends_while_it_waits_is_told_so(here: House) -> None:
    job = await running(here)
    assert await done(here, job) == STAYS
    waiting = asyncio.create_task(here.guest(job).call("POST", WAIT))
    await asyncio.sleep(0)
    await here.write("executor", f.VmEnded(unit=job, attempt=1, rank=0, why="idle for 60 s"))
    assert (await waiting)[0] == 410


async def test_a_vm_whose_host_is_taken_is_told_so(here: House) -> None:
    job = await running(here, host="h2")
    assert await done(here, job) == STAYS
    await here.write("scheduler.hpc", f.HostReleased(host="h2"))
    assert (await here.guest(job).call("POST", WAIT))[0] == 410
    await here.write("executor", f.VmEnded(unit=job, attempt=1, rank=0, why="host_released"), f.HostCleared(host="h2"))
    await here.write("provisioner", f.HostGranted(host="h2", dept="hpc"))


async def test_a_job_that_was_cancelled_meanwhile_is_not_given_away(here: House) -> None:
    first = await running(here)
    vm = number(here, first)
    assert await done(here, first) == STAYS
    second = await running(here, vm=vm)
    why = because.Reclaimed()
    await here.write("scheduler.hpc", f.AttemptClosed(unit=second, attempt=1, disposal=f.Disposal.REQUEUE, why=why))
    assert (await here.guest(first).call("POST", WAIT))[0] == 410


async def test_a_restart_of_the_door_changes_nothing(here: House) -> None:
    waits, taken = await running(here), await running(here)
    vm = number(here, taken)
    assert [await done(here, job) for job in (waits, taken)] == [STAYS, STAYS]
    second = await running(here, vm=vm)
    await here.running.stop()
    await here.start("a2")
    assert (await here.guest(waits).call("POST", "next"))[0] == 204
    assert second in (await here.guest(taken).call("POST", WAIT))[1].decode()
    assert await parked_facts(here, waits) == 1


async def test_after_its_third_job_the_first_name_is_forgotten(here: House) -> None:
    first = await running(here)
    vm = number(here, first)
    assert await done(here, first) == STAYS
    second = await running(here, vm=vm)
    assert await done(here, second) == STAYS
    third = await running(here, vm=vm)
    assert (await here.guest(first).call("POST", WAIT))[0] == 410
    assert third in (await here.guest(second).call("POST", WAIT))[1].decode()
