"""The public traces: a test has those that it is marked with and no others; one without its own is left out and counted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from phoenix.simulate import traces
from tests.support.inner import run_inner
from tests.unit.frame_source import ROOT, sources

TESTS = f"""
import pytest
from phoenix.simulate import traces
def test_unmarked(): assert traces.find({traces.SDSC_BLUE!r}) is None
@pytest.mark.traces({traces.SDSC_BLUE!r})
def test_marked(): assert traces.find({traces.SDSC_BLUE!r})
@pytest.mark.traces("no-such-log.swf", {traces.SDSC_BLUE!r})
def test_without_its_log(): raise AssertionError
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "traces"
    place.mkdir()
    (place / traces.SDSC_BLUE).touch()
    return place


def test_a_test_has_the_traces_that_it_is_marked_with_and_the_last_line_counts_what_is_left_out(
    tmp_path: Path, place: Path
) -> None:
    expected = "2 passed, 1 left out without the public no-such-log.swf"
    code, _, last = run_inner(tmp_path, TESTS, PHOENIX_TRACES=str(place))
    assert (code, last) == (0, expected)
    code, _, last = run_inner(tmp_path, TESTS, "-m", "traces", PHOENIX_TRACES=str(place))
    assert (code, last) == (0, expected.replace("2", "1"))  # and one that was not selected


def test_a_machine_with_the_repository_alone_leaves_out_every_test_that_reads_traces(tmp_path: Path) -> None:
    code, _, last = run_inner(tmp_path, TESTS, PHOENIX_TRACES=str(tmp_path / "nowhere"))
    assert (code, last.count("1 left out without the public ")) == (0, 2)
    assert traces.SDSC_BLUE in last


def test_tests_name_no_place_beside_the_checkout() -> None:
    """They find traces as the product does: else one could read some without its mark."""
    beside = re.compile("|".join([r"shared[\"' ,/]+" + "traces", r"[\"']\.\./" + "shared"]))
    found = [str(path) for path in sources("tests") if beside.search((ROOT / path).read_text(encoding="utf-8"))]
    assert found == []
    assert beside.search('ROOT.parent / "shared" / "tra' + 'ces"')
