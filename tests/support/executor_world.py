"""A small world for the executor's core: calls arrive late or never, polls are stale, leaders die and go on as zombies.

OpenNebula is a table of VMs; the journal is a list; the other writers do what their roles allow, at random.  Nothing of X8
holds here: a deposed leader goes on calling on the prefix that it knew, and what it called may arrive at any later time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import msgspec

from schemas import facts as f
from schemas.custody import Custody
from schemas.facts import Fact
from schemas.ids import parse_vm_tag
from schemas.meta import Meta
from services.executor.calls import (
    Allocate,
    Call,
    Deploy,
    HostSight,
    HostsSeen,
    Look,
    Outcome,
    Phase,
    PoolSeen,
    Result,
    Sight,
    Terminate,
    VmsSeen,
)
from services.executor.core import ExecutorCore
from tests.support.executor_stage import CLOUD, FAST, WHY, config_adopted

HOSTS, CORES = 3, 2
UNITS = ("1", "2", "3", "4", "5")
BUSY = (Phase.RUNNING, Phase.MOVING, Phase.UNKNOWN)


@dataclass
class Leader:
    core: ExecutorCore
    pending: list[Call]
    polls: list[object]


@dataclass
class Machine:
    """A VM in OpenNebula.  `host` once it was deployed."""

    tag: str
    phase: Phase
    host: str = ""
    cores: int = 1
    ending: bool = False


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 100.0
        self.truth = Custody()
        self.journal: list[tuple[str, tuple[Fact, ...], float]] = []
        self.machines: dict[int, Machine] = {}
        self.bad: dict[str, str] = {}
        self.late: list[Call] = []  # calls of the dead, still on their way
        self.ran: dict[str, dict[int, None]] = {}  # tag -> ids that ever ran
        self.zombies: list[Leader] = []
        self.write("provisioner", config_adopted(FAST))
        for unit in UNITS:
            job = f.JobSubmitted(job=unit, dept="hpc", user="a", name="j", payload="p", walltime_s=9.0)
            self.write("admission", msgspec.structs.replace(job, nodes=nodes_of(unit), retries=9))
        self.leader = self.elect()

    # ----------------------------------------------------------------------------------------------------------- journal

    def write(self, writer: str, *facts: Fact) -> None:
        self.journal.append((writer, facts, self.now))
        for index, fact in enumerate(facts):
            self.truth.apply(fact, len(self.journal), index, writer, self.now)
        if hasattr(self, "leader"):
            fold(self.leader.core, len(self.journal), *self.journal[-1])
        self.check()

    def elect(self) -> Leader:
        core = ExecutorCore(Custody())
        for position, entry in enumerate(self.journal, 1):
            fold(core, position, *entry)
        again = ExecutorCore(Custody())
        again.custody.load(core.custody.dump())
        again.load(core.dump())
        assert again.dump() == core.dump()
        chosen = self.random.choice((core, again))  # a replay and a snapshot are the same
        chosen.take_over(self.now)
        return Leader(chosen, [], [])

    # ------------------------------------------------------------------------------------------------------------ checks

    def check(self) -> None:
        hosts = self.truth.state.hosts
        attempts: dict[str, dict[int, None]] = {}
        used: dict[str, int] = {}
        for vm, machine in self.machines.items():
            tag = parse_vm_tag(machine.tag)
            if tag is None or machine.phase not in BUSY:
                continue
            self.ran.setdefault(machine.tag, {})[vm] = None
            state = hosts[machine.host].state
            assert state in ("held", "draining", "lost"), f"{machine.tag} runs on {machine.host}, which is {state}"
            if state != "lost":
                attempts.setdefault(tag[1], {})[tag[2]] = None
                used[machine.host] = used.get(machine.host, 0) + machine.cores
        assert all(len(running) == 1 for running in attempts.values()), f"two attempts run: {attempts}"
        assert all(cores <= CORES for cores in used.values()), f"too much runs: {used}"
        assert all(len(vms) == 1 for vms in self.ran.values()), f"two VMs for one rank ran: {self.ran}"

    # -------------------------------------------------------------------------------------------------------- OpenNebula

    def perform(self, call: Call) -> Result:
        if isinstance(call, Allocate):
            vm = len(self.machines)
            self.machines[vm] = Machine(f"{CLOUD}/{call.key}", Phase.HELD, cores=call.cores)
            return Result(call, Outcome.OK, vm=vm)
        if isinstance(call, Look):
            return Result(call, Outcome.OK, found=self.host(call.host))
        machine = self.machines[call.vm]
        if isinstance(call, Deploy):
            if machine.phase is not Phase.HELD or self.bad.get(call.host) == "offline":
                return Result(call, Outcome.REFUSED, why="not from here")
            machine.phase, machine.host = Phase.MOVING, call.host
        elif isinstance(call, Terminate):
            if machine.phase is Phase.MOVING and not call.hard:
                return Result(call, Outcome.REFUSED, why="wrong state")
            if machine.phase is Phase.MOVING and not machine.ending and self.random.random() < 0.5:
                return Result(call, Outcome.REFUSED, why="wrong state BOOT")
            if machine.phase is not Phase.OVER:
                machine.phase = Phase.OVER if machine.phase is Phase.HELD else Phase.MOVING
                machine.ending = True
        self.check()
        return Result(call, Outcome.OK)

    def host(self, name: str) -> HostSight:
        there = [vm for vm, m in self.machines.items() if m.host == name and m.phase is not Phase.OVER]
        bad = self.bad.get(name, "")
        return HostSight(name, int(name[1:]), not bad, bad, CORES, 4096, "default", {}, tuple(there))

    def sights(self) -> list[Sight]:
        return [Sight(vm, m.phase) for vm, m in self.machines.items() if m.phase is not Phase.OVER]

    def progress(self) -> None:
        """Whatever is on its way arrives somewhere."""
        for machine in self.machines.values():
            if machine.phase is Phase.MOVING and self.random.random() < 0.3:
                ends = (Phase.OVER,) if machine.ending else (*(Phase.RUNNING,) * 8, Phase.FAILED)
                machine.phase = self.random.choice(ends)
        self.check()

    # ---------------------------------------------------------------------------------------------------- the executor

    def call(self, leader: Leader) -> None:
        leader.pending += leader.core.calls(self.now, self.random.choice((1, 3, 8)))

    def answer(self, leader: Leader, lossy: bool = True) -> None:
        """One call ends for its caller: done and told, done and not told, or neither yet."""
        if not leader.pending:
            return
        call = leader.pending.pop(self.random.randrange(len(leader.pending)))
        fate = self.random.random() if lossy else 1.0
        if fate < 0.1:
            self.late.append(call)
        result = self.perform(call) if fate >= 0.1 else Result(call, Outcome.UNSURE)
        if fate < 0.2:
            result = Result(call, Outcome.UNSURE)
        leader.core.observe(result, self.now)

    def look(self, leader: Leader) -> None:
        """Begin a poll; what it saw is told later."""
        core = leader.core
        ticket = core.ticket()
        kind = self.random.choice(("vms", "pool", "hosts"))
        if kind == "hosts":
            leader.polls.append(HostsSeen(ticket, [self.host(f"h{n}") for n in range(HOSTS)]))
        elif kind == "pool":
            leader.polls.append((ticket, self.sights()))
        else:
            asked = core.watch_list()
            leader.polls.append(VmsSeen(ticket, asked, [Sight(vm, self.machines[vm].phase) for vm in asked]))

    def told(self, leader: Leader) -> None:
        if not leader.polls:
            return
        poll = leader.polls.pop(0)
        if isinstance(
            poll, tuple
        ):  # an audit: tags are read and the journal is folded to its end, which it always is here
            ticket, seen = poll
            strange = [Sight(vm, self.machines[vm].phase, self.machines[vm].tag) for vm in leader.core.strangers(seen)]
            poll = PoolSeen(ticket, seen, strange)
        assert isinstance(poll, PoolSeen | HostsSeen | VmsSeen)
        leader.core.observe(poll, self.now)

    def decide(self) -> bool:
        facts = self.leader.core.decide(self.now)
        if facts and self.random.random() < 0.3:
            self.others()  # what it decided on has changed when it is appended
        if facts:
            self.write("executor", *facts)
        assert self.leader.core.check() == []
        return bool(facts)

    def depose(self) -> None:
        """The leader is a zombie from now on, or dead with its calls on their way."""
        old = self.leader
        if self.random.random() < 0.5:
            self.zombies = [*self.zombies, old][-2:]
        else:
            self.late += old.pending
        self.leader = self.elect()

    def haunt(self) -> None:
        for zombie in self.zombies:
            self.call(zombie)
            self.answer(zombie)
            self.told(zombie)

    def arrive(self) -> None:
        if self.late:
            self.perform(self.late.pop(self.random.randrange(len(self.late))))

    # ------------------------------------------------------------------------------------------------------- all others

    def others(self) -> None:
        """One act of another writer; void ones are as good."""
        pick = self.random.choice
        host, unit = f"h{self.random.randrange(HOSTS)}", pick(UNITS)
        free = sorted(self.truth.index.by_state["free"])
        known = self.truth.state.units.get(unit)
        attempt = known.attempt if known else 0
        act = pick(
            ("grant", "grant", "grant", "place", "place", "place", "close", "again", "again", "release", "report")
        )
        if act == "grant":
            self.write("provisioner", f.HostGranted(host=pick(free) if free else host, dept="hpc"))
        elif act == "place":
            self.place(unit, attempt + 1)
        elif act == "close":
            closed = f.AttemptClosed(unit=unit, attempt=attempt, disposal=f.Disposal.REQUEUE, why=WHY)
            self.write("scheduler.hpc", closed) if attempt else None
        elif act == "again" and known and known.state == "open":
            closed = f.AttemptClosed(unit=unit, attempt=attempt, disposal=f.Disposal.REQUEUE, why=WHY)
            self.write("scheduler.hpc", closed)
            self.place(unit, attempt + 1)
        elif act == "release":
            fact = pick((f.HostReleased(host=host), f.HostSeized(host=host, dept="hpc")))
            self.write("scheduler.hpc" if isinstance(fact, f.HostReleased) else "provisioner", fact)
        elif attempt and self.random.random() < 0.02:
            self.write("admission", f.AttemptReported(unit=unit, attempt=attempt, exit=0))

    def place(self, unit: str, attempt: int) -> None:
        nodes = nodes_of(unit)
        held = sorted(self.truth.index.held.get("hpc", ()))
        if len(held) < nodes:
            return
        hosts = tuple(self.random.sample(held, nodes))
        cores = self.random.choice((1, 2))
        placed = f.UnitPlaced(unit=unit, attempt=attempt, hosts=hosts, cores=cores, memory_mb=64)
        self.write("scheduler.hpc", placed)

    def misfortune(self) -> None:
        chance = self.random.random()
        host = f"h{self.random.randrange(HOSTS)}"
        running = [vm for vm, m in self.machines.items() if m.phase is Phase.RUNNING]
        if chance < 0.3 and running:
            self.machines[self.random.choice(running)].phase = Phase.OFF
        elif chance < 0.4:
            self.bad[host] = self.random.choice(("error", "offline"))
        elif chance < 0.8:
            self.bad.pop(host, None)
        else:
            self.depose()

    # -------------------------------------------------------------------------------------------------------------- life

    def live(self, steps: int) -> None:
        acts = (
            [lambda: self.call(self.leader)] * 6
            + [lambda: self.answer(self.leader)] * 9
            + [lambda: self.look(self.leader), lambda: self.told(self.leader)] * 5
            + [self.decide] * 6
            + [self.others] * 2
            + [self.progress, self.haunt, self.arrive]
        )
        for _ in range(steps):
            self.random.choice(acts)()
            self.now += self.random.choice((0.0, 0.01, 0.02, 0.1))
            if self.random.random() < 0.01:
                self.misfortune()

    def heal(self) -> None:
        """Nothing goes wrong any more: what is late arrives, zombies are dead, and the world comes to rest."""
        self.bad.clear()
        for zombie in self.zombies:
            self.late += zombie.pending
        self.zombies = []
        while self.late:
            self.arrive()
        quiet = 0
        for _ in range(600):
            self.call(self.leader)
            busy = bool(self.leader.pending)
            while self.leader.pending:
                self.answer(self.leader, lossy=False)
            for machine in self.machines.values():
                if machine.phase is Phase.MOVING:
                    live = self.is_live(machine.tag)
                    machine.phase = Phase.RUNNING if live else Phase.OVER
            self.look(self.leader)
            while self.leader.polls:
                self.told(self.leader)
            busy = self.decide() or busy
            self.now += 0.2
            quiet = 0 if busy else quiet + 1
            if quiet > 60:  # longer than any pause or retry
                return
        raise AssertionError("the world does not come to rest")

    def is_live(self, tag: str) -> bool:
        parsed = parse_vm_tag(tag)
        return parsed is not None and self.truth.live(parsed[1], parsed[2])


def nodes_of(unit: str) -> int:
    return 1 + int(unit) % 2


def fold(core: ExecutorCore, position: int, writer: str, facts: tuple[Fact, ...], at: float) -> None:
    for index, fact in enumerate(facts):
        void = core.custody.apply(fact, position, index, writer, at)
        broken, unsaved = tuple(core.custody.newly_broken), tuple(core.custody.newly_unsaved)
        meta = Meta(
            position=position,
            index=index,
            writer=writer,
            at=core.custody.state.at,
            void=void,
            broken=broken,
            unsaved=unsaved,
        )
        core.apply(fact, meta)
