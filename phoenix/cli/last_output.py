"""What an instance wrote last, beside the word that it has failed: people look for the reason, and there it is.

Rules
  1. The end of stderr; of stdout if nothing is there.  LINES_MAX lines, CHARS_MAX characters.
  2. It is a word beside what was asked for: a caller that cannot have it (no right, no door) does without.
"""

from __future__ import annotations

from typing import Final

from phoenix.cli.errors import CliError
from phoenix.cli.http import Client, query

LINES_MAX: Final = 5  # the end of a traceback, and the message; more is what `phoenix logs` is for
CHARS_MAX: Final = 1000


def last_words(client: Client, unit: str) -> list[str]:
    for stream in ("stderr", "stdout"):
        try:
            body = client.fetch("GET", query(f"/v1/instances/{unit}/output", stream=stream)).body
        except CliError:
            return []
        text = body[-4 * CHARS_MAX :].decode(errors="replace")[-CHARS_MAX:]
        lines = ["".join(char if char.isprintable() else " " for char in line).rstrip() for line in text.splitlines()]
        if found := [line for line in lines if line.strip()][-LINES_MAX:]:
            return found
    return []
