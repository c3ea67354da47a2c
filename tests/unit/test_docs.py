"""The documents say what is there: their links lead somewhere, and no property is missing from the list."""

from __future__ import annotations

import re
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


def test_the_readme_can_be_read_in_one_sitting() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 250
