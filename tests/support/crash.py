"""The real executor process, killed at a point that is chosen to the call: before it, after it, around the append that follows.

    async with crashes(server, directory) as scene:      # a broker, an embedded OpenNebula, a proxy before each
        await scene.strike(POINT, "1")                   # the story of one unit, with a SIGKILL in its middle

What a strike is
  A story leads one unit up to a call.  The call, its answer, or the envelope that follows from it is held by a proxy; the
  process is killed; another one is started.  When that one has done its work, whatever was held is let go: a request that
  arrives from the dead.  After that everything must be as if no process had been killed.

What must hold (`verdict`)
  No PHOENIX_ID has two VMs that were ever deployed; no rank of a unit has two VMs that run at the same time (the embedded
  server's own account, at each change); nothing is left in OpenNebula that the journal does not know as open.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from phoenix.local.opennebula.model import Vm
from phoenix.local.opennebula.states import VmState
from schemas import facts as f
from schemas.facts import Disposal
from schemas.ids import parse_vm_tag
from services.domain.exits import Exit
from services.executor.core.executor import ExecutorCore
from services.runtime.config.tables import Nats
from services.runtime.config.text import dump_toml
from services.runtime.service import Service
from tests.support import forked
from tests.support.executor_stage import FAST, WHY, Stage, config_adopted, stage
from tests.support.forked import Forked
from tests.support.nats import NatsServer
from tests.support.one_proxy import Gate
from tests.support.proxy import Proxy
from tests.support.shells import Running
from tests.support.until import until

HOSTS: Final = ("host000", "host001", "host002")
POLICY: Final = msgspec.structs.replace(FAST, save_s=120.0)  # no restart takes longer: then what is not saved is ended
APPENDS: Final = b"HPUB phoenix.journal.executor"
END_S: Final = 30.0
RUNNING_LCM: Final = 3


class Where(StrEnum):
    REQUEST = "before the call"
    ANSWER = "its answer on the way"
    APPEND = "before the append that follows"
    APPENDED = "that append's answer on the way"


class Story(NamedTuple):
    """`prepare`: up to before the call; `act`: what leads to it; `done`: the end that must come; `tidy`: for the next story."""

    prepare: Callable[[Scene, str], Awaitable[None]]
    act: Callable[[Scene, str], Awaitable[None]]
    done: Callable[[Scene, str], bool]
    tidy: Callable[[Scene, str], Awaitable[None]] | None = None


class Point(NamedTuple):
    """`meanwhile`: what others do while no executor is there; `done`: the end then, if it is not the story's; `harms`: the late
    call makes the VM run, though it is not to."""

    story: str
    method: str
    where: Where
    meanwhile: Callable[[Scene, str], Awaitable[None]] | None = None
    done: Callable[[Scene, str], bool] | None = None
    harms: bool = False

    @property
    def name(self) -> str:
        beside = f", {self.meanwhile.__name__} meanwhile" if self.meanwhile is not None else ""
        return f"{self.story}: {self.method.removeprefix('one.')}, {self.where}{beside}"


class Scene:
    def __init__(self, scene: Stage, directory: Path, broker: Proxy) -> None:
        self.stage, self.broker = scene, broker
        self.config = directory / "cloud.toml"
        self.problems: list[str] = []
        self.was: dict[str, int] = {}  # unit -> its VM before it was suspended or moved
        self.woken: list[int] = []  # VMs as they began to run
        self._running: dict[tuple[str, int], set[int]] = {}
        self._process: Forked | None = None
        self._paused: list[Forked] = []
        self._number = 0
        adopted = config_adopted(POLICY).config
        nats = Nats(url=broker.url, credentials_dir=scene.config.nats.credentials_dir)
        self.config.write_text(dump_toml(msgspec.structs.replace(scene.config, cloud=adopted, nats=nats)))
        scene.one.machine.listeners.append(self._changed)

    def _changed(self, vm: Vm) -> None:
        """OpenNebula's own account: does a rank have two VMs that run?"""
        tag = parse_vm_tag(vm.user_template.get("PHOENIX_ID"))
        if tag is None:
            return
        there = self._running.setdefault((tag[1], tag[3]), set())
        if vm.state == VmState.ACTIVE and vm.lcm == RUNNING_LCM:
            there.add(vm.id)
            self.woken.append(vm.id)
            if len(there) > 1:
                self.problems.append(f"{tag[1]} rank {tag[3]} runs as VMs {sorted(there)}")
        elif vm.state != VmState.ACTIVE:
            there.discard(vm.id)

    # ------------------------------------------------------------------------------------------------------- the process

    def start(self, *, reaped: bool = True) -> None:
        before = f"e{self._number}" if reaped and self._number else ""
        self._number += 1
        words = ["--config", str(self.config), "--instance", f"e{self._number}", "--reaped", before]
        self._process = forked.start("services.executor", words)

    def pause(self) -> Forked:
        """It stands still; its holder may let it continue."""
        process, self._process = self._process, None
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        self._paused.append(process)
        return process

    async def leads(self) -> None:
        """The process that was started last is the leader."""
        name = f"e{self._number}"
        leaders = self.stage.custody.state.leaders
        await self.stage.until(lambda: "executor" in leaders and leaders["executor"].instance == name, f"{name} leads")

    def close(self) -> None:
        """Whatever a failure has left standing still."""
        for process in self._paused:
            if process.poll() is None:
                process.kill()
                process.wait()

    async def kill(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(process.wait, END_S)

    # --------------------------------------------------------------------------------------------------------- one strike

    async def strike(self, point: Point, unit: str, *, reaped: bool = True, paused: bool = False) -> None:
        """`reaped`: the next one learns that this one is dead; `paused`: it is not killed but stands still, and continues when
        another leads: it must end by itself, and its call must do no harm (X8)."""
        story = STORIES[point.story]
        await story.prepare(self, unit)
        gate = self.stage.proxy.hold(point.method, answer=point.where is not Where.REQUEST)
        await story.act(self, unit)
        await gate.reached()
        await self._around_the_append(point.where, gate)
        before, reaped = (self.pause(), False) if paused else (None, reaped)
        await self.kill()
        if point.meanwhile is not None:
            await point.meanwhile(self, unit)
        self.broker.heal()
        self.start(reaped=reaped)
        done = point.done or story.done
        await self.leads()
        await self.stage.until(lambda: done(self, unit), f"{point.name}: its end")
        woken = len(self.woken)
        gate.release()  # the request of a dead executor, or an answer without a reader
        async with asyncio.timeout(END_S):
            await gate.passed.wait()
        if before is not None:
            before.send_signal(signal.SIGCONT)
            assert await asyncio.to_thread(before.wait, END_S) == Exit.DEPOSED, "it knows that another one leads"
        await self.stage.until(lambda: done(self, unit) and self.clean(), f"{point.name}: nothing is left over")
        assert self.verdict() == [], point.name
        assert not point.harms or self.was[unit] in self.woken[woken:], f"{point.name}: the late call did nothing"
        if story.tidy is not None:
            await story.tidy(self, unit)

    async def _around_the_append(self, where: Where, gate: Gate) -> None:
        """Let the call's answer through, and stop the envelope that follows."""
        if where is Where.APPEND:
            held = self.broker.hold_up(APPENDS)
            gate.release()
            async with asyncio.timeout(END_S):
                await held.wait()
        elif where is Where.APPENDED:
            self.broker.mute()
            before = self.written()
            gate.release()
            await until(lambda: self.written() > before, "the envelope is in the journal")

    def written(self) -> int:
        """Facts about VMs in the journal, as folded by the follower."""
        applied = self.stage.service.fold.applied
        return sum(applied.get(cls, 0) for cls in (f.VmAllocated, f.VmStarted, f.VmEnded))

    def clean(self) -> bool:
        """OpenNebula holds what the journal knows, and nothing else of ours; and what is saved does not run."""
        state, there = self.stage.custody.state, self.stage.one.store.vms
        known = {vm.vm for vm in state.vms.values()}
        return known <= set(there) <= known | set(state.saved) and not any(self.active(vm) for vm in state.saved)

    def active(self, vm: int) -> bool:
        """It is on a host, by OpenNebula's account."""
        there = self.stage.one.store.vms
        return vm in there and there[vm].state == VmState.ACTIVE

    def verdict(self) -> list[str]:
        every = [*self.stage.one.store.vms.values(), *self.stage.one.store.final_vms.values()]
        ran = [vm.user_template.get("PHOENIX_ID") for vm in every if vm.history]
        twice = sorted({str(tag) for tag in ran if ran.count(tag) > 1})
        return [*self.problems, *(f"{tag} ran as two VMs" for tag in twice)]


@contextlib.asynccontextmanager
async def crashes(server: NatsServer, directory: Path) -> AsyncIterator[Scene]:
    """An executor that leads, and three hosts of the department hpc."""
    async with stage(server, directory, hosts=len(HOSTS), cores=64, proxied=True) as made, Proxy(server.port) as broker:
        made.executor = Running(Service(None, ExecutorCore, made.config, instance="m1", name="monitor"))
        await made.executor.caught_up()
        await made.write("provisioner", config_adopted(POLICY))
        scene = Scene(made, directory, broker)
        try:
            scene.start()
            await made.until(lambda: len(made.custody.index.by_state["free"]) == len(HOSTS), "hosts are free")
            await made.grant(*HOSTS)
            yield scene
        finally:
            await scene.kill()
            scene.close()
            await made.executor.stop()


# ------------------------------------------------------------------------------------------------------------- the stories


def host_of(unit: str) -> str:
    return HOSTS[int(unit) % len(HOSTS)]


async def _submitted(scene: Scene, unit: str) -> None:
    await scene.stage.submit(unit)


async def _placed(scene: Scene, unit: str) -> None:
    await scene.stage.place(unit, host_of(unit))


async def _gang(scene: Scene, unit: str) -> None:
    await scene.stage.submit(unit, len(HOSTS))


async def _gang_placed(scene: Scene, unit: str) -> None:
    await scene.stage.place(unit, *HOSTS)


async def running(scene: Scene, unit: str) -> None:
    await scene.stage.running(unit, host_of(unit))


async def reported(scene: Scene, unit: str) -> None:
    await scene.stage.report(unit)


async def closed(scene: Scene, unit: str) -> None:
    await scene.stage.close_attempt(unit, scene.stage.custody.state.units[unit].attempt)


async def _away(scene: Scene, unit: str) -> None:
    """Its room is for the next one."""
    if scene.stage.custody.state.units[unit].live:
        await closed(scene, unit)
        await scene.stage.until(lambda: ended(scene, unit), "it is gone")


async def _released(scene: Scene, unit: str) -> None:
    await scene.stage.write("scheduler.hpc", f.HostReleased(host=host_of(unit)))


async def suspended(scene: Scene, unit: str) -> None:
    await scene.stage.close_attempt(unit, scene.stage.custody.state.units[unit].attempt, Disposal.SUSPEND)


async def _saved(scene: Scene, unit: str) -> None:
    await running(scene, unit)
    _remember(scene, unit)
    await suspended(scene, unit)
    await scene.stage.until(lambda: is_saved(scene, unit), "it is saved")


async def _resumed(scene: Scene, unit: str) -> None:
    await scene.stage.place(unit, other_host(unit), attempt=2)


async def _runs_here(scene: Scene, unit: str) -> None:
    await running(scene, unit)
    _remember(scene, unit)


async def _moved(scene: Scene, unit: str) -> None:
    closing = f.AttemptClosed(unit=unit, attempt=1, disposal=Disposal.MIGRATE, why=WHY)
    placing = f.UnitPlaced(unit=unit, attempt=2, hosts=(other_host(unit),), cores=1, memory_mb=64)
    await scene.stage.write("scheduler.hpc", closing, placing)


def _remember(scene: Scene, unit: str) -> None:
    [scene.was[unit]] = [vm.vm for vm in scene.stage.custody.state.vms.values() if vm.unit == unit]


async def suspended_again_and_released(scene: Scene, unit: str) -> None:
    """The scheduler wants its host back, before the call of the dead executor has arrived."""
    await suspended(scene, unit)
    await scene.stage.write("scheduler.hpc", f.HostReleased(host=other_host(unit)))


async def cancelled_and_released(scene: Scene, unit: str) -> None:
    await scene.stage.close_attempt(unit, 2, Disposal.CANCELLED)
    await scene.stage.write("scheduler.hpc", f.HostReleased(host=other_host(unit)))


async def _other_granted(scene: Scene, unit: str) -> None:
    if scene.stage.host(other_host(unit)) == "free":
        await scene.stage.grant(other_host(unit))
    await _away(scene, unit)


async def _granted(scene: Scene, unit: str) -> None:
    await scene.stage.grant(host_of(unit))


def runs(scene: Scene, unit: str) -> bool:
    known = scene.stage.custody.state.units[unit]
    return known.live and scene.stage.started(unit, known.attempt) == known.nodes


def ended(scene: Scene, unit: str) -> bool:
    return all(vm.unit != unit for vm in scene.stage.custody.state.vms.values())


def completed(scene: Scene, unit: str) -> bool:
    return scene.stage.custody.state.units[unit].final == "completed" and ended(scene, unit)


def _free(scene: Scene, unit: str) -> bool:
    return scene.stage.host(host_of(unit)) == "free" and ended(scene, unit)


def other_host(unit: str) -> str:
    return host_of(str(int(unit) + 1))


def is_saved(scene: Scene, unit: str) -> bool:
    return any(saved.unit == unit for saved in scene.stage.custody.state.saved.values()) and ended(scene, unit)


def goes_on(scene: Scene, unit: str) -> bool:
    """The same VM, on the other host, also by OpenNebula's account."""
    vm = scene.was[unit]
    mine = [known.vm for known in scene.stage.custody.state.vms.values() if known.unit == unit]
    if not runs(scene, unit) or mine != [vm] or not scene.active(vm):
        return False
    return scene.stage.one.store.vms[vm].history[-1].host_name == other_host(unit)


def stopped_and_free(scene: Scene, unit: str) -> bool:
    """Nothing of it runs, and the host that it should have gone to is free."""
    return ended(scene, unit) and not scene.active(scene.was[unit]) and scene.stage.host(other_host(unit)) == "free"


STORIES: Final[dict[str, Story]] = {
    "launch": Story(_submitted, _placed, runs, _away),
    "gang": Story(_gang, _gang_placed, runs, _away),
    "finish": Story(running, reported, completed),
    "release": Story(running, _released, _free, _granted),
    "suspend": Story(_runs_here, suspended, is_saved),
    "resume": Story(_saved, _resumed, goes_on, _other_granted),
    "move": Story(_runs_here, _moved, goes_on, _other_granted),
}

ALLOCATE, DEPLOY, TERMINATE = "one.vm.allocate", "one.vm.deploy", "one.vm.action terminate"
STOP, MIGRATE = "one.vm.action stop", "one.vm.migrate"
_CALLS: Final = (
    ("launch", ALLOCATE),
    ("launch", DEPLOY),
    ("finish", TERMINATE),
    ("suspend", STOP),
    ("resume", DEPLOY),
    ("move", MIGRATE),
)
AROUND: Final = tuple(
    Point(story, method, where) for story, method in _CALLS for where in (Where.REQUEST, Where.ANSWER)
)
APPENDING: Final = tuple(
    Point(story, method, where) for story, method in _CALLS for where in (Where.APPEND, Where.APPENDED)
)
MEANWHILE: Final = (
    Point("launch", DEPLOY, Where.ANSWER, reported, completed),
    Point("launch", ALLOCATE, Where.ANSWER, closed, ended),
    Point("launch", DEPLOY, Where.REQUEST, closed, ended),
)
# X7 and X8: the one call that the journal cannot fence arrives when its VM is not to run any more.
LATE: Final = (
    Point("resume", DEPLOY, Where.REQUEST, suspended_again_and_released, stopped_and_free, harms=True),
    Point("resume", DEPLOY, Where.REQUEST, cancelled_and_released, stopped_and_free),
)
WIDE: Final = tuple(Point("gang", method, where) for method in (ALLOCATE, DEPLOY) for where in Where)
RELEASE: Final = tuple(Point("release", TERMINATE, where) for where in Where)

SHORT: Final = (
    *AROUND,
    *APPENDING[:2],
    MEANWHILE[0],
    LATE[0],
)  # about a third of a second of CPU each, most of it the start of a process
ALL: Final = (*AROUND, *APPENDING, *MEANWHILE, *LATE, *WIDE, *RELEASE)
DEPOSED: Final = (LATE[0], AROUND[2], AROUND[4])
