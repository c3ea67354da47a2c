"""The guests' contract on a real broker: tokens, boot, began of gangs, reports that count, launches, a restart of the door."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from phoenix.local.guest.door import Boot, Command
from schemas import facts as f
from schemas import reasons as because
from schemas.measures import Measures
from services.admission.core import admission as core
from services.admission.guests import guests
from services.admission.guests.boot import COMMAND_SCRIPT
from services.admission.storage import output
from services.domain.custody.state import Broken
from services.runtime.config import secret_files
from tests.support.admission_house import House, house
from tests.support.leaks import places
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with house(tmp_path_factory.mktemp("admission")) as found:
        yield found


async def submitted(here: House, **asked: Any) -> str:
    answer = await here.ask("ann", "job.submit", {"script": "echo hi", **asked})
    assert "type" not in answer, answer
    job: str = answer["job"]
    return job


async def running(here: House, *hosts: str, cores: int = 0, **asked: Any) -> str:
    """A job that is placed on `hosts` (default: h1)."""
    job = await submitted(here, **asked)
    await here.place(job, *hosts, cores=cores)
    return job


async def test_the_life_of_a_job(here: House) -> None:
    inputs = [{"name": "in/data", "data": base64.b64encode(b"\x00\x01" * 200_000).decode()}]
    job = await submitted(
        here, name="demo", argv=["a"], environment={"K": "v"}, inputs=inputs, keep=["*.out"], walltime_s=9
    )
    await here.place(job, "h1", cores=2)
    guest = here.guest(job)
    boot = await guest.json("GET", "boot")
    expected = {
        "kind": "job",
        "unit": job,
        "attempt": 1,
        "rank": 0,
        "ranks": 1,
        "department": "hpc",
        "user": "ann",
        "name": "demo",
        "cores": 2,
        "memory_mb": 2,
        "nodes": ["h1"],
        "script": "echo hi",
        "argv": ["a"],
        "environment": {"K": "v"},
        "inputs": [{"name": "in/data", "size": 400_000}],
        "keep": ["*.out"],
        "grace_s": 0.3,
        "walltime_s": 9.0,
        "array_job": None,
        "array_index": None,
        "health_path": None,
    }
    assert {name: boot[name] for name in expected} == expected
    read = msgspec.convert(boot, Boot)  # as the guest of the process hypervisor reads it
    assert (read.script, read.inputs[0].size, read.nodes) == ("echo hi", 400_000, ["h1"])
    assert await guest.call("GET", "inputs/in/data") == (200, b"\x00\x01" * 200_000)
    assert (await guest.call("GET", "inputs/other"))[0] == 404
    assert await guest.began() == 204
    assert here.service.custody.state.units[job].began_at is not None
    assert await guest.began() == 204  # repeating is harmless
    assert len([x for x in await here.journaled(f.AttemptBegan) if x.unit == job]) == 1
    status, content = await guest.call("POST", "report", {"exit": 0, "seconds": 1.5, "cpu_seconds": 1.0, "note": "n"})
    assert (status, content) == (200, b'{"status":"acknowledged"}')
    assert here.service.custody.state.units[job].final == "completed"
    (report,) = [x for x in await here.journaled(f.AttemptReported) if x.unit == job]
    assert (report.exit, report.seconds, report.cpu_seconds, report.note) == (0, 1.5, 1.0, "n")
    assert await guest.report() == 410  # acknowledged before: the guest may stop all the same
    assert await guest.began() == 410


async def test_an_attempt_is_of_the_boot_that_began_first(here: House) -> None:
    """Also after a restart of admission; until something has run, any boot may ask."""
    job = (await here.ask("ann", "job.submit", {"script": "true", "nodes": 2}))["job"]
    await here.place(job, "h1", "h2")
    ranks = [here.guest(job, rank=rank) for rank in (0, 1)]
    for rank in (0, 1):
        await here.write("executor", f.VmAllocated(unit=job, attempt=1, rank=rank, vm=70 + rank, host=f"h{rank + 1}"))
    for boot in ("first", "second"):
        assert (await ranks[0].call("GET", f"boot?boot={boot}"))[0] == 200
    assert await asyncio.gather(ranks[0].began(boot="second"), ranks[1].began()) == [
        204,
        204,
    ]  # an older guest at rank 1
    unit = here.service.custody.state.units[job]
    assert unit.boots == ("second", None)
    await here.running.stop()
    await here.start("a3")
    unit = here.service.custody.state.units[job]
    assert await ranks[0].began(boot="second") == 204
    assert (await ranks[0].call("GET", "plain/boot"))[0] == 200  # as an older guest calls
    assert await ranks[1].began(boot="any") == 204
    assert (unit.broken, (await ranks[0].call("GET", f"boot?boot={'x' * 81}"))[0]) == (None, 400)
    assert (await ranks[0].call("GET", "plain/boot?boot=third"))[0] == 410
    assert unit.broken is Broken.VM_ENDED
    assert [await ranks[rank].began() for rank in (0, 1)] == [410, 410]
    failed = [fact for fact in await here.journaled(f.VmFailed) if fact.unit == job]
    assert failed == [f.VmFailed(unit=job, attempt=1, rank=0, why="it has booted again")]


async def test_began_of_another_boot_is_refused_and_recorded(here: House) -> None:
    job = (await here.ask("ann", "job.submit", {"script": "true"}))["job"]
    await here.place(job)
    await here.write("executor", f.VmAllocated(unit=job, attempt=1, rank=0, vm=72, host="h1"))
    guest = here.guest(job)
    assert await guest.began(boot="first") == 204
    assert await guest.began(boot="second") == 410
    assert [fact.rank for fact in await here.journaled(f.VmFailed) if fact.unit == job] == [0]


async def test_a_guest_may_give_its_vm_up(here: House) -> None:
    job = (await here.ask("ann", "job.submit", {"script": "true"}))["job"]
    await here.place(job)
    guest, why = here.guest(job), {"why": "nas:/home could not be mounted\n"}
    assert (await guest.call("POST", "failed", why))[0] == 503  # its VM is not in the journal yet
    await here.write("executor", f.VmAllocated(unit=job, attempt=1, rank=0, vm=73, host="h1"))
    assert (await guest.call("POST", "failed", {"why": 7}))[0] == 400
    assert (await guest.call("POST", "failed", why))[0] == 204
    assert (await guest.call("POST", "failed", why))[0] == 410
    (fact,) = [fact for fact in await here.journaled(f.VmFailed) if fact.unit == job]
    assert fact.why == r"nas:/home could not be mounted\x0a"
    assert here.service.custody.state.units[job].broken is Broken.VM_ENDED


async def test_elements_and_commands(here: House) -> None:
    answer = await here.ask("ann", "job.submit", {"argv": ["sleep", "1"], "array": "3,5"})
    unit = f"{answer['job']}_5"
    await here.place(unit)
    boot = await here.guest(unit).json("GET", "boot")
    assert (boot["array_job"], boot["array_index"], boot["argv"]) == (answer["job"], 5, ["sleep", "1"])
    assert boot["script"] == COMMAND_SCRIPT


async def test_an_instance_boots_from_the_configuration(here: House) -> None:
    await here.place("web.1", "w1", dept="web")
    guest = here.guest("web.1")
    boot = await guest.json("GET", "boot")
    assert (boot["kind"], boot["department"], boot["health_path"], boot["script"]) == (
        "instance",
        "web",
        "/healthz",
        None,
    )
    assert await guest.report() == 400


async def test_secrets_are_in_the_boot_document_and_nowhere_else(here: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    config, value = here.broker.config, "hunter2\\ two\nlines"
    release = {"secrets": {"DB_PASSWORD": "db-password"}, "image": "v1"}
    kept = config.secrets.directory / "web" / "db-password"
    secret_files.write(config.secrets.directory, "web", "db-password", b"of before\n")
    assert "type" not in await here.ask("wim", "release.deploy", release)
    kept.unlink()
    fact = f.UnitPlaced(unit="web.5", attempt=1, hosts=("w1",), cores=1, memory_mb=1, release=1)
    await here.write("scheduler.web", fact)
    guest = here.guest("web.5")
    status, told = await guest.call("GET", "boot")
    assert (status, b"secret db-password of web is missing" in told) == (503, True)
    assert "secret db-password of web is missing" in caplog.text
    (entry,) = [x for x in (await here.ask("wim", "instance.list", {}))["instances"] if x["unit"] == "web.5"]
    assert "db-password of web is missing" in entry["problem"]
    secret_files.write(config.secrets.directory, "web", "db-password", f"{value}\n".encode())
    boot = await guest.json("GET", "boot")
    assert boot["secrets"] == {"DB_PASSWORD": value}
    assert msgspec.convert(boot, Boot).secrets == boot["secrets"]
    assert b"secret=DB_PASSWORD=hunter2" in (await guest.call("GET", "plain/boot"))[1]
    assert await guest.began("127.0.0.1:1") == 204
    assert "hunter2" not in msgspec.json.encode(await here.ask("wim", "instance.list", {})).decode()
    assert "hunter2" not in repr(await here.journaled())
    assert "hunter2" not in caplog.text
    assert places(b"hunter2", config.data_dir) == [kept]


async def test_what_an_instance_wrote_is_kept_and_of_much_the_end(here: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await here.place("web.7", "w1", dept="web")
    guest, path = here.guest("web.7"), "/v1/instances/web.7/output"
    kept = output.Kept(bytes=1000, parts=8)
    monkeypatch.setattr(guests, "LOG_KEPT", kept)
    for number in range(30):
        assert (await guest.call("PUT", f"output/stdout?offset={number * 10}", b"%09d\n" % number))[0] == 204

    async def read(user: str = "wim", **query: str) -> tuple[int, bytes, str]:
        async with here.session.get(f"{here.url}{path}", params=query, headers=here.headers(user)) as answer:
            return answer.status, await answer.read(), answer.headers.get("Phoenix-Offset", "")

    status, data, offset = await read()
    assert (status, data[-10:], int(offset)) == (200, b"000000029\n", 300)
    assert len(data) // 10 in range(6, 9)
    assert await read(offset="290") == (200, b"000000029\n", "300")
    assert (await read("ann"))[0] == 404
    remembered = len(here.doors._outputs._streams)
    assert [(await read(rank=str(rank)))[0] for rank in (0, 65_535)] == [400] * 2, "an instance has no ranks"
    assert (await read(attempt="1"))[:2] == (200, data)
    assert len(here.doors._outputs._streams) == remembered
    assert (await guest.call("PUT", "files/kept", b"x"))[0] == 400
    stop = f.AttemptClosed(unit="web.7", attempt=1, disposal=f.Disposal.STOPPED, why=because.ScaleDown())
    await here.write("scheduler.web", stop)
    again = output.Outputs(here.doors._outputs._objects)  # as a door that has just started
    stream = output.StreamId("web.7", 1, 0, "stdout")
    assert await again.read(stream, await again.first(stream)) == data
    await again.append(stream, 300, b"more", 1 << 30, kept)
    assert await again.read(stream, 290) == b"000000029\nmore"
    for number in range(5):  # few parts, but large
        await again.append(stream, 304 + number * 400, b"%400d" % number, 1 << 30, kept)
    assert await again.first(stream) in (304 + 2 * 400, 304 + 3 * 400)
    assert (await again.read(stream, await again.first(stream)))[-400:] == b"%400d" % 4
    await again.forget(stream)
    assert (await again.end(stream), await again.exists(stream)) == (0, False)


async def test_the_logs_of_all_but_the_last_instances_go(here: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "LOGS_KEPT", 2)
    ended = [f"web.{number}" for number in range(11, 15)]
    for unit in ended:
        await here.place(unit, "w1", dept="web")
        assert (await here.guest(unit).call("PUT", "output/stderr?offset=0", unit.encode()))[0] == 204
        stop = f.AttemptClosed(unit=unit, attempt=1, disposal=f.Disposal.STOPPED, why=because.ScaleDown())
        await here.write("scheduler.web", stop)
    outputs = output.Outputs(here.doors._outputs._objects)

    async def left() -> list[str]:
        return [unit for unit in ended if await outputs.exists(output.StreamId(unit, 1, 0, "stderr"))]

    await until(left_is(left, ended[-2:]))


def left_is(left: Callable[[], Awaitable[list[str]]], wanted: list[str]) -> Callable[[], Awaitable[bool]]:
    async def same() -> bool:
        return await left() == wanted

    return same


async def test_a_guest_tells_how_busy_its_instance_is_and_its_department_hears_it(here: House) -> None:
    await here.place("web.16", "w1", dept="web")
    guest, told = here.guest("web.16"), {"utilisation": 0.75, "interval_s": 1.0, "memory_mb": 12.5}
    heard = await here.hear("wim", "phoenix.measure.web.instances")
    assert (await guest.call("POST", "usage", {**told, "utilisation": 1.0}))[0] == 204  # it boots: it serves none yet
    assert await guest.began("127.0.0.1:1") == 204
    assert (await guest.call("POST", "usage", told))[0] == 204
    measures = msgspec.json.decode((await heard.next_msg(5)).data, type=Measures)
    (measured,) = measures.instances
    assert (measured.unit, measured.attempt, measured.rank) == ("web.16", 1, 0)
    assert (measured.utilisation, measured.interval_s, measured.memory_mb) == (0.75, 1.0, 12.5)
    for wrong in ({}, {"utilisation": -0.1}, {"utilisation": "NaN"}, {"utilisation": 1e9}):
        assert (await guest.call("POST", "usage", wrong))[0] == 400
    assert (await here.guest(await running(here)).call("POST", "usage", told))[0] == 400
    assert await here.journaled(f.LoadObserved) == []
    stop = f.AttemptClosed(unit="web.16", attempt=1, disposal=f.Disposal.STOPPED, why=because.ScaleDown())
    await here.write("scheduler.web", stop)
    assert (await guest.call("POST", "usage", told))[0] == 410


async def test_a_guest_tells_how_its_instance_is_and_each_change_is_a_fact(here: House) -> None:
    await here.place("web.17", "w1", dept="web")
    guest, use = here.guest("web.17"), {"utilisation": 0.5}
    assert await guest.began("127.0.0.1:1") == 204
    ill = {**use, "ready": False, "answer": "/healthz answered HTTP 500\x1b"}
    for told in ({**use, "ready": True}, use, ill, ill, {**use, "ready": True}):  # the last one is too soon
        assert (await guest.call("POST", "usage", told))[0] == 204
    assert (await guest.call("PUT", "output/stderr?offset=0", b"one\ntwo\r\n\nthree\nfo\xffur\x07\n"))[0] == 204
    assert (await guest.call("POST", "ended", {"signal": 9, "oom": True}))[0] == 204
    assert (await guest.call("POST", "ended", {"exit": 1}))[0] == 204
    assert (await guest.call("POST", "ended", {"exit": 256}))[0] == 400
    found = [fact for fact in await here.journaled(f.InstanceReported) if fact.unit == "web.17"]
    word = {"unit": "web.17", "attempt": 1, "by": "guest"}
    assert found == [
        f.InstanceReported(**word, state="unready", why=r"/healthz answered HTTP 500\x1b"),
        f.InstanceReported(**word, state="ended", signal=9, oom=True, said="two | three | fo\ufffdur\\x07"),
    ]
    assert (await here.guest(await running(here)).call("POST", "ended", {"exit": 1}))[0] == 400


async def test_tokens_are_for_one_vm_and_never_logged(here: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    job = await running(here)
    guest, other = here.guest(job), here.guest(job, attempt=2)
    secrets = [x.headers["Authorization"].split()[1] for x in (guest, other)]
    assert (await guest.call("POST", "launch", b"{"))[0] == 400
    guest.headers = other.headers
    for method, path in (("GET", "boot"), ("POST", "began"), ("POST", "report"), ("PUT", "output/stdout?offset=0")):
        assert (await guest.call(method, path, {}))[0] == 401
    guest.headers = {}
    assert (await guest.call("GET", "boot"))[0] == 401
    assert not any(secret in caplog.text for secret in secrets)


async def test_the_token_of_a_job_opens_launches_and_checkpoints_alone(here: House) -> None:
    job = await running(here)
    guest = here.guest(job)
    guests = guest.headers["Authorization"].split()[1]
    digest = hashlib.sha256(f"job:{guests}".encode()).hexdigest()
    guest.headers = {"Authorization": f"Bearer {digest}"}
    assert (await guest.call("POST", "checkpoint", {}))[0] == 200
    assert (await guest.call("GET", "launch/x/events"))[0] == 404
    for method, path in (("GET", "boot"), ("GET", "inputs/x"), ("GET", "commands"), ("PUT", "output/stdout?offset=0")):
        assert (await guest.call(method, path, b"" if method == "PUT" else None))[0] == 401
    for path in ("began", "report", "launch/x/events"):
        assert (await guest.call("POST", path, {}))[0] == 401


async def test_a_guest_ahead_of_the_journal_comes_back_and_a_late_one_is_gone(here: House) -> None:
    job = await submitted(here)
    assert (await here.guest(job).call("GET", "boot"))[0] == 503
    await here.place(job)
    why = because.Reclaimed()
    await here.write("scheduler.hpc", f.AttemptClosed(unit=job, attempt=1, disposal=f.Disposal.REQUEUE, why=why))
    status, content = await here.guest(job).call("GET", "boot")
    assert (status, msgspec.json.decode(content)["code"]) == (410, "gone")
    assert (await here.guest(job, attempt=2).call("GET", "boot"))[0] == 503
    assert (await here.guest("no-unit").call("GET", "boot"))[0] == 410


async def test_a_late_success_counts_and_a_preempted_scripts_143_does_not(here: House) -> None:
    for exit_code, status, final in ((143, 410, None), (0, 200, "completed")):
        job = await running(here)
        await here.guest(job).began()
        why = because.Reclaimed()
        await here.write("scheduler.hpc", f.AttemptClosed(unit=job, attempt=1, disposal=f.Disposal.REQUEUE, why=why))
        written = len(await here.journaled())
        assert await here.guest(job).report(exit_code) == status
        assert here.service.custody.state.units[job].final == final
        assert len(await here.journaled()) == written + (final is not None)


async def test_a_gang_begins_when_all_ranks_have_called(here: House) -> None:
    job = await running(here, "h1", "h2", nodes=2, tasks=2)
    first = asyncio.create_task(here.guest(job, rank=0).began())
    repeated = asyncio.create_task(here.guest(job, rank=0).began())
    await asyncio.wait({first, repeated}, timeout=0.2)
    assert not first.done()
    assert here.service.custody.state.units[job].began_at is None
    assert await here.guest(job, rank=1).began() == 204
    assert await first == await repeated == 204
    assert (await here.guest(job, rank=1).call("POST", "report", {"exit": 0}))[0] == 400
    assert (await here.guest(job, rank=2).call("GET", "boot"))[0] == 410
    assert (await here.guest(job, rank=1).json("GET", "boot"))["nodes"] == ["h1", "h2"]


async def test_a_rank_that_waits_for_a_gang_that_was_closed_is_gone(here: House) -> None:
    job = await running(here, "h1", "h2", nodes=2, tasks=2)
    waiting = asyncio.create_task(here.guest(job).began())
    await asyncio.wait({waiting}, timeout=0.1)
    await here.write("executor", f.VmAllocated(unit=job, attempt=1, rank=1, vm=900, host="h2"))
    await here.write("executor", f.VmEnded(unit=job, attempt=1, rank=1, why="crashed"))
    assert await waiting == 410


async def test_output_grows_and_repeating_is_harmless(here: House) -> None:
    job = await running(here)
    guest = here.guest(job)
    parts = [(0, b"abc"), (0, b"abc"), (0, b"abcde"), (3, b"de"), (5, b"f"), (0, b""), (2, b"cdefg")]
    for offset, data in parts:
        assert (await guest.call("PUT", f"output/stdout?offset={offset}", data))[0] == 204
    assert (await guest.call("PUT", "output/stdout?offset=100", b"gap"))[0] == 422
    assert (await guest.call("PUT", "output/stdout?offset=x", b"x"))[0] == 400
    assert (await guest.call("PUT", "output/other?offset=0", b"x"))[0] == 404
    assert (await guest.call("PUT", "output/stdout?offset=7", b"x" * (output.PART_MAX_BYTES + 1)))[0] == 413
    limit = here.service.config.cloud.limits.output_max_bytes
    assert (await guest.call("PUT", f"output/stdout?offset={limit}", b"x"))[0] == 413
    stream = output.StreamId(job, 1, 0, "stdout")
    assert await here.doors._outputs.read(stream, 0) == b"abcdefg"
    # Another process finds the same from the objects alone.
    fresh = output.Outputs(here.doors._outputs._objects)
    assert await fresh.read(stream, 2) == b"cdefg"
    await fresh.append(stream, 7, b"hi", limit)
    again = output.Outputs(here.doors._outputs._objects)
    await again.append(stream, 9, b"!", limit)
    assert await output.Outputs(here.doors._outputs._objects).read(stream, 0) == b"abcdefghi!"


@pytest.mark.parametrize(
    "told",
    [
        b"{",
        {"exit": "0"},
        {"seconds": 1},
        {"exit": 0, "seconds": -1},
        {"exit": 0, "seconds": 1e300},
        {"exit": 1 << 40},
        {"exit": 0, "note": "n" * 5000},
        {"exit": 0, "signal": 1000},
    ],
)
async def test_a_report_that_does_not_fit_is_refused_and_not_journaled(here: House, told: Any) -> None:
    job = await running(here)
    assert (await here.guest(job).call("POST", "report", told))[0] == 400
    assert here.service.custody.state.units[job].state == "open"


async def test_launches(here: House) -> None:
    job = await running(here, "h1", "h2", cores=1, nodes=2, tasks=2)
    first, second = here.guest(job, rank=0), here.guest(job, rank=1)
    poll = asyncio.create_task(second.json("GET", "commands?after=0&wait_s=20"))
    body = {"id": "L1", "argv": ["hostname"], "environment": {}, "tasks": 3, "directory": None}
    assert (await second.call("POST", "launch", body))[0] == 403
    status, refused = await first.call("POST", "launch", body)
    assert status == 422, refused
    assert b"3 tasks on the 2 cores of this job" in refused
    body["overcommit"] = True
    assert (await first.call("POST", "launch", body))[0] == 202
    assert (await first.call("POST", "launch", body))[0] == 202  # once
    (command,) = (await poll)["commands"]
    assert (command["kind"], command["id"], command["tasks"], command["argv"]) == ("launch", "L1", 1, ["hostname"])
    assert msgspec.convert(command, Command).first == 2  # as the guest reads it
    (mine,) = (await first.json("GET", "commands?after=0&wait_s=0"))["commands"]
    assert (mine.get("first", 0), mine["tasks"]) == (0, 2)
    events = [{"task": 2, "stream": "stdout", "data": "aGk="}, {"task": 2, "exit": 0}]
    for _ in range(2):  # idempotent by sequence
        assert (await second.call("POST", "launch/L1/events", {"events": events, "first": 0}))[0] == 204
    more = {"events": [{"task": 2, "exit": 0}, {"task": 2, "exit": 7}], "first": 1}
    assert (await second.call("POST", "launch/L1/events", more))[0] == 204
    got = (await first.json("GET", "launch/L1/events?after=0&wait_s=5"))["events"]
    assert [(e["rank"], e["task"], e.get("data"), e.get("exit")) for e in got] == [
        (1, 2, "aGk=", None),
        (1, 2, None, 0),
        (1, 2, None, 7),
    ]
    assert (await first.json("GET", f"launch/L1/events?after={got[-1]['n']}&wait_s=0"))["events"] == []
    assert (await first.call("POST", "launch/L1/signal", {"signal": 15}))[0] == 204
    (signal,) = (await second.json("GET", f"commands?after={command['n']}&wait_s=5"))["commands"]
    assert (signal["kind"], signal["signal"], signal["id"]) == ("signal", 15, "L1")
    assert (await first.call("GET", "launch/L9/events?after=0"))[0] == 404
    poll_gone = asyncio.create_task(second.call("GET", f"commands?after={signal['n']}&wait_s=20"))
    await asyncio.wait({poll_gone}, timeout=0.1)
    assert await first.report() == 200
    assert (await poll_gone)[0] == 410  # the end of the attempt wakes a waiting poll


async def test_writers_wait_while_nobody_reads(here: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.admission.guests.launch.UNREAD_MAX_BYTES", 1000)
    job = await running(here, cores=1)
    guest = here.guest(job)
    await guest.call("POST", "launch", {"id": "L", "argv": ["x"], "tasks": 1})
    event = {"task": 0, "stream": "stdout", "data": "A" * 2000}
    assert (await guest.call("POST", "launch/L/events", {"events": [event], "first": 0}))[0] == 204
    assert (await guest.call("POST", "launch/L/events", {"events": [event], "first": 1}))[0] == 503
    got = (await guest.json("GET", "launch/L/events?after=0"))["events"]
    await guest.json("GET", f"launch/L/events?after={got[-1]['n']}")
    assert (await guest.call("POST", "launch/L/events", {"events": [event], "first": 1}))[0] == 204


async def test_a_restart_of_the_door_loses_nothing(here: House) -> None:
    """Output, requests and half a gang: what counts is in the journal and the objects, the rest is called again."""
    job = await running(here, request="before")
    guest = here.guest(job)
    assert (await guest.call("PUT", "output/stdout?offset=0", b"before"))[0] == 204
    gang = await running(here, "h1", "h2", nodes=2, tasks=2)
    half = asyncio.create_task(here.guest(gang).began())
    await asyncio.wait({half}, timeout=0.1)
    assert await here.running.stop() == 0
    await asyncio.wait({half}, timeout=30)
    await here.start("a2")
    assert (await here.ask("ann", "job.submit", {"script": "echo hi", "request": "before"}))["job"] == job
    assert (await guest.call("PUT", "output/stdout?offset=6", b" after"))[0] == 204
    assert await here.doors._outputs.read(output.StreamId(job, 1, 0, "stdout"), 0) == b"before after"
    both = await asyncio.gather(here.guest(gang, rank=0).began(), here.guest(gang, rank=1).began())
    assert both == [204, 204]
    assert await guest.report() == 200
    assert here.core.check() == []
