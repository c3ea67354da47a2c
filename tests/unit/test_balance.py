"""The balancer: which machine moves where, by hand; and what the batch core makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.config import Balance
from schemas.facts import Disposal
from schemas.size import Size, total
from services.runtime.config import file as runtime_config
from services.runtime.config.file import ConfigError
from services.scheduler.core.policies.balance import MOVES_MAX, Load, Machine, plan
from services.scheduler.lookahead.why import why as why_waits
from tests.support.balancing import balanced, moves, observe, up
from tests.support.scheduling import core
from tests.support.world import World

RULES = Balance()


def host(name: str, use: float, *machines: Machine, cores: int = 8, memory_mb: int = 8192) -> Load:
    taken = total(each.size for each in machines)
    return Load(name, use, Size(cores, memory_mb), Size(cores, memory_mb).minus(taken), len(machines), machines)


def machine(unit: str, cores: int = 2, memory_mb: int = 1024, left_s: float = 3600.0, moved: int = 0) -> Machine:
    return Machine(unit, Size(cores, memory_mb), left_s, moved)


def planned(*hosts: Load, rules: Balance = RULES) -> list[tuple[str, str, str]]:
    return [(move.unit, move.source, move.target) for move in plan(hosts, rules)]


CROWDED = host("h1", 0.9, machine("1"), machine("2"), machine("3"), machine("4"))


def test_the_busiest_host_gives_one_to_the_idlest() -> None:
    other = host("h2", 0.8, machine("5", 3), machine("6", 5))
    assert planned(CROWDED, other, host("h3", 0.1), host("h4", 0.2)) == [("1", "h1", "h3"), ("5", "h2", "h4")]


@pytest.mark.parametrize(("high", "low"), [(0.75, 0.1), (0.5, 0.5), (0.9, 0.25), (0.76, 0.26)])
def test_inside_the_band_nothing_moves(high: float, low: float) -> None:
    assert planned(CROWDED._replace(utilisation=high), host("h2", low)) == (
        [] if high <= 0.75 or low >= 0.25 else [("1", "h1", "h2")]
    )


def test_a_host_keeps_its_only_machine() -> None:
    """Also where the other host is so large that it would hardly notice."""
    assert planned(host("h1", 0.99, machine("1", 8)), host("h2", 0.0, cores=64)) == []


def test_only_so_many_move_at_once() -> None:
    crowded = [host(f"h{n}", 0.9, *(machine(str(4 * n + k)) for k in range(4))) for n in range(1, 41)]
    idle = [host(f"i{n}", 0.0) for n in range(40)]
    assert len(planned(*crowded, *idle)) == MOVES_MAX


def test_memory_is_a_hard_limit_and_cores_too() -> None:
    full = host("h2", 0.05, machine("9", 1, 7600))
    assert planned(CROWDED, full) == []
    assert planned(CROWDED, host("h2", 0.05, machine("9", 7, 64))) == []
    assert planned(CROWDED, full, host("h3", 0.1)) == [("1", "h1", "h3")]


def test_the_target_stays_where_it_may_still_have_more() -> None:
    """A machine that makes up half of a host would bring the idle one to 0.7."""
    big = host("h1", 0.9, machine("1", 4), machine("2", 4))
    assert planned(big, host("h2", 0.24)) == []
    assert planned(big, host("h2", 0.1)) == [("1", "h1", "h2")]


def test_the_cheapest_that_brings_the_host_into_the_band_goes() -> None:
    """0.96 on eight cores: one core is worth 0.12, so a machine of one core leaves 0.84, one of two 0.72."""
    source = host("h1", 0.96, machine("1", 1, 128), machine("2", 2, 2048), machine("3", 2, 512), machine("4", 3, 512))
    assert planned(source, host("h2", 0.0)) == [("3", "h1", "h2")]


def test_cost_is_bounded_and_has_to_be_worth_it() -> None:
    dear = Balance(mb_per_s=10.0, cost_max_s=100.0)
    assert planned(CROWDED, host("h2", 0.0), rules=dear) == []
    short = [machine(str(number), left_s=101.0) for number in range(1, 5)]
    assert planned(host("h1", 0.9, *short), host("h2", 0.0)) == []
    assert planned(host("h1", 0.9, *short), host("h2", 0.0), rules=Balance(worth=9.0)) == [("1", "h1", "h2")]


def test_a_job_is_not_moved_for_ever() -> None:
    often = [machine(str(number), moved=3) for number in range(1, 5)]
    assert planned(host("h1", 0.9, *often), host("h2", 0.0)) == []


def test_power_saving_empties_idle_hosts_into_busier_ones_and_only_then() -> None:
    hosts = [
        host("h1", 0.1, machine("1"), machine("2")),
        host("h2", 0.4, machine("3")),
        host("h3", 0.0),
        host("h4", 0.3),
    ]
    assert planned(*hosts) == []
    saving = Balance(power_saving=True)
    assert planned(*hosts, rules=saving) == [("1", "h1", "h2"), ("2", "h1", "h2")]
    assert planned(*hosts, host("h5", 0.9), rules=saving) == []
    pinned = hosts[0]._replace(units=3)
    assert planned(pinned, *hosts[1:], rules=saving) == []
    assert planned(*hosts[:2], rules=saving) == []  # two moves among two hosts


def test_power_saving_fills_no_empty_host_and_empties_none_that_was_just_filled() -> None:
    saving = Balance(power_saving=True)
    others_use_it = host("h2", 0.3)
    assert planned(host("h1", 0.1, machine("1")), others_use_it, rules=saving) == []
    nearly_full = host("h3", 0.2, machine("3", 5))
    chain = [host("h1", 0.05, machine("1", 4)), host("h2", 0.1, machine("2", 2)), nearly_full, host("h4", 0.0)]
    assert planned(*chain, rules=saving) == [("1", "h1", "h2")]


# ---------------------------------------------------------------------------------------------------------------- the core


def crowded_world(**settings: Any) -> tuple[World, list[str]]:
    world = balanced(2, **settings)
    jobs = [up(world, cores=2) for _ in range(4)]
    assert {world.unit(job).hosts for job in jobs} == {("h1",)}
    return world, jobs


def test_the_core_moves_a_job_in_one_envelope_and_once_an_observation() -> None:
    world, jobs = crowded_world()
    observe(world, "h1", 0.95)
    assert core(world).decide(world.now) == []
    observe(world, "h2", 0.05)
    closing, placement = core(world).decide(world.now)
    assert (closing.disposal, type(closing.why)) == (Disposal.MIGRATE, because.Balanced)
    assert (placement.unit, placement.attempt, placement.hosts) == (jobs[0], 2, ("h2",))
    world.settle()
    assert moves(world) == [(jobs[0], "h1", "h2")]
    assert world.voids == []
    assert world.unit(jobs[0]).resumes
    observe(world, "h1", 0.95)  # h2 has not been seen since
    world.settle()
    assert len(moves(world)) == 1
    observe(world, "h2", 0.05)
    world.settle()
    assert moves(world)[1:] == [(jobs[1], "h1", "h2")]


def test_a_move_is_no_preemption_and_no_requeue() -> None:
    world, jobs = crowded_world()
    observe(world, "h1", 0.95)
    observe(world, "h2", 0.05)
    world.settle()
    again = core(world).state.again[jobs[0]]
    assert (again.moved, again.preempted, again.requeues, again.faults) == (1, 0, 0, 0)
    assert world.unit(jobs[0]).failures == 0


@pytest.mark.parametrize(("then", "told"), [("lost on the way", [(because.NotSaved, 1)]), ("failed by itself", [])])
def test_a_move_is_not_told_as_why_a_job_waits_again(then: str, told: list[tuple[because.Kind, int]]) -> None:
    world = balanced(2)
    jobs = [up(world, cores=2, retries=1) for _ in range(4)]
    observe(world, "h1", 0.95)
    observe(world, "h2", 0.05)
    world.settle()
    world.write("admission", f.JobHeld(job=jobs[0], user="ann"))  # it waits afterwards
    if then == "lost on the way":
        world.write("executor", f.VmEnded(unit=jobs[0], attempt=1, rank=0, why="it could not be moved"))
    else:
        world.report(jobs[0], exit=1)
    world.settle()
    assert world.unit(jobs[0]).state == "pending"
    history = [reason for reason in why_waits(core(world), jobs[0], world.now) if "preempted" in because.fields(reason)]
    assert [(type(reason), because.fields(reason)["preempted"]) for reason in history] == told


@pytest.mark.parametrize("why", ["off", "unable", "waits", "cleared"])
def test_the_core_moves_nothing_where_it_may_not(why: str) -> None:
    world, _ = crowded_world(able=why != "unable", enabled=why != "off")
    if why == "waits":
        world.submit(nodes=2, cores=8)
        world.settle()
    observe(world, "h1", 0.95)
    if why == "cleared":
        world.lose("h1")
        world.settle()
    observe(world, "h2", 0.05)
    world.settle()
    assert moves(world) == []


def test_who_is_held_or_still_boots_stays() -> None:
    world = balanced(2)
    first, second = up(world, cores=2), up(world, cores=2)
    world.write("admission", f.JobHeld(job=first, user="ann"))
    boots = world.submit(cores=2, memory_mb=64)
    world.settle()
    world.start_vms(boots)
    observe(world, "h1", 0.95)
    observe(world, "h2", 0.05)
    world.settle()
    assert moves(world) == [(second, "h1", "h2")]
    assert world.unit(boots).hosts == ("h1",)


# ----------------------------------------------------------------------------------------------------------- configuration

CLOUD = """
[cloud]
name = "demo"
[[department]]
name = "hpc"
kind = "batch"
[department.batch.balance]
"""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("low = 0.8", "less than high"),
        ("high = 1.5", "at most 1"),
        ("mb_per_s = 0", "more than 0"),
        ("worth = -1", "at least 0"),
        ("moves_max = 0", "at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(line: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        runtime_config.loads(CLOUD + line, "site.toml", Path())


# ------------------------------------------------------------------------------------------------------------- at the boundary


def test_a_machine_that_leaves_takes_its_part_with_it_and_brings_it_where_it_goes() -> None:
    """Of 8 cores 6 are taken and 60 % in use: 2 of them are a third of that."""
    source = host("h1", 0.6, machine("1"), machine("2", 4))
    target = host("h2", 0.1, machine("3"), cores=4)
    assert source.use(machine("1")) == pytest.approx(0.2)
    assert host("h3", 0.6).use(machine("1")) == 0.0  # nobody's: what the host itself uses
    assert host("h3", 0.6, machine("1", 1)).use(machine("1", 1)) == pytest.approx(0.6)
    beside = target.beside(machine("1"), source)
    assert beside == Load(
        "h2", pytest.approx(0.5), Size(4, 8192), Size(0, 8192 - 2048), 2, (machine("3"), machine("1"))
    )


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (machine("1", memory_mb=200), machine("2", memory_mb=100), "2"),  # the cheapest
        (machine("1", 3), machine("2", 2), "2"),  # the smallest
        (machine("10"), machine("9"), "9"),  # by number
        (machine("1", 1, 100), machine("2", 31, 1000), "2"),  # who brings the host into the band goes before
        (machine("1", left_s=102.3), machine("2", left_s=102.4), "2"),  # ten times as long to go
        (machine("1", moved=3), machine("2", moved=2), "2"),
        (machine("1", memory_mb=12_001, left_s=1e9), machine("2", memory_mb=12_000, left_s=1e9), "2"),  # 120 s
    ],
)
def test_of_two_that_may_move_the_better_one_does(one: Machine, other: Machine, expected: str) -> None:
    source = Load("h1", 0.8, Size(8, 8192), Size(8 - one.size.cores - other.size.cores, 8192), 2, (one, other))
    target = Load("h2", 0.0, Size(64, 65_536), Size(64, 65_536), 0)
    assert [move[0] for move in planned(source, target)] == [expected]


@pytest.mark.parametrize(
    ("cores_free", "memory_free_mb", "use", "expected"),
    [(2, 1024, 0.2, 1), (1, 1024, 0.2, 0), (2, 1023, 0.2, 0), (8, 8192, 0.24, 1)],
)
def test_it_goes_where_there_is_room_exactly(cores_free: int, memory_free_mb: int, use: float, expected: int) -> None:
    crowded = host("h1", 0.8, machine("1"), machine("2"), cores=4)
    assert len(planned(crowded, Load("h2", use, Size(8, 8192), Size(cores_free, memory_free_mb), 1))) == expected


@pytest.mark.parametrize(
    ("use", "high", "expected"), [(0.125, 0.5, 1), (0.126, 0.5, 0), (0.2249, 0.7, 1), (0.2251, 0.7, 0)]
)
def test_a_target_is_full_enough_at_the_bands_edge_and_at_60_per_cent(use: float, high: float, expected: int) -> None:
    """A half of 75 % of 4 cores is 37.5 % of as many."""
    crowded = host("h1", 0.75, machine("1"), machine("2"), cores=4)
    assert len(planned(crowded, Load("h2", use, Size(4, 8192), Size(4, 8192), 1), rules=Balance(high=high))) == expected


def test_one_that_gives_none_keeps_no_other_from_giving() -> None:
    """The busiest has a single job, and the next one none that is worth it: the third is relieved."""
    alone = host("h1", 0.99, machine("1", 8))
    stuck = host("h2", 0.95, machine("2", left_s=1.0), machine("3", left_s=1.0))
    third = host("h3", 0.9, machine("4"), machine("5"), machine("6"), machine("7"))
    assert planned(alone, stuck, third, host("h4", 0.1), host("h5", 0.05)) == [("4", "h3", "h5")]


def test_no_more_moves_than_every_second_host() -> None:
    crowded = [host(f"h{n}", 0.9, *(machine(str(4 * n + k)) for k in range(4))) for n in (1, 2)]
    assert len(planned(*crowded, host("i1", 0.1))) == 1
    assert len(planned(*crowded, host("i1", 0.1), host("i2", 0.1))) == 2


SAVING = Balance(power_saving=True)


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ((host("h1", 0.1, machine("1")), host("h2", 0.3, machine("2"))), [("1", "h1", "h2")]),
        ((host("h1", 0.25, machine("1")), host("h2", 0.3, machine("2"))), []),  # not below the band
        ((host("h1", 0.1, machine("1")), host("h2", 0.75, machine("2"))), []),  # nobody may be above it …
        (
            (host("h1", 0.1, machine("1")), host("h2", 0.75, machine("2"), cores=80), host("h3", 0.3, machine("3"))),
            [("1", "h1", "h3")],  # … exactly at its edge is not above
        ),
        ((host("h1", 0.0), host("h2", 0.1, machine("1")), host("h3", 0.3, machine("2"))), [("1", "h2", "h3")]),
        (  # who may not go keeps the host, and no other one
            (host("h1", 0.1, machine("1", left_s=0.0)), host("h2", 0.15, machine("2")), host("h3", 0.3, machine("3"))),
            [("2", "h2", "h3")],
        ),
        (  # an idle host is no target
            (host("h1", 0.1, machine("1")), host("h2", 0.2)),
            [],
        ),
    ],
)
def test_a_host_below_the_band_is_emptied_into_busier_ones(
    hosts: tuple[Load, ...], expected: list[tuple[str, str, str]]
) -> None:
    assert planned(*hosts, rules=SAVING) == expected


def test_the_largest_find_a_place_first() -> None:
    """By cores, then memory, then number: the small ones fit beside."""
    small, large = machine("2", 1, 100), machine("1", 1, 4000)
    source = host("h1", 0.1, small, machine("10", 1, 4000), machine("3", 3, 100), large)
    targets = host("h2", 0.26, machine("4", 5)), host("h3", 0.27, machine("5", 5)), host("h4", 0.28, machine("6", 5))
    found = planned(
        source,
        *targets,
        host("h5", 0.3, machine("7")),
        host("h6", 0.3, machine("8")),
        host("h7", 0.3, machine("9")),
        host("h8", 0.3, machine("11")),
        rules=SAVING,
    )
    assert [unit for unit, _, _ in found] == ["3", "1", "10", "2"]


def test_what_has_been_placed_takes_its_room_from_the_next() -> None:
    """Each of two hosts goes where there is room for one more."""
    busier = Load("h3", 0.3, Size(8, 8192), Size(2, 8192), 1), Load("h4", 0.4, Size(8, 8192), Size(2, 8192), 1)
    found = planned(host("h1", 0.05, machine("1")), host("h2", 0.1, machine("2")), *busier, rules=SAVING)
    assert found == [("1", "h1", "h4"), ("2", "h2", "h3")]
