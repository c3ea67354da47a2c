"""Tasks of `phoenix launch` on the ranks of a job, started by the context script."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from schemas import facts as f
from schemas import reasons as because
from tests.support.script_site import Site, script_site

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with script_site(tmp_path_factory.mktemp("house")) as found:
        cloud = found.here.broker.config.cloud
        await found.here.furnish_limits(replace(cloud, policy=replace(cloud.policy, grace_s=20.0)))
        yield found


class Launched:
    """A job of two ranks whose script runs this, with `launch` for `phoenix launch`."""

    def __init__(self, site: Site, job: str, vms: list[int]) -> None:
        self.site, self.job, self.vms = site, job, vms

    async def over(self) -> tuple[str, str]:
        """What it has printed."""
        ended = [await self.site.off(vm) for vm in self.vms]
        assert "the attempt is over" in ended[1], ended
        return await self.site.output(self.job), await self.site.output(self.job, "stderr")


async def run(site: Site, script: str, **asked: Any) -> Launched:
    whole = f"{site.driver.with_programs()}\n{script}"
    job = await site.submit(whole, nodes=2, tasks=4, cpus_per_task=1, **asked)
    await site.here.place(job, "h1", "h2")
    return Launched(site, job, [await site.boot(job, rank=rank) for rank in (0, 1)])


async def test_tasks_run_on_both_ranks_with_their_output_environment_and_exit_codes(site: Site) -> None:
    words = '$(touch bad); it\'s \\ "quoted"'
    script = r"""export ODD="$1 and a
line"
all='echo "$PHOENIX_TASK_ID $SLURM_PROCID $PHOENIX_LOCAL_ID $PHOENIX_NODEID $SLURM_NTASKS $1"'
phoenix launch -n 4 sh -c "$all" sh "$1" | sort
phoenix launch -l -n 2 sh -c 'echo "$ODD"; echo oops >&2' 2>err | sort
sort err >&2
phoenix launch -n 2 sh -c 'exit $((PHOENIX_TASK_ID * 7))'; echo "exit $?"
phoenix launch -n 2 sh -c '[ "$PHOENIX_TASK_ID" = 0 ] || kill -9 $$'; echo "exit $?"
phoenix launch -n 1 /no/such/program 2>/dev/null; echo "exit $?"
cd /; phoenix launch -n 2 pwd; phoenix launch -n 2 sh -c 'head -c 300000 /dev/zero | tr "\0" "\n"' | wc -l"""
    out, err = await (await run(site, script, argv=[words])).over()
    each = [f"{task} {task} {task % 2} {task // 2} 4 {words}" for task in range(4)]
    odd = [*(f"{task}: {words} and a" for task in (0, 1)), "0: line", "1: line"]
    exits = ["exit 7", "exit 137", "exit 127"]
    assert out.splitlines() == [*each, *sorted(odd), *exits, "/", "/", "600000"]
    assert err.splitlines() == ["0: oops", "1: oops"]


async def test_a_signal_reaches_all_tasks_once(site: Site) -> None:
    script = r"""phoenix launch -n 2 sh -c '
        trap "echo USR1 \$PHOENIX_TASK_ID; exit 4" USR1; trap "echo INT \$PHOENIX_TASK_ID" INT; echo on
        while :; do sleep 0.05; done' >told & pid=$!
    until [ "$(grep -c on told)" = 2 ]; do sleep 0.05; done
    kill -INT $pid; until [ "$(grep -c INT told)" = 2 ]; do sleep 0.05; done
    kill -USR1 $pid; wait $pid; echo "exit $?"; sort told"""
    out, _ = await (await run(site, script)).over()
    assert out.splitlines() == ["exit 4", "INT 0", "INT 1", "USR1 0", "USR1 1", "on", "on"]


@pytest.mark.long
async def test_tasks_of_a_vm_that_is_shut_down_get_their_grace_and_say_how_they_ended(site: Site) -> None:
    """Ended with 0 on that is ended by SIGTERM."""
    loop = 'trap "echo asked; exit 0" TERM; echo on; while :; do sleep 0.05; done'
    launched = await run(
        site, f"phoenix launch -n 2 sh -c '[ $PHOENIX_TASK_ID = 0 ] || {{ {loop}; }}'; echo \"exit $?\""
    )
    await site.printed(launched.job, "on\n")
    await site.terminate(launched.vms[1])
    await site.off(launched.vms[1])
    assert "reported" in await site.off(launched.vms[0])
    assert await site.output(launched.job) == "on\nasked\nexit 143\n"


@pytest.mark.long
async def test_tasks_end_with_their_attempt(site: Site) -> None:
    """On rank 0 too, where `phoenix launch` ends when the attempt does, and cannot pass a signal on."""
    place = site.driver.directory / "asked"
    place.mkdir()
    place.chmod(0o777)
    loop = f'trap "touch {place}/$PHOENIX_TASK_ID; exit 0" TERM; echo on; while :; do sleep 0.05; done'
    script = f"trap '' TERM; phoenix launch -n 2 sh -c '{loop}'; until [ -e {place}/0 ]; do sleep 0.02; done"
    launched = await run(site, script)
    await site.printed(launched.job, "on\non\n")
    why = because.Reclaimed()
    closed = f.AttemptClosed(unit=launched.job, attempt=1, disposal=f.Disposal.REQUEUE, why=why)
    await site.here.write("scheduler.hpc", closed)
    for vm in launched.vms:
        await site.off(vm)
    assert sorted(file.name for file in place.iterdir()) == ["0", "1"]
