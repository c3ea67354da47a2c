"""The worst words of a translation stand in no docstring, comment, string or document, in no file of `deploy` and not on the
page (CONTRIBUTING, rule 14).

What has not been rewritten yet is in NOT_YET with the number of its bad places: the number may only fall, and a folder without
any leaves the list.  Machines do not know, say, hear or wish, but those words have right uses: only these are banned.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests.unit.frame_source import PRODUCT, ROOT, sources

INSTEAD: Final = {  # pattern -> what to write
    r"so many": "N, as many as, this many",
    r"by the word of": "reported by",
    r"in the place of": "instead of",
    r"who(?:so)?ever": "the caller, the client, the process that …",
    r"(?:is|are|was|were|be|been|being) told(?! apart| from)": "is reported, receives, learns, is informed",
    r"to the bit": "bit for bit",
    r"anew": "again, newly; re-…",
    r"(?:no|some|every)body": "no client, a user, all services, … (the Unix user stands in backquotes)",
    r"go(?:es)? on": "continues, resumes, keeps …ing",
}
WORST: Final = re.compile(rf"(?<![`{{])\b(?:{'|'.join(INSTEAD)})\b(?!`)", re.IGNORECASE)
SHIPPED: Final = (
    ".cfg",
    ".conf",
    ".html",
    ".js",
    ".json",
    ".lua",
    ".service",
    ".sh",
    ".toml",
    ".yml",
)  # read by people
NOT_YET: Final = {
    "tests": 565,
}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with prose and their numbers: of Python comments and strings, of documents all."""
    content = (ROOT / path).read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(content.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield from enumerate(token.string.splitlines(), token.start[0])


def bad_places(path: Path) -> list[str]:
    if not WORST.search((ROOT / path).read_text(encoding="utf-8")):
        return []  # most files: tokens of all are slow
    return [f"{path}:{line}: {match[0]}" for line, text in texts(path) for match in WORST.finditer(text)]


@cache
def by_folder() -> dict[str, list[str]]:
    """Folders of the product by their first two parts, `docs` and `tests` as wholes -> their bad places."""
    found: dict[str, list[str]] = {"docs": [], "tests": []}
    places = (ROOT / "deploy", ROOT / "services" / "monitor" / "http" / "page")
    shipped = (path for place in places for path in place.rglob("*") if path.suffix in SHIPPED)
    documents = (*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md")
    for path in (*sources(*PRODUCT, "tests"), *(path.relative_to(ROOT) for path in (*documents, *shipped))):
        if path.name == Path(__file__).name:
            continue
        folder = "docs" if path.suffix == ".md" else path.parts[0]
        if folder in ("services", "phoenix") and len(path.parts) > 2:
            folder = "/".join(path.parts[:2])
        found.setdefault(folder, []).extend(bad_places(path))
    return found


def test_the_patterns_find_what_they_are_for() -> None:
    assert (
        WORST.findall("so many, by the word of X, in the place of Y; whoever is told anew, to the bit; nobody goes on")
        != []
    )
    for bad in ("so many", "whosoever", "was told", "Somebody", "go on", "anew"):
        assert WORST.search(f"it {bad} it"), bad
    assert not WORST.search("runs as `nobody`; a ballot; a renewal; told; as many")


def test_the_worst_words_become_fewer() -> None:
    over = [
        "\n".join([f"{len(found)} in {folder}, at most {NOT_YET.get(folder, 0)}:", *found[:100]])
        for folder, found in by_folder().items()
        if len(found) > NOT_YET.get(folder, 0)
    ]
    assert over == [], "\n".join([*over, *(f"{bad}: write {good}" for bad, good in INSTEAD.items())])


def test_a_folder_that_is_clean_leaves_the_list() -> None:
    assert [folder for folder in NOT_YET if not by_folder().get(folder)] == []
