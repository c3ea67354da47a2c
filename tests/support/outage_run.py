"""`make outage`: what can happen to a web department, each case once under load, as a table.

    python -m tests.support.outage_run [--only NAME]

Ends with 1 if one was reported too late, harmed clients or instances more than it must, or did not heal.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from tests.support.outage import CASES, Found, eyes_on, trial, ward


def row(name: str, found: Found) -> str:
    failed = "; ".join(f"{count:,} {what}" for what, count in sorted(found.failed.items())) or "none"
    cells = (
        name,
        *(f"{told:.1f} s" for told in found.told_s),
        f"{found.taken} + {found.replaced}",
        f"{found.requests:,}",
        failed,
        f"{found.slowest_s:.2f} s",
        f"{found.healed_s:.1f} s",
    )
    return f"| {' | '.join(cells)} |"


async def cases(directory: Path, names: list[str]) -> list[str]:
    """What was missed."""
    missed = []
    with ward(directory) as cloud:
        async with eyes_on(cloud) as page:
            for name in names:
                found = await trial(cloud, page, CASES[name])
                print(row(name, found), flush=True)
                missed += [f"{name}: {miss}" for miss in found.misses]
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=[*CASES])
    args = parser.parse_args()
    print("| ill | status | metric | page | replaced | requests | failed | slowest answer | healed after |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="phoenix-outage-") as directory:
        missed = asyncio.run(cases(Path(directory), args.only or [*CASES]))
    print("\n".join(["", *missed] if missed else ["", "Nothing was missed."]))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
