"""What one user's flood costs another department: the victim's 99th percentile beside the flood, and beside a process that is
as busy and does not talk to the cloud.

    python -m benchmarks.flood [--kinds submit,whatif,…] [--seconds 15] [--pairs 1] [--json]

Each run has a cloud of its own (dummy machines, two batch departments).  `mallory` of hpc floods; `bob` of bio asks on, a
request at a time at each door.  First the flood, in one process; then the control, which uses as much CPU as the flooder did
and nothing else.  With several pairs every second one begins with the control.  A request that fails, is refused or takes
longer than `ANSWER_S` counts as that long.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import nats.errors
import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg

from benchmarks.cloud import Cpu, cloud, connect, memory_mb, percentile, table, tell
from schemas.problems import is_problem

CONFIG: Final = """
[cloud]
name = "flood"
[[department]]
name = "hpc"
kind = "batch"
[[department]]
name = "bio"
kind = "batch"
[[user]]
name = "mallory"
department = "hpc"
[[user]]
name = "bob"
department = "bio"
"""
ANSWER_S: Final = 10.0
PAUSE_S: Final = 0.01  # between two requests of the victim
WARM_S: Final = 2.0  # of flood or control, before the victim's requests count
ARRAY: Final = 10_000  # elements of the array that is held and released
CONNECTIONS: Final = 64  # of a flooder over HTTP
SLICE_S: Final = 0.02  # in which a flooder keeps its rate, and the control its share
JOB: Final = {"script": "#!/bin/sh\ntrue\n", "held": True}


def _asks(kind: str, body: dict[str, Any]) -> tuple[str, bytes]:
    return f"phoenix.request.hpc.mallory.{kind}", orjson.dumps(body)


# ---------------------------------------------------------------------------------------------------------------- flooders


class Tally:
    def __init__(self) -> None:
        self.sent = self.answered = self.granted = 0

    async def heard(self, msg: Msg) -> None:
        self.answered += 1
        self.granted += not is_problem(msg.data)


async def flood_nats(
    nc: Client, tally: Tally, per_s: float, made: list[tuple[str, bytes]], reply: str, end: float
) -> None:
    """`per_s` messages a second, of `made` in turn."""
    began = time.perf_counter()
    while (now := time.perf_counter()) < end:
        for _ in range(int((now - began) * per_s) - tally.sent):
            subject, data = made[tally.sent % len(made)]
            await nc.publish(subject, data, reply=reply)
            tally.sent += 1
            if not tally.sent % 200:
                await asyncio.sleep(0)
                if time.perf_counter() >= end:
                    return
        await asyncio.sleep(SLICE_S)


def over_nats(per_s: float, made: Callable[[str], list[tuple[str, bytes]]], foreign: bool = False) -> Any:
    async def run(status: dict[str, Any], end: Callable[[], float], tally: Tally) -> None:
        nc = await connect(status, "mallory")
        inbox = nc.new_inbox()
        await nc.subscribe(inbox, cb=tally.heard)
        array = ""
        if made is array_changes:
            body = {**JOB, "array": f"1-{ARRAY}"}
            answer = await nc.request(*_asks("job.submit", body), timeout=60.0)
            array = orjson.loads(answer.data)["job"]
        reply = "_INBOX_bio.bob.stolen" if foreign else inbox
        await flood_nats(nc, tally, per_s, made(array), reply, end())
        await nc.close()

    return run


def submissions(_array: str) -> list[tuple[str, bytes]]:
    return [_asks("job.submit", JOB)]


def whatifs(_array: str) -> list[tuple[str, bytes]]:
    return [_asks("job.whatif", {"script": "#!/bin/sh\ntrue\n", "walltime_s": 600})]


def cancels(_array: str) -> list[tuple[str, bytes]]:
    return [_asks("job.cancel", {"jobs": [str(n) for n in range(1, 101)]})]


def array_changes(array: str) -> list[tuple[str, bytes]]:
    return [_asks("job.hold", {"jobs": [array]}), _asks("job.release", {"jobs": [array]})]


def queries(_array: str) -> list[tuple[str, bytes]]:
    return [("phoenix.query.monitor.hpc.hosts", b"{}"), ("phoenix.query.monitor.hpc.queue", b"{}")]


def over_http(method: str, path: str, *, body: Any = None, monitor: bool = False, token: bool = True) -> Any:
    """As fast as CONNECTIONS go; the monitor's reads are asked of a queue that is long."""

    async def run(status: dict[str, Any], end: Callable[[], float], tally: Tally) -> None:
        url = status["monitor_url" if monitor else "http_url"] + path
        headers = {"Authorization": f"Bearer {_token(status, 'mallory') if token else 'x' * 40}"}
        connector = aiohttp.TCPConnector(limit=0, local_addr=("127.0.0.2", 0))
        async with aiohttp.ClientSession(connector=connector) as session:
            if method == "GET":
                data = {**JOB, "array": f"1-{ARRAY}"}
                await session.post(status["http_url"] + "/v1/jobs", json=data, headers=headers)

            async def one(until: float) -> None:
                while time.perf_counter() < until:
                    tally.sent += 1
                    try:
                        async with session.request(method, url, json=body, headers=headers) as answer:
                            await answer.read()
                            tally.granted += answer.status < 400
                        tally.answered += 1
                    except (aiohttp.ClientError, TimeoutError):
                        await asyncio.sleep(0.001)

            until = end()
            await asyncio.gather(*(one(until) for _ in range(CONNECTIONS)))

    return run


FLOODS: Final[dict[str, Any]] = {
    "submit": over_nats(10_000, submissions),
    "whatif": over_nats(10_000, whatifs),
    "cancel": over_nats(2_500, cancels),
    "hold": over_nats(43, array_changes),
    "foreign": over_nats(10_000, submissions, foreign=True),
    "query": over_nats(2_500, queries),
    "http-submit": over_http("POST", "/v1/jobs", body=JOB),
    "http-read": over_http("GET", "/v1/queue"),
    "http-monitor": over_http("GET", "/v1/queue", monitor=True),
    "http-nobody": over_http("POST", "/v1/jobs", body=JOB, token=False),
}


async def flood(kind: str, seconds: float) -> None:
    """The flooder's process: told the cloud's status on stdin; tells when it has begun, and at its end what it did."""
    status, tally, at = json.load(sys.stdin), Tally(), [0.0, 0.0]

    def end() -> float:
        print("begun", flush=True)
        at[:] = time.perf_counter(), time.process_time()
        return at[0] + seconds

    await FLOODS[kind](status, end, tally)
    took_s = time.perf_counter() - at[0]
    share = (time.process_time() - at[1]) / took_s
    told = {"share": share, "sent_per_s": tally.sent / took_s, "granted_per_s": tally.granted / took_s}
    print(json.dumps({**told, "answered_per_s": tally.answered / took_s}))


def be_busy(share: float, seconds: float) -> None:
    """The control's process."""
    print("begun", flush=True)
    end = time.perf_counter() + seconds
    while (now := time.perf_counter()) < end:
        used = time.process_time()
        while time.process_time() - used < share * SLICE_S and time.perf_counter() < end:
            pass
        time.sleep(max(0.0, SLICE_S - (time.perf_counter() - now)) if share < 1 else 0.0)
    print(json.dumps({"share": share}))


# ------------------------------------------------------------------------------------------------------------------ victim


def _token(status: dict[str, Any], user: str) -> str:
    return Path(status["credentials"][user]["token"]).read_text().strip()


class Victim:
    """Asks at every door, one request after another, and notes how long each took, seconds."""

    def __init__(self, status: dict[str, Any]) -> None:
        self._status = status
        self.took: dict[str, list[float]] = defaultdict(list)
        self.failed = 0

    async def run(self, seconds: float) -> None:
        self._nc = await connect(self._status, "bob")
        headers = {"Authorization": f"Bearer {_token(self._status, 'bob')}"}
        limit = aiohttp.ClientTimeout(total=ANSWER_S)
        async with aiohttp.ClientSession(headers=headers, timeout=limit) as self._session:
            end = time.perf_counter() + seconds
            await asyncio.gather(self._by_nats(end), self._by_http(end))
        await self._nc.close()

    async def _by_nats(self, end: float) -> None:
        while time.perf_counter() < end:
            job = await self._timed("submit, NATS", lambda: self._request("job.submit", JOB))
            if job is not None:
                await self._timed("cancel, NATS", lambda: self._request("job.cancel", {"jobs": [job["job"]]}))  # noqa: B023
            await self._timed("query, NATS", self._query)

    async def _by_http(self, end: float) -> None:
        door, monitor = self._status["http_url"], self._status["monitor_url"]
        while time.perf_counter() < end:
            job = await self._timed("submit, HTTP", lambda: self._call("POST", door + "/v1/jobs", JOB))
            if job is not None:
                await self._timed(
                    "cancel, HTTP",
                    lambda: self._call("POST", f"{door}/v1/jobs/{job['job']}/cancel", {}),  # noqa: B023
                )
            await self._timed("read, door", lambda: self._call("GET", door + "/v1/queue"))
            await self._timed("read, monitor", lambda: self._call("GET", monitor + "/v1/queue"))

    async def _timed(self, what: str, ask: Callable[[], Awaitable[dict[str, Any] | None]]) -> dict[str, Any] | None:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await ask()
        except (nats.errors.Error, aiohttp.ClientError, TimeoutError):
            answer = None
        took_s = time.perf_counter() - began
        if answer is None:
            self.failed += 1
            took_s = ANSWER_S
        self.took[what].append(took_s)
        await asyncio.sleep(PAUSE_S)
        return answer

    async def _request(self, kind: str, body: dict[str, Any]) -> dict[str, Any] | None:
        subject = f"phoenix.request.bio.bob.{kind}"
        answer = orjson.loads((await self._nc.request(subject, orjson.dumps(body), timeout=ANSWER_S)).data)
        return None if "type" in answer else answer

    async def _query(self) -> dict[str, Any] | None:
        answer = await self._nc.request("phoenix.query.monitor.bio.hosts", b"{}", timeout=ANSWER_S)
        found = orjson.loads(answer.data)
        return None if "type" in found else {}

    async def _call(self, method: str, url: str, body: Any = None) -> dict[str, Any] | None:
        async with self._session.request(method, url, json=body) as answer:
            data = await answer.read()
            return None if answer.status >= 400 else orjson.loads(data) if method == "POST" else {}


# -------------------------------------------------------------------------------------------------------------- comparison


async def beside(status: dict[str, Any], busy: list[str], seconds: float) -> tuple[Victim, dict[str, float]]:
    """The victim while `busy`, a call of this module, runs; and what that said at its end."""
    given = [str(word) for word in (*busy, "--seconds", seconds + WARM_S + 1.0)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.flood", *given, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(orjson.dumps(status))
    process.stdin.close()
    await process.stdout.readline()
    await asyncio.sleep(WARM_S)
    victim = Victim(status)
    await victim.run(seconds)
    told = json.loads(await process.stdout.read())
    await process.wait()
    return victim, told


def measured(kind: str, seconds: float, *, flood_first: bool) -> dict[str, Any]:
    """One pair: p99 of each of the victim's requests beside the flood and beside the control, milliseconds."""
    share, found = 1.0, {}
    for what in ("flood", "control") if flood_first else ("control", "flood"):
        with cloud("--hosts", "4", "--hypervisor", "dummy", config=CONFIG) as status:
            pids = {p["name"]: p["pid"] for p in status["processes"] if p["name"] in ("admission", "monitor", "nats")}
            cpu, began = Cpu(status), time.perf_counter()
            busy = ["--flooder", kind] if what == "flood" else ["--control", str(share)]
            victim, told = asyncio.run(beside(status, busy, seconds))
            share = told["share"]
            p99 = {name: 1000 * percentile(took, 0.99) for name, took in victim.took.items()}
            p50 = {name: 1000 * statistics.median(took) for name, took in victim.took.items()}
            used = {name: round(s / (time.perf_counter() - began), 2) for name, s in cpu.used_s().items()}
            memory = {name: round(memory_mb(pid)) for name, pid in pids.items()}
            found[what] = {"p99": p99, "p50": p50, "failed": victim.failed, "cpu": used, "memory": memory, "told": told}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default=",".join(FLOODS))
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--flooder", help=argparse.SUPPRESS)
    parser.add_argument("--control", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.flooder:
        asyncio.run(flood(given.flooder, given.seconds))
    elif given.control is not None:
        be_busy(given.control, given.seconds)
    else:
        compare(given.kinds.split(","), given.seconds, given.pairs, as_json=given.json)


def compare(kinds: list[str], seconds: float, pairs: int, *, as_json: bool) -> None:
    figures: dict[str, float] = {}
    rows: list[list[object]] = [["flood", "request", "p50 ms", "control", "p99 ms", "control", "ratio"]]
    for kind in kinds:
        found = [measured(kind, seconds, flood_first=pair % 2 == 0) for pair in range(pairs)]
        if not as_json:
            for pair in found:
                for what in ("flood", "control"):
                    print(kind, what, {k: v for k, v in pair[what].items() if k not in ("p99", "p50")}, flush=True)
        for name in sorted(found[0]["flood"]["p99"]):
            row = [_median(found, what, p, name) for p in ("p50", "p99") for what in ("flood", "control")]
            ratio = figures[f"{kind}: {name}"] = statistics.median(
                pair["flood"]["p99"][name] / pair["control"]["p99"].get(name, float("nan")) for pair in found
            )
            rows.append([kind, name, *row, ratio])
        if not as_json:
            table([rows[0], *(row for row in rows if row[0] == kind)])
    if as_json:
        tell(figures, {}, 1)


def _median(found: list[dict[str, Any]], what: str, share: str, name: str) -> float:
    return statistics.median(float(pair[what][share].get(name, "nan")) for pair in found)


if __name__ == "__main__":
    main()
