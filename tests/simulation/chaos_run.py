"""Many seeds of simulated faults on all cores of the machine, up to the first that fails.

    make chaos SEEDS=100000 [FIRST=seed]
    .venv/bin/python -m tests.simulation.chaos_run --seeds N [--first SEED] [--jobs N]

Prints how far it is, how many seeds, faults and steps a second that makes, and what the faults were.  A seed that fails ends
the run; it prints what is wrong and the one command that tells that story again from this commit.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.chaos import STEPS, Chaos, reproduce

CHUNK: Final = 4  # seeds that a process takes at once: about half a second
PROGRESS_S: Final = 10.0


@dataclass
class Story:
    seed: int
    faults: Counter[str]
    facts: int
    wrong: str = ""


@dataclass
class Tally:
    began: float = field(default_factory=time.monotonic)
    seeds: int = 0
    facts: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, story: Story) -> None:
        self.seeds += 1
        self.facts += story.facts
        self.faults += story.faults

    def __str__(self) -> str:
        took_s, faults = max(1e-9, time.monotonic() - self.began), sum(self.faults.values())
        return (
            f"{self.seeds:,} seeds in {took_s:.0f} s: {self.seeds / took_s:.1f} seeds/s, {faults:,} faults, "
            f"{faults / took_s:.0f} faults/s, {self.seeds * STEPS / took_s:,.0f} steps of chaos/s, {self.facts:,} envelopes"
        )


def live(seed: int) -> Story:
    """One seed, from beginning to end."""
    chaos = Chaos(seed)
    try:
        chaos.run()
        wrong = ""
    except Exception as error:  # `Wrong`, or a core that stumbled: both are what is looked for
        wrong = str(error) if isinstance(error, AssertionError) else f"seed {seed}: {type(error).__name__}: {error}"
        if "reproduce:" not in wrong:
            wrong += f"\n    reproduce: {reproduce(seed)}"
    return Story(seed, chaos.faults, len(chaos.log), wrong)


def run(first: int, seeds: int, jobs: int) -> int:
    tally, told = Tally(), time.monotonic()
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs) as pool:
        for story in pool.imap_unordered(live, range(first, first + seeds), CHUNK):
            tally.add(story)
            if story.wrong:
                print(f"WRONG: {story.wrong}\n{tally}")
                return 1
            if time.monotonic() - told > PROGRESS_S:
                told = time.monotonic()
                print(f"… {tally}", flush=True)
    print(f"all is well: {tally}")
    print("faults:", ", ".join(f"{name} {count:,}" for name, count in sorted(tally.faults.items())))
    return 0


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.chaos_run", description="Seeds of simulated faults."
    )
    parser.add_argument("--seeds", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    args = parser.parse_args(argv)
    if args.seeds == 1:  # to see the story
        chaos = Chaos(args.first, print)
        try:
            chaos.run()
        except AssertionError as error:
            print(f"WRONG: {error}")
            return 1
        print("all is well")
        return 0
    return run(args.first, args.seeds, args.jobs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
