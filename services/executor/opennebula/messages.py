"""OpenNebula's messages as they are reported: in one line, bounded, harmless to a terminal, without what could be a secret."""

from __future__ import annotations

import re
from typing import Final

from schemas.control_characters import shown

WHY_CHARS_MAX: Final = 300
_SECRET: Final = re.compile(r"[0-9a-fA-F]{32,}")
_WHEN: Final = re.compile(r"^[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \d{4} ?: *")  # oned's, before a VM's ERROR


def in_words(text: str) -> str:
    """What OpenNebula says, of anything."""
    plain = shown(_SECRET.sub("…", " ".join(_WHEN.sub("", text).split())))
    return plain if len(plain) <= WHY_CHARS_MAX else plain[: WHY_CHARS_MAX - 1] + "…"
