"""A web department that falls ill, behind HAProxy and under an open load: how soon it is reported, and what clients and
instances suffer of it.

    with ward(directory) as cloud:
        found = await trial(cloud, eyes, CASES["the health path of all"])
        assert found.misses == []

A case begins when all is well.  It is reported when `phoenix status`, the monitor's metrics and the page in a browser show it,
each by itself; then it is mended, if it does not mend itself, and ends when all is well again and none shows it any more.

What must come out
  1. Status, metric and page say it within TOLD_S beside the health interval.
  2. No request fails but those that the case names (`may_fail`), and none hangs.
  3. Of the instances that served as many are replaced as the case names, and no more.
  4. It heals within HEALED_S.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from playwright.async_api import Page, async_playwright

from phoenix.load.curve import constant, plan
from phoenix.load.generator import Generator
from phoenix.load.record import Outcome, Record, Row, kind
from phoenix.load.target import parse
from phoenix.local.webapp import program
from tests.support.failures import (
    CORE_SHARE,
    FRESH_SHARE,
    POST_SHARE,
    Front,
    answered,
    configuration,
    host_lost,
    hosts_back,
    until_true,
)
from tests.support.tools import tool

INSTANCES: Final = 4
HOSTS: Final = 7
RATE: Final = 20.0
PATH: Final = "/?cpu_ms=4"
TIMEOUT_S: Final = 15.0
RUSH_MS: Final = 20
TURNED_AWAY_S: Final = 1.0  # 503 is at once
STEADY: Final = 20  # answers before and after
CHECK_S: Final = 1.0  # HAProxy: three checks in a row, 0.25 s each
TOLD_S: Final = 5.0 + CHECK_S
HEALED_S: Final = 40.0  # from when it is mended: pauses between tries grow
GLANCE_S: Final = 0.1

WEB: Final = """
command = ["{python}", "{program}"]
instances_max = 5
boot_timeout_s = 2.0
start_failures_max = 1
drain_s = 2.0
unreachable_s = 2.0
connections_per_instance = 4
min_ready_s = 2.0
"""
WILL: Final = '[[user]]\nname = "will"\ndepartment = "web"'  # an ordinary user


class Ward(Front):
    """The cloud.  `room`: where its program stands, and is made to fall ill."""

    def __init__(self, data: Path, room: Path) -> None:
        self.room = room
        script = room / "sick.py"
        for source, to in (
            (program.__file__, "program.py"),
            (Path(__file__).with_name("sick_program.py"), script.name),
        ):
            shutil.copy(source, room / to)
            (room / to).chmod(0o644)
        python = shutil.which("python3", path=os.defpath) or sys.executable
        super().__init__(
            data, configuration("outage", 5, WEB.format(python=python, program=script), WILL), INSTANCES, HOSTS
        )

    def told(self) -> str:
        """What `phoenix status` says below its table."""
        return self.run("status").stdout

    def metrics(self) -> str:
        """Of the monitor."""
        with urllib.request.urlopen(str(self.process("monitor")["url"]), timeout=10) as answer:
            return str(answer.read().decode())


@contextlib.contextmanager
def ward(directory: Path) -> Iterator[Ward]:
    """A running cloud; nothing is left afterwards."""
    room = Path(tempfile.mkdtemp(prefix="phoenix-ward-"))
    room.chmod(0o755)
    cloud = Ward(directory / "data", room)
    try:
        cloud.up()
        yield cloud
    finally:
        cloud.close()
        shutil.rmtree(room)


@contextlib.asynccontextmanager
async def eyes_on(cloud: Ward) -> AsyncIterator[Page]:
    """The page, as an operator has it open."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=tool("chromium"), args=["--no-sandbox"])
        page = await browser.new_page(reduced_motion="reduce")
        await page.goto(await asyncio.to_thread(lambda: cloud.ok("dashboard").strip()))
        await page.locator("#link[data-state=live]").wait_for()
        yield page
        await browser.close()


async def shown(page: Page) -> str:
    """Its alerts and its cards of departments, not what has happened in the past."""
    return "\n".join(await page.locator("#alerts, #cards").all_inner_texts())


# --------------------------------------------------------------------------------------------------------------- the cases


class Says(NamedTuple):
    """Regular expressions: lines of `phoenix status`, of the monitor's metrics, words on the page."""

    status: str
    metric: str
    page: str


class Struck(NamedTuple):
    """`mend` ends it; `load`: requests of its own."""

    mend: Callable[[], object]
    load: Generator | None = None


class Case(NamedTuple):
    """`strike` returns when it is done; `may_fail`: a request that failed while it lasted, or soon after; `by_failures`: no
    client is harmed before the first of these, so reports are timed from then; `lingers`: it is reported for a minute longer,
    by rule.  `taken`: how many of the instances that served may go while it lasts.  `replaced`: by what mends it, a roll-out
    say."""

    says: Says
    strike: Callable[[Ward], Struck]
    may_fail: Callable[[Row], bool] = lambda _row: False
    taken: int = 0
    replaced: int = 0
    rate: float = RATE
    path: str = PATH
    by_failures: bool = False
    lingers: bool = False


def trouble(code: str) -> str:
    return rf'phoenix_web_troubles{{code="{code}",department="web"}} 1\.0'


def health_path(cloud: Ward) -> Struck:
    ill = cloud.room / "ill"
    ill.touch()
    return Struck(ill.unlink)


def release(sick: str) -> Callable[[Ward], Struck]:
    def strike(cloud: Ward) -> Struck:
        cloud.ok("deploy", "web", "--env", f"SICK={sick}", "--as", "wendy")
        return Struck(lambda: cloud.ok("deploy", "web", "--configured", "--as", "wendy", "--wait"))

    return strike


def lie(cloud: Ward) -> Struck:
    """Every second, until it is reported and a while longer: that a million instances are idle."""
    credentials, told = cloud.status(), threading.Event()
    token = Path(credentials["credentials"]["will"]["token"]).read_text().strip()
    asked = urllib.request.Request(
        f"{credentials['http_url']}/v1/signals/web/cpu",
        data=b'{"utilisation": 0, "instances": 1000000}',
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )

    def publish() -> None:
        while not told.wait(0.5):
            urllib.request.urlopen(asked, timeout=10).close()

    liar = threading.Thread(target=publish, daemon=True)
    liar.start()

    def stop() -> None:
        told.set()
        liar.join()

    return Struck(stop)


def host(cloud: Ward) -> Struck:
    host_lost(cloud)
    return Struck(lambda: hosts_back(cloud))


def rush(cloud: Ward) -> Struck:
    """More than twice what all instances can do, of requests that take long."""
    rate = 2 * INSTANCES * CORE_SHARE / (RUSH_MS / 1000)
    what = plan(constant(rate, 60.0), seed=2, fresh_share=FRESH_SHARE, post_share=POST_SHARE)
    generator = Generator(parse(f"{cloud.base}/?cpu_ms={RUSH_MS}"), what, body=b"order", timeout_s=TIMEOUT_S)
    loop = asyncio.new_event_loop()
    running = threading.Thread(target=lambda: loop.run_until_complete(generator.run()), daemon=True)
    running.start()

    def stop() -> None:
        loop.call_soon_threadsafe(generator.stop)
        running.join()
        loop.close()

    return Struck(stop, generator)


CASES: Final[dict[str, Case]] = {
    "the health path of all": Case(
        Says(
            r"0 of 4 instances serve; 4 are not ready: /healthz answered HTTP 500",
            r'phoenix_web_instances_serving{department="web"} 0\.0',
            r"4 instances are not ready for .*: /healthz answered HTTP 500",
        ),
        health_path,
        replaced=1,  # a successor that came up with the others takes a place
    ),
    "a release that does not get healthy": Case(
        Says(r"release \d+ was given up after 1 failure", trouble("release_failed"), r"[Rr]elease \d+ was given up"),
        release("health"),
        replaced=INSTANCES,
    ),
    "a release that answers its users with 500": Case(
        Says(r"release \d+ .* 5xx", trouble("release_errors"), r"[Rr]elease \d+ .* 5xx"),
        release("answers"),
        by_failures=True,
        may_fail=lambda row: row.status == 500,
        taken=2,
        replaced=INSTANCES,
    ),
    "a rush at twice the capacity": Case(
        Says(
            r"requests/s are turned away by the load balancer",
            trouble("requests_refused"),
            r"requests/s are turned away by the load balancer",
        ),
        rush,
        by_failures=True,
        may_fail=lambda row: row.status == 503,
    ),
    "a host": Case(
        Says(r"1 host is lost: host\d+", r'phoenix_hosts{department="",state="lost"} 1\.0', r"1 host is lost: host\d+"),
        host,
        may_fail=lambda row: row.post and (row.outcome is Outcome.CLOSED or row.status == 502),
        taken=1,
    ),
    "an implausible signal": Case(
        Says(
            r"cpu signals of user will were dropped: they cannot be true",
            trouble("signals_dropped"),
            r"cpu signals of user will were dropped: they cannot be true",
        ),
        lie,
        lingers=True,
    ),
}


# --------------------------------------------------------------------------------------------------------------- the trial


class Found(NamedTuple):
    """What a trial came to.  `told_s`: until status, metric and page said it.  `unexplained`: failures that may not be."""

    told_s: tuple[float, ...]
    taken: int
    replaced: int
    requests: int
    failed: Counter[str]
    unexplained: list[Row]
    slowest_s: float
    healed_s: float
    misses: list[str]


async def trial(cloud: Ward, page: Page, case: Case, *, steady: int = STEADY) -> Found:
    """One case under load."""
    what = plan(constant(case.rate, 120.0), seed=1, fresh_share=FRESH_SHARE, post_share=POST_SHARE)
    generator = Generator(parse(cloud.base + case.path), what, body=b"order", timeout_s=TIMEOUT_S)
    running = asyncio.create_task(generator.run())
    try:
        await answered(generator.record, steady)
        before = await asyncio.to_thread(cloud.instances)
        since = time.time()
        struck = await asyncio.to_thread(case.strike, cloud)
        told_at = await _told(cloud, page, case.says)
        left = await asyncio.to_thread(cloud.instances)
        mended = time.time()
        await asyncio.to_thread(struck.mend)
        await _healed(cloud, page, case)
        healed_s = time.time() - mended
        await answered(generator.record, steady)
        after = await asyncio.to_thread(cloud.instances)
    finally:
        generator.stop()
        record = await running
    taken = before.keys() - left.keys()
    records = [record, *([struck.load.record] if struck.load is not None else [])]
    if case.by_failures:
        since = min((one.began_at + row.ended for one in records for row in _failed(one)), default=since)
    told_s = tuple(max(0.0, at - since) for at in told_at)
    return judge(case, records, told_s, healed_s, len(taken), len(before.keys() - after.keys() - taken))


async def _told(cloud: Ward, page: Page, says: Says) -> tuple[float, float, float]:
    """When (UTC): each of the three looks by itself; infinity of one that never says it."""

    async def by_status() -> bool:
        return re.search(says.status, await asyncio.to_thread(cloud.told)) is not None

    async def by_metric() -> bool:
        return re.search(says.metric, await asyncio.to_thread(cloud.metrics)) is not None

    async def by_page() -> bool:
        return re.search(says.page, await shown(page)) is not None

    async def when(look: Callable[[], Any]) -> float:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(4 * TOLD_S):
                while not await look():  # noqa: ASYNC110  # other processes have no event to wait for
                    await asyncio.sleep(GLANCE_S)
                return time.time()
        return math.inf

    first, second, third = await asyncio.gather(when(by_status), when(by_metric), when(by_page))
    return first, second, third


async def _healed(cloud: Ward, page: Page, case: Case) -> None:
    """All is well, and it is reported no more."""
    if case.lingers:
        return
    says = case.says

    def well() -> bool:
        return (
            not cloud.ill() and not re.search(says.status, cloud.told()) and not re.search(says.metric, cloud.metrics())
        )

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2 * HEALED_S):
            await until_true(well)
            while re.search(says.page, await shown(page)):  # noqa: ASYNC110  # a page in a browser
                await asyncio.sleep(GLANCE_S)


def _failed(record: Record) -> list[Row]:
    return [row for row in record.rows() if row.outcome not in (Outcome.ANSWERED, Outcome.ABANDONED)]


def judge(
    case: Case, records: list[Record], told_s: tuple[float, ...], healed_s: float, taken: int, replaced: int
) -> Found:
    rows, bad = [row for one in records for row in one.rows()], [row for one in records for row in _failed(one)]
    unexplained = [row for row in bad if not case.may_fail(row)]
    misses = [
        f"{name} said it after {took:.1f} s" for name, took in zip(Says._fields, told_s, strict=True) if took > TOLD_S
    ]
    if unexplained:
        misses.append(f"{len(unexplained)} requests failed: {dict(Counter(kind(row) for row in unexplained))}")
    late = sum(1 for row in bad if row.status == 503 and row.ended - row.due > TURNED_AWAY_S)
    if late:
        misses.append(f"{late} requests were turned away after more than {TURNED_AWAY_S:g} s")
    if taken > case.taken or replaced > case.replaced:
        misses.append(f"{taken} instances that served went while it lasted, and {replaced} later")
    if healed_s > HEALED_S:
        misses.append(f"it had not healed after {healed_s:.0f} s")
    return Found(
        told_s=told_s,
        taken=taken,
        replaced=replaced,
        requests=len(rows),
        failed=Counter(kind(row) for row in bad),
        unexplained=unexplained,
        slowest_s=max((row.ended - row.due for row in rows if row.outcome is Outcome.ANSWERED), default=0.0),
        healed_s=healed_s,
        misses=misses,
    )
