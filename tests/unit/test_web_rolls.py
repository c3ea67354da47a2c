"""Releases in the web core: whole stories, with the real provisioner, of instances that do what their release does to them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from services.domain import text as sentences
from services.domain.custody.rules import RULES
from services.scheduler.core.web import claim as web_claim
from services.scheduler.core.web.hosts import Picture
from services.scheduler.core.web.release import STABLE_S
from services.scheduler.core.web.rolls import Step
from services.scheduler.lookahead.why_web import troubles, why
from tests.support.ending import hear
from tests.support.releases import BOOT_S, CRASH_S, core, deploy, of_releases, said, scale, serving, site, watch
from tests.support.world import World


def configure(world: World, **policy: Any) -> None:
    (department,) = world.custody.state.config.departments
    adopt(world, web=msgspec.structs.replace(department.web, **policy))


def adopt(world: World, **department: Any) -> None:
    config = world.custody.state.config
    changed = msgspec.structs.replace(config.departments[0], **department)
    told = msgspec.structs.replace(config, departments=(changed,))
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=told))


def reasons(world: World) -> list[because.Kind]:
    return [type(reason) for reason in why(core(world), world.now)]


@pytest.mark.parametrize(("unavailable", "surge"), [(0, 1), (0, 3), (1, 0), (2, 0), (1, 1), (2, 2), (8, 8)])
def test_eight_instances_are_replaced_within_the_terms(unavailable: int, surge: int) -> None:
    world, _ = site()
    watch(world).fewest = 8
    assert deploy(world, max_unavailable=unavailable, max_surge=surge, image="shop-1") == 1
    world.advance(60)
    assert said(world) == [(1, "rolling"), (1, "complete")]
    assert of_releases(world) == {1: 8}
    assert watch(world).fewest >= 8 - unavailable
    placed = world.facts(f.UnitPlaced)[8:]
    assert {(fact.release, fact.image) for fact in placed} == {(1, "shop-1")}
    assert type(placed[0].reason) is because.Rolling
    ended = {sentences.sentence(fact.why) for fact in world.facts(f.AttemptClosed)}
    assert ended
    assert all("release 1 is rolled out" in told for told in ended)
    assert world.custody.held("web") == world.custody.state.demands["web"] == 8  # the surge's hosts have gone back
    assert max(fact.hosts for fact in world.facts(f.DemandChanged)) == 8 + surge  # none for those that drain
    assert world.voids == []


@pytest.mark.parametrize("signal_timeout_s", [1e6, 1.0])
def test_a_claim_for_the_surge_says_so_and_so_does_its_end(signal_timeout_s: float) -> None:
    """And not why the instances are as many as before; that signals are missing stays known, and is not said again."""
    world, _ = site(instances=2, signal_timeout_s=signal_timeout_s)
    world.advance(3.0)
    before, missing = len(world.facts(f.DemandChanged)), core(world).state.missing
    assert missing == (signal_timeout_s == 1.0)
    deploy(world)
    world.advance(30)
    up, *_, down = world.facts(f.DemandChanged)[before:]
    assert (up.hosts, up.instances, sentences.sentence(up.reason)) == (
        3,
        2,
        "release 1 is rolled out with 1 instance more (max_surge)",
    )
    (host,) = because.fields(down.reason)["freed"]
    assert (down.hosts, sentences.sentence(down.reason)) == (2, f"what {host} carried has ended")
    assert {type(fact.reason) for fact in world.facts(f.DemandChanged)[before:]} == {because.RoomBeside}
    assert core(world).state.missing == missing


def test_a_claim_for_a_cordoned_host_in_use_says_so() -> None:
    world, _ = site(instances=2)
    in_use = min(core(world).inventory.hosts)
    world.drain(in_use, None)
    world.advance(10)
    told = [sentences.sentence(fact.reason) for fact in world.facts(f.DemandChanged)[1:]]
    assert told[0] == f"{in_use} is cordoned and still in use"
    assert told[-1] == f"what {in_use} carried has ended"


def test_a_claim_names_all_that_takes_room_beside_the_instances() -> None:
    world, _ = site(instances=2)
    held = core(world).inventory
    seen = Picture(held, {}, {}, {})
    told = web_claim.why(seen, Step(None, None, None), 2, web_claim.Room(wanted=3, draining=2), fewer=0)
    assert because.fields(told) == {"not_ready": 1, "draining": 2}
    assert sentences.sentence(told) == ("1 successor comes for instances that are not ready; 2 instances still drain")
    held.small["tiny"] = None
    told = web_claim.why(seen, Step(None, None, None), 2, web_claim.Room(wanted=2, draining=0), fewer=0)
    assert sentences.sentence(told) == "1 host is too small for an instance"


def test_a_full_cluster_waits_for_a_host_or_drains_first() -> None:
    world, _ = site(hosts=8)
    deploy(world)
    world.advance(30)
    assert (said(world), of_releases(world), world.custody.state.demands["web"]) == ([(1, "rolling")], {0: 8}, 9)
    told = {type(reason): reason for reason in why(core(world), world.now)}
    assert because.WaitsForHosts in told
    assert sentences.remedy(told[because.RollStuck]).startswith("`phoenix deploy web --max-unavailable 1`")
    deploy(world, max_unavailable=1)
    world.advance(60)
    assert (said(world)[-1], of_releases(world)) == ((2, "complete"), {2: 8})


@pytest.mark.parametrize(("hosts", "maximum"), [(8, None), (12, 8)])
def test_a_roll_that_makes_no_progress_says_what_would_help(hosts: int, maximum: int | None) -> None:
    world, _ = site(hosts=hosts)
    adopt(world, maximum=maximum)
    deploy(world)
    world.advance(5)
    stuck = next(reason for reason in why(core(world), world.now) if type(reason) is because.RollStuck)
    told = {"department": "web", "release": 1, "hosts": 8, "max_unavailable": 0, "helps": 1}
    assert because.fields(stuck) == told | ({"maximum": maximum} if maximum else {})
    deploy(world, max_unavailable=because.fields(stuck)["helps"])
    world.advance(60)
    assert said(world)[-1] == (2, "complete")
    assert because.RollStuck not in reasons(world)


def test_a_surge_of_idle_hosts_is_no_claim() -> None:
    """Not while it waits, not while it has its host, and gone with the roll; nothing is said at each step."""
    world, _ = site(hosts=8, surge="idle")
    before = len(world.facts(f.DemandChanged))
    deploy(world)
    world.advance(30)
    (up,) = world.facts(f.DemandChanged)[before:]
    assert (up.hosts, up.if_idle, up.instances) == (8, 1, 8)
    assert sentences.sentence(up.reason) == "release 1 is rolled out with 1 instance more (max_surge)"
    stuck = next(reason for reason in why(core(world), world.now) if type(reason) is because.RollStuck)
    told = {"department": "web", "release": 1, "hosts": 8, "max_unavailable": 0, "helps": 1, "surge": "idle"}
    assert because.fields(stuck) == told
    world.hosts(1, first=9)
    world.advance(60)
    assert (said(world)[-1], of_releases(world)) == ((1, "complete"), {1: 8})
    assert [(fact.hosts, fact.if_idle) for fact in world.facts(f.DemandChanged)[before:]] == [(8, 1), (8, 0)]
    assert world.custody.held("web") == 8


@pytest.mark.parametrize(("unavailable", "surge"), [(0, 1), (0, 3), (1, 0), (2, 2)])
def test_with_idle_hosts_a_roll_is_the_same(unavailable: int, surge: int) -> None:
    world, _ = site(surge="idle")
    watch(world).fewest = 8
    deploy(world, max_unavailable=unavailable, max_surge=surge)
    world.advance(60)
    assert (said(world)[-1], of_releases(world)) == ((1, "complete"), {1: 8})
    assert watch(world).fewest >= 8 - unavailable
    assert max(fact.hosts for fact in world.facts(f.DemandChanged)) == 8
    assert max(fact.if_idle for fact in world.facts(f.DemandChanged)) == surge
    assert world.voids == []


def test_a_roll_that_goes_on_is_not_stuck() -> None:
    world, _ = site(instances=3, min_ready_s=3.0)
    deploy(world)
    world.advance(2.0)
    (rolling,) = [reason for reason in why(core(world), world.now) if type(reason) is because.Rolling]
    assert (because.fields(rolling)["fresh"], because.fields(rolling)["min_ready_s"]) == (1, 3.0)
    while said(world)[-1] != (1, "complete"):
        world.advance(0.5)
        assert because.RollStuck not in reasons(world)


def test_several_instances_on_a_host_need_few_hosts_for_the_surge() -> None:
    world, _ = site(instances=8, hosts=3, instances_per_host=4)
    deploy(world, max_surge=2)
    world.step()
    assert world.custody.state.demands["web"] == 3
    world.advance(60)
    assert (of_releases(world), world.custody.held("web")) == ({1: 8}, 2)


def test_what_is_wanted_meanwhile_is_of_the_new_release_and_what_is_not_is_of_the_old_one() -> None:
    world, _ = site(instances=4)
    deploy(world)
    world.advance(1.0)
    scale(world, 7)
    world.advance(1.0)
    assert of_releases(world)[1] >= 4
    scale(world, 2)
    world.advance(3.0)
    assert of_releases(world) == {1: 2}
    assert said(world) == [(1, "rolling"), (1, "complete")]


@pytest.mark.parametrize("fate", ["silent", "ends", "crashes"])
def test_a_bad_release_is_rolled_back(fate: str) -> None:
    world, fates = site(start_failures_max=3)
    fates[1] = fate
    watch(world).fewest = 8
    deploy(world)
    world.advance(120)
    assert said(world) == [(1, "rolling"), (1, "rolled_back"), (0, "complete")]
    assert of_releases(world) == {0: 8}
    if fate != "crashes":  # whoever comes up and crashes has been believed until then
        assert watch(world).fewest == 8
    (given_up,) = [fact for fact in world.facts(f.ReleaseChanged) if fact.state == "rolled_back"]
    cause = {"silent": "boot_timeout", "ends": "vm_ended", "crashes": "program_ended"}[fate]
    assert (given_up.back_to, type(given_up.reason)) == (0, because.ReleaseFailed)
    assert because.fields(given_up.reason)["cause"] == cause
    assert because.fields(given_up.reason)["failures"] >= 3  # several may have been on their way
    assert given_up.reason in why(core(world), world.now)  # until somebody asks for another one
    fates.pop(1)
    deploy(world)
    world.advance(1)
    assert given_up.reason not in why(core(world), world.now)
    assert world.voids == []


def test_what_keeps_a_roll_out_is_a_trouble_and_a_failure_that_was_replaced_is_none() -> None:
    world, fates = site(instances=2, start_failures_max=3)
    assert troubles(core(world), world.now) == []
    fates["web.1"] = "crashes"
    world.advance(CRASH_S + 0.1)
    assert core(world).state.roll.failures == 1, "release 0 had not stood"
    world.advance(10)
    assert len(serving(world.custody)) == 2
    assert troubles(core(world), world.now) == []
    fates[1] = "silent"
    deploy(world)
    world.advance(8)
    (told,) = troubles(core(world), world.now)
    assert (type(told), because.fields(told)["failures"], because.fields(told)["cause"]) == (
        because.Rolling,
        1,
        "boot_timeout",
    )


def test_a_bad_release_is_given_up_though_the_load_falls_meanwhile() -> None:
    """What served beyond the wanted number took the places of the tries, and the roll stood still for ever."""
    world, fates = site(instances=1, start_failures_max=3)
    scale(world, 5)
    world.advance(5)
    fates[1] = "silent"
    deploy(world)
    world.advance(8)
    assert core(world).state.roll.failures == 1
    (booting,) = [unit.id for unit in world.custody.state.units.values() if unit.live and unit.began_at is None]
    scale(world, 1)
    world.advance(0.5)
    assert world.custody.state.units[booting].live, "the old ones go, and not the only one of the new release"
    world.advance(60)
    assert said(world) == [(1, "rolling"), (1, "rolled_back"), (0, "complete")]
    assert of_releases(world) == {0: 1}
    assert world.voids == []


def test_vms_that_are_lost_together_are_no_fault_of_a_good_release() -> None:
    """Hypervisors that start again take all that they have with them, and no guest has said that its program ended."""
    world, fates = site(start_failures_max=3)
    deploy(world, max_surge=4)
    world.advance(BOOT_S + 0.2)
    new = [unit.id for unit in serving(world.custody) if unit.release == 1]
    assert len(new) >= 3
    for name in new:
        fates[name] = "lost"
    world.advance(120)
    assert {world.custody.state.units[name].state for name in new} == {"final"}
    assert said(world) == [(1, "rolling"), (1, "complete")]
    assert of_releases(world) == {1: 8}


def test_vms_that_are_lost_together_while_they_boot_are_one_failure() -> None:
    """Four of one host, before any of them has called: as many as give a release up, had each its own cause."""
    world, fates = site(start_failures_max=3, instances=4, instances_per_host=4)
    fates[1] = "ends"
    deploy(world, max_surge=4)
    world.advance(BOOT_S / 2 + 0.1)
    ended = [fact.unit for fact in world.facts(f.VmEnded)]
    assert len(ended) == 4
    assert len({world.custody.state.units[name].hosts for name in ended}) == 1
    assert core(world).state.roll.failures == core(world).state.failures == 1
    fates[1] = "good"
    world.advance(60)
    assert said(world) == [(1, "rolling"), (1, "complete")]


def test_what_crashes_after_a_while_takes_few_places_before_it_is_given_up() -> None:
    world, fates = site(start_failures_max=3)
    fates[1] = "crashes"
    watch(world).fewest = 8
    deploy(world)
    world.advance(120)
    assert watch(world).fewest >= 4  # after the first crash nobody else leaves for it


@pytest.mark.parametrize(("unavailable", "surge"), [(0, 1), (0, 3), (1, 0), (2, 2)])
def test_what_crashes_before_it_is_ready_takes_no_more_than_the_terms(unavailable: int, surge: int) -> None:
    world, fates = site(start_failures_max=3)
    world.advance(5)
    fates[1] = "crashes"
    watch(world).fewest = 8
    deploy(world, max_unavailable=unavailable, max_surge=surge, min_ready_s=CRASH_S + 1)
    world.advance(60)
    assert said(world) == [(1, "rolling"), (1, "rolled_back"), (0, "complete")]
    assert watch(world).fewest >= 8 - unavailable
    assert of_releases(world) == {0: 8}


def test_without_a_release_to_go_back_to_the_department_stops_until_somebody_speaks() -> None:
    world, fates = site(instances=2, start_failures_max=2, hosts=0)
    fates[0] = fates[1] = "ends"
    world.hosts(4)
    world.advance(60)
    assert said(world) == [(0, "stopped")]
    assert serving(world.custody) == []
    assert world.custody.held("web") == 0  # nobody keeps hosts for what is not started
    placed = len(world.facts(f.UnitPlaced))
    world.advance(600)
    assert len(world.facts(f.UnitPlaced)) == placed
    assert because.ReleaseFailed in reasons(world)
    scale(world, 2)
    world.advance(60)
    assert said(world)[1:] == [(0, "rolling"), (0, "stopped")]
    configure(world, command=("serve",))
    fates[0] = "good"
    world.advance(5)
    assert said(world)[3:] == [(0, "rolling"), (0, "complete")]
    assert of_releases(world) == {0: 2}


def test_a_deploy_begins_anew_where_a_department_has_stopped() -> None:
    world, fates = site(instances=2, start_failures_max=2, hosts=0)
    fates[0] = "silent"
    world.hosts(4)
    world.advance(60)
    deploy(world)
    world.advance(10)
    assert said(world) == [(0, "stopped"), (1, "rolling"), (1, "complete")]
    assert of_releases(world) == {1: 2}


def test_a_new_release_does_not_wait_for_the_failures_of_the_old_one() -> None:
    world, fates = site(instances=2, start_failures_max=0, hosts=0)
    fates[0] = "ends"
    world.hosts(4)
    world.advance(60)
    assert core(world).state.retry_at > world.now + 2
    deploy(world)
    world.step()
    scale(world, 3)
    world.advance(2)
    assert of_releases(world) == {1: 3}


def test_a_release_that_has_stood_is_never_given_up() -> None:
    world, fates = site(instances=2, start_failures_max=2)
    world.advance(STABLE_S)
    fates[0] = "ends"
    world.advance(300)
    assert said(world) == []
    fates[0] = "good"
    world.advance(60)
    assert of_releases(world) == {0: 2}


def test_the_configuration_may_be_wrong_too_and_what_serves_stays() -> None:
    world, fates = site(instances=2, start_failures_max=2)
    world.advance(STABLE_S)
    old = [unit.id for unit in serving(world.custody)]
    fates.update(dict.fromkeys(old, "good"))
    fates[0] = "ends"
    configure(world, command=("nonsense",), instances_min=3)
    world.advance(60)
    assert said(world) == [(0, "stopped")]  # that the old ones have stood says nothing of it
    assert [unit.id for unit in serving(world.custody)] == old
    assert world.custody.held("web") == 2
    for name in old:
        hear(world, name, "unready")
    world.advance(200)
    assert core(world).state.roll.stage == "stopped"
    assert [unit.id for unit in serving(world.custody)] == old  # nobody would come after one that is closed


def test_where_nobody_is_replaced_for_being_unreachable_a_roll_does_not_wait_for_it() -> None:
    world, _ = site(instances=2, unreachable_s=0.0)
    hear(world, "web.1", "unready")
    deploy(world)
    world.advance(30)
    assert (of_releases(world), said(world)[-1]) == ({1: 2}, (1, "complete"))


def test_another_deploy_takes_over_and_the_last_complete_one_stays_what_is_gone_back_to() -> None:
    world, fates = site(start_failures_max=2)
    deploy(world)
    world.advance(30)
    fates[3] = "ends"
    deploy(world)
    world.advance(2)
    assert len(of_releases(world)) == 2
    deploy(world)
    world.advance(60)
    assert said(world)[2:] == [(2, "rolling"), (3, "rolling"), (3, "rolled_back"), (1, "complete")]
    assert of_releases(world) == {1: 8}


def test_old_instances_that_are_lost_meanwhile_come_back_as_new_ones() -> None:
    world, _ = site(instances=4)
    deploy(world)
    world.advance(0.8)
    host = next(unit.hosts[0] for unit in serving(world.custody) if unit.release == 0)
    world.lose(host)
    world.advance(60)
    assert (of_releases(world), said(world)[-1]) == ({1: 4}, (1, "complete"))


def test_a_drained_host_is_left_during_a_roll() -> None:
    world, _ = site(instances=4)
    deploy(world)
    world.advance(0.8)
    cordoned = [unit.hosts[0] for unit in serving(world.custody)][:2]
    for host in cordoned:
        world.drain(host, None)
    world.advance(60)
    assert of_releases(world) == {1: 4}
    assert not {unit.hosts[0] for unit in serving(world.custody)} & set(cordoned)


def test_what_stands_on_a_cordoned_host_leaves_first() -> None:
    world, _ = site(instances=4)
    world.write("provisioner", f.QuotaChanged(dept="web", hosts=4, by=world.now + 1))
    world.cordon(world.unit("web.1").hosts[0])  # the oldest: else the last one
    deploy(world, max_unavailable=1, max_surge=0)
    world.settle()
    assert [fact.unit for fact in world.facts(f.InstanceDraining)] == ["web.1"]


def test_a_restart_in_the_middle_changes_nothing() -> None:
    world, fates = site(instances=3, start_failures_max=2)
    world.strict = True
    fates[1] = "crashes"
    deploy(world)
    for _ in range(40):
        world.advance(1.0)
        world.restart("scheduler.web")
    assert said(world) == [(1, "rolling"), (1, "rolled_back"), (0, "complete")]
