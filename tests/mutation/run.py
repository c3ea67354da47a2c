"""A mutation run: every mutant of the targets against the tests that get to it, in an order that chance makes.

Rules
  1. A mutant is tried in a process of its own, forked when all tests are imported, with its code put in place of the original:
     nothing is imported again, and no file is written.
  2. The tests that get to its lines are run, the first that fails kills it.  Those that have killed others of the same
     function come first, then as `reach.Map.tests` has them.  Tests beyond `within_s` of CPU are left out: what survives so
     may be killed by more.
  3. Properties are tried on the examples of `make test`, without looking for the smallest that fails.
  4. The order of mutants is that of the seed: what was tried when time is up is a random sample.
  5. What came of each is written at once; a run goes on where the last one ended (`results`).
  6. Before all, a random choice of the tests is run without a mutant, in such a process: all pass, or nothing can be said.
"""

from __future__ import annotations

import gc
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Final

import msgspec
import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

from tests.mutation import reach, trial
from tests.mutation.mutants import Live, Mutant, Nothing, mutants
from tests.mutation.results import Report, Result, Results, equivalents, stale

CONTROL_TESTS: Final = 100
PROGRESS_S: Final = 15.0
PROFILE: Final = "mutants"
WRONG: Final = 1  # as exit code


class Plan(msgspec.Struct):
    root: Path
    targets: list[str]  # files, relative to the root
    tests: list[str]  # what pytest collects
    state: Path  # a directory: results and what was recorded
    equivalent: Path
    modules: list[str] = []  # of the targets, what is wanted; empty: all
    minutes: float = 60.0
    workers: int = 2
    seed: int = 0
    within_s: float = 30.0


def run(plan: Plan, say: Callable[[str], None] = print) -> int:
    """The exit code: 0, unless a test failed without a mutant or an entry of the equivalents is wrong."""
    settings.register_profile(
        PROFILE, derandomize=True, deadline=None, phases=[Phase.explicit, Phase.generate], report_multiple_bugs=False
    )
    os.environ["PROPERTIES"] = PROFILE
    loop = _Loop(plan, say)
    args = [
        "-q",
        "-s",
        "--tb=no",
        "--no-header",
        f"--rootdir={plan.root}",
        "--assert=plain",
        "-p",
        "no:cacheprovider",
        "-o",
        "timeout=0",
        "-n0",
    ]
    code = pytest.main([*args, "-m", "not long and not traces", *plan.tests], plugins=[loop])
    return loop.code if code == pytest.ExitCode.OK else int(code)


class _Loop:
    """What pytest does in the place of running what it has collected."""

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        self.plan, self.say = plan, say
        self.code = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.unfreeze()  # what tests/conftest.py has put away
        gc.collect()
        live = Live(self.plan.root, self.plan.targets)
        gc.freeze()
        run = _Run(self.plan, self.say, session.items, live)
        try:
            run.everything()
        except KeyboardInterrupt:
            self.say("interrupted: what was tried is kept")
        self.code = run.report()
        return True


class _Run:
    def __init__(self, plan: Plan, say: Callable[[str], None], items: list[pytest.Item], live: Live) -> None:
        self.plan, self.say, self.items, self.live = plan, say, {item.nodeid: item for item in items}, live
        self.every = [m for t in plan.targets if self._wanted(t) for m in mutants(plan.root, t)]
        self.results = Results(plan.state / "results.jsonl")
        self.kills: dict[tuple[str, str], Counter[str]] = {}
        self.ends = 0.0  # of the time that mutants are tried
        self.shown = time.monotonic()
        self.rng = random.Random(plan.seed)

    def _wanted(self, target: str) -> bool:
        return not self.plan.modules or any(target.startswith(m) for m in self.plan.modules)

    def everything(self) -> None:
        self.map = reach.Map(self._recorded())
        self._control()
        self.rng.shuffle(self.every)
        self.left = [m for m in self.every if self._is_open(m)]
        began = time.monotonic()
        self.ends = began + 60 * self.plan.minutes
        by_key = {m.key: m for m in self.left}
        for done, (key, said) in enumerate(trial.each(self._trials(), self.plan.workers), start=1):
            self._note(by_key[key], said)
            if time.monotonic() - self.shown > PROGRESS_S:
                rate = done / (time.monotonic() - began)
                score = Report(self.every, self.results, equivalents(self.plan.equivalent)).all.score
                self._show(f"{done} of {len(self.left)} tried, {rate:.1f} a second; score {score}")

    def _show(self, line: str) -> None:
        if time.monotonic() - self.shown > PROGRESS_S:
            self.shown = time.monotonic()
            self.say(line)

    def report(self) -> int:
        listed = equivalents(self.plan.equivalent)
        report = Report(self.every, self.results, listed)
        for line in report.lines():
            self.say(line)
        named = [e for e in listed if self._wanted(e.file)]
        wrong = stale(named, self.every)
        for line in wrong:
            self.say(line)
        return 1 if wrong or report.wrong else 0

    # ---------------------------------------------------------------------------------------------------------- recording

    def _recorded(self) -> dict[str, reach.Recorded]:
        path = self.plan.state / "reach.msgpack"
        old = msgspec.msgpack.decode(path.read_bytes(), type=dict[str, reach.Recorded]) if path.exists() else {}
        files: dict[str, list[pytest.Item]] = {}
        for item in self.items.values():
            files.setdefault(reach.file_of(item), []).append(item)
        known = {f: one for f, one in old.items() if f in files and reach.still_holds(one, self.plan.root)}
        missing = [f for f in files if f not in known]
        if missing:
            self.say(f"recording where the tests of {len(missing)} files get to")
        jobs = ((f, partial(self._record, files[f])) for f in missing)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            for file, said in trial.each(jobs, self.plan.workers):
                self._show(f"{len(known)} of {len(files)} recorded")
                if not said.startswith("{"):
                    pytest.exit(f"{file}: its tests ended without a record: {said or 'killed'}", WRONG)
                known[file] = msgspec.json.decode(said, type=reach.Recorded)
        finally:
            path.write_bytes(msgspec.msgpack.encode(known))
        return known

    def _record(self, items: list[pytest.Item], say: trial.Say) -> str:
        return msgspec.json.encode(reach.record(items, self.plan.root, self.plan.targets, say)).decode()

    def _control(self) -> None:
        some = self.rng.sample(sorted(self.map.seconds), min(CONTROL_TESTS, len(self.map.seconds)))
        for _, said in trial.each(iter([("control", partial(self._try, None, some))]), 1):
            if said != "survived":
                pytest.exit(f"a test fails without a mutant: {_which(said, some)} ({said})", WRONG)

    # ------------------------------------------------------------------------------------------------------------- trying

    def _is_open(self, mutant: Mutant) -> bool:
        """Rule 1 of `results`."""
        known = self.results.of(mutant)
        if known is None:
            return True
        if known.verdict == "killed":
            return known.tests != {f: self.map.digests.get(f) for f in known.tests}
        return known.verdict == "survived" and bool(self._tests(mutant))

    def _tests(self, mutant: Mutant) -> list[str]:
        """Rule 2; of a mutant that has survived, those that are new to it."""
        names, known = self.map.tests(mutant), self.results.of(mutant)
        if known is not None and known.verdict == "survived" and known.within_s >= self.plan.within_s:
            names = [n for n in names if known.tests.get(f := n.split("::")[0]) != self.map.digests[f]]
        if known is not None and known.by in names:
            names = [known.by, *(n for n in names if n != known.by)]
        kills = self.kills.get((mutant.file, mutant.unit), Counter())
        first = sorted((n for n in names if n in kills), key=lambda n: -kills[n])
        names = [*first, *(n for n in names if n not in kills)]
        spent, chosen = 0.0, list[str]()
        for name in names:
            spent += self.map.seconds[name]
            if spent > self.plan.within_s and chosen:
                break
            chosen.append(name)
        return chosen

    def _trials(self) -> Iterator[tuple[str, Callable[[trial.Say], str]]]:
        self.chosen: dict[str, list[str]] = {}
        for mutant in self.left:
            if time.monotonic() > self.ends:
                return
            self.chosen[mutant.key] = self._tests(mutant)
            yield mutant.key, partial(self._try, mutant, self.chosen[mutant.key])

    def _try(self, mutant: Mutant | None, names: list[str], say: trial.Say) -> str:
        try:
            if mutant is not None:
                self.live.put(mutant)
        except Nothing:
            return "same"
        items = [self.items[name] for name in names]
        for i, (item, following) in enumerate(zip_longest(items, items[1:])):
            say(f"t {i}")
            trial.allow_cpu(self.map.seconds[item.nodeid])
            if not _passes(item, following):
                return f"failed {i}"
        return "survived"

    def _note(self, mutant: Mutant, said: str) -> None:
        names = self.chosen.pop(mutant.key)
        result = Result(mutant.key, "survived", within_s=self.plan.within_s)
        if said == "same":
            result.verdict = "same"
        elif said == "survived":
            files = {n.split("::")[0] for n in names}
            before = self.results.of(mutant)
            result.tests = {**(before.tests if before else {}), **{f: self.map.digests[f] for f in files}}
        elif (by := _which(said, names)) is not None:
            result.verdict, result.by, result.how = "killed", by, _how(said)
            file = by.split("::")[0]
            result.tests = {file: self.map.digests[file]}
            self.kills.setdefault((mutant.file, mutant.unit), Counter())[by] += 1
        else:
            pytest.exit(f"{mutant}\n{said or 'its process ended without a word'}", WRONG)
        self.results.add(result)


def _which(said: str, names: list[str]) -> str | None:
    """The test that `said` is about."""
    word, _, number = said.partition(" ")
    return names[int(number)] if word in ("t", "failed") else None


def _passes(item: pytest.Item, following: pytest.Item | None) -> bool:
    """What even pytest does not catch is a failure too."""
    try:
        return all(report.passed for report in runtestprotocol(item, log=False, nextitem=following))
    except BaseException:
        return False


def _how(said: str) -> str:
    """A process that ended in the middle of a test had no CPU left, or was ill."""
    return "a test that failed" if said.startswith("failed") else "a test that did not end"
