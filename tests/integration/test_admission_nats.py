"""The NATS door on a real broker with the generated permissions: answers, idempotency, refusals, and the attack of S10."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from schemas import facts as f
from schemas.audit import AuditBatch, AuditRecord
from schemas.subjects import AUDIT_STREAM, JOURNAL_STREAM, audit, request
from services.admission.core.admission import AdmissionCore
from services.monitor.http import audit_reads
from services.monitor.http.audit_reads import AuditReads, Wanted
from services.runtime.callers.audit import REFUSED_BURST, REFUSED_PER_S
from services.runtime.log import get_log
from services.runtime.rebuild import replay
from tests.support.admission_house import House, house
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with house(tmp_path_factory.mktemp("admission")) as found:
        yield found


async def test_a_submission_is_answered_after_it_was_folded(here: House) -> None:
    answer = await here.ask("ann", "job.submit", {"script": "echo hi", "name": "first", "array": "1-3"})
    assert answer == {"job": answer["job"], "units": 3}
    job = here.core.job(answer["job"])  # read your writes
    assert job is not None
    assert (job.user, job.dept, job.name, job.left) == ("ann", "hpc", "first", 3)


async def test_messagepack_is_answered_in_messagepack(here: House) -> None:
    nc = await here.client("ann")
    data = msgspec.msgpack.encode({"script": "x"})
    reply = await nc.request(request("hpc", "ann", "job", "submit"), data, timeout=30)
    assert msgspec.msgpack.decode(reply.data)["job"]


@pytest.mark.parametrize(
    ("user", "kind", "payload", "code", "field"),
    [
        ("ann", "job.submit", {"tasks": "x", "script": "x"}, "invalid", "tasks"),
        ("ann", "job.submit", b"nonsense", "invalid", None),
        ("ann", "job.submit", {"script": "x", "cpus_per_task": 9}, "invalid", "cpus_per_task"),
        ("ann", "job.submit", {"script": "x", "cores": 400}, "invalid", "cores"),
        ("ann", "job.dance", {}, "unknown", None),
        ("ann", "host.cordon", {"host": "h1"}, "denied", None),
        ("wim", "job.submit", {"script": "x"}, "invalid", "department"),
        ("root", "job.submit", {"script": "x"}, "unknown", "department"),
    ],
)
async def test_refusals_over_the_wire(
    here: House, user: str, kind: str, payload: Any, code: str, field: str | None
) -> None:
    answer = await here.ask(user, kind, payload)
    assert answer["type"] == f"urn:phoenix:problem:{code}"
    assert (answer["code"], answer.get("field")) == (code, field)


async def test_the_same_request_id_is_the_same_job_also_at_the_same_time(here: House) -> None:
    asked = {"script": "echo once", "request": "r-1"}
    before = len(await here.journaled(f.JobSubmitted))
    answers = await asyncio.gather(*(here.ask("ann", "job.submit", asked) for _ in range(10)))
    assert all(answer == answers[0] for answer in answers)
    assert await here.ask("ann", "job.submit", asked) == answers[0]
    assert len(await here.journaled(f.JobSubmitted)) == before + 1
    other = await here.ask("ann", "job.submit", {"script": "echo twice", "request": "r-1"})
    assert (other["code"], other["field"]) == ("conflict", "request")
    bobs = await here.ask("bob", "job.submit", asked)  # ids are a user's own
    assert bobs["job"] != answers[0]["job"]


async def test_cancel_and_hold_answer_for_each_job(here: House) -> None:
    jobs = [(await here.ask("ann", "job.submit", {"script": "x"}))["job"] for _ in range(2)]
    held = await here.ask("ann", "job.hold", {"jobs": [*jobs, "99999"]})
    assert [(x["job"], "error" in x) for x in held["results"]] == [(jobs[0], False), (jobs[1], False), ("99999", True)]
    assert here.service.custody.state.units[jobs[0]].held
    answer = await here.ask("bob", "job.cancel", {"jobs": [jobs[0]]})
    assert answer["results"][0]["error"]["code"] == "denied"
    answers = await asyncio.gather(*(here.ask("ann", "job.cancel", {"jobs": jobs}) for _ in range(20)))
    assert not any("error" in result for answer in answers for result in answer["results"])
    cancelled = [fact.job for fact in await here.journaled(f.JobCancelled)]
    assert cancelled.count(jobs[0]) == 1  # twenty impatient callers are one fact (S4)


async def test_an_array_larger_than_an_envelope_is_cancelled(here: House) -> None:
    array = (await here.ask("ann", "job.submit", {"script": "x", "array": "1-5000"}))["job"]
    assert here.core.unfinished("hpc") >= 5000
    answer = await here.ask("ann", "job.cancel", {"jobs": [array]}, timeout_s=30.0)
    assert answer["results"] == [{"job": array}]
    assert here.core.job(array).left == 0  # type: ignore[union-attr]


async def test_an_operator_cordons_and_scales_in_any_department(here: House) -> None:
    assert await here.ask("root", "host.drain", {"host": "h2", "reason": "fan"}) == {"ok": True}
    assert here.service.custody.state.hosts["h2"].cordoned == "fan"
    assert await here.ask("root", "host.uncordon", {"host": "h2"}) == {"ok": True}
    asked = {"exact": 2, "for_s": 60, "request": "s"}
    assert await here.ask("root", "scale.set", asked, department="web") == {"ok": True}
    assert await here.ask("root", "scale.set", asked, department="web") == {"ok": True}
    assert len(await here.journaled(f.ScaleRequested)) == 1
    answer = await here.ask("root", "scale.set", {**asked, "exact": 3}, department="web")
    assert answer["code"] == "conflict"


async def test_a_request_without_reply_subject_is_served(here: House) -> None:
    nc = await here.client("ann")
    await nc.publish(request("hpc", "ann", "job", "submit"), b'{"script":"x","name":"silent"}')
    await until(lambda: any(j.name == "silent" for j in here.core._state.jobs.values()), "the silent job")


@pytest.mark.parametrize(
    "reply",
    [
        "phoenix.journal.admission",
        "phoenix.journal.provisioner",
        "_INBOX_bio.leo.stolen",
        "_INBOX_service.executor.x",
        "$JS.API.STREAM.PURGE.PHOENIX",
        "phoenix.request.hpc.bob.job.submit",
    ],
)
async def test_an_answer_cannot_be_steered_out_of_the_askers_account(here: House, reply: str) -> None:
    """PROTOCOL S10.  The asker may publish requests, and chooses the reply subject: what is answered stays in its account, and
    is no request nor anything else there."""
    nc, leo = await here.client("ann"), await here.client("leo")
    stolen = await leo.subscribe("_INBOX_bio.leo.stolen")
    await leo.flush()
    js = (await here.client("service-monitor")).jetstream()
    before = await js.stream_info(JOURNAL_STREAM)
    known = set(here.core._state.jobs)
    for payload in (b'{"script":"x","name":"mine"}', b'{"tasks":"x"}'):
        await nc.publish(request("hpc", "ann", "job", "submit"), payload, reply=reply)
    await nc.flush()
    await until(lambda: set(here.core._state.jobs) - known, "the job")
    marker = await here.ask("bob", "host.cordon", {"host": "h1"})  # refused, and writes nothing
    assert marker["code"] == "denied"
    after = await js.stream_info(JOURNAL_STREAM)
    assert after.state.last_seq == before.state.last_seq + 1  # the one job, as if no answer were wanted
    assert [job.user for name, job in here.core._state.jobs.items() if name not in known] == ["ann"]
    assert here.service.fold.garbage == 0
    assert stolen.pending_msgs == 0
    await stolen.unsubscribe()


async def test_refusals_are_on_the_audit_stream_without_payload_and_bounded(
    here: House,
) -> None:
    began = time.monotonic()
    await here.ask("leo", "job.submit", {"script": "very secret", "walltime_s": 10**8})
    js = (await here.client("service-monitor")).jetstream()

    async def told(outcome: str) -> list[AuditRecord]:
        """All records of the department, once `here`'s recorder has published."""
        await here.doors.recorder.flush()
        await here.service.nc.flush()
        found: list[AuditRecord] = []
        state = (await js.stream_info(AUDIT_STREAM)).state
        for sequence in range(max(1, state.first_seq), state.last_seq + 1):
            message = await js.get_msg(AUDIT_STREAM, sequence)
            if message.subject == audit("bio", outcome):
                found += msgspec.json.decode(message.data or b"", type=AuditBatch).records
        return found

    async def until_told(outcome: str, request_id: str = "") -> list[AuditRecord]:
        """The broker stores a record a moment after it has taken it."""
        async with asyncio.timeout(30):
            while not (found := await told(outcome)) or found[-1].request != request_id:
                pass
        return found

    line = (await until_told("refused"))[-1]
    assert (line.user, line.kind, line.code, line.field) == ("leo", "job.submit", "invalid", "walltime_s")
    assert (line.role, line.department, line.via, line.outcome) == ("user", "bio", "nats", "refused")
    assert line.peer == "127.0.0.1"
    assert line.client.startswith("leo (python3 ")
    assert "secret" not in str(line)
    before = len(await told("refused"))
    for _ in range(int(REFUSED_BURST) + 30):
        await here.ask("leo", "job.submit", b"{}")
    assert len(await told("refused")) - before <= REFUSED_BURST + REFUSED_PER_S * (time.monotonic() - began)
    granted = await here.ask("leo", "job.submit", {"argv": ["very secret"], "walltime_s": 10, "request": "r-1"})
    line = (await until_told("granted", "r-1"))[-1]
    assert (line.user, line.kind, line.names, line.request) == ("leo", "job.submit", (granted["job"],), "r-1")
    assert line.position == here.service.custody.state.position
    assert "secret" not in str(line)


async def test_config_apply_is_somebody_elses(here: House) -> None:
    nc = await here.client("root")
    with pytest.raises((TimeoutError, asyncio.TimeoutError)):
        await nc.request(request("operators", "root", "config", "apply"), b"{}", timeout=0.3)


async def test_a_full_replay_gives_the_same_bytes(here: House) -> None:
    nc = await here.client("service-monitor")
    replayed = await replay(nc, nc.jetstream(), None, AdmissionCore, get_log(service="test"))
    assert replayed.core.dump() == here.core.dump()
    assert here.core.check() == []


async def test_the_audit_is_read_back_in_order_chosen_and_paged(here: House, monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.time()
    js = (await here.client("service-monitor")).jetstream()

    async def stored() -> int:
        return (await js.stream_info(AUDIT_STREAM)).state.last_seq

    before = await stored()
    for number in range(3):
        await here.ask("ann", "job.submit", {"script": "x", "request": f"page-{number}"})
        await here.doors.recorder.flush()  # a message each
    await here.ask("wim", "scale.set", {"minimum": 1})
    await here.doors.recorder.flush()
    async with asyncio.timeout(30):  # the broker stores a record a moment after it has taken it
        while await stored() < before + 4:
            pass
    reads = AuditReads(js)

    async def read(wanted: Wanted, limit: int = 1000, after: int = 0) -> dict[str, Any]:
        return await reads.page(wanted, limit, after)

    everything = await read(Wanted(None, since=began))
    told = [(one["user"], one["kind"], one.get("request", "")) for one in everything["records"]]
    assert told == [*(("ann", "job.submit", f"page-{n}") for n in range(3)), ("wim", "scale.set", "")]
    assert (everything["next"], everything["end"]) == (None, await stored())
    assert [one["user"] for one in (await read(Wanted("web", since=began)))["records"]] == ["wim"]
    assert len((await read(Wanted(None, user="ann", since=began)))["records"]) == 3
    assert len((await read(Wanted(None, kind="scale.", since=began)))["records"]) == 1
    assert (await read(Wanted(None, kind="scale", since=began)))["records"] == []
    assert (await read(Wanted(None, outcome="refused", since=began)))["records"] == []
    assert (await read(Wanted(None, since=time.time() + 60)))["records"] == []
    paged, after = [], 0
    while True:
        page = await read(Wanted("hpc", "granted", since=began), limit=1, after=after)
        paged += [one["request"] for one in page["records"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert paged == ["page-0", "page-1", "page-2"]
    assert (await read(Wanted(None), after=page["end"]))["records"] == []
    newest = await reads.newest(Wanted(None), 2)
    assert [one["kind"] for one in newest["records"]] == ["job.submit", "scale.set"]
    monkeypatch.setattr(audit_reads, "SCAN_MAX", 1)  # other tasks should have a turn: it says where to continue
    scanned = await read(Wanted("hpc", "granted", user="nobody", since=began))
    assert (scanned["records"], scanned["next"] is not None) == ([], True)
