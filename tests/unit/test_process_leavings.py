"""What a VM's user has left outside its room goes, and nothing else does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from phoenix.local.process import leavings


def test_of_what_is_in_a_shared_directory_only_what_is_the_users_goes(tmp_path: Path) -> None:
    """The user is whoever runs the test; a stranger to the directory is a uid that nobody has."""
    (tmp_path / "kept").write_text("x")
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "kept")
    leavings._empty(str(tmp_path), (os.getuid() + 1,))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "tree"]
    leavings._empty(str(tmp_path / "tree"), (os.getuid(),))
    assert list((tmp_path / "tree").iterdir()) == []
    assert (tmp_path / "kept").exists()  # a link was removed, not what it named
    leavings._empty(str(tmp_path / "no such place"), (os.getuid(),))


def test_what_cannot_be_looked_at_is_not_in_everybodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a FUSE mount whose server has died: even root cannot ask whose it is."""

    class Dead:
        path = "dead"

        def stat(self, follow_symlinks: bool) -> os.stat_result:
            raise OSError(107, "Transport endpoint is not connected")

    class Listing(list[object]):
        def __enter__(self) -> Listing:
            return self

        def __exit__(self, *_: object) -> None: ...

    (tmp_path / "mine").write_text("x")
    entries = [Dead(), *os.scandir(tmp_path)]
    monkeypatch.setattr(leavings.os, "scandir", lambda _directory: Listing(entries))
    leavings._empty(str(tmp_path), (os.getuid(),))
    assert not (tmp_path / "mine").exists()
