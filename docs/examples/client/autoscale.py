"""A load balancer of one's own in front of a web department: it sends requests to the instances in turn, and publishes once a
second how many came in, so that the department has as many instances as it needs.

    python autoscale.py [--data DIR] [--user web-balancer] [--target 10] web 5 40 5

Clients are played here: 5 requests per second come in for `--phase` seconds, then 40, then 5.  One instance is to serve
`--target` of them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import sys
import urllib.error
import urllib.request

from phoenix.client import Client, Instance, PhoenixError, Unavailable

SOURCE = "docs/examples/client/autoscale.py"
REQUEST_S = 5.0


class Balancer:
    """Requests to whatever is in service."""

    def __init__(self) -> None:
        self.instances: list[Instance] = []
        self.arrived = self.failed = self.served = 0
        self._turn = itertools.count()

    async def request(self) -> None:
        """One request of a client."""
        self.arrived += 1  # also one that no instance can serve: it is load
        if not self.instances:
            self.failed += 1
            return
        chosen = self.instances[next(self._turn) % len(self.instances)]
        try:
            await asyncio.to_thread(self._fetch, f"http://{chosen.address}/")
            self.served += 1
        except (urllib.error.URLError, OSError):
            self.failed += 1

    @staticmethod
    def _fetch(url: str) -> None:
        with urllib.request.urlopen(url, timeout=REQUEST_S) as answer:  # noqa: S310
            answer.read()

    async def look(self, phoenix: Client, department: str) -> None:
        """Which instances there are now."""
        found = await phoenix.instances(department)
        self.instances = [each for each in found if each.state == "in-service" and each.address]


async def report(phoenix: Client, balancer: Balancer, department: str, target: float) -> None:
    """Once a second: the load to the cloud, and the instances from it."""
    while True:
        arrived = balancer.arrived
        await asyncio.sleep(1)
        rate = float(balancer.arrived - arrived)
        try:
            await phoenix.signal_requests(department, rate, target=target, source=SOURCE)
            await balancer.look(phoenix, department)
        except Unavailable as error:  # the department keeps its instances, and so does this program
            print(f"{error}", file=sys.stderr)
        print(f"{rate:5.0f} requests/s  {len(balancer.instances):3d} instances", flush=True)


async def clients(balancer: Balancer, rates: list[float], phase_s: float) -> None:
    async with asyncio.TaskGroup() as group:
        for rate in rates:
            for _ in range(round(rate * phase_s)):
                group.create_task(balancer.request())
                await asyncio.sleep(1 / rate)


async def main(args: argparse.Namespace) -> int:
    balancer = Balancer()
    async with Client.find(args.data, user=args.user) as phoenix:
        await balancer.look(phoenix, args.department)
        reporting = asyncio.create_task(report(phoenix, balancer, args.department, args.target))
        playing = asyncio.create_task(clients(balancer, args.rate, args.phase))
        await asyncio.wait({reporting, playing}, return_when=asyncio.FIRST_COMPLETED)
        if playing.done():
            reporting.cancel()  # there is no more load to report
        playing.cancel()  # it has ended, or its load cannot be reported
        for task in (playing, reporting):
            with contextlib.suppress(asyncio.CancelledError):
                await task
    print(f"{balancer.served} requests served, {balancer.failed} failed")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", help="the directory of an embedded cloud")
    parser.add_argument("--user")
    parser.add_argument("--target", type=float, default=10.0, help="requests/s of one instance")
    parser.add_argument("--phase", type=float, default=10.0, help="seconds of each rate")
    parser.add_argument("department")
    parser.add_argument("rate", type=float, nargs="+", help="requests/s that come in")
    try:
        sys.exit(asyncio.run(main(parser.parse_args())))
    except PhoenixError as error:
        sys.exit(f"{error} {error.hint}".strip())
