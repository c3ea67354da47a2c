"""What a VM's user has left outside its room goes, and nothing else does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from phoenix.local.process import cleanup
from phoenix.local.process.cleanup import IPC, SETTLED_NS, Leavings

ME = os.getuid()


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only shared directory; whoever runs the tests keeps what is theirs in the tables of System V."""
    monkeypatch.setattr(cleanup, "IPC", {})
    monkeypatch.setattr(cleanup, "SHARED", (str(tmp_path),))
    monkeypatch.setattr(cleanup.tempfile, "gettempdir", lambda: str(tmp_path))
    return tmp_path


def settle(place: Path) -> None:
    """As if nothing had been made in it for a while."""
    status = place.stat()
    os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns - 2 * SETTLED_NS))


def test_of_what_is_in_a_shared_directory_only_what_is_the_users_goes(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user is whoever runs the test; a stranger to the directory is a uid that nobody has."""
    (place / "kept").write_text("x")
    (place / "tree" / "deep").mkdir(parents=True)
    (place / "tree" / "link").symlink_to(place / "kept")
    Leavings(()).remove((ME + 1,))
    assert sorted(path.name for path in place.iterdir()) == ["kept", "tree"]
    monkeypatch.setattr(cleanup, "SHARED", (str(place / "tree"), str(place / "no such place")))
    monkeypatch.setattr(cleanup.tempfile, "gettempdir", lambda: str(place / "tree"))
    Leavings(()).remove((ME,))
    assert list((place / "tree").iterdir()) == []
    assert (place / "kept").exists()  # a link was removed, not what it named


def test_what_cannot_be_looked_at_is_not_in_everybodys_way(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a FUSE mount whose server has died: even root cannot ask whose it is."""

    class Dead:
        path = "dead"

        def stat(self, follow_symlinks: bool) -> os.stat_result:
            raise OSError(107, "Transport endpoint is not connected")

    class Listing(list[object]):
        def __enter__(self) -> Listing:
            return self

        def __exit__(self, *_: object) -> None: ...

    (place / "mine").write_text("x")
    entries = [Dead(), *os.scandir(place)]
    monkeypatch.setattr(cleanup.os, "scandir", lambda _directory: Listing(entries))
    settle(place)
    mine = Leavings((ME,))
    mine.remove((ME + 1,))
    assert not mine.none_of(ME + 2)  # nor taken for nobody's
    mine.remove((ME,))
    assert not (place / "mine").exists()


def test_what_has_not_changed_is_not_looked_through_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Leavings((ME,))
    (place / "theirs").write_text("x")
    assert not mine.none_of(ME + 1)  # nobody has looked yet
    settle(place)
    mine.remove((ME + 1,))
    assert mine.none_of(ME + 1)
    monkeypatch.setattr(cleanup.os, "scandir", lambda directory: pytest.fail(f"{directory} is looked through"))
    mine.remove((ME + 1,))


def test_what_was_there_at_the_last_look_goes_with_its_owner(place: Path) -> None:
    """One VM ends, and the look after it finds what another one, which still runs, has made: that goes when it ends."""
    mine = Leavings((ME,))
    (place / "left").write_text("x")
    settle(place)
    mine.remove((ME + 1,))
    assert not mine.none_of(ME)
    mine.remove((ME,))
    assert list(place.iterdir()) == []


def test_what_was_made_since_the_last_look_is_found(place: Path) -> None:
    mine = Leavings((ME,))
    settle(place)
    mine.remove((ME,))
    assert mine.none_of(ME)
    (place / "left").write_text("x")
    assert not mine.none_of(ME)
    mine.remove((ME,))
    assert list(place.iterdir()) == []


def test_a_look_right_after_a_change_proves_nothing(place: Path) -> None:
    """What is made in the same tick of the file system's clock does not show in the directory's time."""
    mine = Leavings((ME,))
    before = place.stat()
    mine.remove((ME,))
    (place / "left").write_text("x")
    os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not mine.none_of(ME)
    mine.remove((ME,))
    assert list(place.iterdir()) == []


def test_shared_memory_of_system_v_is_seen_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "IPC", IPC)
    numbers = set(cleanup._owned("shm", (ME,)))
    made = cleanup._libc.shmget(0, 4096, 0o1600)  # IPC_PRIVATE, IPC_CREAT
    try:
        assert set(cleanup._owned("shm", (ME,))) - numbers == {made}
        assert cleanup._owned("shm", (ME + 1,)) == []
    finally:
        IPC["shm"][1](made)
    assert made not in cleanup._owned("shm", (ME,))
