"""The mutation run itself: what it changes, what it finds on a toy, that it goes on where it ended, what it refuses."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.__main__ import EQUIVALENT, targets
from tests.mutation.mutants import mutants, units
from tests.mutation.operators import changes
from tests.mutation.results import equivalents, stale, wilson
from tests.unit.frame_source import ROOT

TOY = '''"""A toy."""
from functools import cache

ORDERS = {"size": lambda jobs: sorted(jobs, key=lambda j: (-j[0], j[1]))}


@cache
def fee(hours: int, member: bool = False) -> int:
    """Dearer from ten."""
    if hours > 10 and not member:
        return hours * 2
    return hours


class Desk:
    @property
    def days(self) -> int:
        days = left = 3
        while left > 0:
            left -= 1
        return days


def nobody_asks() -> bool:
    return 1 < 2
'''
TESTS = """from toy import ORDERS, Desk, fee


def test_fees() -> None:
    assert (fee(11), fee(9), fee(12, True)) == (22, 9, 12)


def test_orders() -> None:
    assert ORDERS["size"]([(1, 1), (2, 2), (1, 0), (2, 1)]) == [(2, 1), (2, 2), (1, 0), (1, 1)]


def test_days() -> None:
    assert Desk().days == 3
"""
BOUNDARY = "\n\ndef test_ten() -> None:\n    assert fee(10) == 10\n"
SURVIVORS = {
    ("fee", "if hours > 10 and (not member):", "if hours >= 10 and (not member):"),
    ("Desk.days", "while left > 0:", "while left > 1:"),
    ("Desk.days", "while left > 0:", "while left >= 0:"),
    ("Desk.days", "left -= 1", "left -= 2"),
    ("nobody_asks", "return 1 < 2", "return 2 < 2"),
    ("nobody_asks", "return 1 < 2", "return 1 < 3"),
    ("nobody_asks", "return 1 < 2", "return 1 <= 2"),
}
MUTANTS = 26
PROGRAM = """import sys
from pathlib import Path
from tests.mutation.run import Plan, run
here = Path.cwd()
sys.path.insert(0, str(here))
sys.exit(run(Plan(root=here, targets=["toy.py"], tests=["test_toy.py"], state=here / "state", equivalent=here / "equal.toml")))
"""


class Toy:
    def __init__(self, place: Path) -> None:
        self.place = place
        self.write("toy.py", TOY)
        self.write("test_toy.py", TESTS)
        self.write("pytest.ini", "[pytest]\nasyncio_default_fixture_loop_scope = function\n")

    def write(self, name: str, text: str) -> None:
        (self.place / name).write_text(text, encoding="utf-8")

    def run(self) -> tuple[int, list[str]]:
        env = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        argv = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(argv, cwd=self.place, capture_output=True, text=True, env=env, check=False)
        return done.returncode, (done.stdout + done.stderr).splitlines()

    def tried(self) -> list[str]:
        """The lines of its file of results."""
        return (self.place / "state" / "results.jsonl").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return Toy(tmp_path_factory.mktemp("toy"))


def survivors(said: list[str]) -> set[tuple[str, str, str]]:
    heads = [i for i, line in enumerate(said) if line.startswith("survived: ")]
    return {(said[i].split()[-1], said[i + 1].split("- ", 1)[1], said[i + 2].split("+ ", 1)[1]) for i in heads}


def row(said: list[str]) -> list[int]:
    """Mutants, tried, killed, equal, left."""
    return next([int(count) for count in line.split()[1:6]] for line in said if line.startswith("all "))


def entry(function: str, was: str, now: str, reason: str = "it says so") -> str:
    return (
        f"[[equivalent]]\nfile = 'toy.py'\nfunction = '{function}'\nwas = '{was}'\nnow = '{now}'\nreason = '{reason}'\n"
    )


@pytest.mark.long
def test_what_no_test_notices_survives_and_nothing_else(toy: Toy) -> None:
    code, said = toy.run()
    assert survivors(said) == SURVIVORS
    assert code == 0
    assert row(said) == [MUTANTS, MUTANTS, MUTANTS - 7, 0, 7]
    assert f"killed by: a test that failed {MUTANTS - 9}, a test that did not end 2" in said


@pytest.mark.long
def test_a_run_goes_on_where_the_last_one_ended_and_tries_again_what_may_have_changed(toy: Toy) -> None:
    toy.run()
    before = toy.tried()
    assert row(toy.run()[1])[-1] == 7
    assert toy.tried() == before
    with (toy.place / "state" / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"key":"cut off')
    toy.write("toy.py", TOY.replace("1 < 2", "1 < 3") + "\n# a comment\n")
    toy.write("test_toy.py", TESTS + BOUNDARY)
    _, said = toy.run()
    assert {name for name, _, _ in survivors(said)} == {"Desk.days", "nobody_asks"}
    assert row(said)[:2] == [MUTANTS, MUTANTS]
    toy.write("toy.py", TOY)
    toy.write("test_toy.py", TESTS)


@pytest.mark.long
def test_an_equivalent_is_not_counted_and_one_that_is_stale_or_not_equivalent_is_refused(toy: Toy) -> None:
    toy.write("equal.toml", entry("Desk.days", "while left > 0:", "while left > 1:"))
    code, said = toy.run()
    assert (code, row(said)[-2:]) == (0, [1, 6])
    toy.write("equal.toml", entry("Desk.days", "while left > 7:", "while left > 8:"))
    code, said = toy.run()
    assert (code, "no such mutant any more" in "\n".join(said)) == (1, True)
    toy.write("equal.toml", entry("fee", "return hours * 2", "return hours / 2"))
    code, said = toy.run()
    assert code == 1
    assert "listed as equivalent, but test_toy.py::test_fees tells it from the original: toy.py:11 fee" in "\n".join(
        said
    )
    (toy.place / "equal.toml").unlink()


def test_nothing_is_said_where_a_test_fails_without_a_mutant(toy: Toy, tmp_path: Path) -> None:
    """One that has passed when it was recorded, and does not any more."""
    other = Toy(tmp_path)
    other.write("test_toy.py", TESTS + "\n\ndef test_once() -> None:\n    open('once', 'x').close()\n")
    code, said = other.run()
    assert code != 0
    assert "a test fails without a mutant: test_toy.py::test_once" in "\n".join(said)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("x = a < b", {"x = a <= b"}),
        ("x = a and b and c", {"x = b and c", "x = a and c", "x = a and b"}),
        ("if not a:\n  pass", {"if a:", }),
        ("while a():\n  break", {"while not a():", "continue"}),
        ("return a + 1", {"return None", "return a - 1", "return a + 2"}),
        ("a.b = c", {"pass"}),
        ("a = b", set()),
        ("a += 1", {"pass", "a -= 1", "a += 2"}),
        ("f(a)", {"pass"}),
        ("f(a=True)", {"pass", "f(a=False)"}),
        ("x = zip(a, b, strict=True)", set()),
        ("raise ValueError(1 + 2)", {"pass"}),
        ("assert a < b", set()),
        ("x = f'{a + b}'", set()),
        ("x: list[1] = [y for y in z if y > a]", {"x: list[1] = [y for y in z if y >= a]"}),
        ("x = max(y, key=lambda z: (z.a, -z.b))", {"x = min(y, key=lambda z: (z.a, -z.b))", "x = max(y)",
            "x = max(y, key=lambda z: (0, -z.b))",
            "x = max(y, key=lambda z: (z.a, 0))", "x = max(y, key=lambda z: (z.a, z.b))"}),
        ("x = sorted(y)", {"x = list(y)"}),
        ("x = sorted(y, reverse=True)", {"x = sorted(y, reverse=False)", "x = sorted(y)"}),
    ],
)  # fmt: skip
def test_what_is_mutated(tmp_path: Path, code: str, found: set[str]) -> None:
    (tmp_path / "x.py").write_text("def f(a: int = 5):\n    " + code.replace("\n", "\n    ") + "\n", encoding="utf-8")
    assert {m.now for m in mutants(tmp_path, "x.py")} - {"def f(a: int=6)"} == found


def test_mutants_have_names_of_their_own_and_leave_the_tree_as_it_was() -> None:
    for file in ("services/domain/sharing/max_min.py", "services/scheduler/core/policies/victims.py"):
        every = mutants(ROOT, file)
        assert len({m.key for m in every}) == len(every) > 0
    tree = ast.parse(TOY)
    before = ast.unparse(tree)
    for unit in units(tree):
        for change in changes(unit.node):
            change.make()
            assert ast.unparse(tree) != before
            change.undo()
    assert ast.unparse(tree) == before


def test_a_score_of_a_part_has_an_interval() -> None:
    low, high = wilson(81, 263)  # a textbook's example: Newcombe, Statistics in Medicine 17 (1998), method 3
    assert (round(low, 4), round(high, 4)) == (0.2553, 0.3662)
    assert wilson(0, 5)[0] == 0.0
    assert wilson(5, 5)[1] == 1.0


def test_every_equivalent_that_is_listed_names_a_mutant_and_a_reason() -> None:
    listed = equivalents(EQUIVALENT)
    files = {e.file for e in listed}
    assert files <= set(targets())
    assert stale(listed, [m for file in files for m in mutants(ROOT, file)]) == []
    assert len({e.names for e in listed}) == len(listed)
