"""The real programs that tests run and that pip does not bring: HAProxy today (docs/dependencies.md).

1. ``tool("haproxy")`` gives the program.  A test whose tool is missing fails, and says how to get it.
2. With ``ALLOW_MISSING=1`` it is skipped instead, and the last line of the test output says how many were: nobody can take
   such a run for a whole one.  This is the only place where a test may be skipped (tests/unit/test_frame_layout.py).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from phoenix.local.programs import program

ALLOWED = "ALLOW_MISSING"
MISSING = "tool is missing: "


def tool(name: str) -> Path:
    found = program(name)
    if found is not None:
        return found
    if os.environ.get(ALLOWED) == "1":
        pytest.skip(MISSING + name)
    pytest.fail(
        f"the tool {name} is missing: make setup brings it (deploy/tools.sh), apt-get install {name} installs it; "
        f"{ALLOWED}=1 leaves out the tests that need it, and counts them",
        pytrace=False,
    )


def status_of_missing(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """What a test that was skipped for want of a tool is counted as; None for every other report."""
    reason = str(report.longrepr[2]) if report.skipped and isinstance(report.longrepr, tuple) else ""
    if MISSING not in reason:
        return None
    name = reason.rpartition(MISSING)[2]
    return f"skipped as {name} is missing", "s", f"SKIPPED ({name} is missing)"
