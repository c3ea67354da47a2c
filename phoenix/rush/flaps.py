"""`python -m phoenix.rush.flaps`: a hundred scale-ups and scale-downs under load, and how many requests failed.

    python -m phoenix.rush.flaps [--steps 100] [--balancer embedded|haproxy] [--out out/rush]

Theory of operation
  Two loads run all the time: short requests, many, on kept and fresh connections, a fifth of them POST; and long ones, each of
  which is under way for about a fifth of a second, so that every instance that goes has open requests.  A person's word
  (`phoenix scale --exact`) moves the number up and down at random, by one to four instances; the next word comes when the load
  balancer sends to exactly that many.  Nothing is repeated by the generator: what an instance loses by going is seen.

Rules
  1. Ups and downs take turns, so that half of the steps are of each kind.
  2. A failed request is reported with its moment and the step that was under way: that is where to look in the journal.

Exit codes: 0 no request failed, 1 some did, or it could not be done, 2 mistyped, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import aiohttp
import msgspec

from phoenix.cli import tables
from phoenix.cli.errors import FAILED, INTERRUPTED, OK
from phoenix.cli.load_report import milliseconds
from phoenix.load.results import Results, percentile
from phoenix.rush import setting
from phoenix.rush.eyes import Eyes
from phoenix.rush.play import eyes_on, play_load, until
from phoenix.rush.setting import Balancer, Setting, Variant
from phoenix.rush.site import Site, SiteError, plainly, run, site
from schemas.units import seconds

FEWEST: Final = 3
MOST: Final = 9
STEP_MAX: Final = 4
STEPS_MAX: Final = 2000
PAUSE_S: Final = 0.5  # between a step's end and the next one: requests meet every number of instances
HOUR: Final = "3600s"  # the loads run until they are stopped
SHORT: Final = ("--post", "0.2", "--fresh", "0.3")
LONG: Final = ("--post", "0.3", "--fresh", "0.3", "--seed", "2")
SHORT_MS: Final = 1.0
LONG_MS: Final = 12.0  # at a sixteenth of a core a fifth of a second
SHORT_SHARE: Final = 0.35  # of what the fewest instances can do
LONG_SHARE: Final = 0.3


class Step(msgspec.Struct, frozen=True):
    """`at`: when it was ordered (UTC), `took_s`: until the load balancer sent to exactly `to` instances."""

    at: float
    before: int
    to: int
    took_s: float


class Failure(msgspec.Struct, frozen=True):
    """One request that failed: when it was due and when it ended (UTC), how, and the step under way or the last one."""

    due_at: float
    ended_at: float
    kind: str
    method: str
    connection: str
    load: str
    step: int


class Flaps(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run."""

    setting: Setting
    steps: tuple[Step, ...]
    loads: dict[str, Results]
    failures: tuple[Failure, ...]


async def flap(chosen: Setting, steps: int, out: Path) -> Flaps:
    """Run it."""
    rows = {name: out / f"flaps-{name}.csv" for name in ("short", "long")}
    async with site(chosen, Variant(name="flaps", exact=FEWEST)) as where, eyes_on(where) as eyes:
        await where.scale(exact=FEWEST)
        await until(lambda: len(eyes.serving) == FEWEST, f"{FEWEST} instances did not come into service")
        async with asyncio.TaskGroup() as group:
            stop, begun = asyncio.Event(), asyncio.Barrier(3)
            short = group.create_task(
                _play(where, chosen, SHORT_MS, SHORT_SHARE, (*SHORT, "--csv", str(rows["short"])), stop, begun)
            )
            long = group.create_task(
                _play(where, chosen, LONG_MS, LONG_SHARE, (*LONG, "--csv", str(rows["long"])), stop, begun)
            )
            try:
                await begun.wait()
                done = await _walk(where, eyes, chosen, steps)
            finally:
                stop.set()
        loads = {"short": short.result(), "long": long.result()}
    return Flaps(setting=chosen, steps=tuple(done), loads=loads, failures=tuple(failures_of(rows, loads, done)))


async def _play(
    where: Site,
    chosen: Setting,
    cpu_ms: float,
    share: float,
    options: tuple[str, ...],
    stop: asyncio.Event,
    begun: asyncio.Barrier,
) -> Results:
    """`begun`: passed when both loads and the walk are there."""

    async def there() -> None:
        await begun.wait()

    rate = share * FEWEST * chosen.instance_cpu / (cpu_ms / 1000)
    words = ("--rate", f"{rate:.3f}", "--for", HOUR, *options)
    return await play_load(where, msgspec.structs.replace(chosen, cpu_ms=cpu_ms), words, stop, there)


async def _walk(where: Site, eyes: Eyes, chosen: Setting, steps: int) -> list[Step]:
    """Rule 1."""
    dice = random.Random(chosen.seed)  # noqa: S311  # the same walk every time
    number, done = FEWEST, []
    for place in range(steps):
        room = MOST - number if place % 2 == 0 else number - FEWEST
        by = dice.randint(1, min(STEP_MAX, room))
        goal = number + by if place % 2 == 0 else number - by
        at = time.time()
        await where.scale(exact=goal)
        await until(lambda goal=goal: len(eyes.serving) == goal, f"step {place + 1} to {goal} instances did not end")  # type: ignore[misc]
        done.append(Step(at, number, goal, time.time() - at))
        number = goal
        await asyncio.sleep(PAUSE_S)
    return done


def failures_of(rows: dict[str, Path], loads: dict[str, Results], steps: Sequence[Step]) -> list[Failure]:
    """Rule 2."""
    found = []
    for name, path in rows.items():
        began_at = seconds(loads[name].began_at) or 0.0
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if row["outcome"] != "answered":
                    due, ended = began_at + float(row["due_s"]), began_at + float(row["ended_s"])
                    step = sum(1 for one in steps if one.at <= ended)
                    found.append(Failure(due, ended, row["outcome"], row["method"], row["connection"], name, step))
    return sorted(found, key=lambda one: one.ended_at)


def text(found: Flaps) -> str:
    """What people read."""
    ups = sorted(one.took_s for one in found.steps if one.to > one.before)
    downs = sorted(one.took_s for one in found.steps if one.to < one.before)
    rows = [(f"{len(ups)} ups", ups), (f"{len(downs)} downs", downs)]
    lines = [
        (name, f"p50 {milliseconds(percentile(took, 0.5))}, max {milliseconds(took[-1])}")
        for name, took in rows
        if took
    ]
    for name, load in found.loads.items():
        spread = load.latency_s
        latency = f"p50 {milliseconds(spread.p50)}, p99 {milliseconds(spread.p99)}, p99.9 {milliseconds(spread.p999)}"
        kinds = ", ".join(f"{count} {kind}" for kind, count in load.failures.items()) or "none"
        lines.append((f"{name} requests", f"{load.requests:,} in {load.seconds:.0f} s; failed: {kinds}; {latency}"))
        lines.append(("  bottleneck", "; ".join(load.generator.bottleneck) or "no"))
    failures = [
        f"  failed: {one.load} {one.method}, {one.connection} connection: {one.kind} at {one.ended_at:.3f}, in step {one.step}"
        for one in found.failures
    ]
    return "\n".join([tables.pairs(lines), *failures[:50], *(["  …"] if len(failures) > 50 else [])])


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m phoenix.rush.flaps", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--steps", type=int, default=100, help="half of them up, half down (default 100)")
    parser.add_argument("--balancer", choices=("embedded", "haproxy"), default="haproxy")
    parser.add_argument("--out", type=Path, default=Path("out/rush"))
    args = parser.parse_args(argv)
    if not 2 <= args.steps <= STEPS_MAX:
        parser.error(f"--steps {args.steps}: 2 to {STEPS_MAX}")
    balancer: Balancer = args.balancer
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        found = run(flap(setting.of_this_machine(balancer), args.steps, args.out))
    except (SiteError, OSError, aiohttp.ClientError, TimeoutError, ExceptionGroup) as error:
        print(f"flaps: {plainly(error)}", file=sys.stderr)
        return FAILED
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("\nflaps: interrupted; everything is stopped", file=sys.stderr)
        return INTERRUPTED
    (args.out / "flaps.json").write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    print(text(found))
    return FAILED if found.failures else OK


if __name__ == "__main__":
    sys.exit(main())
