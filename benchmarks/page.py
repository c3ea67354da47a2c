"""The page in a real browser: time until it is painted, and from a fact in the journal until it is seen.

    python -m benchmarks.page [--sizes 1000x10000 2000x20000] [--rate 100] [--loads 15] [--facts 60]

A real nats-server, the monitor as its own process, the made-up journal of `benchmarks.monitoring`, headless Chromium; one size
(hosts x jobs) after another.  Painted: from the navigation until the frame in which the whole picture was drawn, everything
loaded anew.  Seen: from before the append until the second frame after the page has folded the fact, first with nothing else
going on, then with `--rate` decisions a second.  The monitor tells at most four times a second, so an eighth of a second on the
average is waiting for that.  Main thread: CPU time of the browser's main thread while the decisions come, a second and a
drawing; a browser that has less than a frame's time for a drawing stutters.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import aiohttp
from playwright.async_api import Page, async_playwright

from benchmarks.busy_day import BusyDay, Decision
from benchmarks.cloud import percentile, table
from benchmarks.monitoring import WEB_HOSTS, Bench, Watchers, answers, play, settled
from schemas import facts as f
from services.runtime.broker import credentials
from tests.support.tools import tool

APART_S = 0.37  # between two facts: no multiple of a quarter of a second
DEADLINE_MS = 30_000
SHOWN = (f.JobSubmitted, f.UnitPlaced, f.AttemptClosed, f.HostGranted)  # the page tells these
SEEN = """position => new Promise(done => {
  const drawn = () => requestAnimationFrame(() => done());
  const look = () => requestAnimationFrame(window.phoenix.model.position >= position ? drawn : look);
  look();
})"""
DRAWINGS = """() => {
  window.drawings = 0;
  let due = false;
  const {on} = window.phoenix.live, event = on.event;
  on.event = (...told) => {
    if (!due) requestAnimationFrame(() => { due = false; window.drawings += 1; });
    due = true;
    event(...told);
  };
}"""
MEMORY = "() => Math.round(performance.memory.usedJSHeapSize / 1048576)"


async def enter(page: Page, bench: Bench) -> None:
    await page.goto(bench.config.monitor.url)
    token = credentials.token_file(bench.config, "oscar").read_text().strip()
    await page.get_by_label("Your token").fill(token)
    await page.get_by_role("button", name="Log in").click()
    await page.wait_for_selector("html[data-painted]", timeout=DEADLINE_MS)


async def loads(page: Page, count: int) -> tuple[list[float], list[float]]:
    """Milliseconds until the first paint of anything, and until the picture is drawn."""
    first, whole = [], []
    for _ in range(count):
        await page.reload()
        await page.wait_for_selector("html[data-painted]", timeout=DEADLINE_MS)
        whole.append(float(await page.evaluate("Number(document.documentElement.dataset.painted)")))
        paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN"
        first.append(float(await page.evaluate(paint)))
    return first, whole


async def updates(page: Page, bench: Bench, decisions: Iterator[Decision], count: int) -> list[float]:
    """Milliseconds from before the append until it is seen."""
    took = []
    for _ in range(count):
        decision = next(decisions)
        while not isinstance(decision[1][0], SHOWN):
            await bench.append(decision)
            decision = next(decisions)
        await asyncio.sleep(APART_S)
        began = time.perf_counter()
        await bench.append(decision)
        await page.evaluate(SEEN, bench.written)
        took.append((time.perf_counter() - began) * 1000)
    return took


async def busy_updates(page: Page, bench: Bench, decisions: Iterator[Decision], count: int, rate: float) -> list[float]:
    """The same while others write."""
    others = asyncio.create_task(play(bench, decisions, rate, count * (APART_S + 0.5)))
    took = []
    for _ in range(count):
        await asyncio.sleep(APART_S)
        began, position = time.perf_counter(), bench.written
        await page.evaluate(SEEN, position)
        took.append((time.perf_counter() - began) * 1000)
    others.cancel()
    await asyncio.gather(others, return_exceptions=True)
    return took


class MainThread:
    """CPU milliseconds of the browser's main thread since it was made: a second, and a drawing of the page."""

    def __init__(self, page: Page) -> None:
        self.page = page

    async def begin(self) -> None:
        self.cdp = await self.page.context.new_cdp_session(self.page)
        await self.cdp.send("Performance.enable", {"timeDomain": "threadTicks"})
        await self.page.evaluate(DRAWINGS)
        self.began, self.spent = time.perf_counter(), await self._spent()

    async def _spent(self) -> float:
        metrics = (await self.cdp.send("Performance.getMetrics"))["metrics"]
        return 1000 * next(float(one["value"]) for one in metrics if one["name"] == "TaskDuration")

    async def end(self) -> tuple[float, float]:
        spent, seconds = await self._spent() - self.spent, time.perf_counter() - self.began
        return spent / seconds, spent / max(1, await self.page.evaluate("window.drawings"))


def row(what: str, took: list[float]) -> list[object]:
    return [what, len(took), f"{percentile(took, 0.5):.0f}", f"{percentile(took, 0.95):.0f}", f"{max(took):.0f}"]


async def measure(args: argparse.Namespace, hosts: int, jobs: int, directory: Path) -> None:
    bench = Bench(directory, profile=False)
    try:
        await bench.open()
        day = BusyDay(hosts, jobs, min(WEB_HOSTS, hosts // 4))
        for decision in day.begin():
            await bench.append(decision)
        bench.watch()
        async with aiohttp.ClientSession() as session:
            await answers(Watchers(bench, session))
            await settled(bench.monitor.pid)
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=tool("chromium"), args=["--no-sandbox"])
            page = await browser.new_page(viewport={"width": 1440, "height": 1000})
            await enter(page, bench)
            await look(args, page, bench, day)
            await browser.close()
    finally:
        await bench.close()


async def look(args: argparse.Namespace, page: Page, bench: Bench, day: BusyDay) -> None:
    """What the page in this browser does, as a table."""
    first, whole = await loads(page, args.loads)
    decisions = day.go_on()
    calm = await updates(page, bench, decisions, args.facts)
    before = await page.evaluate(MEMORY)
    thread = MainThread(page)
    await thread.begin()
    busy = await busy_updates(page, bench, decisions, args.facts, args.rate)
    a_second, a_drawing = await thread.end()
    after = await page.evaluate(MEMORY)
    nodes = await page.evaluate("document.querySelectorAll('*').length")
    table(
        [
            ["ms", "times", "median", "p95", "most"],
            row("first paint", first),
            row("picture painted", whole),
            row("a fact is seen", calm),
            row(f"… at {args.rate:.0f} decisions/s", busy),
        ]
    )
    print(f"main thread, at {args.rate:.0f} decisions/s: {a_second:.0f} ms a second, {a_drawing:.0f} ms a drawing")
    print(f"JavaScript's heap: {before} MiB, after the busy minute {after} MiB; {nodes} elements")


def size(text: str) -> tuple[int, int]:
    """1000x10000"""
    hosts, jobs = text.split("x")
    return int(hosts), int(jobs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=size, nargs="+", default=[(1000, 10_000), (2000, 20_000)], metavar="HOSTSxJOBS")
    parser.add_argument("--rate", type=float, default=100.0, help="decisions a second")
    parser.add_argument("--loads", type=int, default=15)
    parser.add_argument("--facts", type=int, default=60)
    args = parser.parse_args()
    for hosts, jobs in args.sizes:
        print(f"{hosts} hosts, {jobs} jobs")
        with tempfile.TemporaryDirectory(prefix="phoenix-bench-") as directory:
            asyncio.run(measure(args, hosts, jobs, Path(directory)))


if __name__ == "__main__":
    main()
