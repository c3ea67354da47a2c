"""Every read answers as the OpenAPI document says, every scheduler as the AsyncAPI document says, and both say no more: on a
cloud in which everything that has an answer is."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import nats
import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from phoenix.cli.http import Client, query
from schemas import subjects
from schemas.examples import AT
from schemas.generate import DIRECTORY
from schemas.queries import QUERIES
from schemas.reads import EVENT_STREAM, JSON_LINES, READS, Read
from schemas.units import exact
from services.admission.http import openapi
from tests.contracts import nats_fuzz
from tests.contracts.fuzz_run import OTHERS, document
from tests.contracts.http_fuzz import fuzz
from tests.integration.up_cloud import Cloud, until
from tests.support.strict import strict

pytestmark = pytest.mark.timeout(180)
DAY_S = 86_400.0
DOCUMENT = document()
OVER_NATS = "(job.cancel|lease.extend|host.cordon|instance.report|monitor.hpc.(queue|usage))$"
SITE = """
[cloud]
name = "answers"
[billing]
prices = "prices.toml"
[[department]]
name = "hpc"
kind = "batch"
guarantee = 3
windows = ["daily 00:00-23:59 guarantee 3 maximum 9"]
[department.batch]
order = "leases"
grace_max_s = 300
[[department]]
name = "bio"
kind = "batch"
[department.batch]
order = "svmsched"
services = { blast = 60, fold = 40 }
[[department]]
name = "web"
kind = "web"
[department.web]
instances_max = 3
[[lending]]
lender = "hpc"
borrower = "bio"
credit = 1.0
[[user]]
name = "alice"
department = "hpc"
[[user]]
name = "ben"
department = "bio"
[[user]]
name = "wendy"
department = "web"
role = "manager"
[[user]]
name = "oscar"
department = "operators"
role = "operator"
"""
PRICES = 'digits = 2\n[[price]]\nper = "core_hour"\namount = "0.5"\n'


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    place = tmp_path_factory.mktemp("answers")
    (place / "site.toml").write_text(SITE)
    (place / "prices.toml").write_text(PRICES)
    found = Cloud(place / "data")
    found.ok("up", "--detach", "--hosts", "5", "--cores", "4", "--config", str(place / "site.toml"))
    try:
        live_through(found)
        yield found
    finally:
        found.close()


def live_through(cloud: Cloud) -> None:
    """Jobs 1 to 5 of alice: completed, an array that is partly over, failed, runs, waits for what failed; a lease, 6, and
    one that ends, 7; ben's 8 of a service; 9 waits for hosts; web scales by hand, has a release, a host that drains."""

    def submit(*words: str, user: str = "alice") -> str:
        return cloud.ok("submit", "--as", user, *words).strip()

    submit("--wrap", "echo hello")
    submit("-a", "1-3", "--wrap", "sleep $((PHOENIX_ARRAY_INDEX * 200 - 200))")
    submit("--wrap", "exit 3")
    submit("-t", "30", "--wrap", "sleep 600")
    cloud.run("wait", "3")
    until(lambda: cloud.json("show", "3")["state"] == "failed", "it does not fail")
    submit("-d", "afterok:3", "--wrap", "true")
    cloud.ok("lease", "create", "--as", "alice", "--start", "+50m", "--duration", "10m")
    submit("-d", "afterany:3", "--grace", "2", "--wrap", "true")
    submit("--service", "blast", "-n", "1", "--wrap", "true", user="ben")
    cloud.ok("scale", "web", "2")
    cloud.run("deploy", "web", "--as", "wendy", "--image", "second")
    cloud.ok("hosts", "drain", "host004", "--reason", "for a test")
    cloud.run("submit", "--as", "alice", "-N", "99", "--wrap", "true")
    until(lambda: cloud.json("show", "8")["state"] == "completed", "ben's job does not end")
    submit("-N", "4", "--exclusive", "--priority=-3", "--wrap", "true")


def reader(cloud: Cloud, user: str = "oscar") -> Client:
    status = cloud.status()
    token = Path(status["credentials"][user]["token"]).read_text().strip()
    return Client(status["http_url"], token, user=user)


def validator(path: str) -> Draft202012Validator:
    document = json.loads(openapi.document())
    content = document["paths"][path]["get"]["responses"]["200"]["content"]
    (form,) = content.values()
    schema = form["schema"].get("contentSchema", {}).get("items", form["schema"])  # of lines each
    return Draft202012Validator(strict({**schema, "components": document["components"]}))


def asked(cloud: Cloud) -> dict[str, list[str]]:
    """Path of the table -> what is asked there."""
    hosts = [f"host00{number}" for number in range(5)]
    jobs = ["1", "2", "2_1", "2_2", "3", "4", "5", "6", "7", "8"]
    instances = [row["instance"] for row in reader(cloud).get("/v1/instances", all=1)["instances"]]
    of = {
        "job": jobs,
        "lease": ["6"],
        "department": ["hpc", "bio", "web"],
        "name": [*jobs, *hosts, "hpc", "bio", "web", *instances],
    }
    of["entity"] = of["name"]
    named = {"/v1/departments/{department}/releases": ["/v1/departments/web/releases"]}
    extra = {
        "/v1/queue": [query("/v1/queue", state=state) for state in ("completed,failed", "")] + ["/v1/queue?form=lines"],
        "/v1/leases": ["/v1/leases?all=1"],
        "/v1/instances": ["/v1/instances?all=1"],
        "/v1/usage": [f"/v1/usage?by={by}" for by in ("department", "user", "service", "lease")],
        "/v1/billable": [query("/v1/billable", day=exact(time.time() // DAY_S * DAY_S))],
        "/v1/audit": ["/v1/audit", "/v1/audit?after=0&limit=3"],
        "/v1/events": ["/v1/events", "/v1/events?after=3&limit=9"],
        "/v1/jobs": ["/v1/jobs?limit=3", "/v1/jobs?state=failed"],
    }
    found: dict[str, list[str]] = {}
    for read in READS:
        name = read.path.partition("{")[2].partition("}")[0]
        paths = [read.path.replace(f"{{{name}}}", quote(one)) for one in of[name]] if name else [read.path]
        found[read.path] = named.get(read.path) or extra.get(read.path) or paths
    return found


TYPED = [read for read in READS if read.answer and read.method == "GET"]


@pytest.mark.parametrize("read", TYPED, ids=lambda read: str(read.path))
def test_it_answers_as_the_document_says(cloud: Cloud, read: Read) -> None:
    client, check = reader(cloud), validator(read.path)
    for path in asked(cloud)[read.path]:
        body = client.fetch("GET", path).body
        for text in body.splitlines() if read.content == JSON_LINES else [body]:
            wrong = [
                f"{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}"
                for error in check.iter_errors(json.loads(text))
            ]
            assert not wrong, f"{path}: {text[:2000]!r}"


def test_every_answer_that_has_a_type_was_asked_for_something_that_is_there(cloud: Cloud) -> None:
    """Or the test above would find nothing wrong in nothing."""
    client = reader(cloud)
    assert {row["state"] for row in client.get("/v1/jobs")["jobs"]} >= {"completed", "failed", "running", "pending"}
    assert client.get("/v1/leases")["leases"]
    assert client.get("/v1/lending")["contracts"]
    web = client.get("/v1/departments/web")
    assert (web["scale"]["minimum"], bool(web["instances"])) == (2, True)
    assert client.get("/v1/usage", by="service", department="bio")["rows"]
    assert client.get("/v1/billable", day=exact(time.time() // DAY_S * DAY_S))["attempts"]
    assert client.get("/v1/starts/6")["starts"]


def test_the_page_gets_its_stream(cloud: Cloud) -> None:
    (read,) = [read for read in READS if read.content == EVENT_STREAM]
    status = cloud.status()
    token = Path(status["credentials"]["oscar"]["token"]).read_text().strip()
    request = urllib.request.Request(status["http_url"] + read.path, headers={"Authorization": f"Bearer {token}"})
    check = validator("/v1/picture")
    with urllib.request.urlopen(request, timeout=30) as answer:
        for line in answer:
            if line.startswith(b"data: "):
                assert not list(check.iter_errors(json.loads(line[6:])))
                return


# ------------------------------------------------------------------------------------------------------- schedulers, over NATS

ASYNCAPI = DIRECTORY / "asyncapi.json"
PUBLIC = [query for query in QUERIES if query.service == "scheduler" and not query.internal]
ASKED: dict[str, list[tuple[str, str, dict[str, Any]]]] = {  # by query: department, user, parameters
    "queue": [("hpc", "alice", {}), ("hpc", "alice", {"limit": 0}), ("bio", "ben", {}), ("web", "wendy", {})],
    "start": [("hpc", "alice", {}), ("hpc", "alice", {"jobs": ["5", "6"]}), ("bio", "ben", {})],
    "why": [*(("hpc", "alice", {"job": job}) for job in ("1", "2", "3", "4", "5", "6", "7")), ("web", "wendy", {})],
}


async def told(cloud: Cloud, name: str, department: str, user: str, parameters: dict[str, Any]) -> dict[str, Any]:
    status, inbox = cloud.status(), f"_INBOX_{department}.{user}"
    nkey = status["credentials"][user]["nkey"]
    nc = await nats.connect(status["nats_url"], nkeys_seed=nkey, inbox_prefix=inbox)
    try:
        subject = subjects.query("scheduler", department, name)
        answer: dict[str, Any] = json.loads((await nc.request(subject, json.dumps(parameters).encode(), 30)).data)
        return answer
    finally:
        await nc.close()


@pytest.mark.parametrize("name", [query.name for query in PUBLIC])
async def test_a_scheduler_answers_as_the_document_says(cloud: Cloud, name: str) -> None:
    document = json.loads(ASYNCAPI.read_text())
    reply = document["components"]["messages"][f"query.scheduler.{name}.reply"]["payload"]
    check = Draft7Validator(strict({**reply, "components": document["components"]}))
    found = [await told(cloud, name, *asked) for asked in ASKED[name]]
    assert [list(check.iter_errors(answer)) for answer in found] == [[] for _ in found], found
    if name == "queue":
        waiting = [(answer["pending"], [row["unit"] for row in answer["queue"]]) for answer in found[:2]]
        assert waiting == [(1, ["9"]), (1, [])]
        assert (found[0]["queue"][0]["priority"], found[0]["queue"][0]["exclusive"]) == (-3, True)
    if name == "start":
        assert {datetime.fromisoformat(answer["at"]).utcoffset() for answer in found} == {timedelta(0)}
        assert {unit: start["start_at"] for unit, start in found[1]["starts"].items()}["6"] is not None


# Of the calls whose request has an example: who sends it, in an order in which each can be granted.  What the path names is of
# this cloud, and so are instances and times in the example (`of_now`).
CALLS = {
    "/v1/whatif": "alice",
    "/v1/jobs": "alice",
    "/v1/jobs/{job}/hold": "alice",
    "/v1/jobs/{job}/release": "alice",
    "/v1/jobs/{job}/cancel": "alice",
    "/v1/leases": "alice",
    "/v1/leases/{lease}/extend": "alice",
    "/v1/leases/{lease}/cancel": "alice",
    "/v1/departments/{department}/scale": "wendy",
    "/v1/signals/{department}/{name}": "wendy",
    "/v1/departments/{department}/instances/{unit}/report": "wendy",
    "/v1/departments/{department}/releases": "wendy",
    "/v1/hosts/{host}/cordon": "oscar",
    "/v1/hosts/{host}/drain": "oscar",
    "/v1/hosts/{host}/uncordon": "oscar",
}


def exemplified(document: Any) -> dict[str, dict[str, Any]]:
    """Path -> its examples, by name."""
    found = {}
    for path, operations in document["paths"].items():
        for content in operations.get("post", {}).get("requestBody", {}).get("content", {}).values():
            shown = {name: one["value"] for name, one in content.get("examples", {}).items()}
            found[path] = shown | ({"": content["example"]} if "example" in content else {})
    return {path: shown for path, shown in found.items() if shown}


def of_now(part: Any, units: dict[str, str]) -> Any:
    """The example's times as long from now as they are from its story's, its instances as this cloud's."""
    if isinstance(part, dict):
        return {units.get(key, key): of_now(value, units) for key, value in part.items()}
    if isinstance(part, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", part):
        return exact(time.time() + datetime.fromisoformat(part).timestamp() - AT)
    return part


def test_every_example_of_a_request_is_granted_and_answered_as_the_document_says(cloud: Cloud) -> None:
    document = json.loads(openapi.document())
    shown = exemplified(document)
    assert set(shown) == set(CALLS)
    clients = {user: reader(cloud, user) for user in {*CALLS.values()}}
    rows = clients["oscar"].get("/v1/instances")["instances"]
    units = dict(zip(("web.7", "web.8"), (row["instance"] for row in rows), strict=False))
    waits = cloud.ok("submit", "--as", "alice", "-d", "afterok:3", "--wrap", "true").strip()
    places = {"job": waits, "department": "web", "host": "host003", "unit": units["web.7"]}
    try:
        for path, user in CALLS.items():
            for name, example in shown[path].items():
                at = path.format(name=name, **places)
                answer = clients[user].fetch("POST", at, json.dumps(of_now(example, units)).encode())
                told = json.loads(answer.body)
                assert answer.status == 200, f"{at}: {told}"
                schema = document["paths"][path]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
                check = Draft202012Validator(strict({**schema, "components": document["components"]}))
                assert [error.message for error in check.iter_errors(told)] == [], at
                assert all("error" not in one or one["error"] is None for one in told.get("results", [])), told
                if "lease" in told:
                    places["lease"] = told["lease"]
    finally:
        cloud.ok("scale", "web", "2")


# -------------------------------------------------------------------------------------------------- requests of Schemathesis


def test_requests_made_from_the_document_are_answered_as_it_says(cloud: Cloud) -> None:
    """One allowed and one not, of each operation but those of guests and of leases, whose data take longest to make."""
    status = cloud.status()
    token = Path(status["credentials"]["oscar"]["token"]).read_text().strip()
    found = fuzz(
        DOCUMENT,
        status["http_url"],
        {"bearer": token},
        examples=1,
        phases=("fuzzing",),
        only=f"(?!/v1/leases$)(?:{OTHERS})",
    )
    assert not found.failures, "\n\n".join(found.failures)
    assert found.count() > 100


def test_requests_made_from_the_schemas_are_answered_over_nats_as_they_say(cloud: Cloud) -> None:
    with nats_fuzz.bridge(cloud.status()) as bridge:
        options: dict[str, Any] = {"examples": 2, "phases": ("fuzzing",), "meant": nats_fuzz.meant(), "only": OVER_NATS}
        found = fuzz(
            nats_fuzz.document(), bridge.url, {}, line=lambda curl: nats_fuzz.line(bridge.status, curl), **options
        )
    assert not found.failures, "\n\n".join(found.failures)
    assert len(found.answers) == 6
