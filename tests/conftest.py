"""Settings of all tests.

Properties are tried on the same examples each time (profile `repeatable`): a red run of the test command is a change's doing,
and is red again.  `make properties` looks for new counter-examples (profile `search`); what it finds becomes an `@example`.
None has a deadline: the machine may be busy.

With several workers, tests/support/workers.py says which of them runs what.

Programs of tests hear Ctrl-C (SIGINT) as from a terminal, also where whoever started the tests ignores it (`nohup`, a script's
background): to be ignored is inherited, to be handled is not.

A test that was skipped because its tool is missing (``ALLOW_MISSING=1``) is counted on the last line (tests/support/tools.py).
"""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("tests.support")  # what fails there says with which values

from tests.support.tools import status_of_missing  # noqa: E402
from tests.support.workers import Scheduling  # noqa: E402

settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("PROPERTIES", "repeatable"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    return status_of_missing(report)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    return Scheduling(config, log)
