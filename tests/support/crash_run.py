"""`make crash`: every point at which the executor is killed, each a number of times, also without notice of its death (X8).

    python -m tests.support.crash_run [--rounds 1]

Prints a line a point; ends with 1 at the first that goes wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from tests.support.crash import ALL, DEPOSED, Point, Scene, Where, crashes
from tests.support.nats import NatsServer, running_server


async def strikes(server: NatsServer, directory: Path, rounds: int) -> int:
    """How many strikes were lived through."""
    number = 0
    async with crashes(server, directory) as scene:
        for _ in range(rounds):
            for point in ALL:
                number += 1
                await struck(scene, number, point, "")
                if point.where in (Where.REQUEST, Where.ANSWER):
                    number += 1
                    await struck(scene, number, point, "its death is not announced", reaped=False)
            for point in DEPOSED:
                number += 1
                await struck(scene, number, point, "it is not dead, and continues later", paused=True)
    return number


async def struck(
    scene: Scene, number: int, point: Point, how: str, *, reaped: bool = True, paused: bool = False
) -> None:
    began = time.monotonic()
    await scene.strike(point, str(number), reaped=reaped, paused=paused)
    print(f"{time.monotonic() - began:6.2f} s  {point.name}{f' ({how})' if how else ''}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    rounds = parser.parse_args().rounds
    with running_server() as server, tempfile.TemporaryDirectory(prefix="phoenix-crash-") as directory:
        try:
            number = asyncio.run(strikes(server, Path(directory), rounds))
        except AssertionError as error:
            print(f"wrong: {error}")
            return 1
    print(f"killed {number} times; each attempt's VM ran once, nothing was left over, no report was lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
