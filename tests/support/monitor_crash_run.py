"""`make crash-history`: the monitor killed at every point, each a number of times, in an order of its own each round.

    python -m tests.support.monitor_crash_run [--rounds 1]

Prints a line a round; ends with 1 at the first that goes wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.support.monitor_crash import Scene, crashes
from tests.support.monitor_struck import POINTS
from tests.support.nats import NatsServer, running_server

CLOUD_ROUNDS: Final = 4  # of one cloud: a monitor reads its last events at each start, so long ones only take longer


async def rounds(server: NatsServer, directory: Path, count: int) -> tuple[int, int]:
    """How often the monitor was killed, and how many messages there were."""
    kills = messages = 0
    for first in range(0, count, CLOUD_ROUNDS):
        here = directory / str(first)
        here.mkdir()
        async with crashes(server, here) as scene:
            for number in range(first, min(first + CLOUD_ROUNDS, count)):
                await one(scene, number)
            kills, messages = kills + scene.kills, messages + len(scene.written)
    return kills, messages


async def one(scene: Scene, number: int) -> None:
    began = time.monotonic()
    for point in random.Random(number).sample(POINTS, len(POINTS)):  # what a kill leaves is met by another one
        await scene.strike(point)
    await scene.settle()
    took, done = time.monotonic() - began, f"killed {len(POINTS)} times, {len(scene.written)} messages so far"
    print(f"{took:6.2f} s  round {number + 1}: {done}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    count = parser.parse_args().rounds
    with running_server() as server, tempfile.TemporaryDirectory(prefix="phoenix-crash-") as directory:
        try:
            kills, messages = asyncio.run(rounds(server, Path(directory), count))
        except AssertionError as error:
            print(f"wrong: {error}")
            return 1
    print(f"killed {kills} times; each of {messages} messages is in archive or stream, and is one event;")
    print("the history is the one that a rebuild makes, row by row")
    return 0


if __name__ == "__main__":
    sys.exit(main())
