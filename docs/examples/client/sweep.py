"""A parameter sweep: one array, an element for each value, and a table of what they have written.

    python sweep.py [--data DIR] [--user alice] 0.5 0.7 0.9

Each element simulates a counter at which customers arrive at random, for one value of the load, and writes how long they wait
on average.  The table has that beside what queueing theory says (Pollaczek and Khinchine): load / (1 - load).
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from phoenix.client import Client, PhoenixError

SCRIPT = """#!/bin/sh
# The values are the lines of a file that came along; an element takes the line of its index.
load=$(sed -n "${PHOENIX_ARRAY_TASK_ID}p" loads)
exec awk -v load="$load" -v seed="$PHOENIX_ARRAY_TASK_ID" 'BEGIN {
    srand(seed)
    for (customer = 0; customer < 200000; customer++) {
        total += wait
        wait += -load * log(1 - rand()) + log(1 - rand())      # one service more, and the time until the next arrival
        if (wait < 0) wait = 0
    }
    printf "%.3f\\n", total / customer / load
}'
"""


async def sweep(phoenix: Client, loads: list[float]) -> list[float]:
    """The mean wait, in mean times of service, for each load."""
    job = await phoenix.submit(
        name="sweep",
        script=SCRIPT,
        inputs={"loads": "".join(f"{load}\n" for load in loads).encode()},
        array=f"1-{len(loads)}%50",  # at most 50 at a time: others want to work too
        walltime_s=600,
    )
    print(f"job {job}: {job.units} elements", file=sys.stderr)
    end = await phoenix.wait(job, timeout_s=3600)
    if not end.succeeded:
        bad = next(unit for unit in end.units if not unit.succeeded)
        wrote = await phoenix.read_output(bad, stream="stderr")
        raise SystemExit(f"{bad.unit} is {bad.state}: {wrote.decode(errors='replace').strip()}")
    return [float(output) for output in await asyncio.gather(*map(phoenix.read_output, job.elements()))]


async def main(args: argparse.Namespace) -> int:
    async with Client.find(args.data, user=args.user) as phoenix:
        found = await sweep(phoenix, args.load)
    print("load  waited  theory")
    for load, waited in zip(args.load, found, strict=True):
        print(f"{load:4.2f}  {waited:6.2f}  {load / (1 - load):6.2f}")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", help="the directory of an embedded cloud")
    parser.add_argument("--user")
    parser.add_argument("load", type=float, nargs="+", help="between 0 and 1")
    try:
        sys.exit(asyncio.run(main(parser.parse_args())))
    except PhoenixError as error:
        sys.exit(f"{error} {error.hint}".strip())
