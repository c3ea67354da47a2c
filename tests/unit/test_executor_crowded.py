"""Warm VMs on a host that is full: whatever comes in whatever order, no more runs there than it has cores (X3).

The cloud is one host of four cores and one department of three users.  At random jobs are placed where custody lets them,
end well or are cancelled, guests park, calls are answered late, and facts come back late.  Now and then all that is on its
way arrives, and then every job that is placed must run.
"""

from __future__ import annotations

import random

import pytest

from schemas import facts as f
from schemas.config import Warm
from schemas.facts import Fact
from services.executor.core.calls import Allocate, Call, Phase
from tests.support.executor_bench import Bench, held

CORES = 4
STEPS = 400
SEEDS = 12


class Crowd:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        share = self.chance.choice(("user", "department"))
        self.bench: Bench = held("h0", warm=Warm(idle_s=5.0, share=share))  # type: ignore[arg-type]
        self.flying: list[Call] = []
        self.unfolded: list[Fact] = []
        self.cores: dict[int, int] = {}  # VM -> what it takes
        self.next_job = 1
        self.bound = 0

    def step(self) -> None:
        acts = (self._place, self._place, self._end, self._end, self._cancel, self._decide, self._decide, self._fold)
        self.chance.choice((*acts, self._ask, self._ask, self._answer, self._answer, self._poll, self._wait))()
        self._look()

    def calm(self) -> None:
        """All that is on its way arrives, and what follows from it."""
        for _ in range(60):
            self._fold()
            self._ask()
            while self.flying:
                self._answer()
            self._poll()
            self._decide()
            self.bench.now += 0.2  # some wait for a guest that parks, or for the end of a grace time
        vms = self.bench.custody.state.vms
        for unit in self.bench.custody.state.hosts["h0"].units:
            vm = vms.get(f"{unit}/1/0")
            assert vm is not None, f"{unit} is placed and has no VM"
            assert vm.started_at is not None, f"{unit} is placed and does not run"

    def _look(self) -> None:
        running = [vm for vm, phase in self.bench.vms.items() if phase is Phase.RUNNING]
        assert sum(self.cores[vm] for vm in running) <= CORES, f"too much runs: {running}"

    def _place(self) -> None:
        host, cores = self.bench.custody.state.hosts["h0"], self.chance.choice((1, 1, 1, 2))
        for _ in range(self.chance.choice((1, 3))):
            if host.used.cores + cores <= CORES:
                self.bench.place(str(self.next_job), "h0", cores=cores, user=self.chance.choice("aab"))
                self.next_job += 1

    def _some_unit(self, running: bool) -> str | None:
        vms = self.bench.custody.state.vms
        units = list(self.bench.custody.state.hosts["h0"].units)
        units = [u for u in units if not running or (f"{u}/1/0" in vms and vms[f"{u}/1/0"].started_at is not None)]
        return self.chance.choice(units) if units else None

    def _end(self) -> None:
        unit = self._some_unit(running=True)
        if unit is not None:
            self.bench.report(unit)
            if self.chance.random() < 0.8:
                self.bench.park(unit)

    def _cancel(self) -> None:
        unit = self._some_unit(running=False)
        if unit is not None and self.chance.random() < 0.3:
            self.bench.close(unit, disposal=f.Disposal.KILL)

    def _decide(self) -> None:
        self._fold()
        self.unfolded = self.bench.core.decide(self.bench.now)

    def _fold(self) -> None:
        if self.unfolded:
            known = self.bench.custody.index.vm_ids
            self.bound += sum(isinstance(fact, f.VmAllocated) and fact.vm in known for fact in self.unfolded)
            self.bench.write("executor", *self.unfolded)
            self.unfolded = []

    def _ask(self) -> None:
        self.flying += self.bench.calls(self.chance.choice((1, 100)))

    def _answer(self) -> None:
        if self.flying:
            call = self.flying.pop(self.chance.randrange(len(self.flying)))
            if isinstance(call, Allocate):
                self.cores[self.bench.next_vm] = call.size.cores
            self.bench.answer(call)

    def _poll(self) -> None:
        self.bench.poll()

    def _wait(self) -> None:
        self.bench.now += self.chance.choice((0.01, 0.1, 1.0))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_more_runs_on_a_full_host_than_it_has_room_for_and_all_that_is_placed_comes_to_run(seed: int) -> None:
    crowd = Crowd(seed)
    for n in range(1, STEPS + 1):
        crowd.step()
        if n % 100 == 0:
            crowd.calm()
    assert crowd.bound > 0, "jobs take VMs over"
