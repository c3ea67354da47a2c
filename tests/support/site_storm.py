"""Executor and batch scheduler on one bench, over an OpenNebula whose starts fail: for stories about faults of starts.

    site = Storm(hosts=24); jobs = [site.submit() for _ in range(5)]
    site.fails = refused            # every deploy is refused; `boot_fails`: every VM fails to boot; or what the test likes
    site.pass_time(11.0); site.fails = nobody; site.pass_time(5.0)

Guests call as soon as all VMs of their attempt run.  Time passes in steps of `STEP_S`; nothing sleeps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import msgspec

from schemas import facts as f
from schemas.facts import Fact
from services.domain.custody.fold import fold_fact
from services.domain.custody.meta import Meta
from services.domain.custody.state import Unit, vm_key
from services.executor.core.calls import Call, Deploy, Outcome, Phase, Result, Sight, VmsSeen
from services.scheduler.core.batch.core import BatchCore
from tests.support.executor_bench import Bench

STEP_S: Final = 0.05
REFUSED: Final = "[one.vm.deploy] Cannot get datastore [100]."
FAILED: Final = "DEPLOY: Could not create domain: no space left on device"
How: TypeAlias = Literal["", "refused", "failed", "hangs"]
_COMES_TO: Final[dict[How, Phase]] = {"": Phase.RUNNING, "failed": Phase.FAILED, "hangs": Phase.MOVING}
Fails: TypeAlias = Callable[[Deploy], How]


def nobody(_deploy: Deploy) -> How:
    return ""


def refused(_deploy: Deploy) -> How:
    return "refused"


def boot_fails(_deploy: Deploy) -> How:
    return "failed"


class Storm(Bench):
    """`deploys`: every one that was asked for: (when, unit, host)."""

    def __init__(self, hosts: int = 24) -> None:
        self.fails: Fails = nobody
        self.deploys: list[tuple[float, str, str]] = []
        self.journal: list[tuple[float, Fact]] = []
        super().__init__(hosts)
        self.queue = BatchCore(self.custody, "hpc")
        self.jobs = 0
        self.see_hosts()  # more hosts than are looked at one by one
        self.settle()
        self.grant(*self.hosts)
        self.write("provisioner", f.QuotaChanged(dept="hpc", hosts=hosts, by=self.now))

    def write(self, writer: str, *facts: Fact) -> None:
        self.position += 1
        for index, fact in enumerate(facts):
            void = fold_fact(self.custody, fact, self.position, index, writer, self.now)
            broken, unsaved = tuple(self.custody.newly_broken), tuple(self.custody.newly_unsaved)
            at = self.custody.state.at
            meta = Meta(
                position=self.position, index=index, writer=writer, at=at, void=void, broken=broken, unsaved=unsaved
            )
            self.core.apply(fact, meta)
            assert void is None, f"{fact} is void: {void}"
            self.journal.append((self.now, fact))
            if hasattr(self, "queue"):
                self.queue.apply(fact, meta)
                assert self.queue.check() == []
        assert self.core.check() == []

    def submit(self, cores: int = 4, **fields: object) -> str:
        self.jobs += 1
        job = f.JobSubmitted(
            job=str(self.jobs), dept="hpc", user="a", name="j", payload="p", walltime_s=900.0, cores=cores, memory_mb=64
        )
        self.write("admission", msgspec.structs.replace(job, **fields))
        return job.job

    def end(self, unit: str) -> None:
        """Its script has ended well."""
        self.write("admission", f.AttemptReported(unit=unit, attempt=self.unit(unit).attempt, exit=0))

    # ------------------------------------------------------------------------------------------------------- OpenNebula

    def _perform(self, call: Call) -> Result:
        if not isinstance(call, Deploy):
            return super()._perform(call)
        self.deploys.append((self.now, call.key.split("/", 1)[0], call.host))
        how = self.fails(call)
        if how == "refused":
            return Result(call, Outcome.REFUSED, why=REFUSED)
        self.vms[call.vm], self.on[call.vm] = _COMES_TO[how], call.host
        return Result(call, Outcome.OK)

    def poll(self, ticket: int | None = None) -> None:
        self.core.calls(self.now, 0)
        asked, ticket = self.core.watch_list(), self.core.ticket() if ticket is None else ticket
        there = [(vm, self.vms[vm]) for vm in asked if vm in self.vms]
        found = [Sight(vm, phase, why=FAILED if phase is Phase.FAILED else "") for vm, phase in there]
        self.core.observe(VmsSeen(ticket, asked, found), self.now)

    # ------------------------------------------------------------------------------------------------------------- time

    def step(self) -> None:
        facts = self.queue.decide(self.now)
        if facts:
            self.write("scheduler.hpc", *facts)
        for call in self.calls():
            self.answer(call)
        self.poll()
        self.decide()
        for name in list(self.queue.view.open):
            unit = self.unit(name)
            vms = [self.custody.state.vms.get(vm_key(name, unit.attempt, rank)) for rank in range(unit.nodes)]
            if unit.live and unit.began_at is None and all(vm is not None and vm.started_at is not None for vm in vms):
                self.write("admission", f.AttemptBegan(unit=name, attempt=unit.attempt))

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP_S)):
            self.step()
            self.now += STEP_S
        self.see_hosts()

    # ---------------------------------------------------------------------------------------------------------- reading

    def unit(self, name: str) -> Unit:
        return self.custody.state.units[name]

    def running(self) -> list[str]:
        return [name for name, unit in self.custody.state.units.items() if unit.live and unit.began_at is not None]

    def told(self, *kinds: type[Fact]) -> list[Fact]:
        return [fact for _, fact in self.journal if isinstance(fact, kinds)]

    def set_apart(self) -> list[str]:
        return [name for name, host in self.custody.state.hosts.items() if host.quarantine_until > self.now]
