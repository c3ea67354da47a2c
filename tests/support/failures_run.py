"""`make failures`: each fault of `tests.support.failures` a number of times under load, and what clients saw, as a table.

    python -m tests.support.failures_run [--rounds 3] [--rate 25] [--only NAME]

Ends with 1 if a request failed that was not under way on what died.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.support.failures import FAULTS, HANGS, RATE, Found, Front, front, trial

STEADY = 100  # four seconds of load before and after each


async def rounds(cloud: Front, names: list[str], count: int, rate: float) -> dict[str, list[Found]]:
    found: dict[str, list[Found]] = {}
    for name in names:
        fault = (FAULTS | HANGS)[name]
        found[name] = [await trial(cloud, fault, rate=rate, steady=STEADY) for _ in range(count)]
        print(row(name, found[name]), flush=True)
    return found


def row(name: str, found: list[Found]) -> str:
    failed = sum((one.failed for one in found), Counter[str]())
    told = "; ".join(f"{count} {what}" for what, count in sorted(failed.items())) or "none"
    slowest, again = max(one.slowest_s for one in found), sorted(one.again_s for one in found)
    cells = (
        name,
        f"{sum(one.requests for one in found):,}",
        told,
        str(sum(len(one.unexplained) for one in found)),
        f"{slowest:.2f} s",
        f"{again[0]:.1f} to {again[-1]:.1f} s",
    )
    return f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--only", action="append", choices=[*FAULTS, *HANGS])
    args = parser.parse_args()
    print("| killed | requests | failed | of them not under way there | slowest answer | all as before after |")
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="phoenix-failures-") as directory, front(Path(directory)) as cloud:
        found = asyncio.run(rounds(cloud, args.only or [*FAULTS, *HANGS], args.rounds, args.rate))
    return 1 if any(one.unexplained for many in found.values() for one in many) else 0


if __name__ == "__main__":
    sys.exit(main())
