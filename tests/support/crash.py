"""The real executor process, killed at a point that is chosen to the call: before it, after it, around the append that follows.

    async with crashes(server, directory) as scene:      # a broker, an embedded OpenNebula, a proxy before each
        await scene.strike(POINT, "1")                   # the story of one unit, with a SIGKILL in its middle

What a strike is
  A story leads one unit up to a call.  The call, its answer, or the envelope that follows from it is held by a proxy; the
  process is killed; another one is started.  When that one has done its work, whatever was held is let go: a request that
  arrives from the dead.  After that everything must be as if nobody had been killed.

What must hold (`verdict`)
  No PHOENIX_ID has two VMs that were ever deployed; no rank of a unit has two VMs that run at the same time (the embedded
  server's own account, at each change); nothing is left in OpenNebula that the journal does not know as open.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from phoenix.local.opennebula.model import Vm
from phoenix.local.opennebula.states import VmState
from schemas import facts as f
from schemas.ids import parse_vm_tag
from services.executor.core import ExecutorCore
from services.runtime.config import Nats, dump_toml
from services.runtime.service import Service
from tests.support.executor_stage import FAST, Stage, config_adopted, stage
from tests.support.nats import NatsServer
from tests.support.one_proxy import Gate
from tests.support.proxy import Proxy
from tests.support.shells import Running, until

ROOT: Final = Path(__file__).resolve().parents[2]
HOSTS: Final = ("host000", "host001", "host002")
APPENDS: Final = b"HPUB phoenix.journal.executor"
END_S: Final = 10.0
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
    """`meanwhile`: what others do while no executor is there; `done`: the end then, if it is not the story's."""

    story: str
    method: str
    where: Where
    meanwhile: Callable[[Scene, str], Awaitable[None]] | None = None
    done: Callable[[Scene, str], bool] | None = None

    @property
    def name(self) -> str:
        beside = f", {self.meanwhile.__name__} meanwhile" if self.meanwhile is not None else ""
        return f"{self.story}: {self.method.removeprefix('one.')}, {self.where}{beside}"


class Scene:
    def __init__(self, scene: Stage, directory: Path, broker: Proxy) -> None:
        self.stage, self.broker = scene, broker
        self.config = directory / "cloud.toml"
        self.problems: list[str] = []
        self._running: dict[tuple[str, int], set[int]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._number = 0
        adopted = config_adopted(FAST).config
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
            if len(there) > 1:
                self.problems.append(f"{tag[1]} rank {tag[3]} runs as VMs {sorted(there)}")
        elif vm.state != VmState.ACTIVE:
            there.discard(vm.id)

    # ------------------------------------------------------------------------------------------------------- the process

    def start(self, *, reaped: bool = True) -> None:
        before = f"e{self._number}" if reaped and self._number else ""
        self._number += 1
        command = [sys.executable, "-m", "services.executor", "--config", str(self.config)]
        self._process = subprocess.Popen([*command, "--instance", f"e{self._number}", "--reaped", before], cwd=ROOT)

    async def leads(self) -> None:
        """The process that was started last is the leader."""
        name = f"e{self._number}"
        leaders = self.stage.custody.state.leaders
        await self.stage.until(lambda: "executor" in leaders and leaders["executor"].instance == name, f"{name} leads")

    async def kill(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.send_signal(signal.SIGKILL)
            await asyncio.to_thread(process.wait, END_S)

    # --------------------------------------------------------------------------------------------------------- one strike

    async def strike(self, point: Point, unit: str, *, reaped: bool = True) -> None:
        story = STORIES[point.story]
        await story.prepare(self, unit)
        gate = self.stage.proxy.hold(point.method, answer=point.where is not Where.REQUEST)
        await story.act(self, unit)
        await gate.reached()
        await self._around_the_append(point.where, gate)
        await self.kill()
        if point.meanwhile is not None:
            await point.meanwhile(self, unit)
        self.broker.heal()
        self.start(reaped=reaped)
        done = point.done or story.done
        await self.leads()
        await self.stage.until(lambda: done(self, unit), f"{point.name}: its end")
        gate.release()  # the request of a dead executor, or an answer that nobody hears
        async with asyncio.timeout(END_S):
            await gate.passed.wait()
        await self.stage.until(lambda: done(self, unit) and self.clean(), f"{point.name}: nothing is left over")
        assert self.verdict() == [], point.name
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
        """OpenNebula holds what the journal knows, and nothing else of ours."""
        state = self.stage.custody.state
        known = {vm.vm for vm in state.vms.values()} | set(getattr(state, "saved", ()))
        return set(self.stage.alive()) == known

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
        await made.write("provisioner", config_adopted(FAST))
        scene = Scene(made, directory, broker)
        try:
            scene.start()
            await made.until(lambda: len(made.custody.index.by_state["free"]) == len(HOSTS), "hosts are free")
            await made.grant(*HOSTS)
            yield scene
        finally:
            await scene.kill()
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
    await scene.stage.close_attempt(unit)


async def _away(scene: Scene, unit: str) -> None:
    """Its room is for the next one."""
    if scene.stage.custody.state.units[unit].live:
        await closed(scene, unit)
        await scene.stage.until(lambda: ended(scene, unit), "it is gone")


async def _released(scene: Scene, unit: str) -> None:
    await scene.stage.write("scheduler.hpc", f.HostReleased(host=host_of(unit)))


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


STORIES: Final[dict[str, Story]] = {
    "launch": Story(_submitted, _placed, runs, _away),
    "gang": Story(_gang, _gang_placed, runs, _away),
    "finish": Story(running, reported, completed),
    "release": Story(running, _released, _free, _granted),
}

ALLOCATE, DEPLOY, TERMINATE = "one.vm.allocate", "one.vm.deploy", "one.vm.action terminate"
_CALLS: Final = (("launch", ALLOCATE), ("launch", DEPLOY), ("finish", TERMINATE))
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
WIDE: Final = tuple(Point("gang", method, where) for method in (ALLOCATE, DEPLOY) for where in Where)
RELEASE: Final = tuple(Point("release", TERMINATE, where) for where in Where)

SHORT: Final = (*AROUND, *APPENDING[:2], *MEANWHILE)  # about two seconds each, most of it the start of a process
ALL: Final = (*SHORT, *APPENDING[2:], *WIDE, *RELEASE)
