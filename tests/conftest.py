"""Settings of all tests.

Properties are tried on the same examples each time (profile `repeatable`): a red run of the test command is a change's doing,
and is red again.  `make properties` looks for new counter-examples (profile `search`); what it finds becomes an `@example`.
None has a deadline: the machine may be busy.

Programs of tests keep what Python compiles, whatever PYTHONDONTWRITEBYTECODE says: the tests start hundreds of processes, and
each would compile all of its modules again, half a second of CPU instead of a third.

What is there when all tests are collected stays until the end: the collector of garbage leaves it out (`gc.freeze`), which
halves the time of tests that compute.

With several workers, tests/support/workers.py says which of them runs what.

Programs of tests receive Ctrl-C (SIGINT) as from a terminal, also where what starts the tests ignores it (`nohup`, a script's
background): to be ignored is inherited, to be handled is not.

What `pyproject.toml` brings by entry points (`phoenix_papers`) is found in the metadata of the installed package: where that is
older, nothing is run.

A test that is left out, since its tool is missing (``ALLOW_MISSING=1``, tests/support/tools.py) or the public traces are not
there (tests/support/public_traces.py), is counted on the last line.
"""

from __future__ import annotations

import gc
import importlib.metadata
import os
import signal
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("tests.support")  # what fails there says with which values

from tests.support import public_traces  # noqa: E402
from tests.support.left_out import status_of_left_out  # noqa: E402
from tests.support.plugins import enter_ours  # noqa: E402
from tests.support.workers import Scheduling  # noqa: E402

gc.disable()  # until all tests are collected

enter_ours()  # tests of all policies go by the registry

settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("PROPERTIES", "repeatable"))

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    return status_of_left_out(report)


def pytest_configure(config: pytest.Config) -> None:
    declared = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text())["project"][
        "entry-points"
    ]
    found = {(one.group, one.name, one.value) for one in importlib.metadata.distribution("phoenix-cloud").entry_points}
    if not {(group, name, at) for group, points in declared.items() for name, at in points.items()} <= found:
        pytest.exit("the installed package is older than pyproject.toml: make setup", returncode=4)
    config.addinivalue_line("markers", public_traces.ABOUT)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    public_traces.give_to(item)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    return Scheduling(config, log)
