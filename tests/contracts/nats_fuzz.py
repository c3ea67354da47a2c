"""The same over NATS (`http_fuzz`): requests and queries made from the schemas of their structs, valid and mutated.

Theory of operation
  Schemathesis speaks HTTP.  `document` is an OpenAPI document whose paths are subjects; `Bridge` passes on what is sent to such
  a path with the credentials of the subject's user, and answers with the reply: its status is that of the problem, or 200.

Rules
  1. Every kind of request, and every query, those between services too: users may send them.
  2. A failure has its request as a line for the program `nats`, which can be pasted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import Iterator
from typing import Any, Final

from aiohttp import web
from nats.aio.client import Client

from benchmarks.cloud import connect
from schemas import problems, queries
from schemas import requests as r
from schemas.descriptions import schema_components
from schemas.problems import Problem
from schemas.subjects import query, request
from tests.contracts.http_fuzz import MEANT

REF: Final = "#/components/schemas/{name}"
ANSWER_S: Final = 30.0
BODY_MAX: Final = 1_000_000  # what the broker takes
SENDERS: Final = {"hpc": "alice", "web": "wendy", "operators": "oscar"}
OPERATORS: Final = ("host.cordon", "host.drain", "host.uncordon", "config.apply")
WEB: Final = ("scale.set", "release.deploy", "instance.list", "instance.report", "department", "releases", "troubles")
# Of which kind's fields `MEANT` has those of the same request over HTTP.
_HTTP: Final = {
    "job.submit": "/v1/jobs",
    "job.whatif": "/v1/whatif",
    "lease.create": "/v1/leases",
    "lease.extend": "/v1/leases/{lease}/extend",
    "lease.cancel": "/v1/leases/{lease}/cancel",
    "scale.set": "/v1/departments/{department}/scale",
    "release.deploy": "/v1/departments/{department}/releases",
    "instance.report": "/v1/departments/{department}/instances/{unit}/report",
}
_CURL: Final = re.compile(r"(?:-d (?P<body>.*) )?'?http://[^/]+/(?P<subject>phoenix\.[\w.-]+)'?\Z", re.DOTALL)


def _department(name: str) -> str:
    return "operators" if name in OPERATORS else "web" if name in WEB else "hpc"


def subjects() -> dict[str, tuple[str, type, tuple[type, ...]]]:
    """Subject -> its kind or name, what is asked there, and what is answered."""
    found: dict[str, tuple[str, type, tuple[type, ...]]] = {}
    for kind, (asked, answered) in r.REQUESTS.items():
        department = _department(kind)
        found[request(department, SENDERS[department], *kind.split("."))] = kind, asked, (answered,)
    for one in queries.QUERIES:
        found[query(one.service, _department(one.name), one.name)] = one.name, one.asked, one.answered
    return found


def document() -> dict[str, Any]:
    known = subjects()
    asked = dict.fromkeys(one for _, one, _ in known.values())
    sent = dict.fromkeys([*(answer for _, _, answers in known.values() for answer in answers), Problem])
    _, schemas = schema_components(asked, REF, sent=sent)
    refused = {"description": "x", "content": {problems.JSON: {"schema": _ref(Problem)}}}
    paths = {}
    for subject, (_, body, answers) in known.items():
        shown: dict[str, Any] = {"anyOf": [_ref(one) for one in answers]} if answers else {"type": "object"}
        paths[f"/{subject}"] = {
            "post": {
                "operationId": subject,
                "requestBody": {"required": True, "content": {"application/json": {"schema": _ref(body)}}},
                "responses": {
                    "200": {"description": "x", "content": {"application/json": {"schema": shown}}},
                    "4XX": refused,
                    "503": refused,
                },
            }
        }
    info = {"title": "Phoenix Cloud over NATS", "version": "1"}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _ref(cls: type) -> dict[str, str]:
    return {"$ref": REF.format(name=cls.__name__)}


def meant() -> dict[str, dict[str, str]]:
    """As `MEANT` has it."""
    lease = {"lease": "a number"}
    more = {
        "lease.extend": lease,
        "lease.cancel": lease,
        "instance.report": {"unit": "an instance of the department"},
        "config.apply": {".*": "what settings have to do with each other, and which files there are"},
        "job.cancel": {"jobs.*": "numbers of jobs"},
        "why": {"job": "a batch department needs one"},
        "whatif": {"jobs.*": "what the configuration says of them"},
    }
    fields = {kind: {**MEANT.get(_HTTP.get(kind, ""), {}), **more.get(kind, {})} for kind, _, _ in subjects().values()}
    return {f"/{subject}": fields[kind] for subject, (kind, _, _) in subjects().items()}


def line(status: dict[str, Any], curl: str) -> str:
    """Rule 2."""
    found = _CURL.search(curl)
    assert found is not None, curl
    user = _sender(found["subject"])
    known = status["credentials"][user]
    options = f"--server {status['nats_url']} --nkey {known['nkey']} --inbox-prefix {known['inbox_prefix']}"
    return f"nats request {options} {found['subject']} {found['body'] or repr('')}"


def _sender(subject: str) -> str:
    parts = subject.split(".")
    return SENDERS[parts[2] if parts[1] == "request" else parts[3]]


class Bridge:
    """`url`: where POST /<subject> is a request there."""

    def __init__(self, status: dict[str, Any]) -> None:
        self.status, self.url = status, ""
        self._clients: dict[str, Client] = {}

    async def _pass_on(self, asked: web.Request) -> web.Response:
        subject, body = asked.path.removeprefix("/"), await asked.read()
        user = _sender(subject)
        if user not in self._clients:
            self._clients[user] = await connect(self.status, user)
        told = await self._clients[user].request(subject, body[:BODY_MAX], timeout=ANSWER_S)
        found = json.loads(told.data)
        is_problem = problems.is_problem(told.data)
        kind = (told.headers or {}).get("Content-Type", "application/json")
        headers = {"Retry-After": "1"} if is_problem and found.get("retry_after_s") else {}
        return web.Response(
            body=told.data, status=found["status"] if is_problem else 200, headers={"Content-Type": kind, **headers}
        )

    async def _serve(self, ready: threading.Event, end: asyncio.Event) -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/{subject}", self._pass_on)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        ready.set()
        await end.wait()
        await runner.cleanup()
        for client in self._clients.values():
            await client.close()


@contextlib.contextmanager
def bridge(status: dict[str, Any]) -> Iterator[Bridge]:
    made, ready, loop = Bridge(status), threading.Event(), asyncio.new_event_loop()
    end = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(made._serve(ready, end)))
    thread.start()
    try:
        assert ready.wait(ANSWER_S)
        yield made
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join()
        loop.close()
