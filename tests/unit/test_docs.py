"""The documents say what is there: their links lead somewhere, and no property is missing from the list."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PROSE_COLUMNS_MAX = 128  # CONTRIBUTING.md, rule 13; not of tables, code blocks and what is one word, as a link
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")


def anchors(document: Path) -> set[str]:
    """As the usual renderers make them: lower case, hyphens for spaces, nothing else but letters, digits and hyphens."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(), flags=re.MULTILINE)
    return {"#" + re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target, anchor in LINK.findall(document.read_text()):
        if target.startswith("http"):
            continue
        found = (document.parent / target).resolve() if target else document
        assert found.exists(), f"{document.name}: there is no {target}"
        if anchor:
            assert anchor in anchors(found), f"{document.name}: {target} has no {anchor}"


def test_every_property_is_listed() -> None:
    listed = re.findall(r"^\| \*\*P(\d+)\*\* \|", (ROOT / "docs" / "properties.md").read_text(), flags=re.MULTILINE)
    assert listed == [str(number) for number in range(1, len(listed) + 1)]
    found = [
        test
        for file in (ROOT / "tests").rglob("test_*.py")
        for test in re.findall(r"^@given\(", file.read_text(), re.M)
    ]
    assert len(listed) == len(found), "docs/properties.md lists each @given of the tests, and nothing else"


def wide(document: Path) -> list[str]:
    found, fenced = [], False
    for number, line in enumerate(document.read_text(encoding="utf-8").split("\n"), 1):
        fenced ^= line.lstrip().startswith("```")
        if fenced or line.lstrip().startswith("|") or line.startswith("    ") or " " not in line.strip():
            continue
        if len(line) > PROSE_COLUMNS_MAX:
            found.append(f"{document.relative_to(ROOT)}:{number}: {len(line)} columns")
    return found


def test_prose_is_no_wider_than_people_read() -> None:
    assert [told for document in DOCUMENTS for told in wide(document)] == []


TABLE_CELL_MAX = 250  # characters, without where links lead
LISTS = {
    "metrics.md",
    "properties.md",
    "protocol.md",
    "faults.md",
    "history.md",
    "opennebula.md",
}  # of names, rules, columns


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_tables_hold_phrases(document: Path) -> None:
    rows = [re.sub(r"\]\([^)]*\)", "]", line) for line in document.read_text().splitlines() if line.startswith("|")]
    cells = [] if document.name in LISTS else [cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row)]
    assert [cell for cell in cells if len(cell) > TABLE_CELL_MAX] == []


def tables(document: Path) -> Iterator[tuple[int, list[str]]]:
    """Number of the first line, and the lines, of each run of lines that begin with a bar outside of a code block."""
    found: list[str] = []
    fenced = False
    for number, line in enumerate([*document.read_text(encoding="utf-8").splitlines(), ""], 1):
        fenced ^= line.startswith("```")
        if line.startswith("|") and not fenced:
            found.append(line)
        elif found:
            yield number - len(found), found
            found = []


SEPARATOR = re.compile(r"\|(?: *:?-+:? *\|)+ *")
BAR = re.compile(r"(?<!\\)\|")


def broken(lines: list[str]) -> str:
    """What keeps the lines from being a table, or ""."""
    separators = [number for number, line in enumerate(lines) if SEPARATOR.fullmatch(line)]
    if separators != [1]:
        return "the second line, and only that, is a separator"
    cells = len(BAR.findall(lines[0]))
    uneven = next((line for line in lines if len(BAR.findall(line)) != cells), None)
    return "" if uneven is None else f"as many cells as in the head: {uneven}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_tables_have_a_head_a_separator_and_rows_as_wide(document: Path) -> None:
    found = [f"{document.name}:{number}: {broken(lines)}" for number, lines in tables(document) if broken(lines)]
    assert found == []


HEAD, RULE, ROW = "| key | effect |", "|---|:-:|", r"| `a \| b` | c |"


@pytest.mark.parametrize(
    ("lines", "is_table"),
    [
        ([HEAD, RULE, ROW], True),
        ([HEAD], False),
        ([RULE, ROW], False),
        ([HEAD, ROW], False),
        ([HEAD, RULE, ROW, RULE], False),
        ([HEAD, RULE, "| a | b | c |"], False),
        ([HEAD, RULE, "| a |"], False),
        ([HEAD, "|---|", ROW], False),
    ],
)
def test_lines_with_bars_are_a_table_only_if_they_have_its_form(lines: list[str], is_table: bool) -> None:
    assert (not broken(lines)) is is_table


def test_the_readme_can_be_read_in_one_sitting() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 250
