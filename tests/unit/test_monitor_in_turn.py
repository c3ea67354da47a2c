"""Turns of the monitor's reads: whoever asks too much is refused with when to ask again, and others are answered."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from services.monitor.http.access import faults
from services.monitor.http.read_queue import InTurn
from services.runtime.callers.identity import Identity
from services.runtime.callers.peers import Peers
from services.runtime.fair_queue import Bounds
from services.runtime.request_queue import Turns
from tests.support.until import until


class Access:
    def asker(self, request: web.Request) -> Identity:
        user = request.headers["User"]
        return Identity(user, {"bob": "bio"}.get(user, "hpc"), "user")


async def test_a_caller_with_too_many_reads_is_refused_and_others_are_answered() -> None:
    let_go, streams = asyncio.Event(), asyncio.Event()
    turns = Turns(Bounds(waiting_max=1, depth_alone=1.0, depth_beside=1.0))
    in_turn = InTurn(Access(), turns, Peers())  # type: ignore[arg-type]

    async def slow(_request: web.Request) -> web.Response:
        await let_go.wait()
        return web.Response(body=b"x" * 100)

    async def stream(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await streams.wait()
        return answer

    async def quick(_request: web.Request) -> web.Response:
        return web.Response()

    app = web.Application(middlewares=[faults, in_turn.served])
    in_turn.watch(app)
    app.add_routes([web.get("/v1/slow", slow), web.get("/v1/stream", stream), web.get("/v1/quick", quick)])

    async def get(path: str, user: str) -> Any:
        return await client.get(path, headers={"User": user})

    async with TestClient(TestServer(app)) as client:
        first = asyncio.create_task(get("/v1/slow", "eve"))
        await until(lambda: not turns.queue.waiting and turns.queue._callers, "the first has its turn")
        second = asyncio.create_task(get("/v1/slow", "eve"))
        await until(lambda: turns.queue.waiting == 1, "the second waits")
        third = await get("/v1/slow", "eve")
        assert (third.status, third.headers["Retry-After"]) == (429, "1")
        assert (await third.json())["code"] == "limit"
        assert (await get("/v1/quick", "bob")).status == 200
        let_go.set()
        assert [(await one).status for one in (first, second)] == [200, 200]
        open_stream = await get("/v1/stream", "eve")  # its answer has begun: it holds no turn
        assert (await get("/v1/quick", "eve")).status == 200
        streams.set()
        assert open_stream.status == 200
