"""What signals ask for: CPU and requests as one utilisation, claims beside it, and what silence means."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import Role, User, WebPolicy
from schemas.facts import AUTHORS_MAX
from services.domain.text import sentence
from services.provisioner.core.provisioner import ProvisionerCore
from services.scheduler.core.web.autoscaler import Autoscaler
from services.scheduler.core.web.core import WebCore
from services.scheduler.core.web.signals import LOAD_LOST_S, Word, claimed, usual, word
from services.scheduler.core.web.state import State
from services.scheduler.lookahead.why_web import Told, troubles, why
from services.scheduler.meter.meter import Last
from services.scheduler.meter.queue import Refused, Waiting
from tests.support.world import START, World, cloud, web


def site(hosts: int = 8, **policy: Any) -> World:
    """Hosts come, VMs start and guests call at once; target-tracking without windows, unless said otherwise."""
    rule = {"rule": "target-tracking", "tolerance": 0.0, "down_window_s": 0.0} | policy
    world = World(cloud(web("web", **rule)))
    world.hosts(hosts, cores=4)
    world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
    world.seat("provisioner", ProvisionerCore)
    world.executor()
    world.guests()
    world.settle()
    return world


def core(world: World) -> WebCore:
    found: WebCore = world.seats["scheduler.web"].core
    return found


def observed(world: World, *, settle: bool = True, moment: bool = False, **fields: Any) -> None:
    """An observation of the next second."""
    world.now += 1.0
    start = world.now if moment else world.now - 1
    world.write("scheduler.web", f.LoadObserved(dept="web", start=start, end=world.now, samples=1, **fields))
    if settle:
        world.settle()


def number(world: World) -> tuple[int | None, because.Kind]:
    """The last that was told, and not of hosts alone."""
    fact = [fact for fact in world.facts(f.DemandChanged) if type(fact.reason) is not because.RoomBeside][-1]
    return fact.instances, type(fact.reason)


def asks(world: World) -> tuple[int, because.Kind]:
    """What is asked for now."""
    wanted, reason = core(world).desired(world.now)[:2]
    return wanted, type(reason)


# ------------------------------------------------------------------------------------------------- requests as utilisation


def load(**fields: Any) -> f.LoadObserved:
    return f.LoadObserved(dept="web", start=0, end=1, samples=1, **fields)


TRACKING = WebPolicy(rule="target-tracking", target=0.5, threshold=0.8)


@pytest.mark.parametrize(
    ("fact", "serving", "policy", "expected"),
    [
        (load(utilisation=0.7), 2, TRACKING, Word(0.7)),
        (load(requests_per_s=300.0, requests_per_instance=100.0), 3, TRACKING, Word(0.5, 300, 100)),
        (load(requests_per_s=300.0, requests_per_instance=100.0), 3, WebPolicy(threshold=0.8), Word(0.8, 300, 100)),
        (load(requests_per_s=300.0), 3, WebPolicy(threshold=0.8, requests_per_instance=50), Word(1.6, 300, 50)),
        (load(requests_per_s=300.0), 3, TRACKING, None),  # nobody says what one is to serve: it is only shown
        (load(requests_per_s=300.0, utilisation=0.1), 3, TRACKING, Word(0.1)),
        (load(requests_per_s=9.0, requests_per_instance=100.0), 0, TRACKING, None),  # nobody serves: no utilisation
        (load(requests_per_s=300.0, requests_per_instance=100.0, utilisation=0.6), 3, TRACKING, Word(0.6)),
        (load(requests_per_s=300.0, requests_per_instance=100.0, utilisation=0.4), 3, TRACKING, Word(0.5, 300, 100)),
        (load(requests_per_s=1e9, requests_per_instance=1e-3), 1, TRACKING, Word(1e6, 1e9, 1e-3)),
        (load(claim=4), 3, TRACKING, None),
    ],
)
def test_one_utilisation_of_cpu_and_requests(
    fact: f.LoadObserved, serving: int, policy: WebPolicy, expected: Word | None
) -> None:
    assert word(fact, serving, policy) == expected


@pytest.mark.parametrize(("rate", "instances"), [(1.0, 1), (100.0, 1), (101.0, 2), (700.0, 7), (701.0, 8)])
def test_target_tracking_takes_as_many_as_the_requests_need_in_one_step(rate: float, instances: int) -> None:
    world = site(requests_per_instance=100.0)
    observed(world, requests_per_s=rate)
    assert number(world)[0] == instances
    if instances > 1:
        (reason,) = [one for one in why(core(world), world.now) if type(one) is because.UtilisationHigh] or [None]
        assert reason is None, "it has what it asked for"
        params = because.fields(world.facts(f.DemandChanged)[-1].reason)
        assert (params["requests_per_s"], params["requests_per_instance"]) == (rate, 100.0)


def test_a_backlog_of_cpu_doubles_at_most_and_counted_requests_do_not() -> None:
    world = site()
    observed(world, utilisation=6.4)
    assert number(world)[0] == 2
    world = site()
    observed(world, requests_per_s=640.0, requests_per_instance=80.0)
    assert number(world)[0] == 8


def test_the_threshold_rule_goes_by_what_each_instance_is_to_serve() -> None:
    world = site(rule="threshold", window_s=5.0, instances_min=2)
    for rate, steps, expected in ((199.0, 6, 2), (200.0, 6, 3), (299.0, 6, 3), (199.0, 6, 2), (99.0, 6, 2)):
        for _ in range(steps):
            observed(world, requests_per_s=rate, requests_per_instance=100.0)
        assert number(world)[0] == expected, rate


def test_the_highest_word_of_cpu_and_requests_decides() -> None:
    world = site(target=0.5)
    observed(world, utilisation=0.9, requests_per_s=50.0, requests_per_instance=100.0)
    assert number(world)[0] == 2
    observed(world, utilisation=0.1, requests_per_s=400.0, requests_per_instance=100.0)
    assert number(world)[0] == 4


# ------------------------------------------------------------------------------------------------------------------- claims


def test_a_claim_alone_is_the_number_and_its_silence_holds_it() -> None:
    world = site(signal_timeout_s=10.0)
    observed(world, moment=True, claim=5)
    assert number(world) == (5, because.Claimed)
    observed(world, moment=True, claim=3)
    assert number(world) == (3, because.Claimed)
    world.advance(9.9)
    assert number(world) == (3, because.Claimed)
    world.advance(0.2)
    assert number(world) == (3, because.SignalMissing)
    observed(world, moment=True, claim=0)
    assert number(world) == (1, because.AtMinimum)


def test_a_claim_counts_if_it_is_more_than_the_load_wants() -> None:
    world = site()
    observed(world, utilisation=0.8, claim=4)
    assert number(world) == (4, because.Claimed)
    observed(world, utilisation=0.2, claim=4)  # one would do
    assert asks(world) == (4, because.Claimed)
    assert because.fields(core(world).desired(world.now)[1]) == {"instances": 4, "load": 1}
    observed(world, utilisation=1.6, claim=4)
    assert number(world) == (8, because.UtilisationHigh)
    observed(world, utilisation=0.1, claim=4)
    assert number(world) == (4, because.Claimed)
    observed(world, utilisation=0.2)
    assert number(world)[0] == 1


@pytest.mark.parametrize(
    ("policy", "claim", "expected"),
    [
        ({"instances_max": 4}, 100, (4, because.AtMaximum)),
        ({"instances_min": 3}, 2, (3, because.AtMinimum)),
        ({"up_limits": ("2 in 60s",)}, 6, (3, because.StepLimit)),
    ],
)
def test_a_claim_goes_through_the_bounds(
    policy: dict[str, Any], claim: int, expected: tuple[int, because.Kind]
) -> None:
    world = site(**policy)
    observed(world, moment=True, claim=claim)
    assert asks(world)[0] == expected[0]
    assert number(world)[0] == expected[0]
    assert expected[1] in {type(fact.reason) for fact in world.facts(f.DemandChanged)} | {asks(world)[1]}


def test_whose_claim_it_is_goes_with_what_follows_from_it() -> None:
    world = site(instances_max=4, up_limits=("2 in 60s",))
    observed(world, moment=True, claim=2, claim_by="wim")
    assert world.facts(f.DemandChanged)[-1].reason == because.Claimed(instances=2, by="wim")
    observed(world, moment=True, claim=9, claim_by="ann")
    assert asks(world) == (3, because.StepLimit)
    assert because.fields(core(world).desired(world.now)[1])["by"] == "ann"
    world = site(instances_max=4)
    observed(world, moment=True, claim=9, claim_by="ann")
    assert world.facts(f.DemandChanged)[-1].reason == because.AtMaximum(maximum=4, by="ann", claimed=9)


def test_a_claim_is_held_by_the_flap_budget_like_the_load() -> None:
    world = site(turns_per_hour_max=2)
    for claim, expected in ((5, 5), (2, 2), (6, 6), (2, 6)):  # up, down, up: the next turn down is not in the budget
        observed(world, moment=True, claim=claim)
        assert number(world)[0] == expected
    assert asks(world) == (6, because.FlapBudget)


def test_a_claim_that_is_not_said_again_is_none() -> None:
    policy, state = WebPolicy(signal_timeout_s=10.0), State(claim=3, heard_at=START)
    assert [claimed(state, policy, START + age) for age in (0.0, 9.9, 10.0)] == [3, 3, None]


def test_a_person_overrides_a_claim() -> None:
    world = site()
    world.write("admission", f.ScaleRequested(dept="web", user="wes", exact=2))
    observed(world, moment=True, claim=7)
    assert number(world) == (2, because.ScaledByPerson)


# ------------------------------------------------------------------------------------------------------------------ silence


def test_claims_do_not_hide_that_the_load_is_missing() -> None:
    world = site(signal_timeout_s=10.0)
    for _ in range(3):
        observed(world, utilisation=0.9, claim=1)
    high = number(world)[0]
    assert high is not None
    assert high > 1
    for _ in range(14):
        observed(world, moment=True, claim=1)
    assert number(world) == (high, because.SignalMissing)
    observed(world, moment=True, claim=high)
    assert [type(reason) for reason in why(core(world), world.now)][:1] == [because.SignalMissing]
    observed(world, moment=True, claim=high + 1)  # but more may be claimed
    assert number(world)[0] == high + 1
    observed(world, moment=True, claim=high + 2, settle=False)
    assert [type(reason) for reason in why(core(world), world.now)][:2] == [because.Claimed, because.SignalMissing]
    world.settle()
    while world.now < START + LOAD_LOST_S + 60:
        world.now += 9
        observed(world, moment=True, claim=1)
    assert number(world) == (1, because.Claimed)


def test_when_lost_load_is_given_up_the_core_wakes_by_itself() -> None:
    world = site(signal_timeout_s=2 * LOAD_LOST_S)
    observed(world, utilisation=1.6, claim=1)
    assert number(world)[0] == 2
    observed(world, moment=True, claim=1)
    world.advance(LOAD_LOST_S - 1.5)
    assert number(world)[0] == 2
    world.advance(1.0)
    assert number(world) == (1, because.Claimed)


def test_a_bare_rate_and_sessions_do_not_tell_how_busy_it_is() -> None:
    world = site(signal_timeout_s=10.0)
    observed(world, utilisation=0.8)
    for _ in range(11):
        observed(world, requests_per_s=100.0, quiet=("web.1",))
    assert number(world) == (1, because.SignalMissing)


def test_why_says_how_long_and_who_told_it_last() -> None:
    world = site(signal_timeout_s=10.0)
    observed(world, utilisation=0.8)
    heard = {
        "cpu": Last(world.now, "lb-1"),
        "requests": Last(world.now - 1, "lb-2"),
        "claim": Last(world.now + 9, "plan"),
    }
    world.advance(30)
    reason = why(core(world), world.now, Told(last=heard))[0]
    assert type(reason) is because.SignalMissing
    assert because.fields(reason) == {
        "timeout_s": 10.0,
        "instances": 1,
        "silent_s": 30.0,
        "signal": "cpu",
        "source": "lb-1",
    }
    assert "source" not in because.fields(why(core(world), world.now)[0])


def queued(world: World, utilisation: float | None) -> list[dict[str, Any]]:
    told = Told(waiting=Waiting(240, 12.0), utilisation=utilisation)
    found = why(core(world), world.now, told)
    return [dict(because.fields(reason)) for reason in found if type(reason) is because.RequestsQueued]


def test_requests_that_wait_for_what_the_rule_does_not_see_are_told() -> None:
    world = site(instances_max=2)
    observed(world, utilisation=0.56)
    expected = {"requests": 240, "waited_s": 12.0, "instances": 1}
    assert queued(world, 0.56) == [expected | {"utilisation": 0.56}]
    assert queued(world, None) == [expected]
    assert queued(world, 0.9) == []  # the rule sees it
    observed(world, utilisation=1.0)
    assert queued(world, 0.5) == []  # there are as many as there may be
    assert because.RequestsQueued not in [type(reason) for reason in why(core(world), world.now)]


def test_while_instances_are_on_their_way_a_queue_is_no_news() -> None:
    world = site(instances_max=8)
    observed(world, utilisation=1.6, settle=False)
    assert core(world).desired(world.now)[0] > core(world).state.serving
    assert queued(world, 0.5) == []


# ------------------------------------------------------------------------------------------------------------------- hurry


def hurries(world: World, *, whole: bool = False, **fields: Any) -> bool:
    now = world.now + 0.3
    start = now if fields.pop("moment", False) else now - 0.3
    return core(world).would_change(
        f.LoadObserved(dept="web", start=start, end=now, samples=1, **fields), now, whole=whole
    )


@pytest.mark.parametrize("rule", ["threshold", "target-tracking"])
def test_a_claim_hurries_upwards_under_every_rule(rule: str) -> None:
    world = site(rule=rule)
    observed(world, moment=True, claim=3)
    before = core(world).dump()
    assert hurries(world, moment=True, claim=4)
    assert hurries(world, utilisation=0.5, claim=4)
    assert not hurries(world, moment=True, claim=3)
    assert not hurries(world, moment=True, claim=2)
    assert not hurries(world, utilisation=0.5)
    assert core(world).dump() == before
    capped = site(rule=rule, instances_max=1)
    assert not hurries(capped, moment=True, claim=4)


def test_a_rule_that_does_not_hurry_does_not_for_a_claim_that_is_known() -> None:
    world = site()
    observed(world, utilisation=0.8, claim=2)
    assert not hurries(world, utilisation=5.0, claim=2)


@pytest.mark.parametrize(
    ("rate", "whole", "expected"),
    [(700.0, True, True), (700.0, False, False), (100.0, True, False), (300.0, True, False)],
)
def test_requests_of_a_whole_second_hurry_upwards(rate: float, whole: bool, expected: bool) -> None:
    world = site()
    observed(world, requests_per_s=300.0, requests_per_instance=100.0)
    assert hurries(world, requests_per_s=rate, requests_per_instance=100.0, whole=whole) == expected
    assert not hurries(world, requests_per_s=rate, whole=whole), "a bare rate decides nothing"
    assert not hurries(world, utilisation=1.6, whole=whole), "what the CPUs say may be a fraction of a second"


def test_requests_that_are_turned_away_are_told_whatever_the_rule_sees() -> None:
    world = site(instances_max=1)
    observed(world, utilisation=1.0)
    told = Told(refused=Refused(24.5, 12.0))
    found = [one for one in troubles(core(world), world.now, told) if type(one) is because.RequestsRefused]
    assert [because.fields(one) for one in found] == [{"rate": 24.5, "for_s": 12.0, "instances": 1, "most": 1}]
    assert found[0] in why(core(world), world.now, told)
    assert troubles(core(world), world.now) == []


# --------------------------------------------------------------------------------------------------------------- whose word


def told_by(world: World) -> object:
    """By whose word there are so many, as `phoenix why` says it."""
    return because.fields(core(world).desired(world.now)[1]).get("load_by")


def test_whose_word_the_load_was_is_told_as_long_as_the_rule_looks_at_it() -> None:
    world = site(12, down_window_s=60.0, instances_max=12, balancers=("lb",))
    observed(world, utilisation=0.5, load_by=("lb",))
    assert told_by(world) is None, "a balancer's goes without saying"
    for _ in range(5):
        observed(world, utilisation=5.0, load_by=("wim",))
    told = world.facts(f.DemandChanged)[-1].reason
    assert sentence(told) == (
        "utilisation was 500 % with 8 instances: 12 keep it at the target of 80 % (reported by wim)"
    )
    assert because.fields(world.facts(f.UnitPlaced)[-1].reason)["load_by"] == ["wim"]
    observed(world, utilisation=0.1, load_by=("lb",))
    reason = core(world).desired(world.now)[1]
    assert (because.fields(reason)["held"], because.fields(reason)["asked"], told_by(world)) == (12, 2, ["wim"])
    for _ in range(59):
        observed(world, utilisation=0.1, load_by=("lb",), settle=False)
    assert told_by(world) == ["wim"]
    observed(world, utilisation=0.1, load_by=("lb",))
    observed(world, utilisation=0.1, load_by=("lb",))
    assert (number(world)[1], told_by(world)) == (because.UtilisationLow, None)


def test_whose_word_a_step_limit_bounds_is_told() -> None:
    world = site(12, up_limits=("1 in 60s",))
    for _ in range(2):
        observed(world, utilisation=5.0, load_by=("lb", "wim"))
    reason = core(world).desired(world.now)[1]
    assert (type(reason), because.fields(reason)["load_by"]) == (because.StepLimit, ["lb", "wim"])
    unbound = Autoscaler(msgspec.structs.replace(core(world).policy, up_limits=()))
    assert unbound.desired(core(world).state, 3, world.now)[1] == because.AtMaximum(maximum=3, load_by=["lb", "wim"])


@pytest.mark.parametrize(
    ("balancers", "users", "expected"),
    [
        ((), (), ()),
        ((), (("lb", "user"), ("wendy", "manager")), ("lb",)),
        ((), (("wendy", "manager"),), ("wendy",)),
        ((), (("lb", "user"), ("wim", "user")), ()),
        (("lb",), (("lb", "user"), ("wim", "user")), ("lb",)),
    ],
)
def test_a_word_goes_without_saying_of_balancers_or_of_the_only_user_who_could_be_one(
    balancers: tuple[str, ...], users: tuple[tuple[str, Role], ...], expected: tuple[str, ...]
) -> None:
    config = cloud(web("web", balancers=balancers))
    own = [User(name=name, department="web", role=role) for name, role in users]
    everybody = (*own, User(name="ann", department="hpc"))
    config = msgspec.structs.replace(config, users=everybody)
    assert usual(config, config.departments[0]) == expected


def test_only_the_last_authors_are_remembered() -> None:
    world = site()
    for n in range(AUTHORS_MAX + 3):
        observed(world, utilisation=0.8, load_by=(f"user-{n}",))
    assert list(core(world).state.load_by) == [f"user-{n}" for n in range(AUTHORS_MAX + 2, 2, -1)]
