"""What must be true in a simulated cloud, whatever happened: C2 to C6, C8, C9 of `chaos`, each as a function of its world."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from schemas import facts as f
from schemas.facts import Fact
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Meta
from services.runtime.journal.fold import Fold
from services.runtime.journal.snapshots import restore, take
from tests.simulation.chaos_node import Message, Node
from tests.simulation.chaos_policies import WALLTIME_S
from tests.simulation.chaos_site import CORES, Machine
from tests.support.memory import differences

if TYPE_CHECKING:
    from tests.simulation.chaos import Chaos

SKEW_MAX_S: Final = 0.5
DEPARTMENTS: Final = ("bio", "hpc", "web")


class Judge:
    """Looks at each message when it is stored.  Remembers what it needs of the past."""

    def __init__(self) -> None:
        self.began: dict[tuple[str, int], float] = {}  # attempt -> true time at which admission wrote that it had begun
        self.used: dict[str, list[float]] = {}  # unit -> for how long each attempt ran that was suspended and goes on
        self.held: dict[str, tuple[int, int]] = {}
        self.cordoned: dict[str, float] = {}  # host -> its deadline; endless if it has none
        self.there: dict[
            str, frozenset[str]
        ] = {}  # such a host -> units whose VMs were there when the message was stored
        self.leaders: dict[str, int] = {}
        self.lives: dict[tuple[str, int], int] = {}  # attempt -> the one with which its life began

    def live(self, custody: Custody) -> None:
        """The journal has been appended to."""
        for unit in custody.state.units.values():
            self.lives[unit.id, unit.attempt] = unit.life

    def before(self, custody: Custody) -> None:
        self.held = {name: (custody.held(name), custody.quota(name).hosts) for name in DEPARTMENTS}
        self.there = {
            name: frozenset(custody.state.vms[key].unit for key in custody.state.hosts[name].vms)
            for name in self.cordoned
            if name in custody.state.hosts
        }
        self.leaders = {writer: leader.epoch for writer, leader in custody.state.leaders.items()}

    def after(self, message: Message, seen: list[tuple[Fact, Meta]], ahead_s: float) -> list[str]:
        """`ahead_s`: of the fold's time before the true one."""
        found = [problem for fact, meta in seen if meta.void is None for problem in self._about(message, fact)]
        if ahead_s > 2 * SKEW_MAX_S:
            found.append(f"{message.id} takes the fold's time {ahead_s:.1f} s ahead (C9)")
        epoch = self.leaders.get(message.writer, 0)
        leads = any(isinstance(fact, f.LeaderStarted) for fact, _ in seen)
        if message.epoch != epoch + leads:
            found.append(f"{message.id} of epoch {message.epoch} was stored after epoch {epoch} (C5)")
        return found

    def _about(self, message: Message, fact: Fact) -> list[str]:
        if isinstance(fact, f.HostSeized):
            held, quota = self.held[fact.dept]
            self.held[fact.dept] = held - 1, quota
            if held > quota or self.cordoned.get(fact.host, NEVER) <= message.drafted_at + 2 * SKEW_MAX_S:
                return []
            return [f"{fact.host} was seized though {fact.dept} held {held} of {quota} (C4)"]
        if isinstance(fact, f.UnitPlaced):
            new = [h for h in fact.hosts if h in self.cordoned and fact.unit not in self.there.get(h, ())]
            return [f"{fact.unit} was placed on {name}, which is cordoned (C10)" for name in new]
        if isinstance(fact, f.HostReleased):
            dept = message.writer.partition(".")[2]
            self.held[dept] = self.held[dept][0] - 1, self.held[dept][1]
        elif isinstance(fact, f.QuotaChanged):
            self.held[fact.dept] = self.held.get(fact.dept, (0, 0))[0], fact.hosts
        elif isinstance(fact, f.HostGranted):
            self.held[fact.dept] = self.held[fact.dept][0] + 1, self.held[fact.dept][1]
        elif isinstance(fact, f.HostCordoned):
            self.cordoned[fact.host] = NEVER if fact.until is None else fact.until
        elif isinstance(fact, f.HostUncordoned | f.HostRemoved):
            self.cordoned.pop(fact.host, None)
        elif isinstance(fact, f.AttemptBegan):
            self.began.setdefault((fact.unit, fact.attempt), message.drafted_at)
        elif isinstance(fact, f.AttemptClosed):
            return self._closed(message, fact)
        return []

    def _closed(self, message: Message, fact: f.AttemptClosed) -> list[str]:
        """A suspended attempt's time counts (X7); whoever begins anew has all of it again."""
        began = self.began.get((fact.unit, fact.attempt))
        if fact.disposal in (f.Disposal.SUSPEND, f.Disposal.MIGRATE):
            self.used.setdefault(fact.unit, []).append(0.0 if began is None else message.drafted_at - began)
            return []
        used = self.used.pop(fact.unit, [])
        if fact.disposal is not f.Disposal.TIMEOUT or began is None:
            return []
        ran_s = message.drafted_at - began + sum(used)
        if ran_s < WALLTIME_S - 2 * SKEW_MAX_S * (1 + len(used)):
            return [f"{fact.unit}/{fact.attempt} was over its walltime of {WALLTIME_S} s after {ran_s:.1f} s (C9)"]
        return []


def site_problems(world: Chaos) -> list[str]:
    """C2, C3, C8."""
    custody, site, found = world.truth.custody, world.site, []
    lives: dict[str, int] = {}
    ranks: dict[tuple[str, int], int] = {}
    for name in site.hosts:
        host, machines = custody.state.hosts.get(name), site.on(name)
        lost = host is not None and host.state == "lost"
        for machine in machines:
            unit_id, attempt, rank = whose(custody, machine)
            unit = custody.state.units[unit_id]
            own = host is not None and host.state == "held" and host.dept == unit.dept
            what = f"{unit_id}/{attempt}/{rank} (VM {machine.vm})"
            if host is None or not (own or host.state in ("draining", "lost")):
                found.append(f"{what} runs on {name}, which is {host and host.state} of {host and host.dept} (C2)")
            life = world.judge.lives[unit_id, attempt]  # attempts of one life are one (PROTOCOL, VMs that go on)
            if not lost and lives.setdefault(unit_id, life) != life:
                found.append(f"attempts {lives[unit_id]} and {attempt} of {unit_id} run at once (C3)")
            if not lost and ranks.setdefault((unit_id, rank), machine.vm) != machine.vm:
                found.append(f"VMs {ranks[unit_id, rank]} and {machine.vm} are both rank {rank} of {unit_id} (C3)")
        if not lost and sum(machine.cores for machine in machines) > CORES:
            found.append(f"{name} runs {machines} (C2)")
    found += [f"{key} was started {count} times (C3)" for key, count in site.ran.items() if count > 1]
    return found + [f"VM {vm} of somebody else was touched (C8)" for vm in site.harmed]


def whose(custody: Custody, machine: Machine) -> tuple[str, int, int]:
    """What the journal says the machine is; where it does not say, what it was told itself."""
    key = custody.index.vm_ids.get(machine.vm)
    if key is None:
        return machine.unit, machine.attempt, machine.rank
    vm = custody.state.vms[key]
    return vm.unit, vm.attempt, vm.rank


def bytes_problems(world: Chaos) -> list[str]:
    """C6."""
    found = []
    for node in world.nodes.values():
        replayed = Fold(node.writer, node.factory)
        resumed = Node(node.writer, node.factory, "resumed")
        resumed.start_from(world.snapshots.get(node.writer))
        for message in world.log[: node.read]:
            replayed.feed(message)
        for message in world.log[resumed.read : node.read]:
            resumed.fold.feed(message)
        for name, fold in (("a replay", replayed), ("snapshot and tail", resumed.fold)):
            if resumed.read > node.read:
                continue
            if (fold.custody.dump(), fold.core.dump()) != (node.custody.dump(), node.core.dump()):
                found.append(f"{node.writer}: {name} gives another state than the one that lived (C6)")
        loaded = Fold(node.writer, node.factory)
        restore(take(node.writer, "j", replayed), loaded)
        lost = differences(replayed.core, loaded.core)
        found += [f"{node.writer}: {field} is lost with a restart from a snapshot (C6)" for field in lost]
    return found


def told(seen: list[tuple[Fact, Meta]]) -> str:
    """An envelope in one line."""
    parts = []
    for fact, meta in seen:
        about = (
            getattr(fact, name)
            for name in ("host", "unit", "job", "dept", "attempt", "hosts", "exit", "disposal")
            if hasattr(fact, name)
        )
        parts.append(f"{f.kind_of(fact)}({' '.join(map(str, about))}){f' VOID {meta.void}' if meta.void else ''}")
    return ", ".join(parts)
