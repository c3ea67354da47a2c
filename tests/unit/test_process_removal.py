"""What a job has left is removed, whatever its shape."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from phoenix.local.process.removal import remove
from tests.support.deep import nested

DEPTH = 3 * 1000  # more levels than Python calls, and a longer path than the kernel takes


def test_a_tree_deeper_than_calls_and_paths_go_is_removed_with_few_descriptors(tmp_path: Path) -> None:
    nested(tmp_path / "top", DEPTH)
    before = len(os.listdir("/proc/self/fd"))
    most = before

    def opened(*args: object, **kwargs: object) -> int:
        nonlocal most
        most = max(most, len(os.listdir("/proc/self/fd")))
        return opens(*args, **kwargs)  # type: ignore[arg-type]

    opens = os.open
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", opened)
        remove(tmp_path / "top")
    assert os.listdir(tmp_path) == []
    assert most <= before + 3
    assert len(os.listdir("/proc/self/fd")) == before


def test_links_are_removed_and_never_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (kept / "inner").mkdir(parents=True)
    (kept / "file").write_text("x")
    (tmp_path / "top" / "a").mkdir(parents=True)
    for at in (tmp_path / "top", tmp_path / "top" / "a"):
        (at / "to-directory").symlink_to(kept)
        (at / "to-file").symlink_to(kept / "file")
        (at / "to-nothing").symlink_to("nowhere")
        os.mkfifo(at / "pipe")
    (tmp_path / "link").symlink_to(kept)
    remove(tmp_path / "top")
    remove(tmp_path / "link")
    assert os.listdir(tmp_path) == ["kept"]
    assert sorted(os.listdir(kept)) == ["file", "inner"]


def test_what_its_owner_has_closed_is_removed(tmp_path: Path) -> None:
    inner = tmp_path / "top" / "closed" / "inner"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    for directory in (inner, inner.parent, inner.parent.parent):
        directory.chmod(0)
    remove(tmp_path / "top")
    assert os.listdir(tmp_path) == []


def test_a_file_is_removed_and_nothing_is_no_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    remove(tmp_path / "file")
    remove(tmp_path / "file")
    remove(tmp_path / "no" / "such")
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_removed_is_told_when_everything_else_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "top" / name / "x").mkdir(parents=True)
    unlink = os.unlink
    (tmp_path / "top" / "b" / "immutable").write_text("x")

    def refused(name: str, **where: int) -> None:
        if name == "immutable":
            raise PermissionError(1, "Operation not permitted", name)
        unlink(name, **where)

    monkeypatch.setattr(os, "unlink", refused)
    with pytest.raises(PermissionError, match="immutable"):
        remove(tmp_path / "top")
    monkeypatch.undo()
    assert [path.relative_to(tmp_path) for path in sorted((tmp_path / "top").rglob("*"))] == [
        Path("top/b"),
        Path("top/b/immutable"),
    ]
    shutil.rmtree(tmp_path / "top")


def test_a_tree_that_is_moved_meanwhile_is_told_and_no_descriptor_is_closed_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second close would hit whatever another thread has opened under that number."""
    (tmp_path / "top" / "a" / "b").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    rmdir = os.rmdir

    def moved(name: str, **where: int) -> None:
        rmdir(name, **where)
        if name == "b":
            os.rename(tmp_path / "top" / "a", tmp_path / "elsewhere" / "a")

    monkeypatch.setattr(os, "rmdir", moved)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="a was moved while it was removed"):
        remove(tmp_path / "top")
    assert len(os.listdir("/proc/self/fd")) == len(before)
