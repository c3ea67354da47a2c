"""The executor's core on a bench: facts are folded as they are decided, calls are answered by the test, nothing runs."""

from __future__ import annotations

from typing import Any

import msgspec

from schemas import facts as f
from schemas.config import Capability, Hosts, Warm
from schemas.facts import Fact
from schemas.size import Size
from services.domain.capabilities import ALL as ALL_CAPABILITIES
from services.domain.custody.check import check
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
    Sample,
    Save,
    Sight,
    Terminate,
    VmsSeen,
)
from services.executor.core.executor import ExecutorCore
from services.executor.core.ledger import Ledger, LedgerState
from tests.support.executor_stage import CLOUD, COLD, FAST, WHY, config_adopted

ALL = 1000


def host_sight(
    name: str, one_id: int, *, bad: str = "", usable: bool = True, vms: tuple[int, ...] = (), cores: int = 4
) -> HostSight:
    usable = usable and not bad
    return HostSight(name, one_id, usable, bad, Size(cores, 4096), "default", {}, vms)


def derived(ledger: Ledger) -> list[object]:
    """What it makes of the fold, the same after a snapshot and after the history."""
    weight = {host: room.size for host, room in ledger.weight.items() if any(room.size)}
    parked = {dept: list(keys) for dept, keys in ledger.parked.items() if keys}
    return [ledger.by_unit, ledger.by_host, ledger.by_vm, ledger.leavers, weight, parked]


class Bench:
    """`vms`: what OpenNebula holds, id -> phase; `on`: where they are, id -> host."""

    def __init__(
        self,
        hosts: int = 3,
        *,
        audited: bool = True,
        warm: Warm = COLD,
        capabilities: tuple[Capability, ...] = ALL_CAPABILITIES,
    ) -> None:
        self.custody = Custody()
        self.core = ExecutorCore(self.custody)
        self.position = 0
        self.now = 100.0
        self.hosts = {f"h{n}": host_sight(f"h{n}", n) for n in range(hosts)}
        self.vms: dict[int, Phase] = {}
        self.tags: dict[int, str] = {}
        self.on: dict[int, str] = {}
        self.next_vm = 0
        self.samples: dict[int, Sample] = {}  # of hosts, by OpenNebula's id
        self.written: list[Fact] = []
        self.write("provisioner", config_adopted(FAST, warm, capabilities))
        if audited:
            self.core.take_over(self.now)
            self.see_hosts()
            self.audit()
            self.settle()
            self.written.clear()

    # ------------------------------------------------------------------------------------------------------------ facts

    def write(self, writer: str, *facts: Fact) -> None:
        self.position += 1
        for index, fact in enumerate(facts):
            void = fold_fact(self.custody, fact, self.position, index, writer, self.now)
            meta = Meta(
                position=self.position,
                index=index,
                writer=writer,
                at=self.custody.state.at,
                void=void,
                broken=tuple(self.custody.newly_broken),
                unsaved=tuple(self.custody.newly_unsaved),
            )
            self.core.apply(fact, meta)
            if void is None and writer == "executor":
                self.written.append(fact)
            assert check(self.custody) == []
            assert self.core.check() == []
        if not self.core.ledger.away:  # what this leader alone has seen
            loaded = Ledger(self.custody)
            loaded.load(msgspec.msgpack.decode(self.core.dump(), type=LedgerState))
            assert derived(loaded) == derived(self.core.ledger)

    def decide(self) -> list[Fact]:
        """Decide and fold; returns the facts."""
        facts = self.core.decide(self.now)
        if facts:
            self.write("executor", *facts)
        return facts

    def configure(self, **hosts: Any) -> None:
        """Adopt other rules for hosts."""
        adopted = config_adopted(FAST)
        cloud = msgspec.structs.replace(adopted.config, hosts=Hosts(**hosts))
        self.write("provisioner", msgspec.structs.replace(adopted, config=cloud))

    def grant(self, *hosts: str) -> None:
        self.write("provisioner", *(f.HostGranted(host=h, dept="hpc") for h in hosts))

    def place(
        self, unit: str, *hosts: str, attempt: int = 1, cores: int = 1, exclusive: bool = False, user: str = "a"
    ) -> None:
        if unit not in self.custody.state.units:
            nodes = len(hosts)
            job = f.JobSubmitted(job=unit, dept="hpc", user=user, name="j", payload="p", walltime_s=9.0, nodes=nodes)
            self.write("admission", job)
        placed = f.UnitPlaced(unit=unit, attempt=attempt, hosts=hosts, cores=cores, memory_mb=64, exclusive=exclusive)
        self.write("scheduler.hpc", placed)

    def close(self, unit: str, attempt: int = 1, disposal: f.Disposal = f.Disposal.REQUEUE) -> None:
        self.write("scheduler.hpc", f.AttemptClosed(unit=unit, attempt=attempt, disposal=disposal, why=WHY))

    def report(self, unit: str, attempt: int = 1) -> None:
        """Its script has ended well."""
        self.write("admission", f.AttemptReported(unit=unit, attempt=attempt, exit=0))

    def park(self, unit: str, attempt: int = 1) -> None:
        self.write("admission", f.VmParked(unit=unit, attempt=attempt, rank=0))

    # ------------------------------------------------------------------------------------------------------------ calls

    def calls(self, limit: int = ALL) -> list[Call]:
        return self.core.calls(self.now, limit)

    def answer(self, call: Call, outcome: Outcome = Outcome.OK, why: str = "") -> None:
        """OpenNebula does what it is asked, if the outcome is OK."""
        result = Result(call, outcome, why=why)
        if outcome is Outcome.OK:
            result = self._perform(call)
        self.core.observe(result, self.now)

    def _perform(self, call: Call) -> Result:
        if isinstance(call, Allocate):
            vm, self.next_vm = self.next_vm, self.next_vm + 1
            self.vms[vm], self.tags[vm] = Phase.HELD, f"{CLOUD}/{call.key}"
            return Result(call, Outcome.OK, vm=vm)
        if isinstance(call, Deploy | Migrate):
            self.vms[call.vm], self.on[call.vm] = Phase.RUNNING, call.host
        elif isinstance(call, Save):
            self.vms[call.vm] = Phase.SAVED
            del self.on[call.vm]
        elif isinstance(call, Terminate):
            self.gone(call.vm)
        elif isinstance(call, Look):
            return Result(call, Outcome.OK, found=self.host(call.host))
        return Result(call, Outcome.OK)

    def gone(self, vm: int) -> None:
        self.vms.pop(vm, None)
        self.on.pop(vm, None)

    def host(self, name: str) -> HostSight:
        seen = self.hosts[name]
        there = tuple(sorted(vm for vm, where in self.on.items() if where == name))
        return msgspec.structs.replace(seen, vms=there)

    # ------------------------------------------------------------------------------------------------------------ polls

    def see_hosts(self, ticket: int | None = None) -> None:
        ticket = self.core.ticket() if ticket is None else ticket
        self.core.observe(HostsSeen(ticket, [self.host(name) for name in self.hosts], self.samples), self.now)

    def poll(self, ticket: int | None = None) -> None:
        """The targeted poll."""
        self.core.calls(self.now, 0)  # as the edge does after each answer
        asked = self.core.watch_list()
        ticket = self.core.ticket() if ticket is None else ticket
        found = [Sight(vm, self.vms[vm], one_host=self._one_host(vm)) for vm in asked if vm in self.vms]
        self.core.observe(VmsSeen(ticket, asked, found), self.now)

    def _one_host(self, vm: int) -> int:
        return self.hosts[self.on[vm]].one_id if vm in self.on else -1

    def audit(self, ticket: int | None = None) -> None:
        ticket = self.core.ticket() if ticket is None else ticket
        found = [Sight(vm, phase) for vm, phase in self.vms.items()]
        strange = [Sight(vm, self.vms[vm], self.tags.get(vm, "")) for vm in self.core.strangers(found)]
        self.core.observe(PoolSeen(ticket, found, strange), self.now)

    def settle(self) -> None:
        """Answer every call, poll and decide until nothing follows."""
        quiet = 0
        for _ in range(100):
            made = self.calls()
            for call in made:
                self.answer(call)
            self.poll()
            quiet = 0 if self.decide() or made else quiet + 1
            if quiet > 1:
                return
        raise AssertionError("the core does not come to rest")

    def run(self, unit: str, *hosts: str, attempt: int = 1, cores: int = 1) -> list[int]:
        """A unit that runs; returns its VMs' ids by rank."""
        self.place(unit, *hosts, attempt=attempt, cores=cores)
        self.settle()
        vms = self.custody.state.vms
        return [vms[f"{unit}/{attempt}/{rank}"].vm for rank in range(len(hosts))]


def held(
    *hosts: str, warm: Warm = COLD, capabilities: tuple[Capability, ...] = ALL_CAPABILITIES, count: int = 3
) -> Bench:
    """A bench whose department holds these hosts, or two."""
    bench = Bench(count, warm=warm, capabilities=capabilities)
    bench.grant(*(hosts or ("h0", "h1")))
    return bench


def kinds(facts: list[Fact]) -> list[str]:
    return [f.kind_of(fact) for fact in facts]
