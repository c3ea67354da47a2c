"""A stream that the cloud keeps, printed part by part: what a job or an instance writes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

from phoenix.cli.errors import UNREACHABLE, CliError
from phoenix.cli.http import Client, Response

FOLLOW_S: Final = 20  # how long the server may hold an answer that has nothing new
PAUSE_S: Final = 0.2  # if it answers at once all the same
AWAY_S: Final = 1.0  # the door restarts: what was written waits for us


class Wrote:
    """How much has been printed."""

    size = 0


def follow(client: Client, path: Callable[[int, int | None], str], on: bool, wrote: Wrote | None = None) -> bool:
    """Print parts of the stream at `path(offset, wait_s)` until its end, or, unless it goes `on`, what there is now.
    True if that was the end."""
    offset = 0
    while True:
        try:
            part = client.fetch("GET", path(offset, FOLLOW_S if on else None))
        except CliError as error:
            if not (on and offset and error.code == UNREACHABLE):
                raise
            time.sleep(AWAY_S)
            continue
        write(part.body)
        tell_removed(part)
        if wrote is not None:
            wrote.size += len(part.body)
        following = int(part.headers.get("phoenix-offset", offset + len(part.body)))
        ended = part.headers.get("phoenix-end", "true") == "true"
        moved, offset = following > offset, following
        if ended or (not on and not moved):
            return ended
        if not moved:
            time.sleep(PAUSE_S)


def tell_removed(answer: Response) -> None:
    """Why there is nothing, if that is because the cloud has removed it."""
    if told := answer.headers.get("phoenix-removed"):
        print(f"phoenix: there is no output: {told}", file=sys.stderr)


def write(data: bytes) -> int:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    return 0
