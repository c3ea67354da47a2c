"""The guest's parts by themselves: names, rooms, environments, the dummy, and what `phoenix launch` understands."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from pathlib import Path

import pytest

from phoenix.cli import launch
from phoenix.local.guest.door import Boot, Command, Door, new_session
from phoenix.local.guest.dummy import dummy_guest
from phoenix.local.guest.environment import for_instance, for_job, for_task
from phoenix.local.guest.machine import Programs, Used
from phoenix.local.guest.search import matching
from phoenix.local.guest.workdir import Room, UnsafeNameError, relative_name
from tests.support.guest_door import HOST, GuestDoor


@pytest.fixture
def room(tmp_path: Path) -> Room:
    room = Room(str(tmp_path / "room"), None)
    room.build()
    return room


def names(room: Room, patterns: list[str]) -> list[str]:
    return matching(room.work, patterns, room.uid).names


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../x", "a/../../b", "a\0b", ".", "a\nb", "a\x1bb", "\x7f"])
def test_names_that_leave_the_directory_are_refused(name: str) -> None:
    with pytest.raises(UnsafeNameError):
        relative_name(name)


def test_patterns_match_own_regular_files_and_nothing_through_links(room: Room, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    work = Path(room.work)
    (work / "a" / "b").mkdir(parents=True)
    for name in ("top.txt", "a/one.txt", "a/b/two.txt", "a/b/two.dat"):
        (work / name).write_text(name)
    (work / "link.txt").symlink_to(outside / "secret")
    (work / "dir").symlink_to(outside)
    os.mkfifo(work / "pipe.txt")
    assert names(room, ["*.txt"]) == ["top.txt"]
    assert names(room, ["**/*.txt"]) == ["top.txt", "a/one.txt", "a/b/two.txt"]
    assert names(room, ["a/*.txt", "a/*/*.dat", "a/one.txt"]) == ["a/one.txt", "a/b/two.dat"]
    assert names(room, ["dir/*", "../*", "/etc/*", "none"]) == []
    with room.open_kept(room.work, "a/b/two.txt") as fd:
        assert os.read(fd, 100) == b"a/b/two.txt"
    for name in ("link.txt", "dir/secret", "pipe.txt"):
        with pytest.raises(OSError), room.open_kept(room.work, name):
            pass


def test_files_of_a_room_are_made_anew_and_never_through_a_link(room: Room, tmp_path: Path) -> None:
    (tmp_path / "room" / "script").symlink_to(tmp_path / "victim")
    with pytest.raises(FileExistsError):
        room.write("script", b"x")
    fd = room.create_input("sub/deeper/in")
    os.close(fd)
    assert (Path(room.work) / "sub" / "deeper" / "in").exists()


class StillMachine:
    """A machine in which nothing runs."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.cores, self.core_share, self.limited = 4.0, 0.05, True
        self.environment: dict[str, str] = {}
        self.programs = Programs(path="/phoenix/bin:/usr/bin", web_instance=None)

    async def run(self, launch: object, stdio: object) -> None:
        raise AssertionError("nothing is to run")

    def limit_cpu(self, on: bool) -> None:
        return

    def settle(self, department: str) -> None:
        return

    def killed_for_memory(self) -> bool:
        return False

    def cpu_seconds(self) -> float | None:
        return None

    def used(self) -> Used:
        return Used(0.0, 0)

    def peak_kb(self) -> int:
        return 0


BOOT = Boot(
    kind="job", unit="17_3", attempt=2, rank=1, ranks=2, department="hpc", user="ada", name="sim", cores=4,
    memory_mb=512, nodes=["a", "b"], environment={"PATH": "/mine", "PHOENIX_JOB_ID": "lie", "X": "1"},
    array_job="17", array_index=3,
)  # fmt: skip


def test_a_job_sees_our_names_and_slurms_and_cannot_override_them(room: Room) -> None:
    environment = for_job(BOOT, StillMachine(room), "http://door", "c/17_3/2/1")  # type: ignore[arg-type]
    expected = {
        "PHOENIX_JOB_ID": "17_3", "SLURM_JOB_ID": "17_3", "SLURM_ARRAY_TASK_ID": "3", "PHOENIX_ARRAY_JOB_ID": "17",
        "SLURM_JOB_NODELIST": "a,b", "SLURM_NNODES": "2", "PHOENIX_NODEID": "1", "PHOENIX_CPUS": "4",
        "SLURM_CPUS_PER_TASK": "4", "PHOENIX_MEMORY_MB": "512", "PHOENIX_ATTEMPT": "2", "X": "1",
        "PATH": "/phoenix/bin:/mine", "HOME": room.work, "TMPDIR": room.tmp, "PHOENIX_CORE_SHARE": "0.05",
    }  # fmt: skip
    assert {name: environment.get(name) for name in expected} == expected
    assert environment["PHOENIX_TOKEN_FILE"].endswith("/token")
    assert "PHOENIX_TOKEN" not in environment


def test_a_task_sees_its_number_its_callers_variables_and_its_own_ranks_place(room: Room) -> None:
    job = for_job(BOOT, StillMachine(room), "http://door", "c/17_3/2/1")  # type: ignore[arg-type]
    command = Command(1, "launch", "x", ["a"], {"X": "2", "HOME": "/else", "PHOENIX_NTASKS": "8"}, [5, 6])
    task = for_task(job, command, 6, 1)
    assert (task["X"], task["HOME"]) == ("2", room.work)
    assert (task["PHOENIX_TASK_ID"], task["SLURM_PROCID"], task["SLURM_LOCALID"]) == ("6", "6", "1")
    assert (task["PHOENIX_NTASKS"], task["SLURM_NTASKS"], task["PHOENIX_NODEID"]) == ("8", "8", "1")


def test_an_instance_is_told_its_port_and_whether_to_limit_itself(room: Room) -> None:
    environment = for_instance(BOOT, StillMachine(room), "http://door", "c/web.1/1/0", 8080)  # type: ignore[arg-type]
    assert (environment["PHOENIX_PORT"], environment["PORT"]) == ("8080", "8080")
    assert (environment["PHOENIX_CORES"], environment["PHOENIX_SELF_LIMIT"]) == ("4", "0")


async def test_a_wrong_identity_is_named(room: Room) -> None:
    session = new_session()
    with pytest.raises(ValueError, match="<cloud>/<unit>/<attempt>/<rank>"):
        Door(session, "http://door", "c/17", "token")
    await session.close()


async def test_the_dummy_follows_the_contract_without_a_process() -> None:
    async with GuestDoor() as door:
        life = door.add("1", environment={"PHOENIX_DUMMY_EXIT": "3", "PHOENIX_DUMMY_RUNTIME_S": "0.3"})
        await asyncio.wait_for(dummy_guest(door.vm("1"), HOST), 10)
        assert life.began == [None]
        assert life.report is not None
        assert (life.report["exit"], life.report["seconds"]) == (3, 0.3)
        await door.lose("1")
        await asyncio.wait_for(dummy_guest(door.vm("1"), HOST), 10)


async def test_a_dummy_takes_one_job_after_another() -> None:
    async with GuestDoor() as door:
        first, second = door.add("1"), door.add("2", environment={"PHOENIX_DUMMY_EXIT": "3"})
        first.stay, first.following = True, "2/1/0"
        await asyncio.wait_for(dummy_guest(door.vm("1"), HOST), 10)
        assert [life.report and (life.report["exit"], life.report["stay"]) for life in (first, second)] == [
            (0, True),
            (3, False),
        ]


async def test_a_dummy_with_nonsense_in_its_environment_fails_with_a_note() -> None:
    async with GuestDoor() as door:
        life = door.add("1", environment={"PHOENIX_DUMMY_RUNTIME_S": "soon"})
        await asyncio.wait_for(dummy_guest(door.vm("1"), HOST), 10)
        assert life.report is not None
        assert "must be numbers" in life.report["note"]
        with pytest.raises(ValueError, match="does not belong to this cloud"):
            await dummy_guest(dataclasses.replace(door.vm("1"), context={}), HOST)


@pytest.mark.parametrize("kind", ["instance", "rank"])
async def test_dummy_instances_and_ranks_stay(kind: str) -> None:
    async with GuestDoor() as door:
        boot = {"kind": "instance"} if kind == "instance" else {}
        rank = 0 if kind == "instance" else 1
        life = door.add("1", rank=rank, ranks=2, **boot)
        guest = asyncio.ensure_future(dummy_guest(door.vm("1", rank), HOST))
        await door.until(lambda: life.began)
        assert not guest.done()
        if kind == "rank":
            await door.lose("1", rank)
            await asyncio.wait_for(guest, 10)
        guest.cancel()
        await asyncio.gather(guest, return_exceptions=True)


def test_launch_understands_slurms_ways_to_write_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHOENIX_NNODES", "3")
    monkeypatch.setenv("PHOENIX_NTASKS", "2")
    assert launch.parse(["hostname", "-f"]) == (3, ["hostname", "-f"], False, False)
    assert launch.parse(["-n", "4", "-l", "a"]) == (4, ["a"], True, False)
    assert launch.parse(["-n4", "--label", "--", "-x"]) == (4, ["-x"], True, False)
    assert launch.parse(["--ntasks=2", "a"]) == (2, ["a"], False, False)
    assert launch.parse(["-O", "a"]) == launch.parse(["--overcommit", "a"]) == (3, ["a"], False, True)
    assert launch.parse(["--help"]) is None
    for wrong in (["-n", "0", "a"], ["-n", "a"], ["-z", "a"], []):
        with pytest.raises(launch.LaunchError) as error:
            launch.parse(wrong)
        assert error.value.code == 2


def test_lines_are_printed_whole_with_their_tasks_number(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    printer = launch.Printer(labelled=True)
    printer.add(0, "stdout", b"one\ntw")
    printer.add(1, "stdout", b"three\n")
    printer.add(0, "stdout", b"o\nrest")
    printer.finish(0)
    assert capfdbinary.readouterr().out == b"0: one\n1: three\n0: two\n0: rest\n"


def test_outside_of_a_job_launch_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("PHOENIX_URL", "PHOENIX_ID", "PHOENIX_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert launch.main(["true"]) == 2
    assert "only inside a job's script" in capsys.readouterr().err
