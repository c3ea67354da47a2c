"""What a job names its files, its inputs and its patterns, and how it nests them: nothing holds the hypervisor up."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from phoenix.local.guest import search
from phoenix.local.guest.agent import NOTE_CHARS_MAX
from phoenix.local.guest.workdir import Room
from phoenix.local.process.removal import remove
from tests.support.hypervisor import ISOLATIONS, Hypervisor, started

ODD = [
    "a?b",
    "a#b",
    "a%41b",
    "a b",
    "ü",
    "a&b=c",
    "a+b",
    "a;b",
    "100%",
    "dir?/a:b",
    "[x]",
    "*",
    "a\\b",
    '"',
    "%2e%2e",
    "...",
    "~",
]


@pytest.fixture
async def hypervisor(tmp_path: Path) -> AsyncIterator[Hypervisor]:
    async with started(tmp_path / "data", ISOLATIONS[0]) as found:
        yield found


@pytest.fixture
def room(tmp_path: Path) -> Room:
    found = Room(str(tmp_path / "room"), None)
    found.build()
    return found


async def test_inputs_and_kept_files_may_have_any_name(hypervisor: Hypervisor) -> None:
    life = hypervisor.door.add(
        "1",
        script="#!/bin/sh\nmkdir out && cp -r [!o]* '[x]' '*' out 2>/dev/null; exit 0\n",
        inputs=[{"name": name, "size": 1} for name in ODD],
        keep=["**"],
    )
    life.inputs = {name: name.encode() for name in ODD}
    await hypervisor.until_ended(await hypervisor.boot("1"))
    assert life.report is not None
    assert life.report["note"] is None
    for name in ODD:
        assert life.files[name] == name.encode()


async def test_a_kept_file_whose_name_is_no_text_is_told_and_the_others_are_kept(hypervisor: Hypervisor) -> None:
    script = "#!/bin/sh\n: >\"$(printf 'odd\\377')\"; : >plain\n"
    life = await hypervisor.run("1", script, keep=["*"])
    assert life.report is not None
    assert "plain" in life.files
    assert life.report["exit"] == 0


def test_a_directory_is_read_once_however_many_patterns_lead_there(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = Path(room.work, *"abcdefgh")
    deep.mkdir(parents=True)
    (deep / "found").touch()
    read: list[int] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda fd: (read.append(fd), scandir(fd))[1])
    patterns = ["/".join(["**"] * 40 + ["found"]), "/".join(["**", "*"] * 4 + ["found"]), "**/h/**", "**"]
    assert search.matching(room.work, patterns, None).names == ["a/b/c/d/e/f/g/h/found"]
    assert len(read) == 9


def test_a_search_ends_by_entries_levels_and_time_and_says_so(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path(room.work)
    for number in range(30):
        (here / str(number)).touch()
    with monkeypatch.context() as patched:
        patched.setattr(search, "ENTRIES_MAX", 10)
        assert not search.matching(room.work, ["*"], None).whole
    with monkeypatch.context() as patched:
        patched.setattr(search, "SEARCH_S", -1.0)
        assert not search.matching(room.work, ["*"], None).whole
    with monkeypatch.context() as patched:
        patched.setattr(search, "NAMES_MAX", 5)
        assert len(search.matching(room.work, ["*"], None).names) == 6
    fd = os.open(room.work, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    found = search.matching(room.work, ["**"], None)
    remove(room.path)  # which pytest could not
    assert (len(found.names), found.whole) == (30, False)


async def test_the_loop_goes_on_during_a_search(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs, in a file system that does not answer say, holds only its own job up."""
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()
    passed = False

    def hanging(*_: object) -> search.Found:
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(20)
        return search.Found(whole=False)

    monkeypatch.setattr(search, "matching", hanging)
    looking = asyncio.create_task(search.search(room.work, ["**"], None))
    await asyncio.sleep(0)
    passed = not looking.done()
    gate.set()
    assert passed
    assert not (await looking).whole


async def test_what_is_not_looked_through_to_its_end_is_told(
    hypervisor: Hypervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "ENTRIES_MAX", 3)
    life = await hypervisor.run("1", "#!/bin/sh\ntouch 1 2 3 4 5 6\n", keep=["**/" * 40 + "*"])
    assert life.report is not None
    assert "not all files were stored" in life.report["note"]


async def test_what_the_door_does_not_keep_is_noted_in_words(hypervisor: Hypervisor) -> None:
    """The door takes no control characters in a name, and answers in JSON."""
    life = hypervisor.door.add(
        "1", script="#!/bin/sh\nfor x in 'a\\033b' 'c\\nd' e f; do : >\"$(printf \"$x\")\"; done\n", keep=["*"]
    )
    life.refuses["files/e"] = (413, "a file of at most 2 bytes is kept")
    await hypervisor.until_ended(await hypervisor.boot("1"))
    assert life.report is not None
    control = "was not stored: its name has control characters"
    told = [f"a\x1bb {control}", f"c\nd {control}", "e was not stored: a file of at most 2 bytes is kept"]
    assert life.report["note"] == "; ".join(told)
    assert list(life.files) == ["f"]


async def test_a_note_is_never_too_long_for_its_report(hypervisor: Hypervisor) -> None:
    many = [f"{number:03}-{'n' * 90}" for number in range(100)]
    life = hypervisor.door.add("1", script=f"#!/bin/sh\ntouch {' '.join(many)}\n", keep=["*"])
    life.refuses |= {f"files/{name}": (400, "no") for name in many}
    await hypervisor.until_ended(await hypervisor.boot("1"))
    assert life.report is not None
    assert len(life.report["note"]) == NOTE_CHARS_MAX
