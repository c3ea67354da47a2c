"""How much the generator could send on this machine, now: runs of a second against a server that does nothing, at rising rates.

The server is a process of its own, on the same cores: so the figure is of the two together, and low rather than high.

Rules
  1. Rates double from `FIRST` to `LAST`.  The first that is late, fails or uses the core up in `TRIES` runs ends it (one may
     have met another process's second); the ceiling is the rate before, or 0.
  2. The server's life hangs on a pipe: it ends with the calibrating process, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Final

from phoenix.load.curve import LoadError, constant, plan
from phoenix.load.generator import Generator
from phoenix.load.results import sum_up
from phoenix.load.target import Target

FIRST: Final = 250.0
LAST: Final = 8000.0  # no experiment on one machine asks for more
RUN_S: Final = 1.0
TRIES: Final = 3
TIMEOUT_S: Final = 2.0
START_S: Final = 10.0


async def ceiling(fresh_share: float = 0.0) -> float:
    """Requests a second that were sent on time and answered; with the same share of fresh connections as the run."""
    reached = 0.0
    async with _server() as target:
        rate = FIRST
        while rate <= LAST:
            for _ in range(TRIES):
                if await _keeps_up(target, rate, fresh_share):
                    break
            else:
                return reached
            reached, rate = rate, 2 * rate
    return reached


async def _keeps_up(target: Target, rate: float, fresh_share: float) -> bool:
    one = plan(constant(rate, RUN_S), seed=1, fresh_share=fresh_share)
    found = sum_up(await Generator(target, one, timeout_s=TIMEOUT_S).run(), RUN_S)
    return not found.failed and not found.generator.bottleneck


@contextlib.asynccontextmanager
async def _server() -> AsyncIterator[Target]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "phoenix.load.null_server", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_S):
            told = await process.stdout.readline()
        if not told.strip().isdigit():
            raise LoadError("the server for the calibration did not start")
        port = int(told)
        yield Target("127.0.0.1", port, f"127.0.0.1:{port}", "/")
    finally:
        process.stdin.close()
        try:
            async with asyncio.timeout(START_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
