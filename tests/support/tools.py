"""The real programs that tests run and that pip does not bring (docs/reference/dependencies.md).

1. ``tool("haproxy")`` gives the program, ``packages("contracts")`` the directory of packages of npm.  A test whose tool is
   missing fails, and says how to get it.
2. With ``ALLOW_MISSING=1`` it is skipped instead, and the last line of the test output says how many were: this cannot
   be taken for a whole run (tests/support/left_out.py).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

from phoenix.local.programs import CHECKOUT, program
from tests.support.left_out import leave_out

ALLOWED = "ALLOW_MISSING"


def tool(name: str) -> Path:
    found = program(name)
    if found is None:
        missing(name)
    return found


def packages(name: str) -> Path:
    """The packages of npm of a tool."""
    found = CHECKOUT / ".tools" / name / "node_modules"
    if not found.is_dir():
        missing(name)
    return found


def missing(name: str) -> NoReturn:
    """The test that asks cannot run here."""
    if os.environ.get(ALLOWED) == "1":
        leave_out(f"skipped as {name} is missing")
    pytest.fail(
        f"the tool {name} is missing: make setup brings it (deploy/tools.sh), or apt-get install installs it; "
        f"{ALLOWED}=1 leaves out the tests that need it, and counts them",
        pytrace=False,
    )
