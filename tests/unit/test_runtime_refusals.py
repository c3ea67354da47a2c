"""What the journal refused is counted beyond the life of the process, and costs nothing but the count if that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.runtime.refusals import BYTES_MAX, DEPOSED, FULL, Refusals
from tests.support.shells import LOG


def test_who_comes_next_counts_on(tmp_path: Path) -> None:
    Refusals(tmp_path, "scheduler.hpc", LOG).add(DEPOSED)
    again = Refusals(tmp_path, "scheduler.hpc", LOG)
    again.add(FULL)
    assert again.counts == {DEPOSED: 1, FULL: 1}
    assert [file.name for file in tmp_path.iterdir()] == ["refused.scheduler.hpc.json"]
    assert Refusals(tmp_path, "scheduler.web", LOG).counts == {DEPOSED: 0, FULL: 0}


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"deposed": "x"}', b"{" * 2 * BYTES_MAX, b"\xff\xfe"])
def test_what_cannot_be_read_is_counted_anew(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "refused.executor.json").write_bytes(content)
    refusals = Refusals(tmp_path, "executor", LOG)
    assert refusals.counts == {DEPOSED: 0, FULL: 0}
    refusals.add(FULL)
    assert Refusals(tmp_path, "executor", LOG).counts[FULL] == 1


def test_reasons_of_another_version_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "refused.executor.json").write_bytes(b'{"deposed": 2, "other": 5, "full": -1}')
    assert Refusals(tmp_path, "executor", LOG).counts == {DEPOSED: 2, FULL: 0}


def test_a_directory_that_is_not_there_costs_the_file_alone(tmp_path: Path) -> None:
    refusals = Refusals(tmp_path / "missing", "executor", LOG)
    refusals.add(DEPOSED)
    assert refusals.counts[DEPOSED] == 1
    assert not (tmp_path / "missing").exists()
