"""Invisible characters: controls, marks that turn the direction of a line, and what has no width.

A name with one of them looks like another name, moves what stands beside it, or commands a terminal.

Rules
  1. In names and reasons the door refuses them (`schemas.requests`).  Paths, and what comes from elsewhere (OpenNebula, the
     journal of an older version), may have them.
  2. Wherever people read, they are shown by their number (`shown`): in tables and sentences of the command line, in logs, and
     on the page (`hidden.js`, with the same list).
"""

from __future__ import annotations

import re
from typing import Final

# Control characters; soft hyphen; bidirectional marks, embeddings, overrides and isolates; zero-width; separators of lines;
# fillers; tags; halves of pairs.  Those beyond U+FFFF are themselves: JSON Schema has no number for them.
HIDDEN: Final = (
    r"\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    r"\ufeff\uffa0\ufff9-\ufffb\ud800-\udfff"
    f"{chr(0x1D173)}-{chr(0x1D17A)}{chr(0xE0000)}-{chr(0xE007F)}"
)
WHAT: Final = "control, invisible or direction-turning characters"
_hidden: Final = re.compile(f"[{HIDDEN}]")


def has_hidden(text: str) -> bool:
    return _hidden.search(text) is not None


def shown(text: str) -> str:
    """`text` with each of them as its number: ``\\u202e``, ``\\x1b``; what is no text of theirs stays as it is."""
    return text if text.isascii() and text.isprintable() else _hidden.sub(_number, text)


def shown_in_json(text: str) -> str:
    """The same for a JSON text, which stays one with the same meaning: JSON has numbers for characters of its own."""
    return text if text.isascii() else _hidden.sub(_number_in_json, text)


def _number_in_json(found: re.Match[str]) -> str:
    if found[0] < "\x7f":  # what stands between its parts
        return found[0]
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _number(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
