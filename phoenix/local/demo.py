"""`make demo`: a day in the life of two departments, played in about a minute on this machine.

Everything is real: the cloud is the one that `phoenix up` starts, jobs are processes with output, web instances are HTTP
servers behind HAProxy (behind the embedded load balancer where there is none), and the load is HTTP.  What is not as in
production: the day is short, so the web rule looks at a window of 3 seconds instead of 20, and a core of a host is a twentieth
of a real one, so that sixteen hosts fit here.

    python -m phoenix.local.demo [--seconds 60] [--hosts 16] [--out out] [--data DIR]

Exit codes: 0 nothing was lost, 1 something was, or the cloud did not start, 130 Ctrl-C.  No process is left in any case.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson

from phoenix.local import demo_report
from phoenix.local.demo_load import People, Researchers
from phoenix.local.demo_view import Show
from phoenix.local.programs import program
from phoenix.local.stack_layout import layout
from phoenix.local.stack_settings import Balancer
from phoenix.local.supervisor import StartError, Supervisor
from schemas.units import exact
from services.runtime.broker import credentials

CLOUD: Final = Path(__file__).with_name("demo_cloud.toml")
CORES: Final = 2
PEOPLE_MOST: Final = 60
FINISH_S: Final = 90.0  # after the day: everything that is pending must end within it
READY_S: Final = 30.0
CALL_S: Final = 10.0
SUBMIT_S: Final = 30.0  # a service that hangs is replaced within 20 s
ASK_S: Final = 0.25
FETCHES: Final = 16  # at the same time, when the outputs are checked


class Api:
    """The door, for one user."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self._session = session
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"}

    async def get(self, path: str) -> Any:
        async with self._session.get(self._url + path, headers=self._headers) as answer:
            answer.raise_for_status()
            if answer.content_type == "application/x-ndjson":
                return [orjson.loads(line) for line in (await answer.read()).splitlines() if line]
            return orjson.loads(await answer.read())

    async def text(self, path: str) -> str:
        async with self._session.get(self._url + path, headers=self._headers) as answer:
            answer.raise_for_status()
            return await answer.text()

    async def submit(self, request: dict[str, Any]) -> str:
        """The job.  Asked for again where no answer came: with its request id that cannot make a second one."""
        deadline = time.monotonic() + SUBMIT_S
        while True:
            try:
                return await self._submit(request)
            except (aiohttp.ClientConnectionError, TimeoutError) as error:
                if time.monotonic() > deadline:
                    raise DemoError(f"admission does not answer: {error!r}") from error
            await asyncio.sleep(ASK_S)

    async def _submit(self, request: dict[str, Any]) -> str:
        async with self._session.post(f"{self._url}/v1/jobs", json=request, headers=self._headers) as answer:
            reply = await answer.json(content_type=None)
            if "job" not in reply:
                raise DemoError(f"a job was refused: {reply.get('detail', answer.status)}")
            return str(reply["job"])


class DemoError(Exception):
    """The demo cannot continue; the message says why."""


async def play(up: Supervisor, day_s: float, show: Show) -> demo_report.Day:
    """The day on a running cloud, to its very end."""
    timeout = aiohttp.ClientTimeout(total=CALL_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        operator, alice = _api(session, up, "oscar"), _api(session, up, "alice")
        balancer = str(up.status()["balancers"]["web"])
        await _until(lambda: _serves(session, balancer), READY_S, "no web instance answers through the load balancer")
        began_at = time.time()
        people, researchers = People(balancer, day_s, PEOPLE_MOST), Researchers(alice.submit, day_s)
        viewer = asyncio.create_task(show.run(operator.get, people.seen, researchers.seen, day_s), name="view")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(people.live())
                group.create_task(researchers.live())
            submitted = researchers.seen.submitted
            await _until(lambda: _queue_is_empty(operator), FINISH_S, "", fail=False)
        finally:
            viewer.cancel()
            await asyncio.gather(viewer, return_exceptions=True)
        jobs = await _each(submitted, lambda job: operator.get(f"/v1/jobs/{job}"))
        outputs = await _each(submitted, lambda job: operator.text(f"/v1/jobs/{job}/output?stream=stdout"))
        ended_at = time.time()
        timeline = (await operator.get("/v1/summary"))["timeline"]
        summary = {**await operator.get(f"/v1/summary?since={exact(began_at)}"), "timeline": timeline}
        last = {job: (text.rstrip().splitlines() or [""])[-1] for job, text in outputs.items()}
        return demo_report.Day(submitted, jobs, last, summary, people.seen, began_at, ended_at, up.settings.balancer)


def _api(session: aiohttp.ClientSession, up: Supervisor, user: str) -> Api:
    token = credentials.token_file(up.config, user).read_text().strip()
    return Api(session, up.config.http.url, token)


async def _each(jobs: list[str], fetch: Callable[[str], Awaitable[Any]]) -> dict[str, Any]:
    gate = asyncio.Semaphore(FETCHES)

    async def one(job: str) -> tuple[str, Any]:
        async with gate:
            return job, await fetch(job)

    return dict(await asyncio.gather(*(one(job) for job in jobs)))


async def _until(true: Callable[[], Awaitable[bool]], within_s: float, otherwise: str, fail: bool = True) -> None:
    deadline = time.monotonic() + within_s
    while not await true():
        if time.monotonic() > deadline:
            if fail:
                raise DemoError(f"{otherwise} (within {within_s:.0f} s)")
            return
        await asyncio.sleep(ASK_S)


async def _serves(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url}/?cpu_ms=0") as answer:
            await answer.read()
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


async def _queue_is_empty(operator: Api) -> bool:
    return int((await operator.get("/v1/queue?department=hpc&limit=1"))["total"]) == 0


async def _demo(args: argparse.Namespace, data: Path) -> int:
    up = Supervisor(layout(data), lambda text: print(f"phoenix: {text}", flush=True))
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    print(f"A day of two departments in {args.seconds:.0f} s on {args.hosts} hosts.")
    print("To fit a day, the web rule uses a window of 3 s here (default: 20 s).", flush=True)
    try:
        balancer: Balancer = "haproxy" if program("haproxy") else "embedded"
        await up.start(CLOUD, hosts=args.hosts, cores=CORES, hypervisor="process", balancer=balancer, services="all")
        up.tell = lambda _text: None  # the live view has the screen; the logs have the rest
        day = await play(up, args.seconds, Show())
        return _report(day, args.out / "first-day.svg")
    finally:
        await up.stop(hard=True)


def _report(day: demo_report.Day, picture: Path) -> int:
    demo_report.picture(day, picture)
    print(f"\nThe day is over:\n{demo_report.text(day)}\n  picture          {picture}")
    print("\nNext, a cloud of your own: .venv/bin/phoenix up --detach (and .venv/bin/phoenix --help)")
    problems = demo_report.lost(day)
    for problem in problems[:20]:
        print(f"  LOST             {problem}")
    if len(problems) > 20:
        print(f"  LOST             … and {len(problems) - 20} more")
    return 1 if problems else 0


def _first(error: BaseException) -> str:
    """The cause of a failure; of several at once the first one's."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or f"no answer within {CALL_S:.0f} s"  # a TimeoutError has no text


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m phoenix.local.demo", description="A day of two departments in a minute."
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the day (default 60)")
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--out", type=Path, default=Path("out"), help="directory of the picture (default ./out)")
    parser.add_argument("--data", type=Path, help="keep the cloud's data here (default: a directory that is deleted)")
    args = parser.parse_args(argv)
    data = args.data or Path(tempfile.mkdtemp(prefix="phoenix-demo-"))
    code = 1
    try:
        code = asyncio.run(_demo(args, data))
    except (StartError, DemoError, aiohttp.ClientError, TimeoutError, ExceptionGroup) as error:
        print(f"phoenix: the demo failed: {_first(error)}", file=sys.stderr)
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("\nphoenix: interrupted; everything is stopped", file=sys.stderr)
        code = 130
    if code == 1:
        print(f"phoenix: logs and journal are kept in {data}", file=sys.stderr)
    elif args.data is None:
        shutil.rmtree(data, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
