"""Which worker runs what: what shares a set-up stays together, the long ones come first, in proportion."""

from __future__ import annotations

import pytest

from tests.support.workers import LONG_S, ROOT, Scheduling, seconds, unit_of, waits

CLOUD = "tests/integration/test_up_usage.py"
ALONE = "tests/integration/test_up_site.py"


@pytest.mark.parametrize(
    ("test", "unit"),
    [
        (f"{CLOUD}::test_a", CLOUD),
        (f"{ALONE}::test_a", f"{ALONE}::test_a"),
        ("tests/simulation/test_worlds.py::test_a[1::2]", "tests/simulation/test_worlds.py::test_a[1::2]"),
        ("tests/unit/test_workers.py::test_a", "tests/unit/test_workers.py"),
        ("tests/unit/test_frame_words.py::test_a", "tests/unit/test_frame"),
    ],
)
def test_what_shares_a_set_up_stays_together(test: str, unit: str) -> None:
    assert unit_of(test) == unit


def test_every_long_file_is_there() -> None:
    assert [file for file in LONG_S if not (ROOT / file).is_file()] == []


def test_the_longest_come_first_and_those_that_wait_go_beside_those_that_compute() -> None:
    waiting = [f"{ALONE}::test_{n}" for n in range(8)]
    computing = [f"tests/simulation/test_worlds.py::test_{n}" for n in range(4)]
    scheduling = Scheduling.__new__(Scheduling)  # no workers
    scheduling._begun = {True: 0.0, False: 0.0}
    left = [*waiting, CLOUD, *computing, "tests/unit/test_workers.py"]
    order = []
    while left:
        scheduling.workqueue = dict.fromkeys(left)  # type: ignore[assignment]
        order.append(scheduling._next())
        scheduling._begun[waits(order[-1])] += seconds(order[-1])
        left.remove(order[-1])
    assert order[0] == CLOUD
    assert order[1] == computing[0]
    for kind in (waiting, computing):
        assert [unit for unit in order if unit in kind] == kind
    half = order[: len(order) // 2]
    assert 2 <= len([unit for unit in half if unit in computing]) <= 4
