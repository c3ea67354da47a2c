"""The context script of a site's VMs, run as the embedded hypervisor runs a guest: a real admission, a real embedded
OpenNebula, the executor's templates, and the script itself as a process."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import pwd
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from schemas import facts as f
from schemas import reasons as because
from schemas.config import CloudConfig, Warm
from schemas.measures import Measures
from services.domain.capabilities import Hypervisor
from services.runtime.config import secret_files
from tests.support.leaks import places
from tests.support.ports import free_port
from tests.support.script_guest import ACCOUNT, SCRIPT, context_file
from tests.support.script_site import Site, script_site
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
IDLE_GROUP = {
    "cgroup.controllers": "cpu memory\n",
    "cgroup.events": "populated 1\nfrozen 0\n",
    "cpu.stat": "usage_usec 1500000\nuser_usec 1000000\n",
    "memory.current": f"{100 << 20}\n",
    "memory.stat": f"anon {70 << 20}\ninactive_file {20 << 20}\nactive_file {10 << 20}\n",
    "memory.events": "oom 0\noom_kill 0\n",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with script_site(tmp_path_factory.mktemp("house")) as found:
        yield found


async def test_a_job_succeeds_with_inputs_environment_output_and_kept_files(site: Site) -> None:
    script = """#!/bin/sh
        cat in/data; echo "K=$K job=$SLURM_JOB_ID nodes=$SLURM_NNODES arg=$1 home=$HOME"
        echo oops >&2
        mkdir out; printf kept >"out/a b.txt"; printf not >out/c.dat; id -un; pwd
    """
    inputs = [{"name": "in/data", "data": base64.b64encode(b"first\n" * 3).decode()}]
    job, vm = await site.run(script, argv=["x y"], environment={"K": "v"}, inputs=inputs, keep=["out/*.txt"])
    assert "reported: power off" in await site.off(vm)
    assert site.here.service.custody.state.units[job].final == "completed"
    home = f"{site.driver.room(job)}/work"
    user = ACCOUNT or pwd.getpwuid(os.getuid()).pw_name
    expected = f"first\nfirst\nfirst\nK=v job={job} nodes=1 arg=x y home={home}\n{user}\n{home}\n"
    assert await site.output(job) == expected
    assert await site.output(job, "stderr") == "oops\n"
    assert await site.get(f"/v1/jobs/{job}/files/out/a%20b.txt") == b"kept"
    listed = await site.get(f"/v1/jobs/{job}/files")
    assert b"c.dat" not in listed
    report = await site.report_of(job)
    assert (report.exit, report.signal, report.note) == (0, None, None)


async def test_a_job_saves_its_work_with_a_token_of_its_own_and_finds_it_in_the_next_attempt(site: Site) -> None:
    script = """cat state.bin 2>/dev/null && echo "again $PHOENIX_CHECKPOINT_ATTEMPT" && exit 0
        printf 'Authorization: Bearer %s' "$(cat "$PHOENIX_TOKEN_FILE")" >auth; printf 'step 7\\n' >state.bin
        base=$PHOENIX_URL/v1/guest/${PHOENIX_ID#*/}
        curl -fsS -H @auth -T state.bin "$base/checkpoint/files/state.bin" >/dev/null
        sum=$(sha256sum state.bin | cut -c1-64)
        curl -fsS -H @auth -d "{\\"files\\": [{\\"name\\": \\"state.bin\\", \\"sha256\\": \\"$sum\\"}]}" "$base/checkpoint"
        curl -sS -o /dev/null -w ' %{http_code}' -H @auth "$base/boot"; kill -9 $$"""
    job, vm = await site.run(script, retries=1)
    await site.off(vm)
    assert await site.output(job) == '{"status":"acknowledged","files":1,"bytes":7} 401'
    await site.here.place(job, attempt=2)
    await site.off(await site.boot(job, attempt=2))
    assert await site.output(job) == "step 7\nagain 1\n"


async def test_a_job_fails_with_its_own_code_or_signal(site: Site) -> None:
    job, vm = await site.run("exit 7", directory="/nowhere/at all")
    killed, other = await site.run("kill -9 $$")
    await site.off(vm)
    await site.off(other)
    report = await site.report_of(job)
    assert (report.exit, report.signal) == (7, None)
    assert report.note == "the working directory could not be entered; the script ran in its own"
    assert "cannot enter /nowhere/at all" in await site.output(job, "stderr")
    report = await site.report_of(killed)
    assert (report.exit, report.signal) == (137, 9)
    assert site.here.service.custody.state.units[killed].final == "failed"


async def test_output_arrives_while_the_script_runs_and_the_token_is_in_no_process_list(site: Site) -> None:
    job, vm = await site.run("echo running; until [ -e go ]; do sleep 0.05; done; echo over")
    token = site.here.guest(job).headers["Authorization"].split()[1]
    seen: list[str] = []

    async def arrived() -> bool:
        seen.extend(_process_lists())
        return await site.output(job) == "running\n"

    await until(arrived)
    for _ in range(50):
        seen.extend(_process_lists())
    (site.driver.room(job) / "work" / "go").touch()
    await site.off(vm)
    assert await site.output(job) == "running\nover\n"
    assert any("curl" in line and "/v1/guest/" in line for line in seen)
    assert not any(token in line for line in seen)
    assert not any(token in value for value in site.driver.said.values())


def _process_lists() -> list[str]:
    """Arguments and environment of every process that may be read."""
    found = []
    for entry in Path("/proc").iterdir():
        for name in ("cmdline", "environ") if entry.name.isdigit() else ():
            try:
                found.append((entry / name).read_bytes().decode(errors="replace"))
            except OSError:
                continue
    return found


async def test_a_terminated_vm_gives_the_script_its_grace_and_reports_a_success_only(site: Site) -> None:
    tidy = "trap 'echo asked; exit 0' TERM; echo on; while :; do sleep 0.02; done"
    job, vm = await site.run(tidy, on_term="complete")
    stopped, first = await site.run(tidy)
    failing, other = await site.run("trap 'exit 3' TERM; echo on; while :; do sleep 0.02; done")
    deaf, third = await site.run("trap '' TERM; echo on; while :; do sleep 0.02; done")
    for unit in (job, stopped, failing, deaf):
        await site.printed(unit, "on\n")
    for one in (vm, first, other, third):
        await site.terminate(one)
    assert "reported" in await site.off(vm)
    assert "the attempt is over" in await site.off(first)
    assert "stopped" in await site.off(other)
    assert "stopped" in await site.off(third)
    assert await site.output(job) == "on\nasked\n"
    assert await site.output(stopped) == "on\nasked\n"
    units = site.here.service.custody.state.units
    assert (units[job].final, units[job].early) == ("completed", True)
    assert (units[stopped].final, units[failing].final) == (None, None)
    assert [x for x in await site.here.journaled(f.AttemptReported) if x.unit in (stopped, failing, deaf)] == []


async def test_a_script_that_has_ended_by_itself_was_not_told_to(site: Site) -> None:
    """Nor one that sends itself the signal."""
    job, vm = await site.run("trap 'exit 0' TERM; kill -TERM $$; sleep 60")
    await site.off(vm)
    assert (await site.report_of(job)).terminated is False
    assert site.here.service.custody.state.units[job].early is False


async def test_an_attempt_that_is_over_ends_the_script_and_the_vm(site: Site) -> None:
    job, vm = await site.run("echo on; trap 'exit 1' TERM; while :; do sleep 0.02; done")
    await site.printed(job, "on\n")
    why = because.Reclaimed()
    await site.here.write("scheduler.hpc", f.AttemptClosed(unit=job, attempt=1, disposal=f.Disposal.REQUEUE, why=why))
    assert "stopped" in await site.off(vm)
    late = await site.boot(job)
    assert "the attempt is over" in await site.off(late)


async def test_a_container_is_ended_by_opennebula_and_not_by_itself(site: Site) -> None:
    """OpenNebula's LXC driver cannot clean up after a container that has ended by itself."""
    loop = "trap 'exit 0' TERM; echo on; while :; do sleep 0.02; done"
    site.driver.lxc = True
    try:
        job, vm = await site.run("echo done", hypervisor="lxc")
        over, other = await site.run(loop, hypervisor="lxc")
        stopped, third = await site.run(loop, hypervisor="lxc")
        await until(lambda: site.here.service.custody.state.units[job].final == "completed", "the job is reported")
        for unit in (over, stopped):
            await site.printed(unit, "on\n")
        closed = f.AttemptClosed(unit=over, attempt=1, disposal=f.Disposal.REQUEUE, why=because.Reclaimed())
        await site.here.write("scheduler.hpc", closed)
        await until(lambda: "OpenNebula ends this VM" in site.driver.console(other), "its guest waits")
        waiting = [site.driver.processes[one].returncode for one in (vm, other)]
        for one in (vm, other, third):
            await site.terminate(one)
        ended = [await site.off(one) for one in (vm, other, third)]
    finally:
        site.driver.lxc = False
    assert waiting == [None, None]
    assert "reported: OpenNebula ends this VM" in ended[0]
    assert "the attempt is over: OpenNebula ends this VM" in ended[1] + ended[2]
    assert site.driver.left == []
    assert (await site.report_of(job)).exit == 0


@pytest.mark.parametrize("hypervisor", ["kvm", "lxc"])
@pytest.mark.parametrize("empties", [False, True])
async def test_a_vm_that_boots_again_does_not_run_its_job_twice(
    site: Site, empties: bool, hypervisor: Hypervisor
) -> None:
    """With its disk, or with another one, as of VMs that were made again."""
    job, vm = await site.run("echo on; while :; do sleep 0.02; done", hypervisor=hypervisor)
    await site.here.write("executor", f.VmAllocated(unit=job, attempt=1, rank=0, vm=vm, host="h1"))
    await site.printed(job, "on\n")
    site.driver.empties = empties
    await site.act("reboot-hard", vm)
    end = "power off" if hypervisor == "kvm" else "OpenNebula ends this VM"
    said = f"{'the attempt is over' if empties else 'this VM has been rebooted'}: {end}"
    await until(lambda: said in site.driver.console(vm), said)
    site.driver.empties = False
    if hypervisor == "lxc":
        assert site.driver.processes[vm].returncode is None
        await site.terminate(vm)
    await site.off(vm)
    assert await site.output(job) == "on\n"
    assert [x for x in await site.here.journaled(f.AttemptReported) if x.unit == job] == []
    why = "it has booted again" if empties else "this VM has been rebooted"
    assert [x.why for x in await site.here.journaled(f.VmFailed) if x.unit == job] == [why]


async def test_a_guest_that_lacks_something_says_so(site: Site) -> None:
    job, vm = await site.run("echo on", context={"GUEST_MOUNTS": "nfs nowhere"}, hypervisor="lxc")
    await site.here.write("executor", f.VmAllocated(unit=job, attempt=1, rank=0, vm=vm, host="h1"))
    await until(lambda: site.here.service.custody.state.units[job].broken, "its VM is given up")
    (fact,) = [x for x in await site.here.journaled(f.VmFailed) if x.unit == job]
    assert fact.why == "GUEST_MOUNTS: 'nfs nowhere' is not TYPE SOURCE DIRECTORY [OPTIONS]"
    await site.terminate(vm)
    assert "OpenNebula ends this VM" in await site.off(vm)


async def test_the_job_hears_the_signal_it_wishes(site: Site) -> None:
    script = "trap 'echo warned; exit 0' USR1; while :; do sleep 0.02; done"
    wish = {"number": 10, "before_s": 59, "script": True}
    job, vm = await site.run(script, walltime_s=60, signal=wish)
    await site.off(vm)
    assert await site.output(job) == "warned\n"


async def test_a_door_that_is_away_costs_nothing_but_time(site: Site) -> None:
    here = site.here
    job, vm = await site.run("echo one; until [ -e go ]; do sleep 0.02; done; echo two; exit 4")
    await site.printed(job, "one\n")
    await here.running.stop()
    (site.driver.room(job) / "work" / "go").touch()
    assert site.driver.processes[vm].returncode is None
    await here.start("a2")
    await site.off(vm)
    assert await site.output(job) == "one\ntwo\n"
    assert (await site.report_of(job)).exit == 4


async def test_other_ranks_wait_until_the_attempt_is_over(site: Site) -> None:
    here = site.here
    job = await site.submit("echo $SLURM_JOB_NODELIST", nodes=2, tasks=2)
    await here.place(job, "h1", "h2")
    vms = [await site.boot(job, rank=rank) for rank in (0, 1)]
    assert "reported" in await site.off(vms[0])
    assert "the attempt is over" in await site.off(vms[1])
    assert await site.output(job) == "h1,h2\n"


async def test_what_exceeds_the_limit_is_dropped_and_told(site: Site) -> None:
    limits = site.here.broker.config.cloud
    small = msgspec.structs.replace(limits, limits=msgspec.structs.replace(limits.limits, output_max_bytes=1000))
    await site.here.furnish_limits(small)
    job, vm = await site.run("head -c 5000 /dev/zero | tr '\\0' x; echo fine >&2")
    await site.off(vm)
    await site.here.furnish_limits(limits)
    report = await site.report_of(job)
    assert (report.exit, report.note) == (
        0,
        "the rest of stdout was dropped: it exceeds output_max_bytes, or its share of the store",
    )
    assert await site.output(job, "stderr") == "fine\n"


async def test_a_vm_takes_one_job_after_another_and_nothing_of_the_first_is_left(site: Site) -> None:
    here, place = site.here, site.driver.directory / "writable"
    place.mkdir()
    place.chmod(0o777)
    await here.furnish_limits(with_warm(here.broker.config.cloud, idle_s=60.0))
    # An account that no other test uses, for all its processes are ended.
    context = {"GUEST_STAY": "YES", "GUEST_CLEAN": str(place), **({"GUEST_USER": "games"} if ACCOUNT else {})}
    first = await site.submit(f"mkdir -p {place}/a/b; echo secret >{place}/a/b/c; setsid sleep 300 & echo $!")
    await here.place(first)
    vm = await site.boot(first, **context)
    await here.write("executor", f.VmAllocated(unit=first, attempt=1, rank=0, vm=vm, host="h1"))
    await until(lambda: here.service.custody.state.units[first].final, "the first job ends")
    if not ACCOUNT:  # without an account of its own nothing can be cleaned up, and it does not offer to stay
        assert "reported" in await site.off(vm)
        return
    assert here.service.custody.state.vms[f"{first}/1/0"].parked_at is not None
    second = await site.submit(f"ls -A {place}; id -un; pwd")
    await here.place(second)
    await here.write("executor", f.VmAllocated(unit=second, attempt=1, rank=0, vm=vm, host="h1"))
    await until(lambda: here.service.custody.state.units[second].final == "completed", "the second job ends")
    lines = (await site.output(second)).splitlines()
    assert lines[-2] == "games"
    assert lines[-1].endswith(f"/{second}-1-0/work")  # its own place, which may be gone by now
    assert "a" not in lines
    assert not _runs((await site.output(first)).strip())
    assert list(place.iterdir()) == []
    await site.terminate(vm)
    assert "terminated: power off" in await site.off(vm)
    await here.furnish_limits(here.broker.config.cloud)


def _runs(pid: str) -> bool:
    """False of what is gone, or dead and not yet looked at by its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def with_warm(cloud: CloudConfig, **wish: Any) -> CloudConfig:
    departments = tuple(
        msgspec.structs.replace(d, batch=msgspec.structs.replace(d.batch, warm=Warm(**wish))) if d.batch else d
        for d in cloud.departments
    )
    return msgspec.structs.replace(cloud, departments=departments)


async def test_what_the_site_says_is_mounted_before_the_job_starts(site: Site) -> None:
    """In a mount namespace of its own, where that may be made; else it is reported that nothing can be mounted."""
    alone = ("unshare", "--mount", "--propagation", "private")
    may = (await (await asyncio.create_subprocess_exec(*alone, "true", stderr=asyncio.subprocess.DEVNULL)).wait()) == 0
    place = site.driver.directory / "scratch"
    context = {"GUEST_MOUNTS": f"tmpfs none {place}/one size=64k,mode=1777; tmpfs none {place}/two"}
    site.driver.shell = (*alone, "/bin/sh") if may else ("/bin/sh",)
    try:
        script = f"cut -d ' ' -f 2,3 /proc/self/mounts | grep {place}; echo here >{place}/one/file"
        job, vm = await site.run(script, context=context)
        said = await site.off(vm)
    finally:
        site.driver.shell = ("/bin/sh",)
    if may:
        assert await site.output(job) == f"{place}/one tmpfs\n{place}/two tmpfs\n"
    else:
        assert f"none could not be mounted on {place}/one" in said
    assert not (place / "one" / "file").exists()


async def test_an_instance_begins_with_its_address_when_it_is_healthy(site: Site) -> None:
    here, port = site.here, free_port()
    config = here.broker.config.cloud
    secret_files.write(here.broker.config.secrets.directory, "web", "db", b"hunter2 \\x $HOME \nline")
    handler = "type('H', (h.BaseHTTPRequestHandler,), {'do_GET': lambda s: (s.send_response(204), s.end_headers())})"
    program = f"""import http.server as h, os
print(repr(os.environ['DB']), flush=True)
os.write(2, b'x' * 3_000_000 + b'last')
h.HTTPServer(('127.0.0.1', int(os.environ['PORT'])), {handler}).serve_forever()"""
    departments = tuple(
        msgspec.structs.replace(
            d, web=msgspec.structs.replace(d.web, command=("python3", "-c", program), secrets={"DB": "db"})
        )
        if d.web is not None
        else d
        for d in config.departments
    )
    await here.furnish_limits(msgspec.structs.replace(config, departments=departments))
    heard = await here.hear("wim", "phoenix.measure.web.instances")
    await here.place("web.1", "w1", dept="web")
    site.driver.group = IDLE_GROUP
    vm = await site.boot("web.1", GUEST_ADDRESS="127.0.0.1", GUEST_PORT=str(port))
    await site.began("web.1")
    assert here.service.custody.state.units["web.1"].addresses == (f"127.0.0.1:{port}",)
    room = Path(site.driver.room("web.1"))
    assert (room / "stdout").read_text() == f"{'hunter2 ' + chr(92) + 'x $HOME ' + chr(10) + 'line'!r}\n"
    found = [path for path in places(b"hunter2", room.parent) if path.name != "part.pump"]  # on its way to the door
    assert found == [room / "stdout"]
    (measured,) = msgspec.json.decode((await heard.next_msg(20)).data, type=Measures).instances
    site.driver.group = {}
    assert (measured.unit, measured.memory_mb, measured.utilisation) == ("web.1", 80.0, 0.0)  # and not this machine's
    await site.terminate(vm)
    assert "the instance ended" in await site.off(vm)
    printed = (await site.get("/v1/instances/web.1/output?stream=stderr", "wim")).decode()
    assert len(printed) < 2_100_000
    assert re.match(r"x*\n\[[0-9]+ bytes left out: more than 1048576 at once\]\nx*last", printed)
    await here.furnish_limits(config)


async def test_an_instance_says_when_it_is_ill_and_how_it_ended_without_its_secrets(site: Site) -> None:
    here, port = site.here, free_port()
    config = here.broker.config.cloud
    secret_files.write(here.broker.config.secrets.directory, "web", "db", b"hunter2")
    program = """import http.server as h, os
class H(h.BaseHTTPRequestHandler):
    health, log_message = 204, print
    def do_GET(self):
        if self.path == '/end':
            os.write(2, ('cannot log in with ' + os.environ['DB'] + '\\x1b[31m').encode())
            os._exit(7)
        H.health = {'/ill': 503, '/well': 204}.get(self.path, H.health)
        self.send_response(H.health)
        self.end_headers()
h.HTTPServer(('127.0.0.1', int(os.environ['PORT'])), H).serve_forever()"""
    command = {"command": ("python3", "-c", program), "secrets": {"DB": "db"}}
    departments = tuple(
        d if d.web is None else msgspec.structs.replace(d, web=msgspec.structs.replace(d.web, **command))
        for d in config.departments
    )
    await here.furnish_limits(msgspec.structs.replace(config, departments=departments))
    await here.place("web.2", "w1", dept="web")
    vm = await site.boot("web.2", GUEST_ADDRESS="127.0.0.1", GUEST_PORT=str(port))
    await site.began("web.2")

    async def words(count: int) -> list[f.InstanceReported]:
        found = [fact for fact in await here.journaled(f.InstanceReported) if fact.unit == "web.2"]
        return found[-1:] if len(found) >= count else []

    async with aiohttp.ClientSession() as session:
        for count, path in enumerate(("ill", "well"), 1):
            async with session.get(f"http://127.0.0.1:{port}/{path}"):
                (said,) = await until(lambda count=count: words(count))  # type: ignore[misc]
            assert (said.state, said.by) == ("unready" if path == "ill" else "ready", "guest")
            assert said.why == ("/healthz answered HTTP 503" if path == "ill" else "")
        with contextlib.suppress(aiohttp.ClientError):
            await session.get(f"http://127.0.0.1:{port}/end")
    (over,) = await until(lambda: words(3))
    assert (over.state, over.exit, over.said) == ("ended", 7, r"cannot log in with ***\x1b[31m")
    assert "the instance ended with 7" in await site.off(vm)
    await here.furnish_limits(config)


async def test_a_vm_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    """The image is prepared by booting it without our context."""
    (tmp_path / "poweroff").write_text(f"#!/bin/sh\n: >{tmp_path}/off\n")
    (tmp_path / "poweroff").chmod(0o755)
    (tmp_path / "context.sh").write_text(context_file({"NETWORK": "YES"}))
    environment = {"PATH": os.environ["PATH"], "PHOENIX_GUEST_POWEROFF": str(tmp_path / "poweroff")}
    for file, expected in (("context.sh", False), ("bad.sh", True)):
        (tmp_path / "bad.sh").write_text(context_file({"PHOENIX_ID": "c/1/1/0"}))
        process = await asyncio.create_subprocess_exec("/bin/sh", str(SCRIPT), str(tmp_path / file), env=environment)
        async with asyncio.timeout(20.0):
            assert await process.wait() == 0
        assert (tmp_path / "off").exists() is expected


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ({"PHOENIX_URL": "http://x/$(id)"}, "PHOENIX_URL"),
        ({"PHOENIX_ID": "c/../../x"}, "PHOENIX_ID is malformed"),
        ({"PHOENIX_TOKEN": "nothex"}, "PHOENIX_TOKEN is malformed"),
        ({"GUEST_USER": "root"}, "must not be root"),
        ({"GUEST_USER": "no-such-account"}, "there is no account"),
    ],
)
async def test_a_context_that_cannot_be_right_ends_the_vm(tmp_path: Path, context: dict[str, str], said: str) -> None:
    if "GUEST_USER" in context and os.getuid() != 0:
        return  # who is not root has no account to choose
    file = tmp_path / "context.sh"
    good = {"PHOENIX_URL": "http://127.0.0.1:9", "PHOENIX_ID": "c/1/1/0", "PHOENIX_TOKEN": "ab"}
    file.write_text(context_file({**good, **context}))
    environment = {"PATH": os.environ["PATH"], "PHOENIX_GUEST_POWEROFF": "true", "PHOENIX_GUEST_ROOM": str(tmp_path)}
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", str(SCRIPT), str(file), env=environment, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(20.0):
        _, words = await process.communicate()
    assert said in words.decode()
