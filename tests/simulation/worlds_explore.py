"""Explores small worlds breadth-first, prints what was covered, and the shortest story of what is wrong.

    .venv/bin/python -m tests.simulation.worlds_explore                                the worlds by name
    .venv/bin/python -m tests.simulation.worlds_explore NAME … [--seconds S]           explores; S seconds each at most
    .venv/bin/python -m tests.simulation.worlds_explore NAME --checkpoint FILE         goes on from FILE, writes it at the end
    make worlds [SECONDS=S] [WORLDS="NAME …"]                                          all of them

`states`: different states (`worlds.State`); `transitions`: steps between them; `lands`, `executors`: different folds among
them; `depth`: steps from the first state.  A world that ends before its time is `all`: every order of its events.  One that
does not is `part`: every order of the first `depth` steps, and no more is claimed.
"""

from __future__ import annotations

import argparse
import gc
import math
import pickle
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.simulation.worlds import Setting, State, World, setting
from tests.simulation.worlds_lands import Violation

PROGRESS_S: Final = 30.0
ONE, GANG, SMALL = ("hpc", 1, 2), ("hpc", 2, 2), ("hpc", 1, 1)  # jobs: a whole host, two hosts, half a host
BIO: Final = ("bio", 1, 2)
WORLDS: Final[dict[str, Setting]] = {
    "1-crash": setting(1, ONE, web=None, crash=1, die=1),
    "1-spike": setting(1, ONE, web=0, spike=1),
    "1-lost": setting(1, ONE, web=None, loss=1, ticks=1),
    "2-cancel": setting(2, ONE, web=None, cancel=1),
    "2-spike": setting(2, ONE, web=0, spike=1),
    "2-two-batch": setting(2, ONE, BIO, web=None),
    "2-lost": setting(2, ONE, web=None, loss=1),
    "p2-spike": setting(2, ONE, web=0, spike=1, ticks=1, prompt=True),
    "p2-two-batch": setting(2, ONE, BIO, web=None, prompt=True),
    "p2-lost": setting(2, ONE, web=None, loss=1, ticks=1, prompt=True),
    "p2-serving-spike": setting(2, ONE, web=1, spike=1, ticks=1, prompt=True),
    "p2-gang-lost": setting(2, GANG, web=None, loss=1, die=1, prompt=True),
    "p2-shared": setting(2, SMALL, SMALL, SMALL, web=0, spike=1, prompt=True),
    "p2-two-batch-wide": setting(2, ONE, ("bio", 2, 2), web=None, cancel=1, prompt=True),
    "p3-spike": setting(3, ONE, ONE, GANG, web=0, spike=1, prompt=True),
    "p3-two-batch": setting(3, ONE, BIO, ("bio", 2, 2), web=None, cancel=1, prompt=True),
    "p3-lost": setting(3, ONE, ONE, GANG, web=0, loss=1, prompt=True),
    "p3-all": setting(3, ONE, ONE, GANG, web=0, spike=1, cancel=1, loss=1, prompt=True),
}


@dataclass
class Search:
    """A world and how far it is explored."""

    world: World
    healed_each: int = 1  # of how many states one is healed
    seen: dict[State, tuple[State, str] | None] = field(default_factory=dict)
    frontier: list[State] = field(default_factory=list)
    following: list[State] = field(default_factory=list)
    transitions: int = 0
    depth: int = 0
    stories: bool = True

    def __post_init__(self) -> None:
        self.seen[self.world.first] = None
        self.frontier.append(self.world.first)

    def run(
        self, seconds: float, progress: Callable[[str], None] = lambda _text: None, depth: float = math.inf
    ) -> bool:
        """True if the whole world was explored; `depth`: no more steps than that from the first state.  Raises `Violation` with
        the story that leads to it."""
        began = told = time.monotonic()
        while self.frontier:
            if self.depth >= depth:
                return False
            while self.frontier:
                self._expand(self.frontier.pop())
                now = time.monotonic()
                if now - told > PROGRESS_S:
                    told = now
                    progress(self.report(now - began))
                if now - began > seconds:
                    return False
            self.frontier, self.following = self.following[::-1], []
            self.depth += 1
        return True

    def _expand(self, state: State) -> None:
        step = ""
        try:
            if len(self.seen) % self.healed_each == 0:
                self.world.rest(state)
            for step, reached in self.world.moves(state):
                self.transitions += 1
                if reached not in self.seen:
                    self.seen[reached] = (state, step) if self.stories else None
                    self.world.check(reached)
                    self.following.append(reached)
        except Violation as wrong:
            raise Violation(
                "\n".join([str(wrong), *self.story(state), f"    then, after or beside: {step}"])
            ) from wrong

    def story(self, state: State) -> list[str]:
        steps: list[str] = []
        came = self.seen.get(state)
        while came is not None:
            steps.append(f"  * {came[1]}")
            came = self.seen.get(came[0])
        return steps[::-1]

    def report(self, seconds: float) -> str:
        lands, executors = len(self.world.lands.names.values), len(self.world.executors.names.values)
        memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        return (
            f"{len(self.seen):,} states, {self.transitions:,} transitions, depth {self.depth}, {lands:,} lands, "
            f"{executors:,} executors, {seconds:.0f} s, {memory_mb} MiB"
        )


def explore(name: str, seconds: float, checkpoint: Path | None, healed_each: int, stories: bool) -> bool:
    """Explore one world; False if something is wrong in it."""
    began = time.monotonic()
    if checkpoint is not None and checkpoint.exists():
        search: Search = pickle.loads(checkpoint.read_bytes())
        print(f"{name}: goes on from {checkpoint}: {search.report(0.0)}", flush=True)
    else:
        search = Search(World(WORLDS[name]), healed_each, stories=stories)
    try:
        whole = search.run(seconds, lambda text: print(f"{name}: … {text}", flush=True))
    except Violation as wrong:
        print(f"{name}: WRONG: {wrong}\n    reproduce: .venv/bin/python -m tests.simulation.worlds_explore {name}")
        return False
    healed = "each healed" if healed_each == 1 else f"one in {healed_each} healed"
    print(f"{name}: {'all' if whole else 'part'}: {search.report(time.monotonic() - began)}, {healed}", flush=True)
    if checkpoint is not None:
        checkpoint.write_bytes(pickle.dumps(search, pickle.HIGHEST_PROTOCOL))
    return True


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.worlds_explore", description=__doc__.split("\n")[0]
    )
    parser.add_argument("names", nargs="*", help="worlds; 'all': each of them")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for each world")
    parser.add_argument("--checkpoint", type=Path, help="of one world: read, if it is there, and written at the end")
    parser.add_argument("--healed-each", type=int, default=1, metavar="N", help="heal one state of N (default: each)")
    parser.add_argument(
        "--no-story", action="store_true", help="half the memory; what is wrong comes without its story"
    )
    args = parser.parse_args(argv)
    names = list(WORLDS) if args.names == ["all"] else args.names
    unknown = [name for name in names if name not in WORLDS]
    if not names or unknown or (args.checkpoint and len(names) > 1):
        print(f"no such world: {', '.join(unknown)}" if unknown else "worlds:", *WORLDS, sep="\n    ")
        return 2
    gc.set_threshold(20_000, 50, 1_000_000)  # cores are cycles and die young; millions of states are none and stay
    fine = [explore(n, args.seconds, args.checkpoint, args.healed_each, not args.no_story) for n in names]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
