"""The page's sources keep its rules: nothing from elsewhere, no markup from data, no script or style in the document, short
files with their theory of operation on top, and every name that scripts look for is in the document."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from schemas.dimensions import DIMENSIONS

PAGE = Path(__file__).resolve().parents[2] / "services" / "monitor" / "http" / "page"
API = PAGE.parent / "api"  # the pages of the interfaces
SCRIPTS = sorted(PAGE.glob("*.js"))
SOURCES = sorted(p for p in PAGE.iterdir() if p.suffix in (".js", ".css", ".html", ".svg"))
OF_API = sorted(p for p in API.iterdir() if not p.name.startswith("redoc."))
LINES_MAX = 500
COLUMNS_MAX = 128  # as prose and code elsewhere; a path of an SVG has no better place to break

# What makes markup, code or addresses of a text.  Job names are other people's words.
FORBIDDEN = (
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "DOMParser",
    "setHTML",
    "eval(",
    "new Function",
    "srcdoc",
    "javascript:",
)


@pytest.mark.parametrize("path", [*SCRIPTS, *(API / n for n in ("start.js", "plain.js"))], ids=lambda p: p.name)
def test_no_script_makes_markup_or_code_of_a_text(path: Path) -> None:
    source = path.read_text()
    assert [word for word in FORBIDDEN if word in source] == []
    assert "setAttribute(" not in source or path.name in (
        "dom.js",
        "chart.js",
        "hosts.js",
        "queue.js",
        "search.js",
        "theme.js",
    )


@pytest.mark.parametrize("path", [*SOURCES, *OF_API], ids=lambda p: f"{p.parent.name}/{p.name}")
def test_nothing_comes_from_elsewhere(path: Path) -> None:
    found = re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"'>]*", path.read_text())
    assert [url for url in found if "www.w3.org/2000/svg" not in url] == []


@pytest.mark.parametrize("path", [*SOURCES, *OF_API], ids=lambda p: f"{p.parent.name}/{p.name}")
def test_files_are_short_and_begin_with_what_they_are_for(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= LINES_MAX
    wide = [i for i, line in enumerate(lines, 1) if len(line) > COLUMNS_MAX and path.suffix != ".svg"]
    assert wide == []
    if path.suffix == ".js" and path.name != "early.js":
        assert lines[0] == "// @ts-check"
        assert lines[1].startswith("// ")


@pytest.mark.parametrize("path", sorted([*PAGE.glob("*.html"), *API.glob("*.html")]), ids=lambda p: p.name)
def test_the_document_has_neither_script_nor_style_of_its_own(path: Path) -> None:
    html = path.read_text()
    assert re.findall(r"<style|\sstyle=|\son\w+=", html) == []
    assert all(
        tag.endswith("></script>") and "src=" in tag for tag in re.findall(r"<script[^>]*>(?:.*?)</script>", html)
    )


def test_every_file_that_is_named_is_there_and_every_file_is_named() -> None:
    html = (PAGE / "index.html").read_text()
    named = set(re.findall(r"(?:href|src)=\"([\w.]+\.\w+)\"", html))
    for path in SCRIPTS:
        named |= set(re.findall(r"from \"\./([\w.]+)\"", path.read_text()))
    assert named | {"index.html"} == {path.name for path in SOURCES}


def test_the_pages_dimensions_are_those_of_the_table() -> None:
    found = re.findall(r"^  (\{ field: .*\}),$", (PAGE / "size.js").read_text(), re.MULTILINE)
    rows = [json.loads(re.sub(r"(\w+): ", r'"\1": ', row)) for row in found]
    assert rows == [
        {name: getattr(d, name) for name in ("field", "used", "name", "plural", "unit")} for d in DIMENSIONS
    ]


def test_what_scripts_look_for_is_in_the_document() -> None:
    ids = set(re.findall(r"\sid=\"([\w-]+)\"", (PAGE / "index.html").read_text()))
    sought = {name for path in SCRIPTS for name in re.findall(r"\bel\(\"([\w-]+)\"\)", path.read_text())}
    assert sought <= ids
