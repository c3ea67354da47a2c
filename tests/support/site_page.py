"""The configuration of docs/howto/opennebula-site.md, as the page shows it, and what a reader changes in it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "howto" / "opennebula-site.md"
_BLOCK: Final = re.compile(r"^    \[cloud\]\n(?:(?:    .*)?\n)*?(?=\S)", re.MULTILINE)


def example() -> str:
    """The one block that begins with [cloud]."""
    [block] = _BLOCK.findall(PAGE.read_text("utf-8"))
    return "\n".join(line[4:] for line in block.rstrip().splitlines()) + "\n"


def changed(text: str, *pairs: tuple[str, str]) -> str:
    """With what is the site's own; each stands in the page exactly once."""
    for shown, own in pairs:
        assert text.count(shown) == 1, f"{shown} is {text.count(shown)} times in {PAGE.name}"
        text = text.replace(shown, own)
    return text


def without_web(text: str) -> str:
    """A site that has no web service: without its department and that one's user."""
    begin, end = text.index("[[department]]                                # a web service"), text.index("[[user]]")
    text = text[:begin] + text[end:]
    return changed(text, ('[[user]]\nname = "wes"\ndepartment = "web"\nrole = "manager"\n', ""))
