"""Commands that documents type exist: their subcommands, options and values are those of the parser, their files are there.

Rules
  1. A line of a block that begins with `phoenix` (after `$`, if any) is taken by the command's own parser, in every document.
  2. Every path into the checkout exists; the README and the tutorials, which are followed word by word, type some.
  3. A command within a sentence or a table may have placeholders: its name, its verb and its options exist.
  4. The tables of "coming from Slurm" have the environment variables and the options that the code has.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from phoenix.cli import commands, parser, sbatch
from schemas.slurm_names import SLURM_NAMES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOLLOWED = [ROOT / "README.md", *sorted((DOCS / "tutorial").glob("*.md"))]
DOCUMENTS = [*FOLLOWED, ROOT / "CONTRIBUTING.md", *sorted({*DOCS.rglob("*.md")} - {*FOLLOWED})]
LINE = re.compile(r"^    (?:\$ )?phoenix (.*)$", re.M)
SPAN = re.compile(r"`phoenix ([a-z][^`]*)`")
IN_CHECKOUT = re.compile(r"(?<![\w/.])((?:docs|deploy|tests|schemas|services|phoenix|benchmarks)/[\w./-]+\w)(?![\w*])")
PLACEHOLDER = "NAME"  # as in `NAME.py`
AFTER = {";", "|", "||", "&", "&&", ">", ">>", "<", "2>"}  # what follows is the shell's


def words(line: str) -> list[str]:
    """Of one command: without a comment, and up to where the shell's own part begins."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&<>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    found: list[str] = []
    for word in lexer:
        if word in AFTER:
            break
        found.append(word)
    return found


def blocks(text: str) -> Iterator[str]:
    """The lines; one that ends with a backslash or an ellipsis goes on or is shortened, and is for people."""
    for line in LINE.findall(text):
        if not line.rstrip().endswith(("\\", "…")):
            yield line


def check(line: str) -> None:
    name, *rest = words(line)
    assert name in commands.BY_NAME or name.startswith("-"), f"there is no command {name!r}"
    if name.startswith("-") or commands.BY_NAME[name].parses:
        return
    module = import_module(f"phoenix.cli.{name}")
    parser.of(name).parse(getattr(module, "prepared", list)(rest))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_of_a_block_is_one(document: Path) -> None:
    for line in blocks(document.read_text()):
        try:
            check(line)
        except (SystemExit, Exception) as error:
            raise AssertionError(f"{document.relative_to(ROOT)}: phoenix {line}: {error}") from error


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_is_named_is_there(document: Path) -> None:
    paths = [path for path in IN_CHECKOUT.findall(document.read_text()) if PLACEHOLDER not in path]
    assert paths or document not in FOLLOWED
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_in_a_sentence_has_its_verb_and_options(document: Path) -> None:
    for span in SPAN.findall(document.read_text().replace("\n", " ")):
        name, *rest = re.split(r"[\s|,]+", span.replace("\\", " ").strip())
        assert name in commands.BY_NAME, f"{document.name}: there is no command in `phoenix {span}`"
        if not commands.BY_NAME[name].parses:
            known = parser.of(name).option_strings()
            for word in rest:
                if word == "--":
                    break
                option = re.match(r"\[?(--?[a-z][a-z-]*)", word)
                assert option is None or option[1] in known, f"{document.name}: `phoenix {span}` has no {word}"


def test_the_variables_of_slurm_are_those_that_jobs_find() -> None:
    table = (DOCS / "howto" / "coming-from-slurm.md").read_text().partition("## Environment variables")[2]
    rows = [row.split("|")[1:3] for row in table.partition("\n\n## ")[0].splitlines() if row.startswith("| `SLURM")]
    told = {name: ours for theirs, ours in rows for name in re.findall(r"`(SLURM_\w+)`", theirs)}
    for ours, theirs in SLURM_NAMES.items():
        for name in theirs:
            assert f"`{ours}`" in told.pop(name, ""), f"{name} is {ours}"
    assert sorted(told) == ["SLURM_LOCALID"], "of tasks alone"


def test_the_options_of_sbatch_are_those_of_submit() -> None:
    table = (DOCS / "howto" / "coming-from-slurm.md").read_text().partition("## Options of sbatch")[2]
    table = table.partition("\n## ")[0]
    first = "\n".join(row.split("|")[1] for row in table.splitlines() if row.startswith("| `"))
    told = set(re.findall(r"`(--?[A-Za-z][a-z-]*)", first))
    options = set(parser.of("submit").option_strings())
    assert told <= options
    shared = sbatch.directives_parser()
    for action in shared._actions:
        missing = action.option_strings and not told & set(action.option_strings)
        assert not missing or action.dest in ("service", "short"), action.option_strings
