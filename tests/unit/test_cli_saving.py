"""Output that is saved to a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from phoenix.cli import waiting
from phoenix.cli.errors import CliError


def test_what_was_saved_is_not_replaced_by_nothing(tmp_path: Path) -> None:
    file = tmp_path / "phoenix-7.out"
    for data in (b"", b"hello", b"hello, again"):
        waiting._write(file, data, keeps=True)
        assert file.read_bytes() == data
    with pytest.raises(CliError, match=r"phoenix-7\.out is left as it is"):
        waiting._write(file, b"", keeps=True)
    assert file.read_bytes() == b"hello, again"
    waiting._write(file, b"", keeps=False)  # a job that was waited for, and printed nothing
    assert file.read_bytes() == b""
