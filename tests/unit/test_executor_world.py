"""The executor's core in small random worlds: late calls, lost answers, stale polls, zombies; safe always, live when healed."""

from __future__ import annotations

import pytest

from schemas import facts as f
from services.executor.core.calls import Call, Deploy, Outcome, Phase, Result
from tests.support.executor_world import World

SEEDS = 30
STEPS = 5000
STORMY = 5
STORM_S, FAIR_S = 40.0, 20.0


class Stormy(World):
    """Every deploy is refused, again and again for `STORM_S`."""

    well = False

    def perform(self, call: Call) -> Result:
        if isinstance(call, Deploy) and not self.well and self.now % (STORM_S + FAIR_S) < STORM_S:
            return Result(call, Outcome.REFUSED, why="no datastore")
        return super().perform(call)

    def heal(self) -> None:
        self.well = True
        super().heal()


@pytest.mark.parametrize("block", range(6))
def test_whatever_happens_nothing_runs_where_or_twice_that_should_not_and_all_comes_to_rest(block: int) -> None:
    for seed in range(block * SEEDS // 6, (block + 1) * SEEDS // 6):
        world = World(seed)
        try:
            world.live(STEPS)
            world.heal()
            at_rest(world)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def at_rest(world: World) -> None:
    """Every live rank runs, nothing else does, and no host is on its way."""
    state = world.truth.state
    live = {
        f"{unit.id}/{unit.attempt}/{rank}"
        for unit in state.units.values()
        if unit.live
        for rank in range(len(unit.hosts))
    }
    assert set(state.vms) == live, "open VMs are the live ranks"
    assert all(vm.started_at is not None for vm in state.vms.values()), "and all of them have started"
    there = {vm for vm, machine in world.machines.items() if machine.phase is not Phase.OVER}
    is_open = {vm.vm for vm in state.vms.values()}
    assert is_open <= there
    assert there - is_open <= set(state.saved), "and nothing else is left in OpenNebula but what is saved"
    assert all(world.machines[vm].phase is Phase.SAVED for vm in there - is_open)
    states = {host.state for host in state.hosts.values()}
    assert len(state.hosts) == 3
    assert states <= {"free", "held"}, states


def test_the_worlds_are_lively_enough_to_show_something() -> None:
    worlds = [World(seed) for seed in range(10)]
    for world in worlds:
        world.live(STEPS)
    assert sum(len(world.ran) for world in worlds) > 20
    assert (
        sum(1 for world in worlds for _, facts, _ in world.journal for x in facts if "Ended" in type(x).__name__) > 20
    )
    assert sum(world.resumed for world in worlds) >= 3
    assert sum(world.moved for world in worlds) >= 1
    assert sum(world.taken_over for world in worlds) >= 3


def test_while_the_site_fails_all_starts_now_and_then_it_is_as_safe_and_comes_to_rest() -> None:
    paused = resumed = 0
    for seed in range(STORMY):
        world = Stormy(seed)
        try:
            world.live(STEPS)
            world.heal()
            at_rest(world)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        written = [fact for _, facts, _ in world.journal for fact in facts]
        paused += sum(isinstance(fact, f.StartsPaused) for fact in written)
        resumed += sum(isinstance(fact, f.StartsResumed) for fact in written)
    assert paused >= resumed >= 2, "the storms are storms"
