"""A real HTTP server with the guest contract, for tests of guests without the services behind the true one."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

from phoenix.local.driver import HostSpec, VmSpec
from schemas.problems import problem
from services.runtime.http.answers import problem_answer

KEY = b"a guest key for tests"
HOST = HostSpec(0, "host0", 4, 8192)


def token_of(phoenix_id: str) -> str:
    return hmac.new(KEY, phoenix_id.encode(), hashlib.sha256).hexdigest()


def job_token_of(phoenix_id: str) -> str:
    return hashlib.sha256(f"job:{token_of(phoenix_id)}".encode()).hexdigest()


@dataclass
class Life:
    """What the door knows of one guest."""

    boot: dict[str, Any]
    inputs: dict[str, bytes] = field(default_factory=dict)
    began: list[str | None] = field(default_factory=list)
    output: dict[str, bytearray] = field(default_factory=lambda: {"stdout": bytearray(), "stderr": bytearray()})
    files: dict[str, bytes] = field(default_factory=dict)
    sent: dict[str, bytes] = field(default_factory=dict)  # for a checkpoint, by digest
    checkpoints: list[dict[str, Any]] = field(default_factory=list)  # as they were said
    saved: dict[str, bytes] = field(default_factory=dict)  # what an earlier attempt left
    report: dict[str, Any] | None = None
    usages: list[dict[str, Any]] = field(default_factory=list)
    used: list[dict[str, Any]] = field(default_factory=list)  # by a job
    ended: dict[str, Any] | None = None  # how an instance's program did
    stay: bool = False  # told so after the report
    following: str = ""  # <unit>/<attempt>/<rank> of the VM's next job
    asked_next: int = 0
    gone: bool = False
    unavailable: int = 0
    refuses: dict[str, tuple[int, str]] = field(default_factory=dict)  # call -> status and sentence
    requests: int = 0

    def text(self, stream: str = "stdout") -> str:
        return self.output[stream].decode()


class GuestDoor:
    """`async with GuestDoor() as door`; `add` a unit, boot its VM, look at `lives`."""

    def __init__(self) -> None:
        self.lives: dict[str, Life] = {}
        self.url = ""
        self._changed = asyncio.Condition()
        self._commands: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        self._events: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
        self._heard: dict[tuple[str, str, str, str], int] = defaultdict(int)
        self._next_vm = 1

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=128 << 20)
        base = "/v1/guest/{unit}/{attempt}/{rank}"
        app.add_routes(
            [
                web.get(base + "/boot", self._guarded(self._boot)),
                web.post(base + "/began", self._guarded(self._began)),
                web.put(base + "/output/{stream}", self._guarded(self._output)),
                web.put(base + "/files/{name:.+}", self._guarded(self._file)),
                web.get(base + "/inputs/{name:.+}", self._guarded(self._input)),
                web.post(base + "/report", self._guarded(self._report)),
                web.post(base + "/usage", self._guarded(self._usage)),
                web.post(base + "/used", self._guarded(self._used, there=True)),
                web.post(base + "/ended", self._guarded(self._ended)),
                web.post(base + "/next", self._guarded(self._next)),
                web.put(base + "/checkpoint/files/{name:.+}", self._guarded(self._send, job=True)),
                web.get(base + "/checkpoint/files/{name:.+}", self._guarded(self._saved, job=True)),
                web.post(base + "/checkpoint", self._guarded(self._checkpoint, job=True)),
                web.post(base + "/launch", self._guarded(self._launch, job=True)),
                web.get(base + "/commands", self._guarded(self._get_commands)),
                web.post(base + "/launch/{id}/events", self._guarded(self._post_events)),
                web.get(base + "/launch/{id}/events", self._guarded(self._get_events, job=True)),
                web.post(base + "/launch/{id}/signal", self._guarded(self._signal, job=True)),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def add(self, unit: str, rank: int = 0, ranks: int = 1, **boot: Any) -> Life:
        """Make a guest known: a job with this script unless `boot` says otherwise."""
        life = Life(
            {
                "kind": "job",
                "unit": unit,
                "attempt": 1,
                "rank": rank,
                "ranks": ranks,
                "department": "hpc",
                "user": "ada",
                "name": f"job {unit}",
                "cores": 1,
                "memory_mb": 128,
                "nodes": [f"host{number}" for number in range(ranks)],
                "script": "#!/bin/sh\n",
                "argv": [],
                "environment": {},
                "directory": None,
                "stdout": None,
                "stderr": None,
                "inputs": [],
                "keep": [],
                "grace_s": None,
                "walltime_s": None,
                "health_path": None,
                "array_job": None,
                "array_index": None,
                **boot,
            }
        )
        self.lives[f"{unit}/{life.boot['attempt']}/{rank}"] = life
        return life

    def vm(self, unit: str, rank: int = 0, attempt: int = 1, cpu: float = 20.0, **spec: Any) -> VmSpec:
        """The VM of a guest; 20 virtual cores at the default share are one real one, so that tests are quick."""
        phoenix_id = f"cloud/{unit}/{attempt}/{rank}"
        context = {"PHOENIX_ID": phoenix_id, "PHOENIX_URL": self.url, "PHOENIX_TOKEN": token_of(phoenix_id)}
        vm_id, self._next_vm = self._next_vm, self._next_vm + 1
        fields = {"memory_mb": 128, "attributes": {"PHOENIX_DEPARTMENT": "hpc"}, **spec}
        return VmSpec(vm_id=vm_id, name=unit, cpu=cpu, context=context, **fields)

    async def until(self, condition: Callable[[], Any], deadline_s: float = 20.0) -> None:
        """Wait until a condition on what the door knows holds."""
        async with asyncio.timeout(deadline_s), self._changed:
            await self._changed.wait_for(condition)

    def _guarded(
        self, handler: Callable[..., Any], job: bool = False, there: bool = False
    ) -> Callable[[web.Request], Any]:
        async def guarded(request: web.Request) -> web.StreamResponse:
            path = "/".join(request.match_info[key] for key in ("unit", "attempt", "rank"))
            right = [token_of(f"cloud/{path}"), *([job_token_of(f"cloud/{path}")] if job else [])]
            if request.headers.get("Authorization") not in [f"Bearer {token}" for token in right]:
                return web.Response(status=401)
            life = self.lives[path]
            life.requests += 1
            if life.unavailable > 0:
                life.unavailable -= 1
                return web.Response(status=503)
            if life.gone and not there:
                return problem_answer(problem("gone", "this attempt is over"))
            call = request.path.partition(f"/{path}/")[2]
            if call in life.refuses:
                status, sentence = life.refuses[call]
                await request.read()
                return problem_answer(problem("limit", sentence, status=status))
            answer: web.StreamResponse = await handler(life, request)
            async with self._changed:
                self._changed.notify_all()
            return answer

        return guarded

    async def _boot(self, life: Life, request: web.Request) -> web.Response:
        return web.json_response(life.boot)

    async def _began(self, life: Life, request: web.Request) -> web.Response:
        life.began.append((await request.json())["address"])
        return web.Response(status=204)

    async def _output(self, life: Life, request: web.Request) -> web.Response:
        data, offset = await request.read(), int(request.query["offset"])
        stream = life.output[request.match_info["stream"]]
        if offset + len(data) > 64 << 20:
            return web.Response(status=413)
        assert len(data) <= 1 << 20
        assert offset <= len(stream)
        stream[offset : offset + len(data)] = data
        return web.Response(status=204)

    async def _file(self, life: Life, request: web.Request) -> web.Response:
        life.files[request.match_info["name"]] = await request.read()
        return web.Response(status=204)

    async def _send(self, life: Life, request: web.Request) -> web.Response:
        data = await request.read()
        life.sent[hashlib.sha256(data).hexdigest()] = data
        return web.json_response({"name": request.match_info["name"]})

    async def _saved(self, life: Life, request: web.Request) -> web.Response:
        return web.Response(body=life.saved[request.match_info["name"]])

    async def _checkpoint(self, life: Life, request: web.Request) -> web.Response:
        said = await request.json()
        files = [life.sent[file["sha256"]] for file in said["files"]]
        life.checkpoints.append({**said, "files": dict(zip([f["name"] for f in said["files"]], files, strict=True))})
        return web.json_response({"status": "acknowledged", "files": len(files), "bytes": sum(map(len, files))})

    async def _input(self, life: Life, request: web.Request) -> web.Response:
        return web.Response(body=life.inputs[request.match_info["name"]])

    async def _ended(self, life: Life, request: web.Request) -> web.Response:
        life.ended = await request.json()
        return web.Response(status=204)

    async def _usage(self, life: Life, request: web.Request) -> web.Response:
        life.usages.append(await request.json())
        return web.Response(status=204)

    async def _used(self, life: Life, request: web.Request) -> web.Response:
        life.used.append(await request.json())
        return web.Response(status=204)

    async def _report(self, life: Life, request: web.Request) -> web.Response:
        life.report = await request.json()
        return web.json_response({"status": "acknowledged", **({"stay": True} if life.stay else {})})

    async def _next(self, life: Life, request: web.Request) -> web.Response:
        life.asked_next += 1
        async with self._changed:
            self._changed.notify_all()
        await self.until(lambda: life.following or life.gone, float(request.query["wait_s"]))
        if life.gone:
            return problem_answer(problem("gone", "this attempt is over"))
        phoenix_id = f"cloud/{life.following}"
        return web.json_response({"status": "bound", "id": phoenix_id, "token": token_of(phoenix_id)})

    async def bind(self, life: Life, following: str) -> None:
        """The VM's next job is this one."""
        life.following = following
        await self.news()

    async def dismiss(self, life: Life) -> None:
        life.gone = True
        await self.news()

    async def news(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _launch(self, life: Life, request: web.Request) -> web.Response:
        wish, (unit, attempt) = await request.json(), self._unit(request)
        ranks = life.boot["ranks"]
        share, extra = divmod(wish["tasks"], ranks)
        first = 0
        for rank in range(ranks):
            count = share + (rank < extra)
            fields = {name: wish[name] for name in ("id", "argv", "environment", "directory")}
            if count:
                self._command(unit, attempt, rank, {"kind": "launch", **fields, "first": first, "tasks": count})
            first += count
        return web.Response(status=202)

    def _command(self, unit: str, attempt: str, rank: int, command: dict[str, Any]) -> None:
        commands = self._commands[f"{unit}/{attempt}", str(rank)]
        if not any(command["kind"] == "launch" == old["kind"] and old["id"] == command["id"] for old in commands):
            commands.append({"n": len(commands) + 1, **command})

    def _unit(self, request: web.Request) -> tuple[str, str]:
        return request.match_info["unit"], request.match_info["attempt"]

    async def _get_commands(self, life: Life, request: web.Request) -> web.Response:
        key = ("/".join(self._unit(request)), request.match_info["rank"])
        found = await self._poll(life, request, lambda after: [c for c in self._commands[key] if c["n"] > after])
        if life.gone:
            return problem_answer(problem("gone", "this attempt is over"))
        return web.json_response({"commands": found})

    async def _poll(self, life: Life, request: web.Request, find: Callable[[int], list[Any]]) -> list[Any]:
        after = int(request.query["after"])
        try:
            async with asyncio.timeout(float(request.query["wait_s"])), self._changed:
                await self._changed.wait_for(lambda: find(after) or life.gone)
        except TimeoutError:
            return []
        return find(after)

    async def _post_events(self, life: Life, request: web.Request) -> web.Response:
        body, rank = await request.json(), request.match_info["rank"]
        key = (*self._unit(request), request.match_info["id"])
        for number, event in enumerate(body["events"], body["first"]):
            if number == self._heard[*key, rank]:
                self._heard[*key, rank] += 1
                events = self._events[key]
                events.append({"n": len(events) + 1, "rank": int(rank), **event})
        return web.Response(status=204)

    async def _get_events(self, life: Life, request: web.Request) -> web.Response:
        key = (*self._unit(request), request.match_info["id"])
        found = await self._poll(life, request, lambda after: [e for e in self._events[key] if e["n"] > after])
        return web.json_response({"events": found})

    async def _signal(self, life: Life, request: web.Request) -> web.Response:
        number = (await request.json())["signal"]
        unit, attempt = self._unit(request)
        for rank in range(life.boot["ranks"]):
            self._command(unit, attempt, rank, {"kind": "signal", "id": request.match_info["id"], "signal": number})
        return web.Response(status=204)

    async def lose(self, unit: str, rank: int = 0, attempt: int = 1) -> None:
        """From now on this attempt is over."""
        self.lives[f"{unit}/{attempt}/{rank}"].gone = True
        async with self._changed:
            self._changed.notify_all()


def printed(events: list[dict[str, Any]]) -> bytes:
    return b"".join(base64.b64decode(event["data"]) for event in events if "data" in event)
