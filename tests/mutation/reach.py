"""Which tests get to which lines, and how long they take: recorded once, for whoever has changed again.

Rules
  1. A file of tests is run in a process of its own, forked when everything is imported, as it is later with mutants.
  2. A test takes part if it passed there, and stayed in its process: one that starts programs, or speaks to the network, would
     run code that is not mutated.
  3. What was recorded of a file of tests holds until it or a target that its tests got to is another.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Final

import msgspec
import pytest
from _pytest.runner import runtestprotocol
from coverage import Coverage

from tests.mutation.mutants import Mutant, digest, text_of
from tests.mutation.trial import Say

_LEAVES: Final = (
    "subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system", "socket.connect", "socket.bind",
)  # fmt: skip


QUICK_S: Final = 0.005  # what takes less is as quick


class Reached(msgspec.Struct):
    """One test."""

    seconds: float  # of CPU
    lines: dict[str, list[int]]  # by target


class Recorded(msgspec.Struct):
    """A file of tests."""

    digests: dict[str, str]  # of it, and of the targets that it gets to
    tests: dict[str, Reached]


def record(items: Sequence[pytest.Item], root: Path, targets: Sequence[str], say: Say) -> Recorded:
    """In a process that ends with it: those tests of one file that take part."""
    left: list[str] = []
    sys.addaudithook(lambda event, _: left.append(event) if event in _LEAVES else None)
    coverage = Coverage(data_file=None, config_file=False, include=[str(root / t) for t in targets])
    coverage.start()
    taken: dict[str, float] = {}
    for i, (item, following) in enumerate(zip_longest(items, items[1:])):
        say(f"t {i}")
        coverage.switch_context(item.nodeid)
        left.clear()
        began = time.process_time()
        reports = runtestprotocol(item, log=False, nextitem=following)
        if all(report.passed for report in reports) and not left:
            taken[item.nodeid] = time.process_time() - began
    coverage.stop()
    return _recorded(coverage, taken, root, file_of(items[0]), targets)


def _recorded(coverage: Coverage, taken: dict[str, float], root: Path, file: str, targets: Sequence[str]) -> Recorded:
    tests = {name: Reached(seconds, {}) for name, seconds in taken.items()}
    data = coverage.get_data()
    got = [t for t in targets if str(root / t) in data.measured_files()]
    for target in got:
        for line, names in data.contexts_by_lineno(str(root / target)).items():
            for name in names:
                if name in tests:
                    tests[name].lines.setdefault(target, []).append(line)
    return Recorded({f: digest(text_of(root, f)) for f in (file, *got)}, tests)


def file_of(item: pytest.Item) -> str:
    return item.nodeid.split("::")[0]


class Map:
    """All that is recorded, asked by mutant."""

    def __init__(self, recorded: dict[str, Recorded]) -> None:
        self.seconds: dict[str, float] = {}
        self.digests: dict[str, str] = {}  # of files of tests
        self._by_line: dict[tuple[str, int], list[str]] = {}
        self._lines: dict[str, dict[str, int]] = {}  # test -> target -> how many
        for file, one in recorded.items():
            self.digests[file] = one.digests[file]
            for name, reached in one.tests.items():
                self.seconds[name] = reached.seconds
                self._lines[name] = {target: len(lines) for target, lines in reached.lines.items()}
                for target, lines in reached.lines.items():
                    for line in lines:
                        self._by_line.setdefault((target, line), []).append(name)

    def tests(self, mutant: Mutant) -> list[str]:
        """The quick ones first, and those that are about this file: much of what they get to is there."""
        lines = range(mutant.first, mutant.last + 1)
        names = {name for line in lines for name in self._by_line.get((mutant.file, line), ())}
        return sorted(names, key=lambda name: (self._price(name, mutant.file), name))

    def _price(self, name: str, target: str) -> float:
        reached = self._lines[name]
        return max(QUICK_S, self.seconds[name]) * sum(reached.values()) / reached[target]


def still_holds(one: Recorded, root: Path) -> bool:
    return all((root / f).exists() and digest(text_of(root, f)) == d for f, d in one.digests.items())
