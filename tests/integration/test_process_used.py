"""What a guest says a job has used: while it runs, and last of all, however it ends; compared with what the job says itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from phoenix.local.guest import use
from tests.integration.test_process_driver import DEADLINE_S, Hypervisor, started
from tests.support.guest_door import HOST, Life

ISOLATIONS = ["none"] if os.geteuid() else ["uid+cgroup", "uid", "none"]
pytestmark = [pytest.mark.timeout(240), pytest.mark.asyncio(loop_scope="module")]
HELD_MB = 100
# It holds memory and burns CPU, in a child of the script, until it is killed.
HOLD = f"held = bytearray({HELD_MB} << 20); held[::4096] = bytes([1]) * len(held[::4096])"
PROGRAM = f"""
import os
{HOLD}
while True:
    sum(range(100_000))
    own = os.times()
    print(own.user + own.system, flush=True)
"""
BURN = f"#!/bin/sh\npython3 -c '{PROGRAM}'; exit 3\n"
DEAF = f"#!/bin/sh\ntrap '' TERM\npython3 -c '{PROGRAM}'\n"
# An interpreter that starts; what it used between its last line and its end.
MORE_S = 2.0


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=ISOLATIONS)
async def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hypervisor]:
    async with started(tmp_path_factory.mktemp("driver") / "data", request.param, grace_s=0.3) as it:
        yield it


@pytest_asyncio.fixture(loop_scope="module")
async def hypervisor(shared: Hypervisor) -> AsyncIterator[Hypervisor]:
    yield shared
    await shared.clear()


def own_s(life: Life) -> float:
    """By its own word."""
    lines = life.text().split("\n")[:-1]
    return float(lines[-1]) if lines else 0.0


def is_right(life: Life) -> bool:
    cpu, peak = life.used[-1]["cpu_seconds"], life.used[-1]["max_rss_mb"]
    return own_s(life) - 0.1 <= cpu <= own_s(life) + MORE_S and HELD_MB <= peak <= HELD_MB + 60


async def test_a_job_that_runs_says_it_now_and_then(hypervisor: Hypervisor) -> None:
    life = hypervisor.door.add("1", script=BURN, usage_interval_s=use.LEAST_S)
    await hypervisor.boot("1")
    await hypervisor.door.until(lambda: own_s(life) > 0.3)
    own = own_s(life)
    await hypervisor.door.until(lambda: life.used and life.used[-1]["cpu_seconds"] > own)
    assert is_right(life)
    assert [word["cpu_seconds"] for word in life.used] == sorted(word["cpu_seconds"] for word in life.used)


@pytest.mark.parametrize("how", ["shutdown", "deaf", "gone"])
async def test_its_last_word_comes_before_its_vm_is_gone(hypervisor: Hypervisor, how: str) -> None:
    """No measurement was requested before."""
    life = hypervisor.door.add("1", script=DEAF if how == "deaf" else BURN, usage_interval_s=0, grace_s=0.3)
    vm = await hypervisor.boot("1")
    await hypervisor.door.until(lambda: own_s(life) > 0.3)
    assert life.used == []
    if how == "gone":
        life.gone = True
        assert await hypervisor.until_ended(vm) == ["gone"]
    else:
        await asyncio.wait_for(hypervisor.driver.shutdown(vm, HOST), DEADLINE_S)
    assert life.report is None
    assert is_right(life)


async def test_a_job_that_is_saved_says_it_before_it_stands_still(hypervisor: Hypervisor) -> None:
    life = hypervisor.door.add("1", script=BURN, usage_interval_s=0)
    vm = await hypervisor.boot("1")
    await hypervisor.door.until(lambda: own_s(life) > 0.3)
    before = own_s(life)
    await hypervisor.driver.save(vm, HOST)
    assert before - 0.1 <= life.used[-1]["cpu_seconds"] <= before + MORE_S
    await hypervisor.driver.restore(vm, HOST)
    await hypervisor.door.until(lambda: own_s(life) > before + 0.3)
    await asyncio.wait_for(hypervisor.driver.shutdown(vm, HOST), DEADLINE_S)
    assert is_right(life)


async def test_a_rank_says_what_its_tasks_have_used(hypervisor: Hypervisor) -> None:
    script = f"#!/bin/sh\nphoenix launch -n 2 sh -c '[ $PHOENIX_NODEID = 0 ] && exit; exec python3 -c \"{PROGRAM}\"'\n"
    lives = [hypervisor.door.add("5", rank, 2, script=script, usage_interval_s=0) for rank in (0, 1)]
    vms = [hypervisor.door.vm("5", rank) for rank in (0, 1)]
    hypervisor.booted += vms
    for vm in vms:
        await hypervisor.driver.boot(vm, HOST)
    await hypervisor.door.until(lambda: own_s(lives[0]) > 0.3)  # rank 0 writes what tasks of all ranks say
    own = own_s(lives[0])
    await asyncio.wait_for(hypervisor.driver.shutdown(vms[1], HOST), DEADLINE_S)
    assert own - 0.1 <= lives[1].used[-1]["cpu_seconds"] <= own_s(lives[0]) + MORE_S
    assert lives[1].used[-1]["max_rss_mb"] >= HELD_MB


async def test_a_short_job_says_it_in_its_report_alone(hypervisor: Hypervisor) -> None:
    life = await hypervisor.run("1", "#!/bin/sh\nexec python3 -c 'x = bytearray(100 << 20); sum(range(3_000_000))'\n")
    assert life.used == []
    assert life.report is not None
    assert life.report["cpu_seconds"] > 0.01
    assert life.report["max_rss_mb"] >= HELD_MB


async def test_tasks_that_are_over_count(hypervisor: Hypervisor) -> None:
    """Also where no control group has counted them."""
    program = f"import os; {HOLD}; sum(range(10_000_000)); own = os.times(); print(own.user + own.system)"
    script = f'#!/bin/sh\nphoenix launch -n 1 python3 -c "{program}"\necho over\nsleep 600\n'
    life = hypervisor.door.add("1", script=script, usage_interval_s=0)
    vm = await hypervisor.boot("1")
    await hypervisor.door.until(lambda: life.text().endswith("over\n"))
    own = float(life.text().split()[0])
    await asyncio.wait_for(hypervisor.driver.shutdown(vm, HOST), DEADLINE_S)
    assert own - 0.1 <= life.used[-1]["cpu_seconds"] <= own + MORE_S
    assert life.used[-1]["max_rss_mb"] >= HELD_MB


async def test_memory_is_that_of_all_processes_together(hypervisor: Hypervisor) -> None:
    program = f"import time; {HOLD}; print(1, flush=True); time.sleep(600)"
    script = f"#!/bin/sh\npython3 -c '{program}' &\npython3 -c '{program}'\n"
    life = hypervisor.door.add("1", script=script, usage_interval_s=use.LEAST_S)
    await hypervisor.boot("1", memory_mb=400)
    await hypervisor.door.until(lambda: life.text() == "1\n1\n")
    await hypervisor.door.until(lambda: life.used and life.used[-1]["max_rss_mb"] >= 2 * HELD_MB)
