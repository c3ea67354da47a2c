"""The public traces (docs/howto/simulator.md) in tests: not part of the product, and on few machines.

Rules
  1. A test that reads some is marked with their names, `@pytest.mark.traces("KTH-SP2-1996-2.swf.gz")`, and finds them as the
     product does (`phoenix.simulate.traces.find`).  `-m traces` selects these tests (`make test-traces`).
  2. Where one of them is missing the test is left out, and the last line of the test output counts it.
  3. No other test finds any: it does the same on a machine that has them as on one that has only the repository.
"""

from __future__ import annotations

import os
from typing import Final

import pytest

from phoenix.simulate import traces
from tests.support.left_out import leave_out

MARK: Final = "traces"
ABOUT: Final = f"{MARK}(*files): reads these public traces; left out, and counted, where one of them is not there"
NOWHERE: Final = os.devnull  # in place of a directory
_PLACE: Final = "PHOENIX_TRACES"
_GIVEN: Final = os.environ.get(_PLACE)


def give_to(item: pytest.Item) -> None:
    """Before a test's set-up: rules 2 and 3."""
    marks = list(item.iter_markers(MARK))
    if not marks:
        os.environ[_PLACE] = NOWHERE
        return
    os.environ.pop(_PLACE, None)
    if _GIVEN is not None:
        os.environ[_PLACE] = _GIVEN
    missing = [name for mark in marks for name in mark.args if traces.find(name) is None]
    if missing:
        leave_out(f"left out without the public {' and '.join(missing)}")
