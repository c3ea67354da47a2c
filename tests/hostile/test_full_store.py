"""One department fills the object store, on a real broker with a small one: others go on, and its own space comes back."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from schemas import facts as f
from schemas.config import CloudConfig
from schemas.subjects import OBJECTS
from services.admission.storage import quotas as shares
from services.admission.storage import retention
from services.admission.storage.retention import HIGH, LOW
from tests.support.admission_house import House, house

pytestmark = pytest.mark.asyncio(loop_scope="module")
STORE_MB = 128  # of which objects have a quarter, and each of three departments about 10 MiB
MIB = 1 << 20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with house(tmp_path_factory.mktemp("store"), file_max_mb=STORE_MB) as found:
        yield found


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def kept(here: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ended jobs leave may go at once, if there is need, and what nobody needs without."""
    monkeypatch.setattr(retention, "IDLE_S", 0.0)
    await here.furnish_limits(config(here, store_keep_min_s=0.0))
    await here.doors.retention.once()


def config(here: House, **limits: float) -> CloudConfig:
    cloud = here.broker.config.cloud
    return msgspec.structs.replace(cloud, limits=msgspec.structs.replace(cloud.limits, **limits))


async def submit(here: House, user: str, size: int = 0, **asked: Any) -> dict[str, Any]:
    inputs = [{"name": "data", "data": os.urandom(size)}] if size else []
    body = msgspec.json.encode({"script": "true", "inputs": inputs, **asked})
    async with here.session.post(f"{here.url}/v1/jobs", data=body, headers=here.headers(user)) as answer:
        found: dict[str, Any] = {"status": answer.status, **await answer.json()}
        return found


async def fill(here: House, user: str = "ann") -> tuple[list[str], dict[str, Any]]:
    """Jobs with inputs until one is refused."""
    jobs = []
    while (told := await submit(here, user, MIB, held=True))["status"] == 200:
        jobs.append(told["job"])
        assert len(jobs) < 1000
    return jobs, told


async def used(here: House, user: str = "ann") -> dict[str, Any]:
    async with here.session.get(f"{here.url}/v1/store", headers=here.headers(user)) as answer:
        told = await answer.json()
        assert answer.status == 200
        assert told["counted"]
        (found,) = told["departments"]
        return dict(found)


async def runs(here: House, user: str, host: str, dept: str, size: int = 2 * MIB) -> tuple[str, int, bytes]:
    """A job that is accepted, writes `size` bytes, reports, and ends: its id, its last status, its output."""
    job = (await submit(here, user))["job"]
    await here.place(job, host, dept=dept)
    guest, status = here.guest(job), 0
    assert await guest.began() == 204
    for offset in range(0, size, MIB):
        status, _ = await guest.call("PUT", f"output/stdout?offset={offset}", b"x" * MIB)
        if status != 204:
            break
    assert await guest.report() == 200
    async with here.session.get(f"{here.url}/v1/jobs/{job}/output", headers=here.headers(user)) as answer:
        return job, status, await answer.read()


async def cancel(here: House, user: str, jobs: list[str]) -> None:
    await asyncio.gather(*[here.ask(user, "job.cancel", {"jobs": [job]}) for job in jobs])


async def test_others_are_accepted_and_finish_beside_one_who_fills_the_store(
    here: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, told = await fill(here)
    assert (told["status"], told["code"], told["field"]) == (429, "limit", "store")
    for word in ("the object store has no room for 1.0 MiB", "hpc has", "cancel jobs that wait", "phoenix store"):
        assert word in told["detail"]
    over_nats = await here.ask("ann", "job.submit", {"script": "x" * (900 << 10)})
    assert over_nats["field"] == "store"

    await here.write(
        "executor", f.HostDescribed(host="b1", one_id=9, cores=8, memory_mb=8000), f.HostCleared(host="b1")
    )
    await here.write("provisioner", f.HostGranted(host="b1", dept="bio"))
    for _ in range(3):
        job, status, output = await runs(here, "leo", "b1", "bio")
        assert (status, len(output)) == (204, 2 * MIB)
        assert here.core.unit(job).state == "final"  # type: ignore[union-attr]

    # Of its own department a job that runs still has room, and ends when there is none any more: its output is cut.
    mine = await used(here)
    assert mine["bytes"] <= 0.9 * mine["share_bytes"]
    job, status, output = await runs(here, "bob", "h1", "hpc", size=8 * MIB)
    assert status == 413
    assert 0 < len(output) < 8 * MIB
    assert here.core.unit(job).final == "completed"  # type: ignore[union-attr]
    full = await used(here)
    assert full["submitted"] >= len(jobs) * MIB
    assert full["output"] >= len(output)

    # What is needed stays; what is not goes as soon as nobody needs it.
    await here.doors.retention.once()
    assert (await used(here))["submitted"] >= len(jobs) * MIB
    assert (await used(here))["output"] < 2000, "but for the note that it was removed"
    monkeypatch.setattr(retention, "IDLE_S", 1e6)
    await cancel(here, "ann", jobs)
    await here.doors.retention.once()
    assert (await used(here))["bytes"] <= LOW * full["share_bytes"]
    assert (await submit(here, "ann", MIB))["status"] == 200


async def test_output_goes_oldest_first_when_a_share_is_nearly_used_and_no_further_than_it_must(here: House) -> None:
    await here.furnish_limits(config(here, store_keep_min_s=1e6))
    found = [await runs(here, "ann", "h1", "hpc", size=MIB) for _ in range(9)]
    jobs = [job for job, status, _ in found if status == 204]
    before = await used(here)
    assert before["bytes"] > HIGH * before["share_bytes"]
    await here.doors.retention.once()
    assert (await used(here))["output"] == before["output"]  # they have only just ended
    await here.furnish_limits(config(here, store_keep_min_s=0.0))
    await here.doors.retention.once()
    after = await used(here)
    assert (LOW * after["share_bytes"]) - 2 * MIB < after["bytes"] <= LOW * after["share_bytes"]
    left, told = [], []
    here.doors.retention._removed.begin()  # another door knows it as well
    for job in jobs:
        async with here.session.get(f"{here.url}/v1/jobs/{job}/output", headers=here.headers("ann")) as answer:
            left.append(bool(await answer.read()))
            told.append("hpc had nearly used its share" in answer.headers.get("Phoenix-Removed", ""))
    assert told == [not there for there in left]
    assert left == sorted(left)  # the oldest went
    assert left[0] is False
    assert left[-1] is True


async def test_what_is_counted_is_what_is_there_for_the_next_door_too(here: House) -> None:
    await here.doors.retention.once()
    before = await used(here)
    info = await here.service.js.stream_info(f"OBJ_{OBJECTS}")
    ledger = here.doors.shares
    counted = sum(ledger.used(name) for name in ledger.departments())
    assert info.state.bytes <= counted <= 1.05 * info.state.bytes + 1000 * info.state.messages
    ledger.begin()
    assert not ledger.is_counted
    await here.doors.retention.once()
    assert await used(here) == before


async def test_what_is_old_goes_and_what_is_running_stays(here: House) -> None:
    await here.furnish_limits(config(here, store_keep_s=0.0, store_keep_min_s=0.0))
    ended, _, _ = await runs(here, "ann", "h1", "hpc", size=MIB)
    job = (await submit(here, "ann", 1000))["job"]
    await here.place(job, "h2")
    guest = here.guest(job)
    assert await guest.began() == 204
    assert (await guest.call("PUT", "output/stdout?offset=0", b"here"))[0] == 204
    assert (await guest.call("PUT", "files/kept", b"kept"))[0] == 204
    await here.doors.retention.once()
    for name, length in ((ended, 0), (job, 4)):
        async with here.session.get(f"{here.url}/v1/jobs/{name}/output", headers=here.headers("ann")) as answer:
            assert len(await answer.read()) == length
            told = answer.headers.get("Phoenix-Removed", "")
            assert bool(re.fullmatch(r"removed 0s after the job's end, at \S+Z \(store_keep_s\), .*", told)) == (
                not length
            )
    async with here.session.get(f"{here.url}/v1/jobs/{ended}/files", headers=here.headers("ann")) as answer:
        listed = await answer.json()
        assert (listed["files"], "(store_keep_s)" in listed["removed"]) == ([], True)
    async with here.session.get(f"{here.url}/v1/jobs/{ended}/files/r.dat", headers=here.headers("ann")) as answer:
        assert (answer.status, "what it kept was removed" in await answer.text()) == (404, True)
    assert (await guest.call("GET", "inputs/data"))[0] == 200
    async with here.session.get(f"{here.url}/v1/jobs/{job}/files/kept", headers=here.headers("ann")) as answer:
        assert await answer.read() == b"kept"
    assert await guest.report() == 200
    await here.doors.retention.once()
    assert (await used(here))["files"] == 0
    assert (await used(here))["output"] == 0


async def test_an_operator_sees_all_and_others_their_own(here: House) -> None:
    async with here.session.get(f"{here.url}/v1/store", headers=here.headers("root")) as answer:
        told = await answer.json()
    assert {one["department"] for one in told["departments"]} == {"hpc", "bio", "web"}
    assert (await used(here, "leo"))["department"] == "bio"


async def test_the_same_script_again_is_stored_while_it_is_being_removed(here: House) -> None:
    job = (await submit(here, "ann", script="echo again"))["job"]
    payload = here.core.job(job).payload  # type: ignore[union-attr]
    await cancel(here, "ann", [job])
    payloads = here.doors.retention._payloads
    _, again = await asyncio.gather(payloads.remove(payload), submit(here, "ann", script="echo again"))
    assert again["status"] == 200
    assert await payloads.get(payload) is not None


async def test_where_the_server_itself_has_no_room_jobs_end_all_the_same(
    here: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "RESERVE", -4.0)  # shares that are no bound
    jobs, told = await fill(here)
    assert (told["status"], told["field"]) == (429, "store")
    assert "the object store is full" in told["detail"]
    await runs_full(here)
    await cancel(here, "ann", jobs)
    await here.doors.retention.once()
    assert (await submit(here, "ann", MIB))["status"] == 200


async def runs_full(here: House) -> None:
    """A job that was accepted before ends while nothing can be stored."""
    job = (await here.ask("leo", "job.submit", {"script": "true"})).get("job")
    assert job, "a small script still fits"
    await here.place(job, "b1", dept="bio")
    guest = here.guest(job)
    assert await guest.began() == 204
    assert (await guest.call("PUT", "output/stdout?offset=0", b"x" * MIB))[0] == 413
    assert await guest.report() == 200
    assert here.core.unit(job).final == "completed"  # type: ignore[union-attr]


async def test_what_an_admission_left_that_ended_while_it_stored_is_removed(
    here: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def size() -> int:
        return (await here.service.js.stream_info(f"OBJ_{OBJECTS}")).state.bytes

    async def ends(_info: object) -> None:
        raise asyncio.CancelledError

    store, kept = here.doors.shares, here.doors.retention
    await submit(here, "ann", MIB, held=True)
    before = await size()
    with monkeypatch.context() as patched:
        patched.setattr(store, "_describe", ends)
        with pytest.raises(asyncio.CancelledError):
            await store.put("input/hpc/cut-off", os.urandom(MIB))
    assert await size() > before + MIB
    kept._sweep_at = 0.0
    await kept.once()
    assert await size() > before + MIB, "it may still be on its way"
    monkeypatch.setattr(retention, "CUT_OFF_S", 0.0)
    await kept.once()
    assert await size() > before + MIB, "it is not looked for in each pass"
    kept._sweep_at = 0.0
    await kept.once()
    assert await size() <= before
