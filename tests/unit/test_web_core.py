"""The web core, rule by rule: how many instances, on which hosts, and what is claimed."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.facts import Disposal
from services.domain.custody.rules import RULES
from services.scheduler.core.state.load import Sample, follow, mean
from services.scheduler.core.web.core import WebCore
from services.scheduler.core.web.failures import BACKOFF_MAX_S, backoff_s
from tests.support.ending import core, decide
from tests.support.entered import entered
from tests.support.world import World, cloud, web

WINDOW_S = 20.0
# The core, its autoscaler with the rule and the signals, the claim, hosts with what is held, what is looked at, boot limits,
# what hosts could carry, custody.
FILES_MAX = 11
BOUNDS = {
    "schedule": ("Mon-Fri 08:00-18:00 at least 6",),
    "forecast_days": 3,
    "up_limits": ("4 in 60s",),
    "turns_per_hour_max": 6,
}


def site(hosts: int = 4, *, held: int = 1, cores: int = 4, maximum: int | None = None, **policy: Any) -> World:
    """`held` of `hosts` hosts held by web, whose scheduler sits at the table; VMs start, guests call, and what drains has
    drained at once.  Its rule is the paper's, unless it is told another one."""
    world = World(cloud(web("web", maximum=maximum, **{"rule": "threshold", **policy})))
    names = world.hosts(hosts, cores=cores)
    world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
    world.settle()  # claims its minimum
    world.executor()
    world.guests()
    world.balancer()
    world.grant("web", *names[:held])
    world.settle()
    return world


def load(world: World, utilisation: float, seconds: int = 20) -> None:
    """An observation each second; the clock moves."""
    for _ in range(seconds):
        world.now += 1.0
        fact = f.LoadObserved(dept="web", start=world.now - 1, end=world.now, utilisation=utilisation, samples=4)
        world.write("scheduler.web", fact)


def claim(world: World) -> tuple[int, int | None, because.Kind]:
    fact = world.facts(f.DemandChanged)[-1]
    return fact.hosts, fact.instances, type(fact.reason)


def running(world: World) -> list[str]:
    return [unit for unit, state in world.states("web").items() if state == "open"]


def scale(world: World, **fields: Any) -> None:
    world.write("admission", f.ScaleRequested(dept="web", user="wes", **fields))


# ------------------------------------------------------------------------------------------------------------------- stages


@pytest.mark.parametrize(
    ("utilisation", "more", "kinds"),
    [
        (0.81, 0, []),  # nothing is said, and when it wakes is worked out
        (1.9, 0, [f.DemandChanged]),
        (1.9, 2, [f.DemandChanged, f.HostReleased, f.UnitPlaced]),
    ],
)
def test_a_load_observation_enters_few_files_where_nothing_else_is_configured(
    utilisation: float, more: int, kinds: list[type]
) -> None:
    """Whatever a department does not use costs the reader of this path nothing."""
    world = site(rule="target-tracking")
    world.grant("web", *[f"h{n}" for n in range(2, 2 + more)])
    load(world, utilisation, seconds=1)
    web_core = core(world)
    facts, files = entered(lambda: web_core.decide_anew(world.now))
    assert [type(fact) for fact in facts] == kinds
    assert len(files) <= FILES_MAX, files


def test_what_the_configuration_does_not_name_is_not_among_the_stages() -> None:
    plain, busy = core(site(unreachable_s=0.0)), core(site(**BOUNDS))
    assert [len(stages) for stages in (plain.autoscaler.floors, plain.autoscaler.bounds, plain.autoscaler.moments)] == [
        1, 1, 0
    ]  # fmt: skip
    assert [len(stages) for stages in (busy.autoscaler.floors, busy.autoscaler.bounds, busy.autoscaler.moments)] == [
        3, 3, 4
    ]  # fmt: skip
    beside = {stage.__name__ for stage in busy.stages} - {stage.__name__ for stage in plain.stages}
    assert beside == {"_replace_unready"}


def test_a_department_that_is_not_configured_any_more_has_no_releases_to_advance() -> None:
    world = site()
    before = {stage.__name__ for stage in core(world).stages}
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=cloud()))
    gone = before - {stage.__name__ for stage in core(world).stages}
    assert gone == {"_replace_unready", "_judge_release", "_advance_release"}


# ---------------------------------------------------------------------------------------------------------------- the window


def samples(*spans: tuple[float, float, float], since: float = 0.0, gap_s: float = 10.0) -> list[Sample]:
    found: list[Sample] = []
    for span in spans:
        found = follow(found, Sample(*span), since=since, window_s=10, gap_s=gap_s)
    return found


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], None),
        ([(0, 5, 1.0)], None),  # not covered
        ([(0, 5, 1.0), (5, 10, 0.5)], 0.75),
        ([(0, 9, 0.0), (9, 19, 1.0)], 1.0),  # the older one is outside
        ([(0, 5, 0.0), (5, 15, 1.0)], 1.0),
        ([(0, 8, 0.0), (8, 13, 1.0)], 0.5),  # five of the first eight seconds still count
        ([(0, 3, 1.0), (6, 10, 1.0)], 1.0),  # a gap is bridged
        ([(0, 1, 1.0), (9, 10, 1.0)], None),  # but two seconds are no mean of ten
        ([(0, 5, 1.0), (16, 26, 0.2)], 0.2),  # after a long silence the window begins anew
        ([(0, 5, 1.0), (16, 21, 0.2)], None),
        ([(0, 10, 0.5), (4, 9, 9.0)], 0.5),  # late and repeated ones are dropped
    ],
)
def test_the_mean_of_a_window(spans: list[tuple[float, float, float]], expected: float | None) -> None:
    assert mean(samples(*spans), 10) == expected


def test_a_gap_as_long_as_a_missing_signal_begins_the_window_anew() -> None:
    spans = (0.0, 4.0, 1.0), (8.0, 10.0, 1.0)
    assert mean(samples(*spans, gap_s=4.1), 10) == 1.0
    assert mean(samples(*spans, gap_s=4.0), 10) is None


def test_what_began_before_the_number_changed_does_not_count() -> None:
    assert samples((4, 6, 1.0), (6, 8, 0.5), since=5) == [Sample(6, 8, 0.5)]


# ---------------------------------------------------------------------------------------------------------------- how many


def test_it_claims_its_minimum_at_once_and_places_it_when_the_host_comes() -> None:
    world = site(instances_min=2, instances_per_host=2)
    assert claim(world) == (1, 2, because.AtMinimum)
    assert running(world) == ["web.1", "web.2"]
    assert world.custody.held("web") == 1


def test_80_percent_over_the_window_is_one_more() -> None:
    world = site()
    load(world, 0.8, 19)
    assert decide(world) == []
    load(world, 0.8, 1)
    (fact,) = decide(world)
    assert (fact.hosts, fact.instances, type(fact.reason)) == (2, 2, because.UtilisationHigh)
    assert because.fields(fact.reason)["utilisation"] == 0.8


def test_just_below_is_not() -> None:
    world = site()
    load(world, 0.7999, 40)
    assert decide(world) == []


def test_while_an_instance_is_on_its_way_no_more_are_asked_for() -> None:
    world = site(held=1)
    load(world, 1.0, 20)
    world.settle()
    load(world, 1.0, 60)
    world.settle()
    assert claim(world)[1] == 2


def test_a_new_instance_in_service_begins_the_window_anew() -> None:
    world = site(held=1)
    load(world, 1.0, 20)
    world.settle()
    world.grant("web", "h2")
    world.settle()
    assert running(world) == ["web.1", "web.2"]
    load(world, 1.0, 19)
    assert decide(world) == []
    load(world, 1.0, 1)
    assert [fact.instances for fact in decide(world)] == [3]


def test_below_the_lower_threshold_the_newest_goes_and_its_host_once_its_vm_has_ended() -> None:
    world = site(held=3, instances_min=3)
    world.write(
        "provisioner",
        f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=cloud(web("web", rule="threshold", instances_min=1))),
    )
    load(world, 0.8 * 2 / 3 - 0.001, 20)
    demand, drains = decide(world)
    assert (demand.instances, type(demand.reason)) == (2, because.UtilisationLow)
    assert demand.hosts == 3  # a lower claim is notice
    assert (drains.unit, drains.until, type(drains.reason)) == ("web.3", world.now + 5.0, because.ScaleDown)
    executor = world.seats["executor"]
    executor.paused = True  # the VM is ending
    world.settle()
    closed = world.facts(f.AttemptClosed)[-1]
    assert (closed.unit, closed.disposal, type(closed.why)) == ("web.3", Disposal.STOPPED, because.Drained)
    assert (claim(world)[:2], world.custody.held("web")) == ((3, 2), 3)
    assert world.states("web") == {"web.1": "open", "web.2": "open", "web.3": "stopped"}
    world.end_vm("web.3")
    demand, released = decide(world)
    assert (demand.instances, demand.hosts) == (2, 2)
    assert (released.host, type(released.reason)) == ("h3", because.NotNeeded)
    executor.paused = False
    world.settle()
    assert (claim(world)[:2], world.custody.held("web")) == ((2, 2), 2)
    assert world.states("web") == {"web.1": "open", "web.2": "open", "web.3": "stopped"}


def test_at_the_lower_threshold_exactly_nothing_goes() -> None:
    world = site(held=2, instances_min=2)
    policy = cloud(web("web", rule="threshold", instances_min=1, threshold=0.5))
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=policy))
    load(world, 0.25, 20)
    assert decide(world) == []
    load(world, 0.2499, 20)
    assert [fact.instances for fact in decide(world, f.DemandChanged)] == [1]


def test_one_is_the_least_by_load() -> None:
    world = site()
    load(world, 0.0, 60)
    assert decide(world) == []


def test_never_above_the_maximum_of_instances_or_of_hosts() -> None:
    for policy in ({"instances_max": 1}, {"maximum": 1}):
        world = site(held=1, **policy)
        load(world, 2.0, 30)
        assert decide(world) == []
        assert type(core(world).desired(world.now)[1]) is because.AtMaximum


def test_a_person_sets_an_exact_number_until_then() -> None:
    world = site()
    scale(world, exact=3, until=world.now + 60)
    world.settle()
    assert claim(world) == (3, 3, because.ScaledByPerson)
    load(world, 0.1, 59)
    world.settle()
    assert claim(world)[1] == 3
    scale(world, exact=0)
    world.settle()
    assert (claim(world), running(world), world.custody.held("web")) == ((0, 0, because.RoomBeside), [], 0)
    told = [type(fact.reason) for fact in world.facts(f.DemandChanged) if not fact.instances]
    assert told[0] is because.ScaledByPerson  # and then hosts go back as they become empty


def test_what_a_person_set_is_placed_and_drained_as_such_and_after_auto_the_load_is_the_cause() -> None:
    world = site(held=1, instances_per_host=4)
    scale(world, exact=3)
    world.settle()
    scale(world, exact=2)
    world.settle()
    assert [type(fact.reason) for fact in world.facts(f.UnitPlaced)[1:]] == [because.ScaledByPerson] * 2
    assert type(world.facts(f.InstanceDraining)[-1].reason) is because.ScaledByPerson
    scale(world)  # --auto
    load(world, 0.1, 25)
    world.settle()
    assert claim(world)[1:] == (1, because.UtilisationLow)
    assert type(world.facts(f.InstanceDraining)[-1].reason) is because.ScaleDown
    load(world, 0.9, 25)
    world.settle()
    assert claim(world)[1:] == (2, because.UtilisationHigh)
    assert type(world.facts(f.UnitPlaced)[-1].reason) is because.ScaleUp


def test_what_a_person_set_is_said_also_when_the_hosts_come_later() -> None:
    world = site(held=1)
    scale(world, minimum=2)
    world.settle()
    world.grant("web", "h2")
    world.settle()
    assert type(world.facts(f.UnitPlaced)[-1].reason) is because.ScaledByPerson


def test_a_persons_word_ends_by_time() -> None:
    world = site()
    scale(world, exact=0, until=world.now + 60)
    world.settle()
    assert core(world).wake_at() == world.now + 60
    world.advance(60)
    assert claim(world) == (1, 1, because.AtMinimum)


def test_a_persons_minimum_is_a_floor_and_not_a_number() -> None:
    world = site(held=4)
    scale(world, minimum=2)
    world.grant("web", *sorted(world.custody.index.by_state["free"])[:1])
    world.settle()
    assert claim(world)[1:] == (2, because.ScaledByPerson)
    load(world, 0.0, 25)
    world.settle()
    assert claim(world)[1] == 2
    load(world, 1.0, 25)
    world.settle()
    assert claim(world)[1] == 3


def test_a_missing_signal_holds_the_number_and_says_so_once() -> None:
    world = site(signal_timeout_s=10)
    load(world, 0.5, 1)
    world.settle()
    assert core(world).wake_at() == world.now + 10
    world.advance(9.9)
    assert claim(world)[2] is because.AtMinimum
    world.advance(0.2)
    assert claim(world) == (1, 1, because.SignalMissing)
    written = len(world.journal)
    world.advance(100)
    assert len(world.journal) == written
    load(world, 0.5, 1)
    world.settle()
    assert claim(world) == (1, 1, because.UtilisationSteady)


def test_would_change_says_what_an_observation_would_decide() -> None:
    world = site()
    load(world, 1.0, 19)
    later = world.now + 1
    fact = f.LoadObserved(dept="web", start=world.now, end=later, utilisation=1.0, samples=1)
    assert core(world).would_change(fact, later)
    half = f.LoadObserved(dept="web", start=world.now, end=world.now + 0.5, utilisation=1.0, samples=1)
    assert not core(world).would_change(half, world.now + 0.5)
    assert decide(world) == []


# ---------------------------------------------------------------------------------------------------------------- on hosts


def test_instances_fill_a_host_before_the_next() -> None:
    world = site(held=2, instances_min=3, instances_per_host=2)
    assert [world.unit(f"web.{n}").hosts[0] for n in (1, 2, 3)] == ["h1", "h1", "h2"]


def test_the_claim_counts_what_a_host_can_carry() -> None:
    world = site(held=0, instances_min=4, instances_per_host=8, instance_cores=2)
    assert claim(world)[0] == 2


def test_it_claims_no_more_hosts_than_could_carry_an_instance() -> None:
    world = site(held=0, instances_min=4, instance_cores=99)
    assert world.facts(f.DemandChanged)[-1].hosts == 0


def test_the_claim_follows_what_hosts_elsewhere_can_carry() -> None:
    world = site(hosts=3, held=0, instances_min=4, instances_per_host=4, instance_cores=2)
    assert claim(world)[0] == 2  # hosts of 4 cores carry two
    for name, cores in (("h1", 8), ("h2", 8), ("h3", 8)):
        described = f.HostDescribed(host=name, one_id=int(name[1:]), cores=cores, memory_mb=8192)
        world.write("executor", described)
        world.settle()
    assert claim(world)[0] == 1
    for name in ("h1", "h2", "h3"):
        world.write("executor", f.HostDescribed(host=name, one_id=int(name[1:]), cores=1, memory_mb=8192))
        world.settle()
    assert claim(world)[0] == 0


def test_a_claim_beyond_the_cluster_stays_visible() -> None:
    world = site(hosts=2, held=0, instances_min=4)
    assert claim(world)[0] == 4


def test_a_host_too_small_is_no_use_and_another_is_claimed_until_it_comes() -> None:
    world = World(cloud(web("web", instance_cores=2)))
    world.hosts(1, cores=1)
    world.hosts(1, cores=4, first=2)
    world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
    world.grant("web", "h1")
    world.settle()
    assert (claim(world)[0], running(world)) == (2, [])
    world.grant("web", "h2")
    world.settle()
    assert (claim(world)[0], running(world)) == (1, ["web.1"])
    assert sorted(world.custody.index.held["web"]) == ["h2"]


def test_an_idle_host_beyond_the_claim_goes_back_at_once() -> None:
    world = site(held=2)
    assert world.custody.held("web") == 1
    assert type(world.facts(f.HostReleased)[-1].reason) is because.NotNeeded


def test_numbers_of_instances_are_never_used_again() -> None:
    world = site()
    scale(world, exact=0)
    world.settle()
    scale(world)
    world.grant("web", "h2")
    world.settle()
    assert running(world) == ["web.2"]


def test_a_broken_instance_is_replaced_at_once_and_then_more_and_more_slowly() -> None:
    world = site()
    world.end_vm("web.1")
    world.settle()
    assert running(world) == ["web.2"]
    assert world.states("web")["web.1"] == "failed"
    world.end_vm("web.2")
    world.settle()
    assert running(world) == []
    assert core(world).wake_at() == world.now + backoff_s(2)
    world.advance(backoff_s(2))
    assert running(world) == ["web.3"]
    world.advance(40)  # long enough to count as stable
    world.end_vm("web.3")
    world.settle()
    assert running(world) == ["web.4"]


def test_only_the_successor_of_a_failed_instance_is_called_a_replacement() -> None:
    world = site(instances_per_host=4)
    world.end_vm("web.1")
    world.settle()
    scale(world, minimum=3)
    world.settle()
    reasons = {fact.unit: type(fact.reason) for fact in world.facts(f.UnitPlaced)}
    assert reasons == {
        "web.1": because.ScaleUp,
        "web.2": because.Replacement,
        "web.3": because.ScaledByPerson,
        "web.4": because.ScaledByPerson,
    }


def test_backoff_is_bounded() -> None:
    assert [backoff_s(n) for n in (0, 1, 2, 3)] == [0.0, 0.0, 0.5, 1.0]
    assert backoff_s(10_000) == BACKOFF_MAX_S


def test_an_instance_on_a_lost_host_is_replaced_on_another() -> None:
    world = site()
    world.lose("h1")
    world.settle()
    world.grant("web", "h2")
    world.settle()
    assert running(world) == ["web.2"]
    assert core(world).state.failures == 0


def test_an_instance_that_does_not_come_up_is_replaced() -> None:
    world = site(held=0, boot_timeout_s=5)
    world.seats["guests"].paused = True
    world.grant("web", "h1")
    world.settle()
    world.advance(5)
    assert world.states("web") == {"web.1": "failed", "web.2": "open"}
    assert type(world.facts(f.AttemptClosed)[-1].why) is because.BootTimeout


def test_on_notice_idle_hosts_go_first_then_those_with_the_fewest_instances() -> None:
    world = site(held=2, instances_min=3, instances_per_host=2)
    world.quota("web", 1)
    (drains,) = decide(world)
    assert (drains.unit, type(drains.reason)) == ("web.3", because.Reclaimed)
    world.settle()
    assert world.facts(f.HostReleased)[-1].host == "h2"
    assert world.custody.held("web") == 1
    assert claim(world)[1] == 3  # it still wants them


def test_on_notice_a_host_where_a_vm_is_ending_goes_at_once_but_after_an_idle_one() -> None:
    world = site(held=3, instances_min=3)
    scale(world, exact=1)
    world.seats["executor"].paused = True
    world.settle()
    assert (running(world), world.custody.held("web")) == (["web.1"], 3)
    assert decide(world) == []
    world.quota("web", 1)
    assert [fact.host for fact in decide(world)] == ["h2", "h3"]


def test_a_department_that_is_not_configured_any_more_leaves() -> None:
    world = site()
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=cloud()))
    world.settle()
    assert (running(world), world.custody.held("web")) == ([], 0)
    assert claim(world) == (0, 0, because.DepartmentRemoved)
    world.write("admission", f.DepartmentClosed(dept="web"))
    assert decide(world) == []


def test_a_changed_minimum_holds_at_once() -> None:
    world = site()
    world.write(
        "provisioner",
        f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=cloud(web("web", rule="threshold", instances_min=3))),
    )
    world.settle()
    assert claim(world) == (3, 3, because.AtMinimum)


def test_another_departments_load_is_none_of_its_business() -> None:
    world = site()
    fact = f.LoadObserved(dept="web", start=world.now, end=world.now + 1, utilisation=1.0, samples=1)
    world.write("scheduler.other", fact)
    assert core(world).state.samples == []
