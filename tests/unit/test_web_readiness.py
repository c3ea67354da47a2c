"""Instances that are not ready: who counts, who is replaced and how fast; and what `phoenix why` tells of it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal
from services.domain.text import sentence
from services.scheduler.lookahead.why_web import why
from tests.support.ending import DRAIN_S, core, decide, ends, feel, hear, over, scale, serving, sessions, site
from tests.support.world import World

ALL = ("web.1", "web.2", "web.3", "web.4")


def ill(world: World, *names: str) -> None:
    """Their health path answers 500, as guests and the load balancer see it."""
    for name in names:
        hear(world, name, "unready")
        feel(world, name, "unready")
    world.settle()


def newest(world: World) -> str:
    return world.facts(f.UnitPlaced)[-1].unit


def told(world: World, code: because.Kind) -> str:
    (found,) = [reason for reason in why(core(world), world.now) if type(reason) is code]
    return sentence(found)


# ---------------------------------------------------------------------------------------------------------------- counting


def test_an_outage_is_told_at_once_with_what_the_health_path_answers() -> None:
    world = site(held=4, instances_min=4)
    world.advance(100)
    assert told(world, because.Running) == "4 of 4 instances serve"
    ill(world, *ALL)
    world.advance(5)
    first = why(core(world), world.now)[0]
    assert sentence(first) == "0 of 4 instances serve; 4 are not ready: /healthz answered HTTP 500, for 5s"
    assert told(world, because.Running) == "0 of 4 instances serve"
    assert core(world).ready == 0


def test_an_instance_serves_when_nobody_who_watches_it_says_otherwise() -> None:
    world = site(held=2, instances_min=2)
    hear(world, "web.1", "unready", user="left")
    hear(world, "web.1", "unready", user="right")
    feel(world, "web.1", "unready", "connection refused")
    assert core(world).ready == 1
    for user in ("left", "right"):
        hear(world, "web.1", "ready", user=user)
        assert core(world).ready == 1
    assert "connection refused" in told(world, because.NotReady)
    feel(world, "web.1", "ready")
    assert core(world).ready == 2


def test_said_again_it_is_not_ready_since_the_first_time_and_the_last_answer_counts() -> None:
    world = site(held=1, instances_min=1, unreachable_s=0.0)
    feel(world, "web.1", "unready", "/healthz: no answer within 2 s")
    world.advance(30)
    feel(world, "web.1", "unready", "/healthz answered HTTP 503")
    assert told(world, because.NotReady).endswith(
        "1 is not ready: /healthz answered HTTP 503, for 30s; none is replaced for it (unreachable_s = 0)"
    )


def test_what_its_guest_says_of_a_start_is_over_when_it_begins() -> None:
    world = site(held=1)
    world.seats["guests"].paused = True
    scale(world, exact=2)
    world.grant("web", "h2")
    world.settle()
    hear(world, "web.2", "unready")  # on its way: a load balancer cannot reach it yet
    assert core(world).state.unready == {}
    feel(world, "web.2", "unready", "/healthz: connection refused")
    assert told(world, because.Starting) == "1 instance is being started; by now /healthz: connection refused"
    assert core(world).ready == 1
    world.seats["guests"].paused = False
    world.settle()
    assert (core(world).state.unready, core(world).ready) == ({}, 2)


def test_an_old_journal_s_unreachable_means_that_it_has_failed_for_so_long() -> None:
    world = site(held=2, instances_min=2, unreachable_s=10.0)
    old = f.InstanceReported(unit="web.1", attempt=1, state="unreachable", user="left")
    world.write("admission", old)
    world.settle()
    assert (core(world).ready, world.custody.state.demands["web"]) == (1, 3)
    world.write("admission", f.InstanceReported(unit="web.1", attempt=1, state="reachable", user="right"))
    world.settle()
    assert (core(world).ready, world.custody.state.demands["web"]) == (2, 2)


# ------------------------------------------------------------------------------------------------------------- replacement


def test_the_successor_of_one_that_is_not_ready_comes_first() -> None:
    world = site(held=2, instances_min=2, unreachable_s=10.0)
    ill(world, "web.1")
    world.advance(9.9)
    assert world.custody.state.demands["web"] == 2
    world.advance(0.1)
    assert (serving(world), world.custody.state.demands["web"]) == (["web.1", "web.2"], 3)
    world.grant("web", "h3")
    world.settle()
    assert type(world.facts(f.UnitPlaced)[-1].reason) is because.Replacement
    assert ends(world) == {"web.1": (Disposal.FAILED, because.NotReady)}
    assert (serving(world), world.custody.state.demands["web"]) == (["web.2", "web.3"], 2)
    (closed,) = world.facts(f.AttemptClosed)
    assert sentence(closed.why) == "it was not ready for 10s: /healthz answered HTTP 500"


def test_one_that_is_ready_again_stays_and_the_newest_is_too_many() -> None:
    world = site(held=2, instances_min=2, unreachable_s=10.0, drained=True)
    ill(world, "web.1")
    world.advance(10)
    world.seats["guests"].paused = True
    world.grant("web", "h3")
    world.settle()
    hear(world, "web.1", "ready")
    feel(world, "web.1", "ready")
    world.settle()
    assert serving(world) == ["web.1", "web.2"]
    assert ends(world) == {"web.3": (Disposal.STOPPED, because.ScaleDown)}


@pytest.mark.parametrize(("surge", "unavailable"), [(1, 0), (2, 0), (4, 0), (1, 1), (2, 2)])
def test_many_at_once_are_replaced_as_fast_as_the_budget_allows_and_no_faster(surge: int, unavailable: int) -> None:
    budget = {"max_surge": surge, "max_unavailable": unavailable}
    world = site(hosts=8, held=4, boot_s=1.0, instances_min=4, instances_max=8, **budget)
    world.advance(100)
    began = world.now
    most = fewest = 4

    def look() -> None:
        nonlocal most, fewest
        live = [unit for unit in world.custody.state.units.values() if unit.live]
        most, fewest = max(most, len(live)), min(fewest, sum(unit.began_at is not None for unit in live))

    ill(world, *ALL)
    while len(ends(world)) < 4 and world.now < began + 60:
        short = world.custody.state.demands["web"] - world.custody.held("web")
        if short > 0:
            world.grant("web", *sorted(world.custody.index.by_state["free"])[:short])
        world.advance(0.1)
        look()
    assert set(ends(world)) == set(ALL)
    assert most <= 4 + surge
    assert fewest >= 4 - unavailable
    # the first one has to prove that it helps (min_ready_s); then one start after another, in as many places as there are
    rounds = -(-4 // (surge + unavailable))
    assert world.now - began <= 10.0 + 1.0 + 5.0 + rounds * 1.5


def test_where_successors_are_ill_too_those_that_served_stay_and_it_tries_ever_more_rarely() -> None:
    world = site(hosts=6, held=4, instances_min=4)
    world.advance(100)
    ill(world, *ALL)
    world.advance(10)
    world.grant("web", "h5")
    world.settle()
    placed: list[float] = []
    seen = ""
    until = world.now + 600
    while world.now < until:
        if newest(world) != seen:
            seen = newest(world)
            placed.append(world.now)
            ill(world, seen)
        world.advance(0.5)
    assert set(ALL) <= set(serving(world))  # what they need may be back any moment
    pauses = [b - a for a, b in pairwise(placed)]
    assert pauses[0] < 15
    assert max(pauses[-3:]) >= 40  # unreachable_s and a backoff of 30 s
    for name in serving(world):
        hear(world, name, "ready")
        feel(world, name, "ready")
    world.advance(30)
    assert (core(world).ready, len(serving(world))) == (4, 4)


def test_a_successor_has_to_prove_that_it_stays_well_before_anybody_goes_for_it() -> None:
    """What they all need may be back, and the others' guests have not said so yet."""
    world = site(hosts=3, held=2, instances_min=2, unreachable_s=2.0, min_ready_s=0.5)
    world.advance(1)
    ill(world, "web.1", "web.2")
    world.advance(2)
    world.grant("web", "h3")
    world.advance(2.9)
    assert ends(world) == {}
    world.advance(0.2)
    assert list(ends(world)) == ["web.1"]


def test_if_the_balancers_alone_say_so_of_all_it_may_be_their_network_and_nobody_goes() -> None:
    world = site(hosts=5, held=4, instances_min=4, boot_timeout_s=60.0)
    world.advance(100)
    for name in ALL:
        hear(world, name, "unready")
    world.advance(10)
    world.grant("web", "h5")
    world.settle()
    hear(world, "web.5", "unready")
    world.advance(1000)
    assert ends(world) == {}
    assert told(world, because.NotReady).endswith(
        "balancer alone says so, and by their guests' word all are ready: it may be the load balancer's own network, so "
        "they are kept"
    )
    hear(world, "web.5", "ready")  # a new one is reached: it was not the balancer
    world.advance(30)
    assert "web.1" in ends(world)


def test_where_there_may_be_no_more_its_place_is_its_successors_at_once() -> None:
    world = site(held=1, instances_min=1, instances_max=1, unreachable_s=10.0, boot_timeout_s=60.0)
    ill(world, "web.1")
    world.advance(9.9)
    assert (ends(world), world.custody.state.demands["web"]) == ({}, 1)
    world.advance(0.1)
    assert ends(world) == {"web.1": (Disposal.FAILED, because.NotReady)}
    assert serving(world) == ["web.2"]


def test_where_there_may_be_no_more_and_the_balancer_alone_says_so_it_goes_slowly() -> None:
    world = site(held=1, instances_min=1, instances_max=1, unreachable_s=10.0, boot_timeout_s=60.0)
    hear(world, "web.1", "unready")
    world.advance(69.9)
    assert ends(world) == {}
    world.advance(0.1)
    assert list(ends(world)) == ["web.1"]
    hear(world, "web.2", "unready")
    world.advance(129)
    assert list(ends(world)) == ["web.1"]
    world.advance(1.1)
    assert list(ends(world)) == ["web.1", "web.2"]


def test_where_hosts_are_short_it_waits_for_one_and_then_its_place_is_its_successors() -> None:
    world = site(hosts=2, held=2, instances_min=3, unreachable_s=10.0, boot_timeout_s=60.0)
    ill(world, "web.1")
    world.advance(69.9)
    assert ends(world) == {}
    world.advance(0.2)
    assert ends(world) == {"web.1": (Disposal.FAILED, because.NotReady)}
    assert serving(world) == ["web.2", "web.3"]


def test_while_somebody_is_on_the_way_it_stays_though_hosts_are_short() -> None:
    world = site(hosts=3, held=2, instances_min=4, unreachable_s=10.0, boot_timeout_s=60.0)
    ill(world, "web.1")
    world.advance(50)
    world.seats["guests"].paused = True
    world.grant("web", "h3")
    world.advance(30)
    assert ends(world) == {}


def test_with_unreachable_s_0_nobody_is_replaced() -> None:
    world = site(held=2, instances_min=1, unreachable_s=0.0)
    ill(world, "web.1")
    assert decide(world) == []
    world.advance(1000)
    assert ends(world) == {}


def test_one_that_is_not_ready_goes_first_when_there_are_too_many() -> None:
    world = site(hosts=3, held=3, instances_min=3, unreachable_s=10.0)
    sessions(world, "web.3")
    hear(world, "web.2", "unready")
    scale(world, exact=1)
    assert [fact.unit for fact in world.facts(f.InstanceDraining)] == ["web.2", "web.3"]


def test_not_ready_again_and_again_is_a_failure_in_a_row() -> None:
    world = site(held=1, instances_min=1, instances_max=1, unreachable_s=1.0, boot_timeout_s=10.0)
    for number in (1, 2, 3):
        ill(world, f"web.{number}")
        world.advance(1.1)
        assert core(world).state.failures == number
        world.advance(1.0)


# ------------------------------------------------------------------------------------------------------------ how they end


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"exit": 3}, "its program ended with exit code 3"),
        ({"signal": 11}, "its program was killed by signal 11 (SIGSEGV)"),
        ({"signal": 9, "oom": True}, "its program was killed because its memory was full"),
        ({"exit": 1, "said": "no database"}, 'its program ended with exit code 1, and wrote last: "no database"'),
    ],
)
def test_a_program_that_ended_is_closed_with_how_it_did(how: dict[str, object], words: str) -> None:
    world = site(held=2, instances_min=2)
    world.advance(60)
    over(world, "web.1", **how)
    world.settle()
    (closed,) = world.facts(f.AttemptClosed)
    assert (closed.unit, closed.disposal, sentence(closed.why)) == ("web.1", Disposal.FAILED, words)
    assert serving(world) == ["web.2", "web.3"]


def test_how_a_program_ended_is_known_though_its_vm_was_gone_before_anybody_looked() -> None:
    world = site(held=1, instances_min=1)
    world.seats["scheduler.web"].paused = True
    over(world, "web.1", exit=3)
    vm = next(iter(world.custody.state.vms.values()))
    world.write("executor", f.VmEnded(unit=vm.unit, attempt=vm.attempt, rank=vm.rank, why="gone"))
    world.seats["scheduler.web"].paused = False
    world.settle()
    (closed,) = world.facts(f.AttemptClosed)
    assert (type(closed.why), because.fields(closed.why)) == (because.ProgramEnded, {"exit": 3})


def test_one_that_did_not_come_up_says_what_its_health_path_answered_and_why_repeats_it() -> None:
    world = site(held=1, boot_timeout_s=60.0)
    world.seats["guests"].paused = True
    scale(world, exact=2)
    world.grant("web", "h2")
    world.settle()
    feel(world, "web.2", "unready")
    world.advance(60.1)
    (closed,) = world.facts(f.AttemptClosed)
    assert sentence(closed.why) == "it was not healthy within 1m00s: /healthz answered HTTP 500"
    assert told(world, because.LastFailed) == (
        "the last instance that failed, web.2, was not healthy within 1m00s: /healthz answered HTTP 500"
    )


# -------------------------------------------------------------------------------------------------------------------- why


def test_why_tells_who_drains_and_who_is_not_ready() -> None:
    world = site(held=3, instances_min=3, unreachable_s=10.0)
    scale(world, exact=2)
    hear(world, "web.1", "unready")
    world.now += 1.0
    found = {type(reason): because.fields(reason) for reason in why(core(world), world.now)}
    assert found[because.Draining] == {"instances": 1, "left_s": DRAIN_S - 1.0}
    assert found[because.NotReady]["units"] == ["web.1"]
