"""A web department while starts are paused in the whole cloud (`executor.core.site_fault`)."""

from __future__ import annotations

from schemas import facts as f
from tests.unit.test_web_core import core, site


def test_what_does_not_start_while_starts_are_paused_is_replaced_at_once_and_no_failure_of_its_release() -> None:
    world = site(held=0, boot_timeout_s=5, start_failures_max=2)
    world.seats["guests"].paused = True
    world.write("executor", f.StartsPaused(since=world.now, failed=3, tried=3, why="no datastore"))
    world.grant("web", "h1")
    world.settle()
    for _ in range(6):
        world.advance(5)
    assert (core(world).state.failures, core(world).state.roll.failures) == (0, 0)
    assert list(world.states("web").values()) == [*["failed"] * 6, "open"]
    world.write("executor", f.StartsResumed(why="a start succeeded"))
    world.advance(5)
    assert (core(world).state.failures, core(world).state.roll.failures) == (1, 1)
