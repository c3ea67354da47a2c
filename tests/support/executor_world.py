"""A small world for the executor's core: calls arrive late or never, polls are stale, leaders die and continue as zombies.

OpenNebula is a table of VMs; the journal is a list; the other writers do what their roles allow, at random.  Nothing of X8
holds here: a deposed leader keeps calling on the prefix that it knew, and what it called may arrive at any later time.
Only what X1 does not fence (X7: calls that make a known VM run, or run elsewhere) arrives before the next leader, or never.
A first deploy is fenced by X1 until its VM is saved: from then on OpenNebula takes it for a resume.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import msgspec

from schemas import facts as f
from schemas.config import Capability, Warm
from schemas.facts import Fact
from schemas.ids import parse_vm_tag
from schemas.size import Size
from services.domain.capabilities import ALL
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.meta import Meta
from services.executor.core.calls import (
    Allocate,
    Call,
    Deploy,
    HostSight,
    HostsSeen,
    Look,
    Migrate,
    Outcome,
    Phase,
    PoolSeen,
    Result,
    Save,
    Sight,
    Terminate,
    VmsSeen,
)
from services.executor.core.executor import ExecutorCore
from tests.support.executor_stage import CLOUD, FAST, WHY, config_adopted

HOSTS, CORES = 3, 2
UNITS = ("1", "2", "3", "4", "5")  # at first; for each that is over another one comes
JOBS_MAX = 60
SLOW = msgspec.structs.replace(FAST, grace_s=0.6, save_s=6.0, stuck_s=4.0)  # a step takes time here
WARM = Warm(idle_s=3.0, share="department", vms_max=3)
COLD: tuple[Capability, ...] = ("suspend", "resume_elsewhere")
BUSY = (Phase.RUNNING, Phase.MOVING, Phase.UNKNOWN)


@dataclass
class Leader:
    core: ExecutorCore
    pending: list[Call]
    polls: list[object]


@dataclass
class Machine:
    """A VM in OpenNebula.  `host` once it was deployed; `target`: the host that it migrates to."""

    tag: str
    phase: Phase
    host: str = ""
    cores: int = 1
    ending: bool = False
    saving: bool = False
    target: str = ""


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 100.0
        self.truth = Custody()
        self.journal: list[tuple[str, tuple[Fact, ...], float]] = []
        self.machines: dict[int, Machine] = {}
        self.bad: dict[str, str] = {}
        self.late: list[tuple[Leader, Call]] = []  # calls that are still on their way, though no caller waits for them
        self.ran: dict[str, dict[int, None]] = {}  # tag -> ids that ever ran
        self.zombies: list[Leader] = []
        self.resumed = self.moved = self.taken_over = 0
        self.units: list[str] = []
        self.lives: dict[tuple[str, int], int] = {}  # attempt -> the one with which its life began
        self.write("provisioner", config_adopted(SLOW, WARM, ALL if seed % 3 else COLD))
        for unit in UNITS:
            self.submit(unit)
        self.leader = self.elect()

    def submit(self, unit: str) -> None:
        self.units.append(unit)
        job = f.JobSubmitted(job=unit, dept="hpc", user="a", name="j", payload="p", walltime_s=9.0)
        self.write("admission", msgspec.structs.replace(job, nodes=nodes_of(unit), retries=9))

    # ----------------------------------------------------------------------------------------------------------- journal

    def write(self, writer: str, *facts: Fact) -> None:
        self.journal.append((writer, facts, self.now))
        for index, fact in enumerate(facts):
            fold_fact(self.truth, fact, len(self.journal), index, writer, self.now)
        for known in self.truth.state.units.values():
            self.lives[known.id, known.attempt] = known.life
        if hasattr(self, "leader"):
            fold(self.leader.core, len(self.journal), *self.journal[-1])
        self.check()

    def elect(self) -> Leader:
        self._wait_out()
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

    def _wait_out(self) -> None:
        """X8, for what nothing else fences."""
        found = [call for _, call in self.late] + [call for zombie in self.zombies for call in zombie.pending]
        found = [call for call in found if self.is_unfenced(call)]
        self.late = [(leader, call) for leader, call in self.late if not self.is_unfenced(call)]
        for zombie in self.zombies:
            zombie.pending = [call for call in zombie.pending if not self.is_unfenced(call)]
        for call in found:
            if self.random.random() < 0.5:
                self.perform(call)

    def is_unfenced(self, call: Call) -> bool:
        if isinstance(call, Deploy):
            return call.resumes or self.machines[call.vm].phase is Phase.SAVED
        return isinstance(call, Save | Migrate)

    # ------------------------------------------------------------------------------------------------------------ checks

    def check(self) -> None:
        state = self.truth.state
        lives: dict[str, dict[int, None]] = {}
        ranks: dict[tuple[str, int], dict[int, None]] = {}
        used: dict[str, int] = {}
        for vm, machine in self.machines.items():
            tag = parse_vm_tag(machine.tag)
            if tag is None or machine.phase not in BUSY:
                continue
            self.ran.setdefault(machine.tag, {})[vm] = None
            unit, attempt, rank = self.whose(vm, tag[1:])
            for name in [host for host in (machine.host, machine.target) if host]:
                host = state.hosts[name].state
                assert host in ("held", "draining", "lost"), f"{machine.tag} runs on {name}, which is {host}"
                if host != "lost":
                    life = self.lives[unit, attempt]
                    lives.setdefault(unit, {})[life] = None
                    ranks.setdefault((unit, rank), {})[vm] = None
                    used[name] = used.get(name, 0) + machine.cores
        assert all(len(running) == 1 for running in lives.values()), f"two attempts run: {lives}"
        assert all(len(running) == 1 for running in ranks.values()), f"a rank runs twice: {ranks}"
        assert all(cores <= CORES for cores in used.values()), f"too much runs: {used}"
        assert all(len(vms) == 1 for vms in self.ran.values()), f"two VMs for one rank ran: {self.ran}"

    def whose(self, vm: int, tag: tuple[str, int, int]) -> tuple[str, int, int]:
        """What the journal says that it is; its tag, where the journal does not say."""
        key = self.truth.index.vm_ids.get(vm)
        found = self.truth.state.vms[key] if key is not None else None
        return tag if found is None else (found.unit, found.attempt, found.rank)

    # -------------------------------------------------------------------------------------------------------- OpenNebula

    def reach(self, leader: Leader, call: Call) -> Result:
        """X8: what is not fenced has reached OpenNebula before the next leader's first call, or never does."""
        if leader is not self.leader and self.is_unfenced(call):
            return Result(call, Outcome.UNSURE)
        return self.perform(call)

    def perform(self, call: Call) -> Result:
        if isinstance(call, Allocate):
            vm = len(self.machines)
            self.machines[vm] = Machine(f"{CLOUD}/{call.key}", Phase.HELD, cores=call.size.cores)
            return Result(call, Outcome.OK, vm=vm)
        if isinstance(call, Look):
            return Result(call, Outcome.OK, found=self.host(call.host))
        machine = self.machines[call.vm]
        if isinstance(call, Deploy):
            if machine.phase not in (Phase.HELD, Phase.SAVED) or self.bad.get(call.host) == "offline":
                return Result(call, Outcome.REFUSED, why="not from here")
            self.resumed += machine.phase is Phase.SAVED
            machine.phase, machine.host = Phase.MOVING, call.host
        elif isinstance(call, Save | Migrate):
            there = isinstance(call, Migrate) and call.host == machine.host
            if machine.phase is not Phase.RUNNING or there or self.random.random() < 0.1:
                return Result(call, Outcome.REFUSED, why="not from here")
            machine.phase, machine.saving = Phase.MOVING, isinstance(call, Save)
            machine.target = call.host if isinstance(call, Migrate) else ""
        elif isinstance(call, Terminate):
            if machine.phase is Phase.MOVING and not call.hard:
                return Result(call, Outcome.REFUSED, why="wrong state")
            if machine.phase is Phase.MOVING and not machine.ending and self.random.random() < 0.5:
                return Result(call, Outcome.REFUSED, why="wrong state BOOT")
            if machine.phase is not Phase.OVER:
                machine.phase = Phase.OVER if machine.phase in (Phase.HELD, Phase.SAVED) else Phase.MOVING
                machine.ending = True
        self.check()
        return Result(call, Outcome.OK)

    def host(self, name: str) -> HostSight:
        there = [vm for vm, m in self.machines.items() if name in (m.host, m.target) and m.phase is not Phase.OVER]
        bad = self.bad.get(name, "")
        return HostSight(name, int(name[1:]), not bad, bad, Size(CORES, 4096), "default", {}, tuple(there))

    def sights(self) -> list[Sight]:
        return [Sight(vm, m.phase) for vm, m in self.machines.items() if m.phase is not Phase.OVER]

    def progress(self) -> None:
        """Whatever is on its way arrives somewhere."""
        for machine in self.machines.values():
            if machine.phase is not Phase.MOVING or self.random.random() >= 0.3:
                continue
            if not machine.ending and (machine.saving or machine.target):
                self._settle(machine, self.random.random() < 0.9)
            else:
                ends = (Phase.OVER,) if machine.ending else (*(Phase.RUNNING,) * 8, Phase.FAILED)
                machine.phase = self.random.choice(ends)
        self.check()

    def _settle(self, machine: Machine, done: bool) -> None:
        """It is saved, or has moved; or not."""
        saving, target = machine.saving, machine.target
        machine.phase, machine.saving, machine.target = Phase.RUNNING, False, ""
        if done and saving:
            machine.phase, machine.host = Phase.SAVED, ""
        elif done:
            machine.host = target
            self.moved += 1

    def sight(self, vm: int, tags: bool = False) -> Sight:
        machine = self.machines[vm]
        where = machine.target or machine.host
        return Sight(vm, machine.phase, machine.tag if tags else "", int(where[1:]) if where else -1)

    # ---------------------------------------------------------------------------------------------------- the executor

    def call(self, leader: Leader) -> None:
        made = leader.core.calls(self.now, self.random.choice((1, 3, 8)))
        if leader in self.zombies:  # X8: its lease is over, and it knows
            for call in [call for call in made if self.is_unfenced(call)]:
                made.remove(call)
                leader.core.observe(Result(call, Outcome.UNSURE), self.now)
        leader.pending += made

    def answer(self, leader: Leader, lossy: bool = True) -> None:
        """One call ends for its caller: done and told, done and not told, or neither yet."""
        if not leader.pending:
            return
        call = leader.pending.pop(self.random.randrange(len(leader.pending)))
        fate = self.random.random() if lossy else 1.0
        if fate < 0.1:
            self.late.append((leader, call))
        result = self.reach(leader, call) if fate >= 0.1 else Result(call, Outcome.UNSURE)
        if fate < 0.2:
            result = Result(call, Outcome.UNSURE)
        leader.core.observe(result, self.now)

    def look(self, leader: Leader) -> None:
        """Begin a poll; what it saw is reported later."""
        core = leader.core
        ticket = core.ticket()
        wanted = "pool" if core.audit_wanted else "vms"  # as the edge does it
        kind = self.random.choice(("vms", "pool", "hosts", wanted))
        if kind == "hosts":
            leader.polls.append(HostsSeen(ticket, [self.host(f"h{n}") for n in range(HOSTS)]))
        elif kind == "pool":
            leader.polls.append((ticket, self.sights()))
        else:
            asked = core.watch_list()
            leader.polls.append(VmsSeen(ticket, asked, [self.sight(vm) for vm in asked]))

    def told(self, leader: Leader) -> None:
        if not leader.polls:
            return
        poll = leader.polls.pop(0)
        if isinstance(
            poll, tuple
        ):  # an audit: tags are read and the journal is folded to its end, which it always is here
            ticket, seen = poll
            strange = [self.sight(vm, tags=True) for vm in leader.core.strangers(seen)]
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
            zombies = [*self.zombies, old]
            self.zombies = zombies[-2:]
            self.late += [(zombie, call) for zombie in zombies[:-2] for call in zombie.pending]
        else:
            self.late += [(old, call) for call in old.pending]
        self.leader = self.elect()

    def haunt(self) -> None:
        for zombie in self.zombies:
            self.call(zombie)
            self.answer(zombie)
            self.told(zombie)

    def arrive(self) -> None:
        if self.late:
            self.reach(*self.late.pop(self.random.randrange(len(self.late))))

    # ------------------------------------------------------------------------------------------------------- all others

    def others(self) -> None:
        """One act of another writer; void ones are as good."""
        pick = self.random.choice
        act = pick(
            (
                *("grant", "grant", "grant", "place", "place", "place", "place", "close", "close", "again", "again"),
                *("release", "report", "report", "cancel"),
            )
        )
        host, unit = f"h{self.random.randrange(HOSTS)}", self._unit("pending" if act == "place" else "open")
        free = sorted(self.truth.index.by_state["free"])
        known = self.truth.state.units.get(unit)
        attempt = known.attempt if known else 0
        if act in ("close", "again") and not self.is_started(unit, attempt) and self.random.random() < 0.9:
            return  # most run first
        if act == "grant":
            self.write("provisioner", f.HostGranted(host=pick(free) if free else host, dept="hpc"))
        elif act == "place":
            self.place(unit, attempt + 1)
        elif act == "close":
            self.write("scheduler.hpc", self.closed(unit, attempt)) if attempt else None
        elif act == "again" and known and known.state == "open":
            self.write("scheduler.hpc", self.closed(unit, attempt))
            self.place(unit, attempt + 1)
        elif act == "release" and self.random.random() < 0.4:
            fact = pick((f.HostReleased(host=host), f.HostSeized(host=host, dept="hpc")))
            self.write("scheduler.hpc" if isinstance(fact, f.HostReleased) else "provisioner", fact)
        elif act == "report" and attempt and self.random.random() < 0.3:
            self.report(unit, attempt)
        elif act == "cancel" and self.random.random() < 0.1:
            self.over(f.JobCancelled(job=unit, user="a"), unit)

    def _unit(self, state: str) -> str:
        """Mostly one to which something can happen; those that are to resume first."""
        units = [unit for unit in self.truth.state.units.values() if unit.state == state]
        likely = [unit.id for unit in units if unit.suspended] or [unit.id for unit in units]
        return self.random.choice(likely if likely and self.random.random() < 0.9 else self.units)

    def is_started(self, unit: str, attempt: int) -> bool:
        vms = self.truth.state.vms.values()
        return any((vm.unit, vm.attempt) == (unit, attempt) and vm.started_at is not None for vm in vms)

    def closed(self, unit: str, attempt: int) -> f.AttemptClosed:
        disposals = (f.Disposal.REQUEUE, f.Disposal.SUSPEND, f.Disposal.SUSPEND, f.Disposal.MIGRATE, f.Disposal.MIGRATE)
        return f.AttemptClosed(unit=unit, attempt=attempt, disposal=self.random.choice(disposals), why=WHY)

    def report(self, unit: str, attempt: int) -> None:
        """Its job is done; its guest may ask for another one."""
        self.over(f.AttemptReported(unit=unit, attempt=attempt, exit=0), unit)
        if self.random.random() < 0.7:
            self.write("admission", f.VmParked(unit=unit, attempt=attempt, rank=0))

    def over(self, fact: Fact, unit: str) -> None:
        self.write("admission", fact)
        known = self.truth.state.units.get(unit)
        if known is not None and known.state == "final" and int(self.units[-1]) < JOBS_MAX:
            self.units = [other for other in self.units if other != unit]
            self.submit(str(self.truth.state.job_last + 1))

    def place(self, unit: str, attempt: int) -> None:
        nodes = nodes_of(unit)
        held = sorted(self.truth.index.held.get("hpc", ()))
        if len(held) < nodes:
            return
        hosts = tuple(self.random.sample(held, nodes))
        cores = 1 + int(unit) // 2 % 2  # a resumed unit keeps its shape
        placed = f.UnitPlaced(unit=unit, attempt=attempt, hosts=hosts, cores=cores, memory_mb=64)
        before = self.truth.index.parked.get(hosts[0], {})
        self.taken_over += bool(before) and nodes == 1
        self.write("scheduler.hpc", placed)

    def misfortune(self) -> None:
        chance = self.random.random()
        host = f"h{self.random.randrange(HOSTS)}"
        running = [vm for vm, m in self.machines.items() if m.phase is Phase.RUNNING]
        if chance < 0.2 and running:
            self.machines[self.random.choice(running)].phase = Phase.OFF
        elif chance < 0.25:
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
            self.late += [(zombie, call) for call in zombie.pending]
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
                if machine.phase is Phase.MOVING and not machine.ending and (machine.saving or machine.target):
                    self._settle(machine, True)
                elif machine.phase is Phase.MOVING:
                    machine.phase = Phase.OVER if machine.ending else Phase.RUNNING
            self.look(self.leader)
            while self.leader.polls:
                self.told(self.leader)
            busy = self.decide() or busy
            self.now += 0.2
            quiet = 0 if busy else quiet + 1
            if quiet > 60:  # longer than any pause or retry
                return
        raise AssertionError("the world does not come to rest")


def nodes_of(unit: str) -> int:
    return 1 + int(unit) % 2


def fold(core: ExecutorCore, position: int, writer: str, facts: tuple[Fact, ...], at: float) -> None:
    for index, fact in enumerate(facts):
        void = fold_fact(core.custody, fact, position, index, writer, at)
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
