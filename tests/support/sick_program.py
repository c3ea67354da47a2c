"""A web program that falls ill on request.  It stands beside a copy of `phoenix.local.webapp.program`.

Its health path answers 500 while the file `ill` is beside it, or of a release whose SICK is `health`; the others answer 500 to
all but their health checks if SICK is `answers`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import program  # type: ignore[import-not-found]  # the copy

ILL = Path(__file__).with_name("ill")
SICK = os.environ.get("SICK", "")


class Sick(program.Server):  # type: ignore[misc]  # as above
    def _handle(self, client: Any, line: str, headers: dict[str, str]) -> None:
        health = line.split(" ")[1:2] == ["/healthz"]
        if (health and (SICK == "health" or ILL.exists())) or (not health and SICK == "answers"):
            client.closing = headers.get("connection", "").lower() == "close"
            self._answer(client, 500, b"ill\n")
        else:
            super()._handle(client, line, headers)


if __name__ == "__main__":
    program.REASONS[500] = "Internal Server Error"
    program.Server = Sick
    sys.exit(program.main())
