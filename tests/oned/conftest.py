"""These tests are for an OpenNebula that is named: without one they are not collected (`make test-oned`)."""

from __future__ import annotations

import os

import pytest

collect_ignore_glob = [] if os.environ.get("ONED") else ["test_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "oned: needs an OpenNebula, make test-oned ONED=URL ONED_AUTH=FILE")
