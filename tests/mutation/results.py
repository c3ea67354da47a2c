"""What came of mutants: kept in a file that grows by a line each, and told as a score.

Rules
  1. A result holds until the mutant's function is another, or the tests are: a kill until the file of the test that killed is
     changed, a survival until a file of tests that get there is.
  2. The score is killed / (tried - equivalent).  Where mutants are left to try, those that were are a random sample (of each
     module, and of all), and the score has an interval (Wilson's, 95 %).
  3. A mutant that nobody can tell from the original is named in `equivalent.toml` with the reason.  An entry without a mutant
     is stale and refused: what it names was changed.  So is one whose mutant was killed: it is not equivalent.
  4. A mutant whose code is that of the original is none, and not counted.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from tests.mutation.mutants import Mutant


class Result(msgspec.Struct, omit_defaults=True):
    key: str
    verdict: Literal["killed", "survived", "same"]
    by: str = ""  # the test that killed
    how: str = ""  # "failed", or what ended the process
    tests: dict[str, str] = {}  # files of tests that had a say, and their digests
    within_s: float = math.inf  # tests beyond so much CPU were left out


class Results:
    """The file.  Of several lines about one mutant the last one counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        written = path.read_bytes()
        whole = written[: written.rfind(b"\n") + 1]
        if whole != written:  # who wrote the last line was stopped
            path.write_bytes(whole)
        decoder = msgspec.json.Decoder(Result)
        self._by_key = {one.key: one for line in whole.splitlines() for one in [decoder.decode(line)]}

    def of(self, mutant: Mutant) -> Result | None:
        return self._by_key.get(mutant.key)

    def add(self, result: Result) -> None:
        self._by_key[result.key] = result
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(result) + b"\n")


class Equivalent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    file: str
    function: str
    was: str
    now: str
    reason: str

    @property
    def names(self) -> tuple[str, str, str, str]:
        return self.file, self.function, self.was, self.now

    def __str__(self) -> str:
        return f"{self.file} {self.function}\n    - {self.was}\n    + {self.now}"


def names(mutant: Mutant) -> tuple[str, str, str, str]:
    return mutant.file, mutant.unit, mutant.was, mutant.now


def equivalents(path: Path) -> list[Equivalent]:
    said = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return msgspec.convert(said.get("equivalent", []), list[Equivalent])


def stale(listed: Iterable[Equivalent], every: Iterable[Mutant]) -> list[str]:
    known = {names(mutant) for mutant in every}
    return [
        f"no such mutant any more, or the entry has no reason: {e}"
        for e in listed
        if e.names not in known or not e.reason
    ]


class Tally(msgspec.Struct):
    mutants: int = 0
    killed: int = 0
    equivalent: int = 0
    survived: list[Mutant] = []

    @property
    def tried(self) -> int:
        return self.killed + self.equivalent + len(self.survived)

    @property
    def score(self) -> str:
        count = self.killed + len(self.survived)
        if not count:
            return "-"
        share = self.killed / count
        if self.tried == self.mutants:
            return f"{share:.1%}"
        low, high = wilson(self.killed, count)
        return f"{share:.1%} ({low:.1%} to {high:.1%})"


def wilson(hits: int, count: int, z: float = 1.96) -> tuple[float, float]:
    share, square = hits / count, z * z / count
    middle, half = share + square / 2, z * math.sqrt(share * (1 - share) / count + square / count / 4)
    return max(0.0, (middle - half) / (1 + square)), min(1.0, (middle + half) / (1 + square))


class Report:
    def __init__(self, every: list[Mutant], results: Results, listed: list[Equivalent]) -> None:
        self._listed = {e.names for e in listed}
        self.by_file: dict[str, Tally] = {}
        self.all = Tally()
        self.wrong: list[str] = []  # rule 3
        self.ways: Counter[str] = Counter()
        for mutant in every:
            result = results.of(mutant)
            if result is None or result.verdict != "same":
                for tally in (self.all, self.by_file.setdefault(mutant.file, Tally())):
                    self._count(tally, mutant, result)
            if result is not None and result.verdict == "killed":
                self.ways[result.how] += 1
                if names(mutant) in self._listed:
                    self.wrong.append(f"listed as equivalent, but {result.by} tells it from the original: {mutant}")

    def _count(self, tally: Tally, mutant: Mutant, result: Result | None) -> None:
        tally.mutants += 1
        if result is None:
            return
        if result.verdict == "killed":
            tally.killed += 1
        elif names(mutant) in self._listed:
            tally.equivalent += 1
        else:
            tally.survived = [*tally.survived, mutant]

    def lines(self) -> Iterator[str]:
        """The survivors, a table of modules, the score."""
        yield from (f"survived: {mutant}" for mutant in self.all.survived)
        yield f"{'':56}{'mutants':>8}{'tried':>8}{'killed':>8}{'equal':>7}{'left':>6}  score"
        rows = [*sorted(self.by_file.items()), ("all", self.all)]
        for name, t in rows:
            yield f"{name:56}{t.mutants:8}{t.tried:8}{t.killed:8}{t.equivalent:7}{len(t.survived):6}  {t.score}"
        yield f"killed by: {', '.join(f'{how} {count}' for how, count in self.ways.most_common()) or 'nothing yet'}"
        yield from self.wrong
