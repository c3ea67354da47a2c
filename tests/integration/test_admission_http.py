"""The HTTP door: tokens, statuses, output that is followed, kept files, the monitor behind it, and the OpenAPI document."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from aiohttp import web

from schemas import facts as f
from schemas import problems, signals
from schemas import reasons as because
from schemas.audit import AuditBatch
from schemas.config import WebPolicy
from schemas.examples import SIGNALS
from schemas.problems import problem
from schemas.reads import READS
from schemas.signals import ClaimSignal
from schemas.times import exact
from services.admission.http import openapi
from services.admission.http.guest_routes import ROUTES as GUESTS
from services.admission.http.routes import ROUTES
from services.runtime import tokens
from services.runtime.broker import credentials
from services.runtime.http.answers import problem_answer
from tests.support.admission_house import House, house
from tests.support.problems import checked

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with house(tmp_path_factory.mktemp("admission")) as found:
        yield found


async def call(here: House, user: str, method: str, path: str, data: Any = None, **options: Any) -> tuple[int, Any]:
    body = data if data is None or isinstance(data, bytes) else msgspec.json.encode(data)
    headers = {**(here.headers(user) if user else {}), **options.pop("headers", {})}
    async with here.session.request(method, here.url + path, data=body, headers=headers, **options) as answer:
        content = await answer.read()
        if answer.status >= 400 and method != "HEAD":
            checked(answer.status, answer.headers, content)
        is_json = answer.content_type in ("application/json", problems.JSON)
        return answer.status, msgspec.json.decode(content) if is_json else content


async def submitted(here: House, user: str = "ann", **asked: Any) -> str:
    status, answer = await call(here, user, "POST", "/v1/jobs", {"script": "x", **asked})
    assert status == 200, answer
    job: str = answer["job"]
    return job


@pytest.mark.parametrize(
    ("user", "method", "path", "data", "status", "code"),
    [
        ("", "POST", "/v1/jobs", {"script": "x"}, 401, "denied"),
        ("ann", "POST", "/v1/jobs", b"{", 400, "invalid"),
        ("ann", "POST", "/v1/jobs", {"script": "x", "tasks": -1}, 422, "invalid"),
        ("ann", "POST", "/v1/jobs", {"script": "x", "cores": 400}, 422, "invalid"),
        ("ann", "POST", "/v1/jobs", {"script": "x", "department": "bio"}, 422, "invalid"),
        ("ann", "POST", "/v1/jobs/1/cancel", {"force": True}, 422, "invalid"),
        ("root", "POST", "/v1/hosts/h1/drain", {"deadline": 5}, 422, "invalid"),
        ("wim", "POST", "/v1/departments/web/scale", {"exact": 1, "maximum": 2}, 422, "invalid"),
        ("ann", "POST", "/v1/jobs", {"script": "x" * ((1 << 20) + 1)}, 413, "limit"),
        ("ann", "POST", "/v1/jobs", {"script": "x", "array": "1-10001"}, 429, "limit"),
        ("ann", "POST", "/v1/jobs?department=bio", {"script": "x"}, 403, "denied"),
        ("root", "POST", "/v1/jobs?department=chem", {"script": "x"}, 404, "unknown"),
        ("ann", "POST", "/v1/hosts/h1/cordon", {}, 403, "denied"),
        ("root", "POST", "/v1/hosts/h77/cordon", {}, 404, "unknown"),
        ("ann", "POST", "/v1/departments/web/scale", {"exact": 1}, 403, "denied"),
        ("wim", "POST", "/v1/departments/web/scale", {}, 422, "invalid"),
        ("ann", "POST", "/v1/departments/web/releases", {}, 403, "denied"),
        ("wim", "POST", "/v1/departments/web/releases", {"health_path": "up"}, 422, "invalid"),
        ("wim", "POST", "/v1/departments/web/releases", {"secrets": {"KEY": "none-such"}}, 404, "unknown"),
        ("wim", "GET", "/v1/departments/web/releases", None, 503, "unavailable"),  # the monitor's
        ("ann", "GET", "/v1/jobs/99/output", None, 503, "unavailable"),  # the monitor knows old jobs; none runs here
        ("ann", "GET", "/v1/jobs/x/output", None, 422, "invalid"),
        ("ann", "POST", "/v1/signals/web/cpu", {"x": 1}, 403, "denied"),
        ("wim", "POST", "/v1/signals/web/a.b", {"x": 1}, 404, "unknown"),
        ("ann", "POST", "/v1/signals/hpc/cpu", {"x": 1}, 422, "invalid"),
        ("wim", "POST", "/v1/signals/web/cpu", b"[1]", 400, "invalid"),
        ("ann", "PUT", "/v1/jobs", {}, 405, "invalid"),
        ("ann", "GET", "/v1/jobs", None, 503, "unavailable"),  # the monitor's, too
        ("ann", "GET", "/v1/departments/web", None, 503, "unavailable"),
        ("ann", "GET", "/nowhere", None, 404, "unknown"),
    ],
)
async def test_refusals(here: House, user: str, method: str, path: str, data: Any, status: int, code: str) -> None:
    got, answer = await call(here, user, method, path, data)
    assert (got, answer["status"], answer["code"]) == (status, status, code), answer


async def test_a_wrong_token_is_401_and_never_more(here: House) -> None:
    for header in ("Bearer wrong", "Basic x", "Bearer", "Bearer é"):
        status, _ = await call(here, "", "GET", "/v1/jobs/1/output", headers={"Authorization": header})
        assert status == 401


async def test_while_the_tokens_cannot_be_read_nobody_is_let_in(here: House) -> None:
    path = credentials.tokens_file(here.broker.config)
    good = path.read_bytes()
    path.write_bytes(b"{")
    try:  # of one that is not known the file is read at once
        told = await call(here, "", "GET", "/v1/jobs/1/output", headers={"Authorization": "Bearer another"})
        assert (told[0], told[1]["code"]) == (503, "unavailable")
    finally:
        path.write_bytes(good)
    assert (await call(here, "", "GET", "/v1/jobs/1/output", headers={"Authorization": "Bearer another"}))[0] == 401


async def test_an_issued_token_serves_until_it_ends_or_is_revoked(here: House) -> None:
    path = credentials.tokens_file(here.broker.config)
    token, _ = tokens.issue(path, "ann", 3600, time.time())
    past, _ = tokens.issue(path, "ann", 60, time.time() - 61)
    gone, _ = tokens.issue(path, "ann", 60, time.time())
    tokens.revoke(path, tokens.digest(gone)[: tokens.ID_CHARS])
    told = {}
    for name, found in {"good": token, "past": past, "gone": gone}.items():
        header = {"Authorization": f"Bearer {found}"}
        status, answer = await call(here, "", "POST", "/v1/jobs", {"script": "x"}, headers=header)
        told[name] = (status, answer.get("detail", ""))
    assert told["good"] == (200, "")
    assert told["past"][0] == 401
    assert told["past"][1].startswith("this token of ann ended at ")
    assert told["gone"] == (401, "a valid token is needed: Authorization: Bearer <token>")


async def test_submit_hold_release_cancel(here: House) -> None:
    job = await submitted(here, environment={"A": "b"}, request="http-1")
    assert await submitted(here, environment={"A": "b"}, request="http-1") == job
    for verb in ("hold", "release", "cancel", "cancel"):
        status, answer = await call(here, "ann", "POST", f"/v1/jobs/{job}/{verb}")
        assert (status, answer["results"]) == (200, [{"job": job}])
    assert here.service.custody.state.units[job].final == "cancelled"


async def test_several_jobs_in_one_call(here: House) -> None:
    jobs = [await submitted(here) for _ in range(3)]
    status, answer = await call(here, "ann", "POST", f"/v1/jobs/{jobs[0]}/cancel", {"jobs": jobs})
    assert (status, answer["results"]) == (200, [{"job": job} for job in jobs])
    assert (await call(here, "ann", "POST", f"/v1/jobs/{jobs[0]}/cancel", {"jobs": "x"}))[0] == 422


async def test_a_refusal_of_the_only_job_is_the_answer_and_one_among_others_is_a_result(here: House) -> None:
    own, others = await submitted(here), await submitted(here, "bob")
    status, answer = await call(here, "ann", "POST", f"/v1/jobs/{others}/cancel")
    assert (status, answer["code"]) == (403, "denied")
    assert (await call(here, "ann", "POST", "/v1/jobs/999/hold"))[0] == 404
    status, answer = await call(here, "ann", "POST", f"/v1/jobs/{own}/cancel", {"jobs": [others]})
    assert (status, ["error" in result for result in answer["results"]]) == (200, [False, True])


async def test_an_operator_submits_for_a_department(here: House) -> None:
    status, answer = await call(here, "root", "POST", "/v1/jobs?department=hpc", {"script": "x"})
    assert status == 200
    assert here.core.job(answer["job"]).user == "root"  # type: ignore[union-attr]


async def test_hosts_and_scale(here: House) -> None:
    for verb in ("cordon", "drain", "uncordon"):
        assert (await call(here, "root", "POST", f"/v1/hosts/h2/{verb}", {"reason": "r"}))[0] == 200
    assert (await call(here, "wim", "POST", "/v1/departments/web/scale", {"minimum": 2}))[1] == {"ok": True}


async def test_a_release_has_one_number_however_often_it_is_asked_for(here: House) -> None:
    path, last = "/v1/departments/web/releases", here.service.custody.state.release_last.get("web", 0)
    asked = {"image": "shop-2", "request": "deploy-1"}
    for _ in range(2):
        answer = {"release": last + 1, "warning": "", "start_failures_max": 5, "boot_timeout_s": 60.0}
        assert await call(here, "wim", "POST", path, asked) == (200, answer)
    assert (await call(here, "wim", "POST", path, {**asked, "image": "shop-3"}))[0] == 409
    both = await asyncio.gather(*(call(here, "root", "POST", path, {"image": f"shop-{n}"}) for n in (4, 5)))
    assert sorted(answer["release"] for _, answer in both) == [last + 2, last + 3]
    assert here.service.custody.state.releases["web"][last + 1].content.image == "shop-2"


async def test_each_signal_is_handed_on_as_it_came(here: House) -> None:
    heard = await here.hear("service-monitor", "phoenix.signal.web.*.*")
    for name, example in SIGNALS.items():
        sent = msgspec.json.decode(msgspec.json.encode(example)) | {"at": exact(time.time())}
        assert (await call(here, "wim", "POST", f"/v1/signals/web/{name}", sent))[:2] == (200, {"ok": True})
        message = await heard.next_msg(5)
        assert (message.subject, msgspec.json.decode(message.data)) == (f"phoenix.signal.web.wim.{name}", sent)
    packed = msgspec.msgpack.encode({"instances": 3})
    headers = {**here.headers("wim"), "Content-Type": "application/msgpack"}
    async with here.session.post(f"{here.url}/v1/signals/web/claim", data=packed, headers=headers) as answer:
        assert answer.status == 200
    message = await heard.next_msg(5)
    assert signals.decode("claim", message.data, message.headers["Content-Type"]) == ClaimSignal(instances=3)
    for wrong in (b"", b"\xc1", b'{"instances": 3}', packed[:-1], packed + b"\x00"):
        async with here.session.post(f"{here.url}/v1/signals/web/claim", data=wrong, headers=headers) as answer:
            assert answer.status == 400


@pytest.mark.parametrize(
    ("name", "data", "status", "field"),
    [
        ("cpu", {}, 422, "utilisation"),
        ("cpu", {"utilisation": -1}, 422, "utilisation"),
        ("cpu", {"utilisation": 1e9}, 422, "utilisation"),
        ("cpu", {"utilisation": "0.5"}, 422, "utilisation"),
        ("cpu", b'{"utilisation": NaN}', 422, "utilisation"),
        ("cpu", b'{"utilisation": Infinity}', 422, "utilisation"),
        ("cpu", b'{"utilisation": 1e999}', 422, "utilisation"),
        ("cpu", {"utilisation": 0.5, "at": exact(time.time() - 3600)}, 422, "at"),
        ("cpu", {"utilisation": 0.5, "at": exact(time.time() + 3600)}, 422, "at"),
        ("cpu", {"utilisation": 0.5, "at": time.time()}, 422, "at"),
        ("claim", {"instances": 3, "at": exact(time.time())[:-1]}, 422, "at"),
        ("cpu", b"{" + b" " * 5000 + b"}", 413, None),
        ("cpu", {"utilisation": 0.5, "source": "\x1b[2J"}, 422, "source"),
        ("requests", {"rate": 1e9}, 422, "rate"),
        ("requests", {"rate": 5, "target": 0}, 422, "target"),
        ("claim", {"instances": -1}, 422, "instances"),
        ("claim", {"instances": 10**9}, 422, "instances"),
        ("claim", {"instances": 2.5}, 422, "instances"),
        ("sessions", {"sessions": {"web.1": -1}}, 422, "sessions"),
        ("sessions", {"sessions": {"x y": 1}}, 422, "sessions"),
        ("memory", {}, 404, "name"),
    ],
)
async def test_a_signal_that_cannot_be_is_refused_with_its_field(
    here: House, name: str, data: Any, status: int, field: str | None
) -> None:
    got, answer = await call(here, "wim", "POST", f"/v1/signals/web/{name}", data)
    assert (got, answer.get("field")) == (status, field), answer


async def test_who_may_not_claim_so_many_is_told(here: House) -> None:
    got, answer = await call(here, "wes", "POST", "/v1/signals/web/claim", {"instances": 1})
    assert (got, answer["field"]) == (403, "instances")
    may = "wes may claim 0 instances of web at most (its claim_max_user)"
    assert answer["detail"] == f"instances: {may}; managers and operators may claim more"
    for user, instances in (("wes", 0), ("wim", 1_000_000), ("root", 5)):
        path = "/v1/signals/web/claim"
        assert (await call(here, user, "POST", path, {"instances": instances}))[0] == 200


async def test_who_is_no_balancer_is_told_at_the_door(here: House) -> None:
    cloud = here.broker.config.cloud
    named = [
        msgspec.structs.replace(one, web=WebPolicy(balancers=("lb",))) if one.kind == "web" else one
        for one in cloud.departments
    ]
    contents: dict[str, dict[str, Any]] = {
        "cpu": {"utilisation": 5.0},
        "requests": {"rate": 9.0},
        "sessions": {"sessions": {}},
        "answers": {"instances": {}},
    }
    for name, content in contents.items():
        assert (await call(here, "wes", "POST", f"/v1/signals/web/{name}", content))[0] == 200
    await here.furnish_limits(msgspec.structs.replace(cloud, departments=tuple(named)))
    for name, content in contents.items():
        got, answer = await call(here, "wes", "POST", f"/v1/signals/web/{name}", content)
        assert (got, answer["field"]) == (403, "user")
        whose = "reports by wes do not count (balancers of web: lb); those of managers and operators do"
        assert answer["detail"] == f"user: {whose}"
        for user in ("wim", "root"):
            assert (await call(here, user, "POST", f"/v1/signals/web/{name}", content))[0] == 200
    assert (await call(here, "wes", "POST", "/v1/signals/web/claim", {"instances": 0}))[0] == 200


async def test_the_audit_names_the_signal_that_was_refused_and_whose_it_would_have_been(here: House) -> None:
    heard = await here.hear("service-monitor", "phoenix.audit.*.refused")
    await call(here, "ann", "POST", "/v1/signals/web/cpu", {"utilisation": 0.9})
    told: list[tuple[str, str, tuple[str, ...], str]] = []
    while ("ann", "signal.cpu", ("web",), "denied") not in told:  # with what others of this house were refused
        records = msgspec.json.decode((await heard.next_msg(5)).data, type=AuditBatch).records
        told += [(record.user, record.kind, record.names, record.code) for record in records]


async def test_instances(here: House) -> None:
    await here.place("web.1", "w1", dept="web", cores=2)
    path = "/v1/departments/web/instances"
    (found,) = (await call(here, "wim", "GET", path))[1]["instances"]
    expected = {"unit": "web.1", "attempt": 1, "address": None, "state": "starting", "host": "w1", "cores": 2}
    runs = {"release": 0, "health_path": "/healthz", "connections": 4}
    assert found == {**expected, **runs, "drains_until": None, "problem": ""}
    assert await here.guest("web.1").began("127.0.0.1:8000") == 204
    (found,) = (await call(here, "wim", "GET", path))[1]["instances"]
    assert (found["state"], found["address"]) == ("running", "127.0.0.1:8000")
    drained = {"attempt": 1, "state": "drained"}
    assert (await call(here, "wim", "POST", f"{path}/web.1/report", drained))[0] == 409
    begun = f.InstanceDraining(unit="web.1", attempt=1, until=9e9, reason=because.ScaleDown())
    await here.write("scheduler.web", begun)
    told = (await call(here, "wim", "GET", path))[1]
    assert [told[name] for name in ("drain_s", "unreachable_s", "health_path")] == [5.0, 10.0, "/healthz"]
    (found,) = told["instances"]
    assert (found["state"], found["address"], found["drains_until"]) == ("draining", "127.0.0.1:8000", exact(9e9))
    assert (await call(here, "ann", "POST", f"{path}/web.1/report", drained))[0] == 403
    for _ in range(2):
        assert (await call(here, "wim", "POST", f"{path}/web.1/report", drained))[1] == {"ok": True}
        assert await here.ask("wim", "instance.report", {"unit": "web.1", **drained}) == {"ok": True}
    (fact,) = await here.journaled(f.InstanceReported)
    assert (fact.unit, fact.attempt, fact.state, fact.user) == ("web.1", 1, "drained", "wim")
    await here.write("executor", f.VmAllocated(unit="web.1", attempt=1, rank=0, vm=5, host="w1"))
    stop = f.AttemptClosed(unit="web.1", attempt=1, disposal=f.Disposal.STOPPED, why=because.ScaleDown())
    await here.write("scheduler.web", stop)
    (found,) = (await call(here, "wim", "GET", path))[1]["instances"]
    assert (found["state"], found["address"]) == ("draining", None)
    await here.write("executor", f.VmEnded(unit="web.1", attempt=1, rank=0, why="done"))
    assert (await call(here, "wim", "GET", path))[1]["instances"] == []


async def read(here: House, job: str, user: str = "ann", **query: Any) -> tuple[bytes, int, bool]:
    params = {name: str(value) for name, value in query.items()}
    url = f"{here.url}/v1/jobs/{job}/output"
    async with here.session.get(url, params=params, headers=here.headers(user)) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.headers["Phoenix-End"] in ("true", "false")
        data = await answer.read()
        return data, int(answer.headers["Phoenix-Offset"]), answer.headers["Phoenix-End"] == "true"


async def test_output_is_followed_to_its_end(here: House) -> None:
    job = await submitted(here)
    await here.place(job)
    guest = here.guest(job)
    await guest.began()
    follower = asyncio.create_task(read(here, job, wait_s=20))
    assert (await guest.call("PUT", "output/stdout?offset=0", b"hello "))[0] == 204
    assert await follower == (b"hello ", 6, False)
    follower = asyncio.create_task(read(here, job, offset=6, wait_s=20))
    assert (await guest.call("PUT", "output/stdout?offset=6", b"world"))[0] == 204
    assert await follower == (b"world", 11, False)
    follower = asyncio.create_task(read(here, job, offset=11, wait_s=20))
    await asyncio.sleep(0)
    assert await guest.report(0) == 200
    assert await follower == (b"", 11, True)
    assert await read(here, job) == (b"hello world", 11, True)
    assert await read(here, job, offset=3, stream="stdout") == (b"lo world", 11, True)
    assert await read(here, job, stream="stderr") == (b"", 0, True)


async def test_output_of_a_rank_or_an_attempt_that_there_is_not_is_refused_and_not_empty(here: House) -> None:
    alone, wide = await submitted(here), await submitted(here, nodes=2)
    for job, query, field, told in (
        (alone, "rank=1", "rank", f"rank: {alone} has one rank, 0"),
        (alone, "rank=7&wait_s=9", "rank", f"rank: {alone} has one rank, 0"),
        (wide, "rank=2", "rank", f"rank: {wide} has 2 ranks, 0 to 1"),
        (alone, "attempt=1", "attempt", f"attempt: {alone} has had 0"),
    ):
        status, answer = await call(here, "ann", "GET", f"/v1/jobs/{job}/output?{query}")
        assert (status, answer["field"], answer["detail"]) == (404, field, told)
    assert await read(here, wide, rank=1) == (b"", 0, False)
    await here.place(alone)
    assert await read(here, alone, attempt=1) == (b"", 0, False)
    assert (await call(here, "ann", "GET", f"/v1/jobs/{alone}/output?attempt=2"))[0] == 404


async def test_a_large_output_comes_whole(here: House) -> None:
    job = await submitted(here)
    await here.place(job)
    part = bytes(range(256)) * 4096  # 1 MiB, as large as a part may be
    for n in range(6):
        assert (await here.guest(job).call("PUT", f"output/stdout?offset={n * len(part)}", part))[0] == 204
    assert await read(here, job) == (part * 6, 6 * len(part), False)
    assert await read(here, job, offset=len(part) + 7) == (part[7:] + part * 4, 6 * len(part), False)
    assert await read(here, job, offset=5, wait_s=1) == ((part * 5)[5 : 5 + (4 << 20)], 5 + (4 << 20), False)
    assert await read(here, job, offset=1 << 30) == (b"", 1 << 30, False)


async def test_whose_output_it_is(here: House) -> None:
    job = await submitted(here)
    expected = {"ann": 200, "bob": 403, "leo": 404, "wim": 404, "root": 200}
    for user, status in expected.items():
        assert (await call(here, user, "GET", f"/v1/jobs/{job}/output"))[0] == status, user
        assert (await call(here, user, "GET", f"/v1/jobs/{job}/files"))[0] == status, user


async def test_output_of_a_killed_attempt_ends_with_its_vm(here: House) -> None:
    job = await submitted(here)
    await here.place(job)
    await here.write("executor", f.VmAllocated(unit=job, attempt=1, rank=0, vm=77, host="h1"))
    guest = here.guest(job)
    await guest.began()
    why = because.Reclaimed()
    await here.write("scheduler.hpc", f.AttemptClosed(unit=job, attempt=1, disposal=f.Disposal.REQUEUE, why=why))
    assert (await read(here, job))[2] is False  # its script has its grace time
    assert (await guest.call("PUT", "output/stderr?offset=0", b"terminated"))[0] == 204
    await here.write("executor", f.VmEnded(unit=job, attempt=1, rank=0, why="done"))
    assert await read(here, job, stream="stderr") == (b"terminated", 10, True)
    await here.place(job, "h2", attempt=2)
    assert await read(here, job, stream="stderr", attempt="1") == (b"terminated", 10, True)
    assert await read(here, job, stream="stderr") == (b"", 0, False)
    assert (await guest.call("PUT", "output/stderr?offset=10", b"late"))[0] == 410


async def test_arrays_are_read_by_element(here: House) -> None:
    array = await submitted(here, array="1-2")
    status, answer = await call(here, "ann", "GET", f"/v1/jobs/{array}/output")
    assert (status, answer["field"]) == (422, "job")
    assert await read(here, f"{array}_2") == (b"", 0, False)
    assert (await call(here, "ann", "GET", f"/v1/jobs/{array}_3/output"))[0] == 404
    done = await submitted(here)
    await call(here, "ann", "POST", f"/v1/jobs/{done}/cancel")
    for index in (0, 5):  # the door has forgotten a finished job's elements; whether it had one, the monitor knows
        assert (await call(here, "ann", "GET", f"/v1/jobs/{done}_{index}/output"))[0] == 503
    alone = await submitted(here, array="7")
    assert (await call(here, "ann", "GET", f"/v1/jobs/{alone}/output"))[0] == 422


async def test_kept_files(here: House) -> None:
    job = await submitted(here, keep=["out/*"])
    await here.place(job)
    guest = here.guest(job)
    for name, data in (("out/b.bin", b"\x00" * 300_000), ("out/a.txt", b"a"), ("out/a.txt", b"aa")):
        assert (await guest.call("PUT", f"files/{name}", data))[0] == 204
    assert (await guest.call("PUT", "files/..%2Fx", b""))[0] in (404, 422)
    _, listed = await call(here, "ann", "GET", f"/v1/jobs/{job}/files")
    assert listed["files"] == [{"name": "out/a.txt", "size": 2}, {"name": "out/b.bin", "size": 300_000}]
    assert await call(here, "ann", "GET", f"/v1/jobs/{job}/files/out/a.txt") == (200, b"aa")
    assert (await call(here, "ann", "GET", f"/v1/jobs/{job}/files/out/b.bin"))[1] == b"\x00" * 300_000
    assert (await call(here, "ann", "GET", f"/v1/jobs/{job}/files/nothing"))[0] == 404


async def test_other_reads_are_the_monitors(here: House) -> None:
    """A stand-in speaks the monitor's side of the wire: the monitor itself is another process with tests of its own."""
    seen: list[tuple[str, str]] = []
    said: list[tuple[str, str]] = []

    async def serve(request: web.Request) -> web.StreamResponse:
        seen.append((request.path_qs, request.headers["Authorization"]))
        said.append((request.headers.get("X-Forwarded-For", ""), request.headers.get("User-Agent", "")))
        if request.path == "/v1/overview":
            return problem_answer(problem("limit", "too many reads"))
        if request.path == "/v1/jobs/99":
            return web.json_response({"job": "99", "department": "hpc", "user": "ann"})
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(b"data: 1\n\n")
        await asked_for_more.wait()
        await answer.write(b"data: 2\n\n")
        return answer

    asked_for_more = asyncio.Event()
    app = web.Application()
    app.router.add_get("/{tail:.*}", serve)
    runner = web.AppRunner(app)
    await runner.setup()
    host, port = here.broker.config.monitor.listen.split(":")
    await web.TCPSite(runner, host, int(port)).start()
    try:
        headers = {**here.headers("ann"), "X-Forwarded-For": "6.6.6.6", "User-Agent": "Tool/1"}
        async with here.session.get(f"{here.url}/v1/events?after=3&x=a%26b", headers=headers) as answer:
            assert answer.content_type == "text/event-stream"
            assert await answer.content.readany() == b"data: 1\n\n"  # streamed, not gathered
            asked_for_more.set()
            assert await answer.content.read() == b"data: 2\n\n"
        assert seen == [("/v1/events?after=3&x=a%26b", headers["Authorization"])]
        assert said == [("127.0.0.1", "Tool/1")]  # for its audit: who asked here, not what they wrote
        assert await read(here, "99") == (b"", 0, True)  # a job that admission has forgotten
        assert (await call(here, "bob", "GET", "/v1/jobs/99/output"))[0] == 403
        assert (await call(here, "", "GET", "/v1/events"))[0] == 401
        assert len(seen) == 3
        assert (await call(here, "ann", "GET", "/v1/overview"))[0] == 429  # with what its problem says in headers
    finally:
        await runner.cleanup()
    status, answer = await call(here, "ann", "GET", "/v1/queue")
    assert (status, answer["code"]) == (503, "unavailable")


async def test_health(here: House) -> None:
    assert (await call(here, "", "GET", "/healthz"))[0] == 204


async def test_the_openapi_document_is_what_is_served(here: House) -> None:
    status, served = await call(here, "", "GET", "/openapi.json")
    assert status == 200
    kept = (Path(openapi.__file__).parent / "openapi.json").read_bytes()
    assert kept == openapi.document(), (
        "run: python -m services.admission.http.openapi > services/admission/http/openapi.json"
    )
    assert served == msgspec.json.decode(kept)
    assert served["openapi"].startswith("3.1")
    routes = here.doors._runner.app.router.routes()  # type: ignore[union-attr]
    really = {(route.method, _plain(route.resource.canonical)) for route in routes if route.resource is not None}
    public = {x for x in really if x[0] != "HEAD" and x[1] != "/v1/{tail}"}
    told = {(method.upper(), path) for path, methods in served["paths"].items() for method in methods}
    reads = {(read.method, read.path) for read in READS}  # passed on, or of the monitor's own server
    assert public == told - reads == {(route.method, route.path) for route in (*ROUTES, *GUESTS)}
    for reference in re.findall(r'"#/components/schemas/(\w+)"', kept.decode()):
        assert reference in served["components"]["schemas"]


def _plain(path: str) -> str:
    return re.sub(r":[^}]+}", "}", path)
