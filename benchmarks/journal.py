"""How fast the shell is on this machine: one hop, group commit, raw fold, replay, take-over.

    python -m benchmarks.journal [--hops 2000] [--proposals 5000] [--facts 100000]

A real nats-server, one leader, one follower.  One *hop* is: propose, draft, fenced append, back through the journal, folded,
answered.  A claim by reclaim is at least five hops one after another, which is why the median matters and not the throughput.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from typing import Any

from nats.aio.client import Client

from schemas.envelope import Envelope, encode
from schemas.facts import Fact
from schemas.subjects import journal
from services.runtime.broker.client import connected
from services.runtime.broker.streams import ensure_streams
from services.runtime.journal.fold import Fold, Stored
from services.runtime.log import get_log
from services.runtime.rebuild import replay
from services.runtime.service import Service
from tests.support.nats import NatsServer, running_server
from tests.support.toy import ToyCore, job, next_job, toy_config

PER = 20  # facts of an envelope


class Still(ToyCore):
    """Folds custody only: what is measured is the shell."""

    def apply(self, fact: Fact, meta: object) -> None:
        del fact, meta

    def decide(self, now: float) -> list[Fact]:
        del now
        return []


async def ready(service: Service, leads: bool) -> asyncio.Task[int]:
    task = asyncio.create_task(service.run())
    while not (service.is_leader if leads else service.caught_up):
        assert not task.done()
        await asyncio.sleep(0.001)
    return task


async def hops(service: Service, count: int) -> None:
    took = []
    for _ in range(count):
        began = time.perf_counter()
        await service.propose(next_job(service.custody))
        took.append((time.perf_counter() - began) * 1000)
    took.sort()
    rate = 1000 / statistics.mean(took)
    print(
        f"hop               median {took[count // 2]:.2f} ms   p99 {took[count * 99 // 100]:.2f} ms   {rate:.0f} hops/s"
    )


async def other_reader(service: Service, follower: Service, count: int) -> None:
    """From proposing until another process's shell (here: another connection) has folded it."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        outcome = await service.propose(next_job(service.custody))
        await follower.wait_for(outcome.position, 5)
        took.append((time.perf_counter() - began) * 1000)
    took.sort()
    print(f"seen by a second  median {took[len(took) // 2]:.2f} ms   p99 {took[len(took) * 99 // 100]:.2f} ms")


async def group_commit(service: Service, count: int) -> None:
    before, began = service.position, time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(service.propose(next_job(service.custody)))
    took = time.perf_counter() - began
    print(f"group commit      {count} proposals in {took:.2f} s, {service.position - before} envelopes")


def raw_fold(count: int) -> None:
    messages = []
    for n in range(count // PER):
        facts = tuple(job(n * PER + i + 1) for i in range(PER))
        data = encode(Envelope(id=f"i-{n}", writer="admission", epoch=1, at=float(n), facts=facts))
        messages.append(Stored(n + 1, "phoenix.journal.admission", data, float(n)))
    fold = Fold("admission", Still)
    began = time.perf_counter()
    for message in messages:
        fold.feed(message)
    took = time.perf_counter() - began
    print(f"raw fold          {count / took:.0f} facts/s (decode, custody, core call; {PER} facts an envelope)")


async def replays(admin: Client, server: NatsServer, count: int) -> None:
    for per in (1, PER):
        js = admin.jetstream(timeout=10, publish_async_max_pending=4000)
        await js.purge_stream("PHOENIX")
        config = toy_config(server.url, server.directory)
        await js.delete_stream("PHOENIX")
        await ensure_streams(js, config)
        for n in range(count // per):
            facts = tuple(job(n * per + i + 1) for i in range(per))
            data = encode(Envelope(id=f"i-{n}", writer="admission", epoch=1, at=float(n), facts=facts))
            await js.publish_async(journal("admission"), data, headers={"Nats-Msg-Id": f"i-{n}"})
        await js.publish_async_completed()
        began = time.perf_counter()
        fold = await replay(admin, js, None, Still, get_log())
        took = time.perf_counter() - began
        print(
            f"replay            {count} facts, {per:>2} an envelope: {took:.2f} s   {fold.position / took:.0f} messages/s"
        )


async def take_over(server: NatsServer) -> None:
    config = toy_config(server.url, server.directory)
    first = Service("executor", Still, config, instance="e1")
    running = await ready(first, leads=True)
    transport: Any = first.nc._transport
    transport.close()
    running.cancel()
    await asyncio.wait({running})
    began = time.perf_counter()
    second = Service("executor", Still, config, instance="e2", reaped=["e1"])
    running = await ready(second, leads=True)
    print(f"supervised start  {(time.perf_counter() - began) * 1000:.0f} ms from connect to leading after kill -9")
    second.stop()
    await running


async def measure(server: NatsServer, given: argparse.Namespace) -> None:
    config = toy_config(server.url, server.directory)
    admin = await connected(server.url)
    await ensure_streams(admin.jetstream(), config)
    leader = Service("admission", Still, config, instance="a1")
    follower = Service(None, Still, config, instance="m1", name="monitor")
    running = [await ready(leader, leads=True), await ready(follower, leads=False)]
    await hops(leader, given.hops)
    await other_reader(leader, follower, max(1, given.hops // 4))
    await group_commit(leader, given.proposals)
    leader.stop()
    follower.stop()
    await asyncio.wait(running)
    await take_over(server)
    raw_fold(given.facts)
    await replays(admin, server, given.facts)
    await admin.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hops", type=int, default=2000)
    parser.add_argument("--proposals", type=int, default=5000, help="of the group commit")
    parser.add_argument("--facts", type=int, default=100_000, help="of the fold and of each replay")
    given = parser.parse_args()
    with running_server() as started:
        asyncio.run(measure(started, given))


if __name__ == "__main__":
    main()
