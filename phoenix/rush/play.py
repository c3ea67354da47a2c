"""One run: a cloud, a stream of jobs, the load, and everything that is seen meanwhile.

Order of a run
  1. The cloud comes up; jobs are submitted until no host is idle; web gets the instances that the load's first seconds need (a
     rule that begins in an accidental overload says nothing).
  2. The load is played by `phoenix load`, a process of its own, which first tries how much it could send.  When the load itself
     begins, sums are read and the rule takes over; a fixed number stays.
  3. When the last answer has come, everything is read, and the cloud ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NamedTuple

import msgspec

from phoenix.load.curve import Curve
from phoenix.load.results import Results
from phoenix.rush.eyes import Eyes, process_cpu_s, process_wait_s
from phoenix.rush.recording import Batch, Recording
from phoenix.rush.setting import Setting, Variant, ideal
from phoenix.rush.site import BATCH, PHOENIX, Site, SiteError, site
from schemas.units import seconds

Tell = Callable[[str], None]
READY_S: Final = 60.0
ASK_S: Final = 0.1
SETTLE_S: Final = 3.0  # how long the begin's number holds on after the load has begun: a few signals
CAPACITY_S: Final = 6.0
CAPACITY_FROM_S: Final = 2.0  # the queue is full by then


async def capacity(setting: Setting, tell: Tell) -> float:
    """Requests a second that one instance serves when more are asked for: counted on a real one."""
    async with site(setting, Variant(name="capacity", exact=1)) as where:
        await where.scale(exact=1)
        async with eyes_on(where) as eyes:
            await until(lambda: len(eyes.serving) == 1, "no instance came into service")
        rows = where.data.parent / "capacity.csv"
        options = ("--rate", f"{2 * setting.nominal_capacity:g}", "--for", f"{CAPACITY_S:g}s", "--csv", str(rows))
        await play_load(where, setting, options)
        with rows.open(newline="") as file:
            ended = [float(row["ended_s"]) for row in csv.DictReader(file) if row["outcome"] == "answered"]
    served = sum(1 for at in ended if CAPACITY_FROM_S <= at < CAPACITY_S)
    found = served / (CAPACITY_S - CAPACITY_FROM_S)
    if not found:
        raise SiteError("an instance that is alone answers nothing")
    tell(f"one instance serves {found:.1f} requests a second ({setting.nominal_capacity:.1f} if HTTP cost nothing)")
    return found


async def play(
    setting: Setting, variant: Variant, curve: Curve, shape: tuple[str, ...], capacity: float, tell: Tell
) -> Recording:
    """Record one variant.  `shape`: the options of `phoenix load` that make `curve`, and others of it."""
    async with site(setting, variant) as where, eyes_on(where) as eyes, _jobs(where, setting):
        first = variant.exact or ideal(curve, capacity, setting)[0][1]
        await _prepare(where, setting, first, eyes)
        before: list[_Sums] = []

        async def begun() -> None:
            tell(f"{variant.name}: the load begins, {curve.requests:,.0f} requests in {curve.end_s:.0f} s")
            before.append(await _sums(where))
            if variant.exact is None:
                await where.scale(exact=first, for_s=SETTLE_S)

        options = (*shape, "--post", str(setting.post_share), "--fresh", str(setting.fresh_share))
        results = await play_load(where, setting, options, begun=begun)
        after = await _sums(where)
        cpu_s, wait_s = (_growth(before[0].cpu_s, after.cpu_s), _growth(before[0].wait_s, after.wait_s))
        events, events_since = await where.events()
        began_at = seconds(results.began_at) or 0.0
        return Recording(
            setting=setting,
            variant=variant,
            curve=curve,
            capacity=capacity,
            began_at=began_at,
            ended_at=began_at + results.seconds,
            load=results,
            seen=tuple(eyes.seen),
            machine=tuple(eyes.machine),
            cpu_s={**cpu_s, "phoenix load": round(results.generator.cpu_share * results.seconds, 3)},
            wait_s=wait_s,
            batch=_difference(before[0].batch, after.batch),
            timeline=tuple(
                (seconds(one["at"]) or 0.0, one["owners"]) for one in (await where.get("/v1/summary"))["timeline"]
            ),
            events=tuple(events),
            events_since=events_since,
        )


async def _prepare(where: Site, setting: Setting, first: int, eyes: Eyes) -> None:
    await where.scale(exact=first)
    await until(lambda: len(eyes.serving) == first, f"{first} instances did not come into service")
    await until_it(lambda: _busy_hosts(where, setting.hosts), "the jobs did not fill the hosts")


async def _busy_hosts(where: Site, hosts: int) -> bool:
    """No host is idle."""
    departments = (await where.get("/v1/departments"))["departments"]
    running = sum(int(one["jobs"].get("running", 0)) + int(one["instances_running"]) for one in departments)
    return running >= hosts


async def play_load(
    where: Site,
    setting: Setting,
    options: tuple[str, ...],
    stop: asyncio.Event | None = None,
    begun: Callable[[], Awaitable[None]] | None = None,
) -> Results:
    """`phoenix load` on the department's load balancer, to its end or until `stop`.  `begun` is called when it sends the first
    request.  It ends with 1 if a request failed: that is a result."""
    url = f"{where.balancer_url}/?cpu_ms={setting.cpu_ms:g}"
    common = ("--seed", str(setting.seed), "--timeout", f"{setting.timeout_s:g}s", "--json")
    process = await asyncio.create_subprocess_exec(
        *PHOENIX, "load", url, *common, *options, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    stopper = None
    try:
        first = await process.stderr.readline()  # it says so when it begins, and can be stopped
        if begun is not None and process.returncode is None:
            await begun()
        if stop is not None:
            stopper = asyncio.create_task(_interrupt(process, stop), name="stop the load")
        told, complaint = await process.communicate()
    finally:
        if stopper is not None:
            stopper.cancel()
            await asyncio.gather(stopper, return_exceptions=True)
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode not in (0, 1) or not told:
        raise SiteError(f"phoenix load: {(first + complaint).decode(errors='replace').strip()[-500:]}")
    return msgspec.json.decode(told, type=Results)


async def _interrupt(process: asyncio.subprocess.Process, stop: asyncio.Event) -> None:
    await stop.wait()
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)


# ------------------------------------------------------------------------------------------------------------------- jobs


@contextlib.asynccontextmanager
async def _jobs(where: Site, setting: Setting) -> AsyncIterator[None]:
    task = asyncio.create_task(_submit(where, setting), name="jobs")
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _submit(where: Site, setting: Setting) -> None:
    """A job whenever one is due; enough at once in the beginning to fill every host."""
    dice = random.Random(setting.seed)  # noqa: S311  # the same jobs for every variant
    number, due = 0, time.monotonic()
    while True:
        number += 1
        await where.post("/v1/jobs", _job(number, dice.uniform(*setting.job_s), setting), user="alice")
        if number > setting.hosts:
            due = max(due + setting.job_every_s, time.monotonic() - setting.job_every_s)
            await asyncio.sleep(max(0.0, due - time.monotonic()))


def _job(number: int, seconds: float, setting: Setting) -> dict[str, Any]:
    """It mostly waits, as the machine is small; what it loses with its host is its time there."""
    return {
        "request": f"rush-{number}",
        "name": f"study-{number}",
        "script": f"#!/bin/sh\nhead -c 100000 /dev/zero | cksum\nsleep {seconds:.2f}\n",
        "cpus_per_task": setting.cores,
        "walltime_s": 600.0,
    }


async def _batch(where: Site) -> Batch:
    """Sums since the cloud's begin."""
    usage = (await where.get("/v1/usage"))["departments"]
    found = next(one for one in usage if one["department"] == BATCH)
    return Batch(
        used_core_s=found["used_core_s"],
        lost_core_s=found["lost_core_s"],
        preempted=found["preempted"],
        completed=int(found["ended"].get("completed", 0)),
        submitted=found["submitted"],
    )


def _difference(before: Batch, after: Batch) -> Batch:
    names = Batch.__struct_fields__
    return Batch(**{name: round(getattr(after, name) - getattr(before, name), 3) for name in names})


class _Sums(NamedTuple):
    """What only grows, at one moment."""

    batch: Batch
    cpu_s: dict[str, float]
    wait_s: dict[str, float]


async def _sums(where: Site) -> _Sums:
    pids = {one["name"]: one["pid"] for one in where.status["processes"] if one.get("pid")}
    return _Sums(await _batch(where), _cpu(where), {name: process_wait_s(pid) for name, pid in pids.items()})


def _growth(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {name: round(after[name] - before.get(name, 0.0), 3) for name in sorted(after)}


def _cpu(where: Site) -> dict[str, float]:
    """CPU seconds of the cloud's processes since their start, and of this one, which looks on."""
    found = {one["name"]: process_cpu_s(one["pid"]) for one in where.status["processes"] if one.get("pid")}
    return {**found, "make rush": time.process_time()}


# ---------------------------------------------------------------------------------------------------------------- waiting


@contextlib.asynccontextmanager
async def eyes_on(where: Site) -> AsyncIterator[Eyes]:
    eyes = Eyes(where)
    task = asyncio.create_task(eyes.look(), name="eyes")
    try:
        yield eyes
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(true: Callable[[], bool], otherwise: str) -> None:
    async def ask() -> bool:
        return true()

    await until_it(ask, otherwise)


async def until_it(true: Callable[[], Awaitable[bool]], otherwise: str) -> None:
    try:
        async with asyncio.timeout(READY_S):
            while not await true():  # noqa: ASYNC110  # a cloud in other processes has no event to wait for
                await asyncio.sleep(ASK_S)
    except TimeoutError:
        raise SiteError(f"{otherwise} (within {READY_S:.0f} s)") from None
