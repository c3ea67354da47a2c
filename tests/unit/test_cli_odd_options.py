"""Every option and every word of every command, as the parsers name them, with odd values: taken, or refused in words.

A new command or option is among them as soon as there is one.  `BASES` has the words that make a command meaningful, where they
cannot be read off its parser; with the odd value in their place it must say what it says without it, or name what is wrong.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from phoenix.cli import parser as parsers
from phoenix.cli.__main__ import main
from phoenix.cli.commands import BY_NAME, COMMANDS
from phoenix.cli.errors import MEANINGS
from phoenix.cli.tables import lines_shown
from phoenix.simulate import experiments, outputs
from tests.support.odd import NO_WORDS, TEXTS, refusing_door

SITE = """[cloud]
name = "site"
[[department]]
name = "hpc"
kind = "batch"
[[department]]
name = "web"
kind = "web"
[[user]]
name = "olga"
department = "operators"
role = "operator"
"""
EXPERIMENT = """[cluster]
hosts = 1
[[department]]
name = "hpc"
kind = "batch"
jobs = { generator = "lublin", jobs = 1, processors = 2, load = 0.5 }
"""
INSIDE_A_JOB = ("launch", "checkpoint")  # no argparse there: `test_cli_checkpoint`, and below
# Words of a command, where its parser's own do not say; `DOOR` is the cloud's address.
BASES: dict[str, list[list[str]]] = {
    "up": [["--config", "nowhere.toml"]],  # nothing is started
    "history": [[]],
    "snapshots": [["rebuild", "nothing"]],
    "policies": [[], ["check", "nothing"]],
    "completion": [["bash"]],
    "token": [["create", "olga", "--for", "1h"], ["list"], ["revoke", "3f2a9c01d47e"]],
    "submit": [["--wrap", "true"], ["job.sh"]],
    "whatif": [["--wrap", "true"], ["--config", "site.toml", "--since", "1h"]],
    "signal": [["web", "0.5"], ["web", "--requests", "4", "--target", "2"], ["web", "--claim", "2"]],
    "scale": [["web", "2", "--for", "1h"], ["web", "--exact", "2"]],
    "lease": [
        ["create", "--immediate", "--duration", "1h"],
        ["create", "job.sh", "--start", "+1h", "--deadline", "+3h", "--duration", "1h"],
        ["list"],
        ["extend", "1", "--by", "1h"],
        ["extend", "1", "--until", "+1h"],
    ],
    "load": [
        ["DOOR", "--rate", "100", "--for", "0.01s"],
        ["DOOR", "--shape", "shape.csv", "--for", "0.01s", "--peak", "100"],
    ],
    "doctor": [["--config", "site.toml", "--opennebula", "http://127.0.0.1:1/RPC2", "--auth", "auth"]],
    "tune": [
        [
            "--experiment",
            "experiment.toml",
            "--space",
            "nowhere.toml",
            "--goal",
            "min hpc.mean_wait_s",
            "--out",
            "t.jsonl",
        ]
    ],
    "simulate": [["nowhere.toml"], ["experiment.toml", "--workers", "1"]],
    "deploy": [["web", "--image", "x"], ["web", "--wait", "--timeout", "1s"]],
    "output": [["1"], ["1", "--save", "out"]],
    "audit": [[], ["--since", "1h"]],
}
SAMPLES = {"JOB": "1", "ENTITY": "1", "DEPT": "web", "FILE": "site.toml", "HOST": "h1", "INSTANCE": "web.1"}


NAMES = [(command.name, ()) for command in COMMANDS if command.name not in INSIDE_A_JOB]
NAMES += [("simulate", (name,)) for name in experiments.experiments()]
REAL_OF = parsers.of
COMMON = ("data", "as_user")  # of every command, and read by the same lines
PARTS = {"load": 11, "policies": 7, "whatif": 4}  # what takes longer; the options of `whatif` are those of `submit`
PARTS |= dict.fromkeys(("token", "config", "secret", "snapshots", "doctor"), 4)


@functools.cache
def parser_of(name: str, words: tuple[str, ...]) -> parsers.Parser:
    return REAL_OF(name, words)


class Case(NamedTuple):
    """A command's words, and which option of its parser is tried beside them, or which of the words is replaced."""

    command: str
    base: tuple[str, ...]
    action: argparse.Action | None = None
    word: int = -1
    part: int = 1  # so many-th values only: another verb's, or another experiment's

    @property
    def name(self) -> str:
        return " ".join([self.command, *self.base, self.options[-1] if self.action else f"[{self.word}]"])

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(self.action.option_strings) if self.action else ()

    def argv(self, value: str, door: str) -> list[str]:
        words = [door if word == "DOOR" else word for word in self.base]
        if not self.action:
            words[self.word] = value
            return [self.command, *words]
        option = self.options[-1]
        return [self.command, *words, *([f"{option}={value}"] if option.startswith("--") else [option, value])]

    def values(self) -> Iterator[str]:
        """What the option's type refuses, as below, is tried once."""
        refused = False
        for n, value in enumerate(TEXTS.values()):
            wrong = self.action is not None and is_refused(self.action, value)
            if not (wrong and refused) and (n + len(self.name)) % self.part == 0:
                yield value
                refused = refused or wrong


def is_refused(action: argparse.Action, value: str) -> bool:
    try:
        if action.type is not None:
            action.type(value)  # type: ignore[operator]
    except argparse.ArgumentTypeError:
        return True
    return action.choices is not None and value not in action.choices


def bases(name: str, parser: argparse.ArgumentParser) -> list[list[str]]:
    """Of a command that is not in the table: each of its verbs, and a sample of each of its words."""
    words = [a for a in parser._actions if not a.option_strings and a.nargs not in ("*", "?", argparse.REMAINDER)]
    found = []
    for verb in BY_NAME[name].verbs or ("",):
        rest = words[1:] if verb and words and "|" in str(words[0].metavar) else words
        found.append([*([verb] if verb else []), *(SAMPLES.get(str(word.metavar), "x") for word in rest)])
    return found


def cases() -> Iterator[Case]:
    for name, words in NAMES:
        parser = parser_of(name, words)
        for number, base in enumerate([list(words)] if words else BASES.get(name) or bases(name, parser)):
            part = PARTS.get(name, 5 if number or words else 1)
            for action in parser._actions:
                if is_option(action):
                    yield Case(name, tuple(base), action, part=max(part, 9) if action.dest in COMMON else part)
            for n, word in enumerate(base):
                if not words and not word.startswith("-") and not (n and base[n - 1].startswith("-")):
                    yield Case(name, tuple(base), word=n, part=part)


def is_option(action: argparse.Action) -> bool:
    """One with a value; what holds a NUL stands for words that no parser sees (`deploy -- COMMAND`)."""
    return bool(action.option_strings) and action.nargs != 0 and "\0" not in action.option_strings[0]


CASES = list(cases())


@pytest.fixture(scope="module")
def door() -> Iterator[str]:
    with refusing_door() as url:
        yield url


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, door: str) -> Path:
    """What a running cloud leaves, and files that people have."""
    where = tmp_path_factory.mktemp("odd") / "a" / "b"  # nothing is above it
    (where / ".phoenix" / "run").mkdir(parents=True)
    (where / ".phoenix" / "credentials").mkdir()
    (where / "token").write_text("x" * 43)
    users = [
        {"name": name, "department": department, "role": role, "token_file": str(where / "token")}
        for name, department, role in (
            ("olga", "operators", "operator"),
            ("ann", "hpc", "user"),
            ("wim", "web", "user"),
        )
    ]
    about = {"http_url": door, "monitor_url": door, "users": users, "departments": {"hpc": "batch", "web": "web"}}
    about |= {
        "config": str(where / "site.toml"),
        "cloud": "site",
        "data": str(where / ".phoenix"),
        "hosts": 1,
        "cores": 1,
    }
    about |= {"opennebula_url": "http://127.0.0.1:1/RPC2", "opennebula_auth_file": str(where / "auth")}
    (where / ".phoenix" / "run" / "cloud.json").write_text(json.dumps(about))
    for name in ("site.toml", ".phoenix/phoenix.toml"):
        (where / name).write_text(SITE)
    (where / "experiment.toml").write_text(EXPERIMENT)
    (where / "auth").write_text("oneadmin:secret")
    (where / "shape.csv").write_text("requests\n1\n2\n")
    (where / "job.sh").write_text("#!/bin/sh\ntrue\n")
    return where


@pytest.fixture(autouse=True)
def alone(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("PHOENIX_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(place)
    monkeypatch.setenv("PHOENIX_TRACES", str(place))
    monkeypatch.setattr(parsers, "of", lambda name, words=(): parser_of(name, tuple(words)))  # made once
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        yield


def ended(argv: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and what it says to people; whatever it raises fails the test, as it would be a stack trace."""
    try:
        code = main(argv)
    except SystemExit as end:  # argparse, of --help alone
        code = int(end.code or 0)
    said = capsys.readouterr()
    assert code in MEANINGS, (argv, code)
    assert code == 0 or said.err.startswith("phoenix") or said.out, argv
    assert not (found := NO_WORDS.search(said.err)), (argv, found, said.err[-1000:])
    assert not Path("-").exists(), argv
    return code, said.err or said.out


def quoted(value: str) -> tuple[str, ...]:
    """As an error may show it: a long one is cut, and a path has no slash at its end."""
    ways = (repr(value), value[:20] or repr(value), lines_shown(value), str(Path(value)))
    return tuple(way.lower() for way in ways)


def do_not_simulate(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of experiments by name only lists of names are checked where they run; what files may hold: `test_cli_odd_values`."""
    monkeypatch.setattr(outputs, "plot", lambda *_: None)
    name = next((one for one in experiments.experiments() if case.base[:1] == (one,)), None)
    if name is not None and case.action is not None and (case.action.nargs != "+" or case.action.type is not None):
        monkeypatch.setattr(experiments.module(name), "run", lambda _args: 0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_odd_value_is_taken_or_refused_in_words(
    case: Case, door: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    do_not_simulate(case, monkeypatch)
    usual = None
    for value in case.values():
        argv = case.argv(value, door)
        code, said = ended(argv, capsys)
        named = any(option in said for option in case.options) or (case.word >= 0 and value.startswith("-"))
        if code == 0 or named or any(word in said.lower() for word in quoted(value)):
            continue
        usual = usual or ended([case.command, *(door if word == "DOOR" else word for word in case.base)], capsys)
        assert (code, said) == usual, (argv, code, said, usual)


TYPES = {
    " ".join([name, *words, action.option_strings[-1] if action.option_strings else str(action.metavar)]): action
    for name, words in NAMES
    for action in parser_of(name, words)._actions
    if action.type is not None and (is_option(action) or not action.option_strings)
}


def test_every_type_refuses_with_a_sentence() -> None:
    """What argparse makes of any other error names a type of Python; a number that is none, or has no end, is none."""
    assert len(TYPES) > 100
    for name, action in TYPES.items():
        for value in TEXTS.values():
            try:
                made, told = action.type(value), ""  # type: ignore[operator,misc]
            except argparse.ArgumentTypeError as error:
                made, told = None, str(error)
            assert NO_WORDS.search(told) is None, (name, value, told)
            assert not isinstance(made, float) or math.isfinite(made), (name, value)
            assert made != Path("-"), name
