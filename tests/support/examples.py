"""How many examples a property tries whose examples take long: few in the test command, more in `make properties`."""

from __future__ import annotations

import os


def few(count: int, *, searching: int) -> int:
    return searching if os.environ.get("PROPERTIES") == "search" else count
