"""Properties of the orders of victims: each alone, on made-up hosts and jobs.

V1  Whatever the order: as many hosts as asked become empty, or all; cordoned ones among them as far as there are.
V2  The order of the input changes nothing, and nothing is changed in it.
V3  Where a policy spares, no victim could be spared.
V4  With a job's hosts its own, `smallest-shortest` is the paper's greedy choice, job for job, and `youngest-first` the greedy
    choice by start; `least-work-lost` loses at most H(n) times the least possible.
V5  Where jobs have hosts of their own, who is guarded goes only if the hosts of all others are not enough.
V6  Who asked for a grace goes last among equals, whatever the order: where jobs that share no host differ in nothing but that
    and their number, those that leave soonest go.  Which jobs go does not change where their prices differ by seconds, nor
    where all asked for the same.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.core.policies.registry import ENTRIES, VICTIMS
from services.scheduler.core.policies.victims import Candidate, Choice, HostLoad

Crowd = tuple[list[HostLoad], dict[str, Candidate], int]
NAMES = sorted(VICTIMS)
GREEDY = [entry.name for entry in ENTRIES if entry.kind == "victims" and not entry.minimal]
SPARING = [name for name in NAMES if name not in GREEDY]


@st.composite
def crowds(draw: st.DrawFn) -> Crowd:
    """Jobs that share hosts in any way."""
    names = [f"h{n}" for n in range(draw(st.integers(1, 6)))]
    jobs = draw(st.lists(st.tuples(st.sets(st.sampled_from(names), min_size=1), st.integers(0, 3)), max_size=8))
    on: dict[str, list[str]] = {name: [] for name in names}
    known: dict[str, Candidate] = {}
    for number, (hosts, ran) in enumerate(jobs, start=1):
        lost_s, guarded = float(ran * draw(st.integers(0, 1))), draw(st.integers(0, 3)) == 0
        known[str(number)] = Candidate(str(number), len(hosts), float(ran), lost_s, guarded=guarded)
        for host in sorted(hosts):
            on[host].append(str(number))
    loads = [HostLoad(name, draw(st.integers(0, 5)) == 0, tuple(on[name])) for name in names]
    return loads, known, draw(st.integers(1, 7))


@st.composite
def own_hosts(draw: st.DrawFn) -> Crowd:
    """Jobs with hosts of their own, as the paper's, numbered at random; and idle hosts."""
    shapes = draw(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=8))
    numbers = draw(st.permutations(range(1, len(shapes) + 1)))
    known: dict[str, Candidate] = {}
    loads = [HostLoad(f"i{n}", False, ()) for n in range(draw(st.integers(0, 2)))]
    for number, (nodes, ran) in zip(numbers, shapes, strict=True):
        known[str(number)] = Candidate(str(number), nodes, float(ran), float(ran))
        loads += [HostLoad(f"h{len(loads) + n}", False, (str(number),)) for n in range(nodes)]
    return draw(st.permutations(loads)), known, draw(st.integers(1, len(loads)))


def emptied(hosts: list[HostLoad], closed: list[str]) -> list[HostLoad]:
    return [host for host in hosts if all(unit in closed for unit in host.units)]


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(NAMES), crowds(), st.randoms(use_true_random=False))
def test_victims_are_enough_and_the_same_in_any_order(name: str, crowd: Crowd, random: Any) -> None:
    hosts, known, count = crowd
    before = repr(crowd)
    choice = VICTIMS[name](hosts, known, count)
    assert repr(crowd) == before
    wanted = min(count, len(hosts))
    free = {host.name for host in emptied(hosts, choice.victims)}
    assert len(choice.hosts) == len(set(choice.hosts)) == wanted
    assert set(choice.hosts) <= free
    cordoned = sum(1 for host in hosts if host.cordoned)
    given_back = [host for host in hosts if host.name in choice.hosts]
    assert sum(1 for host in given_back if host.cordoned) == min(cordoned, wanted)
    shuffled, rekeyed = list(hosts), dict(reversed(known.items()))
    random.shuffle(shuffled)
    assert VICTIMS[name](shuffled, rekeyed, count) == choice


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(SPARING), crowds())
def test_no_victim_could_be_spared(name: str, crowd: Crowd) -> None:
    hosts, known, count = crowd
    choice, wanted = VICTIMS[name](hosts, known, count), min(count, len(hosts))
    cordoned = sum(1 for host in hosts if host.cordoned)
    for victim in choice.victims:
        left = emptied(hosts, [unit for unit in choice.victims if unit != victim])
        must = sum(1 for host in left if host.cordoned)
        assert len(left) < wanted or must < min(cordoned, wanted)


@settings(max_examples=300, deadline=None)
@given(own_hosts())
def test_with_hosts_of_their_own_it_is_the_papers_greedy_choice(crowd: Crowd) -> None:
    hosts, known, count = crowd
    free = sum(1 for host in hosts if not host.units)
    expected = []
    for job in sorted(known.values(), key=lambda c: (c.nodes, c.running_s, int(c.unit))):
        if free >= count:
            break
        expected.append(job.unit)
        free += job.nodes
    assert VICTIMS["smallest-shortest"](hosts, known, count).victims == expected


@settings(max_examples=300, deadline=None)
@given(own_hosts())
def test_youngest_first_is_the_greedy_choice_by_start_and_then_spares(crowd: Crowd) -> None:
    hosts, known, count = crowd
    free, taken = sum(1 for host in hosts if not host.units), []
    for job in sorted(known.values(), key=lambda c: (c.running_s, -int(c.unit))):
        if free < count:
            taken.append(job)
            free += job.nodes
    for job in reversed(list(taken)):
        if free - job.nodes >= count:
            taken.remove(job)
            free -= job.nodes
    assert VICTIMS["youngest-first"](hosts, known, count).victims == [job.unit for job in taken]


@settings(max_examples=200, deadline=None)
@given(own_hosts())
def test_least_work_lost_is_near_the_least_possible(crowd: Crowd) -> None:
    hosts, known, count = crowd
    idle = sum(1 for host in hosts if not host.units)
    needed = max(0, count - idle)
    subsets = itertools.chain.from_iterable(itertools.combinations(known.values(), n) for n in range(len(known) + 1))
    least = min(loss(list(jobs)) for jobs in subsets if sum(job.nodes for job in jobs) >= needed)
    found = loss([known[unit] for unit in VICTIMS["least-work-lost"](hosts, known, count).victims])
    assert found <= least * sum(1 / n for n in range(1, needed + 1)) + 1e-9


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(NAMES), own_hosts(), st.sets(st.integers(1, 8)))
def test_the_guarded_go_last(name: str, crowd: Crowd, guarded: set[int]) -> None:
    hosts, known, count = crowd
    marked = {unit: each._replace(guarded=int(unit) in guarded) for unit, each in known.items()}
    victims = VICTIMS[name](hosts, marked, count).victims
    others = [unit for unit in known if int(unit) not in guarded]
    if len(emptied(hosts, others)) >= count:
        assert not [unit for unit in victims if int(unit) in guarded]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(NAMES), st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(1, 9))
def test_of_equals_those_go_that_leave_soonest(name: str, graces: list[int], count: int) -> None:
    """They began within one second, as what is placed together does."""
    known = {
        str(n): Candidate(str(n), 1, 50.0 + n / 100, 50.0 + n / 100, late_s=30.0 * late)
        for n, late in enumerate(graces, start=1)
    }
    hosts = [HostLoad(f"h{unit}", False, (unit,)) for unit in known]
    victims = VICTIMS[name](hosts, known, count).victims
    assert sorted(known[unit].late_s for unit in victims) == sorted(30.0 * late for late in graces)[:count]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(NAMES), own_hosts(), st.data())
def test_a_grace_decides_among_equals_alone(name: str, crowd: Crowd, data: st.DataObject) -> None:
    hosts, known, count = crowd
    apart = {
        unit: each._replace(running_s=10.0 * int(unit), lost_s=10.0 * int(unit), waited_s=10.0 * int(unit))
        for unit, each in known.items()
    }
    asked = st.sampled_from((0.0, 30.0, 60.0))
    priced = apart if name not in ("minimum-overhead", "combined") else _priced_apart(apart)
    late = {unit: each._replace(late_s=data.draw(asked)) for unit, each in priced.items()}
    assert VICTIMS[name](hosts, late, count) == VICTIMS[name](hosts, priced, count)
    alike = {unit: each._replace(late_s=30.0) for unit, each in known.items()}
    assert VICTIMS[name](hosts, alike, count) == VICTIMS[name](hosts, known, count)


def _priced_apart(known: dict[str, Candidate]) -> dict[str, Candidate]:
    return {unit: each._replace(overhead_s=float(unit), combined=float(unit) / 10) for unit, each in known.items()}


def loss(jobs: list[Candidate]) -> float:
    return math.fsum(job.nodes * job.lost_s for job in jobs)


# ---------------------------------------------------------------------------------------------------------------- examples


def alone(*jobs: tuple[int, float]) -> tuple[list[HostLoad], dict[str, Candidate]]:
    """Jobs of (nodes, running time), numbered from 1, each with hosts of its own."""
    known = {str(n): Candidate(str(n), nodes, ran, ran) for n, (nodes, ran) in enumerate(jobs, start=1)}
    return [HostLoad(f"h{u}-{n}", False, (u,)) for u, c in known.items() for n in range(c.nodes)], known


def test_the_orders_differ_where_they_should() -> None:
    hosts, known = alone((1, 50.0), (1, 40.0), (2, 30.0), (4, 1.0))
    costs = {"1": (0.0, 90.0, 0.5), "2": (60.0, 10.0, 0.9), "3": (10.0, 80.0, 0.7), "4": (70.0, 20.0, 0.1)}
    priced = {
        unit: known[unit]._replace(waited_s=waited_s, overhead_s=overhead_s, combined=combined)
        for unit, (waited_s, overhead_s, combined) in costs.items()
    }
    found = {name: VICTIMS[name](hosts, priced, 3).victims for name in NAMES}
    assert found == {
        "smallest-shortest": ["2", "1", "3"],  # 4 hosts, though 3 were asked
        "smallest-shortest-spared": ["2", "3"],
        "youngest-first": ["4"],
        "least-work-lost": ["4"],  # 4 node-seconds
        "minimum-waiting-time": ["1", "3"],
        "minimum-overhead": ["4"],  # 2 goes first in thought, and is spared: 4 frees enough alone
        "combined": ["4"],
    }


def test_of_equal_jobs_the_papers_order_takes_the_first_and_the_default_the_last() -> None:
    hosts, known = alone((1, 5.0), (1, 5.0), (1, 5.0))
    assert VICTIMS["smallest-shortest"](hosts, known, 2).victims == ["1", "2"]
    assert VICTIMS["smallest-shortest-spared"](hosts, known, 2).victims == ["3", "2"]


def test_of_equal_tasks_of_an_array_the_default_takes_the_last() -> None:
    known = {unit: Candidate(unit, 1, 5.0, 5.0) for unit in ("7_0", "7_2", "7_1")}
    hosts = [HostLoad(f"h{unit}", False, (unit,)) for unit in known]
    assert VICTIMS["smallest-shortest"](hosts, known, 2).victims == ["7_0", "7_1"]
    assert VICTIMS["smallest-shortest-spared"](hosts, known, 2).victims == ["7_2", "7_1"]


def test_what_would_be_suspended_costs_no_work() -> None:
    hosts, known = alone((1, 50.0), (1, 5.0))
    known["1"] = known["1"]._replace(lost_s=0.0)
    assert VICTIMS["least-work-lost"](hosts, known, 1).victims == ["1"]


def test_least_work_lost_prices_a_wide_job_by_the_hosts_that_are_needed() -> None:
    hosts, known = alone((1, 10.0), (4, 5.0))
    assert VICTIMS["least-work-lost"](hosts, known, 1).victims == ["1"]  # 10 against 20
    assert VICTIMS["least-work-lost"](hosts, known, 4).victims == ["2"]  # 10 for one host against 5 for each of four


def test_least_work_lost_counts_a_host_that_is_needed_as_one() -> None:
    """16 for both hosts is less than 9 for each: a narrow job is not taken for one that empties more."""
    hosts, known = alone((1, 9.0), (1, 9.0), (2, 8.0))
    assert VICTIMS["least-work-lost"](hosts, known, 2).victims == ["3"]


@pytest.mark.parametrize("name", [name for name in SPARING if name != "youngest-first"])
def test_of_hosts_that_cost_the_same_the_one_with_the_job_submitted_last_is_emptied(name: str) -> None:
    known = {unit: Candidate(unit, 1, 5.0, 5.0) for unit in ("1", "6", "3", "4")}
    hosts = [HostLoad("h1", False, ("3", "4")), HostLoad("h2", False, ("1", "6"))]
    assert VICTIMS[name](hosts, known, 1) == Choice(["6", "1"], ["h2"])


def test_the_papers_order_counts_a_host_by_the_job_on_it_that_was_submitted_first() -> None:
    known = {unit: Candidate(unit, 1, 5.0, 5.0) for unit in ("1", "6", "3", "4")}
    hosts = [HostLoad("h1", False, ("3", "4")), HostLoad("h2", False, ("1", "6"))]
    assert VICTIMS["smallest-shortest"](hosts, known, 1) == Choice(["1", "6"], ["h2"])


@pytest.mark.parametrize("name", NAMES)
def test_where_all_must_go_best_effort_is_named_first_and_the_guarded_last(name: str) -> None:
    """Neither is the order of submission, nor that order backwards."""
    hosts, known = alone((1, 5.0), (1, 5.0), (1, 5.0))
    known["1"], known["2"] = known["1"]._replace(guarded=True), known["2"]._replace(best_effort=True)
    assert VICTIMS[name](hosts, known, 3).victims == ["2", "3", "1"]


def test_least_work_lost_counts_hosts_that_are_idle_already_as_not_needed() -> None:
    """Of three one is idle: 21 for the two that are needed is more than 9 for each."""
    hosts, known = alone((1, 9.0), (1, 9.0), (3, 7.0))
    hosts.append(HostLoad("idle", False, ()))
    assert VICTIMS["least-work-lost"](hosts, known, 3).victims == ["2", "1"]


def test_a_victim_is_spared_for_the_hosts_that_it_would_empty_not_for_those_that_it_shares() -> None:
    """1 empties h2 alone: beside 2, which empties two, it is not needed."""
    known = {u: Candidate(u, nodes, ran, ran) for u, nodes, ran in (("1", 2, 1.0), ("2", 2, 5.0), ("3", 1, 50.0))}
    on = {"h1": ("1", "3"), "h2": ("1",), "h3": ("2",), "h4": ("2",)}
    hosts = [HostLoad(name, False, units) for name, units in on.items()]
    assert VICTIMS["youngest-first"](hosts, known, 2) == Choice(["2"], ["h3", "h4"])


@pytest.mark.parametrize(
    ("first", "second", "gone"),
    [
        ({"best_effort": True}, {"best_effort": True}, ["2", "1"]),
        ({"best_effort": True}, {}, ["3"]),  # one of them is production: so is the host
        ({"guarded": True}, {}, ["3"]),
    ],
)
def test_a_host_is_best_effort_if_all_on_it_are_and_guarded_if_one_is(
    first: dict[str, bool], second: dict[str, bool], gone: list[str]
) -> None:
    ran = 1.0 if first.get("guarded") else 100.0  # against 10 of the other host: the price would say otherwise
    known = {"1": Candidate("1", 1, ran, ran, **first), "2": Candidate("2", 1, ran, ran, **second)}  # type: ignore[arg-type]
    known["3"] = Candidate("3", 1, 10.0, 10.0)
    hosts = [HostLoad("h1", False, ("1", "2")), HostLoad("h2", False, ("3",))]
    assert VICTIMS["youngest-first"](hosts, known, 1).victims == gone


def test_a_cordoned_host_goes_first_and_nobody_else_in_thought() -> None:
    """`smallest-shortest` spares nobody."""
    known = {"1": Candidate("1", 1, 100.0, 100.0), "2": Candidate("2", 1, 1.0, 1.0)}
    hosts = [HostLoad("h1", True, ("1",)), HostLoad("h2", False, ("2",))]
    assert VICTIMS["smallest-shortest"](hosts, known, 1) == Choice(["1"], ["h1"])


def test_no_more_cordoned_hosts_are_emptied_than_are_asked_for_nor_others_in_their_place() -> None:
    """`smallest-shortest` spares nobody."""
    hosts, known = alone((1, 1.0), (1, 2.0), (1, 3.0), (1, 4.0))
    cordoned = [host._replace(cordoned=host.name in ("h3-0", "h4-0")) for host in hosts]
    assert VICTIMS["smallest-shortest"](cordoned, known, 1) == Choice(["3"], ["h3-0"])
    assert VICTIMS["smallest-shortest"](cordoned, known, 3) == Choice(["1", "3", "4"], ["h3-0", "h4-0", "h1-0"])


@pytest.mark.parametrize(
    ("jobs", "cordoned", "count", "expected"),
    [
        # The narrow job of other hosts is not needed beside the wide one; that of the cordoned host has to go.
        ([(1, 1.0), (1, 2.0), (2, 3.0)], ("h1-0",), 3, Choice(["1", "3"], ["h1-0", "h3-0", "h3-1"])),
        # One of two hosts is too many, but not the cordoned one.
        ([(1, 1.0), (2, 2.0)], ("h1-0",), 2, Choice(["1", "2"], ["h1-0", "h2-0"])),
        # Two hosts are too many, and one cordoned host.
        (
            [(1, 1.0), (1, 2.0), (3, 3.0)],
            ("h1-0", "h2-0", "h3-0", "h3-1"),
            3,
            Choice(["1", "3"], ["h1-0", "h3-0", "h3-1"]),
        ),
    ],
)
def test_nobody_is_spared_on_a_cordoned_host_that_has_to_go(
    jobs: list[tuple[int, float]], cordoned: tuple[str, ...], count: int, expected: Choice
) -> None:
    hosts, known = alone(*jobs)
    marked = [host._replace(cordoned=host.name in cordoned) for host in hosts]
    assert VICTIMS["smallest-shortest-spared"](marked, known, count) == expected


def test_of_hosts_that_cost_the_same_the_first_by_name_is_emptied() -> None:
    """Job 9 is on all of them, and is submitted last; h1 and h3 have the same jobs."""
    known = {unit: Candidate(unit, 2, 5.0, 5.0) for unit in ("1", "2", "9")}
    hosts = [HostLoad("h3", False, ("1", "9")), HostLoad("h2", False, ("2", "9")), HostLoad("h1", False, ("1", "9"))]
    for order in itertools.permutations(hosts):
        assert VICTIMS["minimum-overhead"](order, known, 1) == Choice(["9", "1"], ["h1"])


def test_a_host_is_cheaper_once_a_job_on_it_ends_for_another_host() -> None:
    """2 ends for h2: then h1 costs 5, and not 6 any more, against 5.5."""
    known = {u: Candidate(u, 1, 0.0, 0.0, overhead_s=cost) for u, cost in (("1", 5.0), ("2", 1.0), ("3", 5.5))}
    hosts = [HostLoad("h1", False, ("1", "2")), HostLoad("h2", False, ("2",)), HostLoad("h3", False, ("3",))]
    assert VICTIMS["minimum-overhead"](hosts, known, 2) == Choice(["2", "1"], ["h1", "h2"])


def test_least_work_lost_prices_a_wide_job_anew_when_fewer_hosts_are_needed() -> None:
    """Once 1 has gone in thought, two are needed: of the wide one 6 for each, not 4, but that is less than 9 still."""
    hosts, known = alone((1, 3.0), (3, 4.0), (1, 9.0))
    assert VICTIMS["least-work-lost"](hosts, known, 3).victims == ["2"]


def test_least_work_lost_counts_no_host_that_others_keep_occupied() -> None:
    """1 is on two hosts and would empty one: 10 for it, not 5."""
    known = {u: Candidate(u, nodes, lost, lost) for u, nodes, lost in (("1", 2, 5.0), ("2", 1, 99.0), ("3", 1, 8.0))}
    hosts = [HostLoad("h1", False, ("1",)), HostLoad("h2", False, ("1", "2")), HostLoad("h3", False, ("3",))]
    assert VICTIMS["least-work-lost"](hosts, known, 1) == Choice(["3"], ["h3"])
    more = {**known, "4": Candidate("4", 1, 7.0, 7.0)}
    assert VICTIMS["least-work-lost"]([*hosts, HostLoad("h4", False, ("4",))], more, 2).victims == ["4", "3"]


def test_a_host_is_as_late_as_the_last_of_its_jobs() -> None:
    """By the job submitted last h1 would be first."""
    late = {"1": 30.0, "2": 30.0, "3": 0.0, "4": 60.0}
    known = {unit: Candidate(unit, 1, 5.0, 5.0, late_s=late_s) for unit, late_s in late.items()}
    hosts = [HostLoad("h1", False, ("3", "4")), HostLoad("h2", False, ("1", "2"))]
    assert VICTIMS["minimum-overhead"](hosts, known, 1).hosts == ["h2"]


def test_an_old_job_on_a_shared_host_protects_its_young_neighbour() -> None:
    known = {u: Candidate(u, 1, ran, ran) for u, ran in (("1", 50.0), ("2", 1.0), ("3", 10.0))}
    hosts = [HostLoad("h1", False, ("1", "2")), HostLoad("h2", False, ("3",))]
    assert VICTIMS["youngest-first"](hosts, known, 1).victims == ["3"]


@pytest.mark.parametrize("name", NAMES)
def test_idle_hosts_cost_nobody_anything(name: str) -> None:
    hosts = [HostLoad("h1", False, ("1",)), HostLoad("h2", False, ())]
    assert VICTIMS[name](hosts, {"1": Candidate("1", 1, 0.0, 0.0)}, 1) == Choice([], ["h2"])
