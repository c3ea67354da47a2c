"""The process hypervisor runs real processes: scripts, their output, their end, and nothing left of them."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from phoenix.local.driver import DriverError, VmSpec
from phoenix.local.port_claims import PASSING, claimed
from phoenix.local.process.machine import ProcessMachine
from phoenix.local.process.removal import remove
from tests.support.guest_door import HOST, Life
from tests.support.hypervisor import DEADLINE_S, ISOLATIONS, OTHER, Hypervisor, exists, started
from tests.support.leaks import places
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


def touch(path: str) -> None:
    open(path, "w").close()


@pytest.fixture(scope="module", params=ISOLATIONS)
def isolate(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(isolate: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hypervisor]:
    data = tmp_path_factory.mktemp("driver") / "data"
    async with started(data, isolate, core_share=0.05, grace_s=0.3) as it:
        yield it


@pytest_asyncio.fixture(loop_scope="module")
async def hypervisor(shared: Hypervisor) -> AsyncIterator[Hypervisor]:
    """One for all tests, which each of them finds empty."""
    yield shared
    await shared.clear()


async def test_a_script_runs_and_everything_it_did_is_reported(hypervisor: Hypervisor) -> None:
    life = hypervisor.door.add(
        "17",
        script="#!/bin/sh\necho hello $1 $PHOENIX_JOB_ID $SLURM_JOB_ID; echo oops >&2; cat data/in.txt > out/x.txt; exit 3",
        argv=["world"],
        inputs=[{"name": "data/in.txt", "size": 5}, {"name": "out/.keep", "size": 0}],
        keep=["out/*.txt", "../../*"],
    )
    life.inputs = {"data/in.txt": b"12345", "out/.keep": b""}
    await hypervisor.until_ended(await hypervisor.boot("17"))
    assert life.text() == "hello world 17 17\n"
    assert life.text("stderr") == "oops\n"
    assert life.files == {"out/x.txt": b"12345"}
    assert life.began == [None]
    assert life.report is not None
    assert life.report["exit"] == 3
    assert life.report["signal"] is None
    assert life.report["cpu_seconds"] >= 0


async def test_a_script_without_a_shebang_is_run_by_sh_and_never_interpolated(hypervisor: Hypervisor) -> None:
    life = await hypervisor.run("1", 'printf "%s|" "$@"', argv=["$(id)", "a b", "; rm x"])
    assert life.text() == "$(id)|a b|; rm x|"


async def test_death_by_a_signal_is_reported_as_the_shell_would(hypervisor: Hypervisor) -> None:
    life = await hypervisor.run("1", "#!/bin/sh\nkill -9 $$\n")
    assert life.report is not None
    assert (life.report["exit"], life.report["signal"]) == (137, 9)


async def test_a_missing_interpreter_fails_the_job_with_a_reason(hypervisor: Hypervisor) -> None:
    life = await hypervisor.run("1", "#!/no/such/interpreter\n")
    assert life.report is not None
    assert life.report["exit"] == 127
    assert life.text("stderr").endswith("its first line names no interpreter that is there\n")


async def test_a_directory_that_cannot_be_entered_gives_way_to_the_room_with_a_note(hypervisor: Hypervisor) -> None:
    life = await hypervisor.run("1", "#!/bin/sh\npwd; touch made", directory="/no/such/place", keep=["made"])
    assert life.text().strip().endswith("/work")
    assert life.report is not None
    assert "/no/such/place" in life.report["note"]
    assert life.files == {"made": b""}
    inside = await hypervisor.run("2", "#!/bin/sh\npwd", directory="/usr")
    assert inside.text() == "/usr\n"
    assert inside.report is not None
    assert inside.report["note"] is None


LOOK_AT_SIGNALS = "#!/bin/sh\ngrep -E '^Sig(Ign|Blk)' /proc/self/status; ulimit -c; umask\n"
# glibc lets no program set signals 32 and 33: what a test runner ignores of them stays ignored
OF_LIBC = 1 << 31 | 1 << 32


def signals_of(life: Life) -> list[int]:
    """The masks of blocked and ignored signals that a job saw at its start."""
    return [int(value, 16) & ~OF_LIBC for value in life.text().split()[1:4:2]]


async def test_a_job_starts_with_default_signals_and_no_core(hypervisor: Hypervisor) -> None:
    life = await hypervisor.run("1", LOOK_AT_SIGNALS)
    assert signals_of(life) == [0, 0]
    assert life.text().split()[4:] == ["0", "0022"]


@pytest.fixture
def oddly_started() -> Iterator[None]:
    """What is started meanwhile ignores and blocks what `nohup`, a script's background or any caller may have set."""
    ignored = (signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGUSR1, signal.SIGXFSZ, signal.SIGRTMAX)
    was = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGWINCH, signal.SIGCHLD})
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    for number, handler in was.items():
        signal.signal(number, handler)


async def test_a_job_starts_with_default_signals_whatever_the_cloud_was_started_with(
    oddly_started: None, isolate: str, tmp_path: Path
) -> None:
    async with started(tmp_path / "data", isolate) as hypervisor:
        assert signals_of(await hypervisor.run("1", LOOK_AT_SIGNALS)) == [0, 0]


async def test_stdin_is_a_file_that_the_job_may_read(hypervisor: Hypervisor) -> None:
    life = hypervisor.door.add("1", script="#!/bin/sh\ncat", stdin="in", inputs=[{"name": "in", "size": 3}])
    life.inputs = {"in": b"abc"}
    await hypervisor.until_ended(await hypervisor.boot("1"))
    assert life.text() == "abc"
    other = await hypervisor.run("2", "#!/bin/sh\ncat", stdin="missing")
    assert other.report is not None
    assert other.report["exit"] == 126
    assert "missing" in other.text("stderr")


async def test_endless_output_is_cut_and_noted(hypervisor: Hypervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phoenix.local.guest.output.STREAM_BYTES_MAX", 100_000)
    life = await hypervisor.run("1", "#!/bin/sh\nseq 1 100000; exit 5\n")
    assert len(life.output["stdout"]) == 100_000
    assert life.report is not None
    assert life.report["exit"] == 5
    assert "stdout" in life.report["note"]


async def test_output_is_streamed_while_the_job_runs(hypervisor: Hypervisor) -> None:
    life = hypervisor.door.add("1", script="#!/bin/sh\necho early; sleep 60\n")
    vm = await hypervisor.boot("1")
    await hypervisor.door.until(lambda: life.text() == "early\n")
    assert life.report is None
    await hypervisor.driver.cancel(vm, HOST)
    assert life.report is None


async def test_the_guest_asks_again_while_admission_is_away(hypervisor: Hypervisor) -> None:
    life = hypervisor.door.add("1", script="#!/bin/sh\necho here\n")
    life.unavailable = 4
    assert await hypervisor.until_ended(await hypervisor.boot("1")) == ["reported"]
    assert life.text() == "here\n"


async def test_a_gone_attempt_is_stopped(hypervisor: Hypervisor) -> None:
    life = hypervisor.door.add("1", script="#!/bin/sh\necho up; sleep 60\n")
    vm = await hypervisor.boot("1")
    await hypervisor.door.until(lambda: life.text() == "up\n")
    await hypervisor.door.lose("1")
    assert await hypervisor.until_ended(vm) == ["gone"]
    assert life.report is None


async def test_shutdown_sends_term_and_a_late_success_is_reported(hypervisor: Hypervisor) -> None:
    life = hypervisor.door.add(
        "1", script="#!/bin/sh\ntrap 'echo saved; exit 0' TERM\necho up; while :; do sleep 60; done\n", grace_s=60
    )
    vm = await hypervisor.boot("1")
    await hypervisor.door.until(lambda: life.text() == "up\n")
    await asyncio.wait_for(hypervisor.driver.shutdown(vm, HOST), 40)
    assert life.text() == "up\nsaved\n"
    assert life.report is not None
    assert life.report["exit"] == 0
    assert vm.vm_id not in hypervisor.ended


async def test_who_ignores_term_is_killed_after_the_grace_and_its_143_is_no_failure(hypervisor: Hypervisor) -> None:
    life = hypervisor.door.add("1", script="#!/bin/sh\ntrap 'echo no' TERM\necho $$; while :; do sleep 60; done\n")
    vm = await hypervisor.boot("1")
    await hypervisor.door.until(life.text)
    began = asyncio.get_running_loop().time()
    await asyncio.wait_for(hypervisor.driver.shutdown(vm, HOST), DEADLINE_S)
    assert asyncio.get_running_loop().time() - began >= 0.3
    assert not exists(f"/proc/{life.text().split()[0]}")
    assert "no" in life.text()
    assert life.report is None


DAEMON = """#!/bin/sh
(setsid sh -c 'trap "" TERM HUP; echo $$ >> pids; sleep 300' &)
(setsid setsid sh -c 'echo $$ >> pids; exec sleep 300' >/dev/null 2>&1 &)
while [ "$(wc -l < pids 2>/dev/null || echo 0)" -lt 2 ]; do sleep 0.02; done
cat pids; exec >&-
"""


@pytest.mark.parametrize("end", ["exit", "cancel", "shutdown"])
async def test_daemons_that_left_the_group_do_not_survive(hypervisor: Hypervisor, end: str) -> None:
    life = hypervisor.door.add("1", script=DAEMON + ("" if end == "exit" else "sleep 300\n"))
    vm = await hypervisor.boot("1")
    if end == "exit":
        await hypervisor.until_ended(vm)
    await hypervisor.door.until(lambda: life.text().count("\n") == 2)
    if end != "exit":
        await getattr(hypervisor.driver, end)(vm, HOST)
    for pid in life.text().split():
        assert _is_dead(int(pid))


def _is_dead(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


async def test_a_saved_vm_stands_still_and_a_restored_one_goes_on(hypervisor: Hypervisor) -> None:
    script = "#!/bin/sh\nn=0; while [ ! -e stop ]; do n=$((n+1)); echo $n > count; sleep 0.01; done; echo went on\n"
    life = hypervisor.door.add("1", script=script)
    vm = await hypervisor.boot("1")
    await hypervisor.door.until(lambda: life.began)
    work = hypervisor.driver._vms[vm.vm_id].machine.room.work
    await _until_changes(work)
    await until(lambda: hypervisor.driver._vms[vm.vm_id].guest.process)  # the script may count before that
    await hypervisor.driver.save(vm, HOST)
    pid = hypervisor.driver._vms[vm.vm_id].guest.process.pid  # type: ignore[union-attr]
    # D: a shell whose vforked child was stopped before its exec waits for that child, and stands still as well.
    assert _state(pid) in "TD"
    before, waited = _count(work), asyncio.get_running_loop().time() + 0.2
    await until(lambda: asyncio.get_running_loop().time() > waited)
    assert _count(work) == before
    await hypervisor.driver.restore(vm, HOST)
    await _until_changes(work)
    touch(f"{work}/stop")
    assert await hypervisor.until_ended(vm) == ["reported"]
    assert life.text() == "went on\n"


async def test_a_restored_vm_goes_on_under_its_old_name_and_its_output_where_it_was(hypervisor: Hypervisor) -> None:
    script = "#!/bin/sh\necho one; while [ ! -e stop ]; do sleep 0.01; done; echo two\n"
    life = hypervisor.door.add("1", script=script)
    vm = await hypervisor.boot("1")
    await hypervisor.door.until(lambda: life.text() == "one\n")
    work = hypervisor.driver._vms[vm.vm_id].machine.room.work
    await hypervisor.driver.save(vm, HOST)
    life.unavailable = 2  # its attempt is closed, and the next one not yet bound
    # What is set on a VM later is not what its guest knows: a real one does not learn it either.
    renamed = {"PHOENIX_ID": "cloud/1/2/0", "PHOENIX_TOKEN": "another"}
    await hypervisor.driver.restore(dataclasses.replace(vm, attributes=renamed), HOST)
    touch(f"{work}/stop")
    assert await hypervisor.until_ended(vm) == ["reported"]
    assert life.text() == "one\ntwo\n"
    assert life.began == [None]


async def test_a_saved_vm_that_leaves_its_host_leaves_no_room_there_and_finds_it_again(hypervisor: Hypervisor) -> None:
    script = '#!/bin/sh\necho kept > file; while [ ! -e stop ]; do sleep 0.01; done; cat file "$HOME/file"; pwd\n'
    life = hypervisor.door.add("1", script=script)
    vm = await hypervisor.boot("1")
    await hypervisor.door.until(lambda: life.began)
    work = hypervisor.driver._vms[vm.vm_id].machine.room.work
    await until(lambda: exists(f"{work}/file"))
    await hypervisor.driver.save(vm, HOST)
    await hypervisor.driver.stow(vm, HOST)
    assert not exists(work)
    assert os.listdir(Path(work).parent.parent) == []
    await hypervisor.driver.fetch(vm, OTHER)
    await hypervisor.driver.restore(vm, OTHER)
    touch(f"{work}/stop")
    assert await hypervisor.until_ended(vm) == ["reported"]
    assert life.text() == f"kept\nkept\n{work}\n"


@pytest.mark.parametrize("stowed", [False, True])
async def test_a_saved_vm_that_is_ended_leaves_nothing(hypervisor: Hypervisor, stowed: bool) -> None:
    life = hypervisor.door.add("1", script=DAEMON + "sleep 300\n")
    vm = await hypervisor.boot("1")
    await hypervisor.door.until(lambda: life.text().count("\n") == 2)
    house = Path(hypervisor.driver._vms[vm.vm_id].machine.room.path).parent.parent
    await hypervisor.driver.save(vm, HOST)
    if stowed:
        await hypervisor.driver.stow(vm, HOST)
    await hypervisor.driver.clean(vm, HOST)
    for pid in life.text().split():
        assert _is_dead(int(pid))
    assert [*os.listdir(house / "rooms"), *os.listdir(house / "stowed")] == []


async def _until_changes(work: str) -> None:
    before = _count(work)
    await until(lambda: _count(work) != before)


def _count(work: str) -> str:
    try:
        with open(f"{work}/count") as count:
            return count.read()
    except OSError:
        return ""


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0]


async def test_usage_and_room_follow_the_life_of_a_vm(hypervisor: Hypervisor) -> None:
    life = hypervisor.door.add("1", script="#!/bin/sh\necho up; while :; do :; done\n")
    vm = await hypervisor.boot("1")
    machine = hypervisor.driver._vms[vm.vm_id].machine
    await hypervisor.door.until(life.text)  # getting ready takes time of the VM too, and none of its memory yet
    await until(lambda: machine.usage().cpu_percent > 5)
    usage = await hypervisor.driver.usage(vm.vm_id)
    assert usage is not None
    assert usage.memory_kb > 100
    room = hypervisor.driver._vms[vm.vm_id].machine.room.path
    await hypervisor.driver.clean(vm, HOST)
    assert not exists(room)
    assert await hypervisor.driver.usage(vm.vm_id) is None
    await hypervisor.driver.cancel(vm, HOST)


async def test_a_reboot_starts_over_in_a_new_room(hypervisor: Hypervisor) -> None:
    life = hypervisor.door.add("1", script="#!/bin/sh\nls; touch left; sleep 60\n")
    vm = await hypervisor.boot("1")
    await hypervisor.door.until(lambda: life.began)
    await hypervisor.driver.reboot(vm, HOST, hard=True)
    await hypervisor.door.until(lambda: len(life.began) == 2)
    await hypervisor.driver.cancel(vm, HOST)
    assert life.text() == ""


async def test_an_instance_is_begun_when_it_is_healthy_and_ends_cleanly(hypervisor: Hypervisor) -> None:
    life = hypervisor.door.add("web.7", kind="instance", script=None, health_path="/healthz", grace_s=5, cores=20)
    vm = await hypervisor.boot("web.7")
    await hypervisor.door.until(lambda: life.began)
    assert life.began[0] is not None
    port = int(life.began[0].rpartition(":")[2])
    assert port in PASSING
    assert claimed(port) is None, "no other program would choose it"
    async with aiohttp.ClientSession() as session, session.get(f"http://{life.began[0]}/?cpu_ms=800") as answer:
        assert answer.status == 200
    await hypervisor.door.until(lambda: any(told["utilisation"] > 0.1 for told in life.usages))
    assert all(told["interval_s"] >= 1 and told["memory_mb"] > 0 for told in life.usages)
    await hypervisor.driver.shutdown(vm, HOST)
    assert life.report is None


async def test_a_secret_is_in_an_instances_environment_and_in_no_list_of_processes_or_file(
    hypervisor: Hypervisor,
) -> None:
    script = """#!/bin/sh
        [ "$(printf %s "$DB_PASSWORD" | wc -c)" -eq 9 ] && echo known
        exec sleep 60
    """
    life = hypervisor.door.add(
        "web.7", kind="instance", script=script, health_path="/x", secrets={"DB_PASSWORD": "hunter2 x"}
    )
    vm = await hypervisor.boot("web.7")
    room = Path(hypervisor.driver._vms[vm.vm_id].machine.path)
    await until(lambda: (room / "stdout").exists() and "known" in (room / "stdout").read_text())
    assert places(b"echo known", room.parent.parent) == [room / "script"]
    assert places(b"hunter2", room.parent.parent) == []
    await hypervisor.driver.cancel(vm, HOST)
    assert life.report is None


async def test_an_instance_that_dies_ends_its_vm_with_its_last_words(hypervisor: Hypervisor) -> None:
    script = "#!/bin/sh\necho starting; echo no port >&2; exit 4\n"
    life = hypervisor.door.add("web.7", kind="instance", script=script, health_path="/x")
    [why] = await hypervisor.until_ended(await hypervisor.boot("web.7"))
    assert "ended with 4 before it was healthy: no port" in why
    assert (life.text(), life.text("stderr")) == ("starting\n", "no port\n")
    assert life.ended == {"exit": 4, "signal": None, "oom": False}


async def test_what_an_instance_writes_that_never_becomes_healthy_is_sent_while_it_boots(
    hypervisor: Hypervisor,
) -> None:
    script = "#!/bin/sh\necho cannot reach the database >&2; exec sleep 60\n"
    life = hypervisor.door.add("web.7", kind="instance", script=script, health_path="/x")
    vm = await hypervisor.boot("web.7")
    await hypervisor.door.until(lambda: life.text("stderr") == "cannot reach the database\n")
    # On a busy machine a check may have no answer in its time, not even that.
    await hypervisor.door.until(lambda: "/x: connection refused" in [one["answer"] for one in life.usages])
    assert not any(one["ready"] for one in life.usages)
    assert life.began == []
    await hypervisor.driver.cancel(vm, HOST)
    assert (life.report, life.ended) == (None, None)


async def test_a_vm_that_is_not_ours_is_refused(hypervisor: Hypervisor) -> None:
    stranger = VmSpec(9, "x", 1.0, 64, {}, {})
    with pytest.raises(DriverError, match="PHOENIX_ID"):
        await hypervisor.driver.boot(stranger, HOST)


async def test_what_the_machine_cannot_start_is_not_reported_as_the_jobs_end(hypervisor: Hypervisor) -> None:
    """The attempt breaks with its VM, and the job runs again elsewhere: 126 would end it for good."""
    life = hypervisor.door.add("1", script="#!/bin/sh\necho ran\n")
    vm = await hypervisor.boot("1")
    room = Path(hypervisor.driver._vms[vm.vm_id].machine.path)
    nursery = hypervisor.driver._spawner.pid
    assert nursery is not None
    os.kill(nursery, signal.SIGSTOP)
    await until(lambda: hypervisor.driver._vms[vm.vm_id].guest.output)
    (room / "work").rename(room / "elsewhere")
    os.kill(nursery, signal.SIGCONT)
    (why,) = await hypervisor.until_ended(vm)
    assert why.startswith("no new process: ")
    assert f"{room}/work" in why
    assert (life.report, life.text("stderr")) == (None, "")


DEEP = """#!{python}
import os, sys
for top in map(os.path.abspath, sys.argv[1:]):
    os.mkdir(top)
    os.chdir(top)
    for _ in range(1500):
        os.mkdir("d")
        os.chdir("d")
"""


async def test_a_deep_tree_neither_holds_a_host_nor_outlives_its_vm(hypervisor: Hypervisor) -> None:
    """In its room, and where all users may write: the next VM of the department has the same uid, and starts as any other."""
    house = hypervisor.driver._house
    assert house is not None
    left = f"{tempfile.gettempdir()}/phoenix-deep-{os.getpid()}"
    try:
        life = await hypervisor.run("1", DEEP.format(python=house.python), argv=["here", left])
        assert life.report is not None
        assert life.report["exit"] == 0
        vm = hypervisor.booted[-1]
        assert vm.vm_id not in hypervisor.driver._vms
        await hypervisor.driver.clean(vm, HOST)
        await until(lambda: str(vm.vm_id) not in os.listdir(house.rooms), "its room is removed")
        shared = hypervisor.driver.isolation()["isolation"] == "none"
        await until(lambda: shared or not exists(left), "what it left is removed")
        assert (await hypervisor.run("2", "echo on")).text() == "on\n"
    finally:
        remove(left)


async def test_a_host_does_not_wait_for_what_takes_long_to_remove(
    hypervisor: Hypervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for the room, nor for what was left elsewhere; and a failure of any kind keeps nothing."""
    driver, over = hypervisor.driver, threading.Event()
    monkeypatch.setattr("phoenix.local.process.driver.CLEAN_DEADLINE_S", 0.05)
    monkeypatch.setattr(driver._house, "clear", lambda _vm: over.wait(DEADLINE_S))
    await hypervisor.run("1", "echo on")
    vm = hypervisor.booted[-1]
    try:
        async with asyncio.timeout(DEADLINE_S / 2):
            await driver.clean(vm, HOST)
    finally:
        over.set()

    leave = ProcessMachine._leave

    async def fails(machine: ProcessMachine) -> None:
        await leave(machine)
        raise RecursionError

    monkeypatch.setattr(ProcessMachine, "_leave", fails)
    assert (await hypervisor.run("2", "echo on")).text() == "on\n"
    assert hypervisor.booted[-1].vm_id not in driver._vms
