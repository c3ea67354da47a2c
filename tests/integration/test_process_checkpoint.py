"""`phoenix checkpoint` and `--signal` inside real processes: what is sent, what is refused, what the next attempt finds."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.guest_door import HOST, Life
from tests.support.hypervisor import Hypervisor, started

ISOLATIONS = ["none"] if os.geteuid() else ["uid+cgroup", "none"]
pytestmark = [pytest.mark.timeout(240), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=ISOLATIONS)
async def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hypervisor]:
    async with started(tmp_path_factory.mktemp("driver") / "data", request.param) as it:
        yield it


@pytest_asyncio.fixture(loop_scope="module")
async def hypervisor(shared: Hypervisor) -> AsyncIterator[Hypervisor]:
    """One for all tests, which each of them finds empty."""
    yield shared
    await shared.clear()


async def test_files_are_sent_whole_and_named_as_the_next_attempt_finds_them(hypervisor: Hypervisor) -> None:
    script = """#!/bin/sh
mkdir -p sub/deep; printf state > "sub/deep/a b?.bin"; printf two > two; cd sub
phoenix checkpoint --percent 40 --progress "step 4" "deep/a b?.bin" ../sub/../x ; echo "up: $?"
phoenix checkpoint --percent=40% --progress "step 4" "deep/a b?.bin"; echo "code $?"
phoenix checkpoint; echo "code $?"
"""
    life = await hypervisor.run("1", script)
    assert life.text().splitlines() == ["up: 2", "safe: 1 file, 5 bytes", "code 0", "safe", "code 0"], life.text(
        "stderr"
    )
    first, second = life.checkpoints
    assert (first["files"], first["percent"], first["progress"]) == ({"sub/deep/a b?.bin": b"state"}, 40.0, "step 4")
    assert second["files"] == {}
    assert first["id"] != second["id"]


REFUSED = (
    ("ln -s /etc/passwd it", "it", "a link, which is not followed"),
    ("ln -s /etc it", "it/passwd", "a link, which is not followed"),
    ("ln -s /etc it", "$PWD/it/passwd", "not below the job's directory"),
    ("mkdir it", "it", "not a plain file"),
    ("mkfifo it", "it", "not a plain file"),
    (":", "it", "No such file"),
    (":", "/etc/passwd", "not below the job's directory"),
    (":", "../token", "not below the job's directory"),
    (":", "--percent 101", "a number from 0 to 100"),
    (":", "--percent", "needs a value"),
    (":", "--nonsense", "is unknown"),
)


async def test_what_is_not_a_file_of_the_job_is_refused_and_nothing_is_said(hypervisor: Hypervisor) -> None:
    tries = (f"{before}; phoenix checkpoint good {name}; echo $?; echo >&2; rm -rf it" for before, name, _ in REFUSED)
    life = await hypervisor.run("1", "\n".join(["#!/bin/sh", "echo good > good", *tries]))
    assert life.text().split() == ["2"] * len(REFUSED)
    told = life.text("stderr").split("\n\n")
    for (before, name, said), words in zip(REFUSED, told, strict=False):
        assert said in words, (before, name)
    assert life.checkpoints == []


async def test_the_next_attempt_finds_the_files_before_its_script_starts(hypervisor: Hypervisor) -> None:
    life = hypervisor.door.add(
        "1",
        attempt=2,
        script="#!/bin/sh\ncat state/a b c; echo; env | grep ^PHOENIX_CHECKPOINT | sort; echo more >> b\n",
        inputs=[{"name": "b", "size": 3}, {"name": "c", "size": 3}, {"name": "state", "size": 3}],
        checkpoint={
            "attempt": 1,
            "at": "1970-01-01T00:20:34.500Z",
            "files": [{"name": "state/a", "size": 3}, {"name": "b", "size": 3}],
        },
    )
    life.saved = {"state/a": b"one", "b": b"new"}
    life.inputs = {"b": b"old", "c": b"inp", "state": b"dir"}
    await hypervisor.until_ended(await hypervisor.boot("1", attempt=2))
    assert life.text().splitlines() == [
        "onenewinp",
        "PHOENIX_CHECKPOINT=1",
        "PHOENIX_CHECKPOINT_AT=1234.500",
        "PHOENIX_CHECKPOINT_ATTEMPT=1",
    ]


async def test_a_first_attempt_is_not_told_of_a_checkpoint(hypervisor: Hypervisor) -> None:
    life = await hypervisor.run("1", "#!/bin/sh\necho ${PHOENIX_CHECKPOINT-none}\n")
    assert life.text() == "none\n"


async def test_the_token_is_in_no_argument_and_no_environment(hypervisor: Hypervisor) -> None:
    """Nor in those of the search, which has ended by then: another worker may run this test with the same token."""
    script = """#!/bin/sh
while [ ! -e over ]; do
    cat $(ls /proc | awk -v first=$$ '$1 + 0 > first + 0 { print "/proc/" $1 "/cmdline", "/proc/" $1 "/environ" }') /dev/null
done 2>/dev/null | tr '\\0' '\\n' > seen &  # younger ones alone: of all of them a look would take too long
echo state > state; for n in 1 2 3; do phoenix checkpoint state; done
touch over; wait
grep -c "phoenix checkpoint\\|checkpoint.pyc\\|checkpoint$" seen; grep -cF -f "$PHOENIX_TOKEN_FILE" seen
exit 0
"""
    life = await hypervisor.run("1", script)
    assert len(life.checkpoints) == 3
    told = life.text().split()
    assert int(told[-2]) > 0  # they were seen
    assert told[-1] == "0"


# ---------------------------------------------------------------------------------------------------------------- signals

PAIR = """#!/bin/sh
trap 'echo script $(date +%s.%N)' USR1
trap 'echo term; exit 143' TERM
sh -c 'trap "echo child; exit 0" USR1; trap "" TERM; echo up; while :; do sleep 0.05; done' &
n=0; while [ $n -lt 200 ]; do wait; sleep 0.05; n=$((n+1)); done
"""


async def heard(life: Life, hypervisor: Hypervisor, word: str) -> None:
    await hypervisor.door.until(lambda: word in life.text())


@pytest.mark.parametrize(("script_alone", "word", "other"), [(True, "script", "child"), (False, "child", "script")])
async def test_the_signal_comes_so_long_before_the_limit_to_whom_it_is_for(
    hypervisor: Hypervisor, script_alone: bool, word: str, other: str
) -> None:
    signal = {"number": 10, "before_s": 60, "script": script_alone}
    life = hypervisor.door.add("1", script=PAIR, walltime_s=61.5, signal=signal, grace_s=2)
    vm = await hypervisor.boot("1")
    await heard(life, hypervisor, "up")
    assert word not in life.text()  # a second and a half from the start
    await heard(life, hypervisor, word)
    assert other not in life.text()
    await hypervisor.driver.shutdown(vm, HOST)  # the limit: SIGTERM, as for every job
    assert "term" in life.text()


async def test_the_time_in_which_it_is_suspended_does_not_count(hypervisor: Hypervisor) -> None:
    signal = {"number": 10, "before_s": 60, "script": True}
    life = hypervisor.door.add("1", script=PAIR, walltime_s=61, signal=signal, grace_s=2)
    vm = await hypervisor.boot("1")
    await heard(life, hypervisor, "up")
    guest = hypervisor.driver._vms[vm.vm_id].guest
    began_s = guest.began_s
    await hypervisor.driver.save(vm, HOST)
    await asyncio.sleep(2)  # the signal would come within one second
    assert not guest.warned
    await hypervisor.driver.restore(vm, HOST)
    await heard(life, hypervisor, "script")
    assert time.monotonic() - began_s >= 3
    await hypervisor.driver.shutdown(vm, HOST)


async def test_stopped_before_that_it_hears_the_same_signal_and_has_its_grace(hypervisor: Hypervisor) -> None:
    script = """#!/bin/sh
trap 'phoenix checkpoint state; echo saved; exit 0' USR1
trap 'echo term; exit 143' TERM
echo 41 > state; echo up; while :; do sleep 0.05; done
"""
    signal = {"number": 10, "before_s": 60, "script": True}
    life = hypervisor.door.add("1", script=script, walltime_s=3600, signal=signal, grace_s=20)
    vm = await hypervisor.boot("1")
    await heard(life, hypervisor, "up")
    async with asyncio.timeout(20):
        await hypervisor.driver.shutdown(vm, HOST)
    assert [said["files"] for said in life.checkpoints] == [{"state": b"41\n"}]
    assert "saved" in life.text()
    assert "term" not in life.text()
