"""Ranks of jobs: by priority or by points, as of which moment, and what their users are credited with."""

from __future__ import annotations

import math
import random
from typing import Any

import msgspec
import pytest

from schemas.config import BatchPolicy, CloudConfig, MultiFactor, Quality, User
from schemas.ids import job_of
from schemas.size import Size
from services.domain.core import NEVER
from services.domain.custody.custody import Custody
from services.domain.custody.state import Host, Unit
from services.scheduler.core.batch.priority import BEHIND, Priorities
from services.scheduler.core.batch.state import Job, State
from services.scheduler.core.policies import order_multi_factor as multi
from services.scheduler.core.state.shape import Place
from services.scheduler.core.state.usage import Account, Holding
from tests.support.sizes import sized
from tests.support.world import batch, cloud

PERIOD_S, AT = 300.0, 6000.0
QUALITY = {"urgent": Quality(priority=50), "low": Quality(priority=-30)}
FACTORS = MultiFactor(
    weight_age=700.0,
    weight_fair_share=900.0,
    weight_size=1100.0,
    weight_quality=1300.0,
    weight_user=1700.0,
    weight_department=1900.0,
    age_full_s=1000.0,
    size_full_cores=8,
    half_life_s=500.0,
    period_s=PERIOD_S,
    shares={"ann": 2.0},
    users={"ann": 0.5, "bob": -0.25},
)


def job(**fields: Any) -> Job:
    given: dict[str, Any] = {"nodes": 1, "cores": 1, "memory_mb": 1, "exclusive": False, "walltime_s": 10.0}
    given |= {"priority": 0, "on_reclaim": None, "array": (), "throttle": 0, "after": (), "entered": 0, "left": 1}
    return Job(**sized(given | {"user": "ann"} | fields))


def site(**policy: Any) -> CloudConfig:
    given: dict[str, Any] = {"order": "multi-factor", "multi_factor": FACTORS, "quality": QUALITY} | policy
    config = cloud(batch("hpc", weight=2.0, **given), batch("bio", weight=8.0))
    users = (User(name="cyd", department="hpc"), User(name="eve", department="bio"))
    return msgspec.structs.replace(config, users=users)


def ranking(jobs: dict[str, Job] | None = None, config: CloudConfig | None = None) -> Priorities:
    custody, state = Custody(), State(jobs=jobs or {})
    custody.state.config = site() if config is None else config
    return Priorities(custody, "hpc", state, lambda unit: state.jobs.get(unit) or state.jobs[job_of(unit)])


def places(jobs: dict[str, Job]) -> list[Place]:
    units = [unit for name in jobs for unit in jobs[name].units(name)]
    return [Place(0, number, unit) for number, unit in enumerate(units)]


def some_jobs(rng: random.Random) -> dict[str, Job]:
    def one(name: int) -> Job:
        return job(
            user=rng.choice(["ann", "bob", "cyd", "dan"]),
            priority=rng.choice([0, 0, 10, 90, -90]),
            quality=rng.choice(["", "urgent", "low", "gone"]),
            nodes=rng.choice([1, 2]),
            cores=rng.choice([1, 3, 9]),
            best_effort=rng.random() < 0.3,
            since=rng.choice([AT + 50.0, AT, AT - 0.9, AT - 10.0, AT - 500.0, AT - 1500.0, AT - 5000.0]),
            array=rng.choice([(), (), (0, 1)]),
        )

    return {str(name): one(name) for name in range(rng.randrange(1, 12))}


@pytest.mark.parametrize("seed", range(25))
def test_many_are_ranked_as_each_is_by_the_points_of_now(seed: int) -> None:
    rng = random.Random(seed)
    jobs = some_jobs(rng)
    found = ranking(jobs)
    found.state.usage.accounts = {"ann": Account(900.0, AT - 200.0), "bob": Account(400.0, AT - 700.0)}
    found.look(AT + 10.0)
    usage = {"ann": 900.0 * 2 ** (-200 / 500), "bob": 400.0 * 2 ** (-700 / 500)}
    fair = multi.fair(FACTORS, usage, ["cyd"])
    expected: dict[str, int] = {}
    lanes: dict[object, list[Place]] = {}
    for place in places(jobs):
        one = found.job(place.unit)
        lanes.setdefault((one.shape, one.kind), []).append(place)
        asked = one.priority + {"urgent": 50, "low": -30}.get(one.quality, 0)
        share = fair[one.user].factor if one.user in fair else 1.0
        cores = one.nodes * one.size.cores
        points = multi.points(FACTORS, AT - one.since, share, cores, asked, one.user, 0.25)
        assert found.points(one) == points
        expected[place.unit] = (BEHIND if one.best_effort else 0) - math.floor(sum(points))
    for lane in [*lanes.values()] * 2:  # what is remembered of users is the same
        assert found.ranks(lane) == [expected[place.unit] for place in lane]
        assert [found.rank(place.unit) for place in lane] == [expected[place.unit] for place in lane]
    assert list(found.fair) == ["ann", "bob", "cyd"]


@pytest.mark.parametrize("seed", range(5))
def test_without_points_priority_and_that_of_the_quality_count(seed: int) -> None:
    jobs = some_jobs(random.Random(seed))
    found = ranking(jobs, site(order="fcfs"))
    found.look(AT)
    for place in places(jobs):
        one = found.job(place.unit)
        asked = one.priority + {"urgent": 50, "low": -30}.get(one.quality, 0)
        assert found.rank(place.unit) == (BEHIND if one.best_effort else 0) - asked
    assert found.ranks(places(jobs)) == [found.rank(place.unit) for place in places(jobs)]
    assert (found.at, found.fair, found.department) == (0.0, {}, 0.0)


def test_without_a_configuration_the_defaults_hold() -> None:
    found = ranking({"1": job(priority=7)})
    found.custody.state.config = None
    assert not found.look(AT), "they are those that it began with"
    assert (found.rank("1"), found.policy, found.at) == (-7, BatchPolicy(), 0.0)
    assert found.next_moment(AT, iter([job()])) == NEVER


def test_points_are_those_of_the_last_moment_until_the_next_one() -> None:
    found = ranking({"1": job()})
    assert found.look(AT + PERIOD_S - 1.0)
    assert found.at == AT
    assert not found.stale(AT + PERIOD_S - 0.5)
    assert not found.look(AT + PERIOD_S - 0.5)
    assert found.look(AT + PERIOD_S)
    assert found.at == AT + PERIOD_S
    found.custody.state.at = AT + 3 * PERIOD_S + 1.0
    assert found.look(AT), "the journal has come further than its clock"
    assert found.at == AT + 3 * PERIOD_S
    found.state.usage.moment = AT + 5 * PERIOD_S
    assert found.look(AT)
    assert found.at == AT + 5 * PERIOD_S


def test_until_somebody_is_credited_the_next_fact_may_belong_before_the_moment() -> None:
    found = ranking({"1": job()})
    found.look(AT)
    found.custody.state.position += 1
    assert found.stale(AT)
    assert not found.look(AT), "nobody stands otherwise"
    found.custody.state.position += 1
    found.state.usage.accounts = {"bob": Account(50.0, AT)}
    assert found.look(AT)
    found.state.usage.moment, found.state.usage.standing = AT, {"ann": 1.0}
    assert found.look(AT)
    assert found.fair["ann"].used == 1.0
    found.custody.state.position += 1
    assert not found.stale(AT), "what stood then stays"


def test_what_is_open_counts_the_same_to_the_bit_in_whatever_order_it_is_known() -> None:
    def standing(names: str) -> float:
        found = ranking({name: job() for name in names})
        for name in names:
            opened(found, name, placed_at=AT - 2.7 ** int(name) / 10, cores=int(name))
        found.look(AT)
        return found._standing(AT)["ann"]

    assert standing("123456789") == standing("987654321")


def test_what_was_worked_out_of_users_is_forgotten_when_they_stand_otherwise() -> None:
    found = ranking({"1": job(user="bob"), "2": job()})
    for used in (0.0, 1e9):
        found.state.usage.accounts = {"ann": Account(50.0, AT), "bob": Account(used, AT)}
        found.custody.state.position += 1
        assert found.look(AT)
        assert found.ranks(places(found.state.jobs)) == [found.rank("1"), found.rank("2")]


def test_a_configuration_counts_at_once() -> None:
    found = ranking({"1": job(quality="urgent")})
    found.look(AT)
    assert found.department == 0.25
    found.custody.state.config = msgspec.structs.replace(site(), departments=site().departments[:1])
    assert found.look(AT)
    assert found.department == 1.0
    found.custody.state.config = site(order="fcfs")
    assert found.look(AT)
    assert found.rank("1") == -50
    found.custody.state.config = site(order="fcfs", quality={"urgent": Quality(priority=60)})
    assert found.look(AT)
    assert found.rank("1") == -60
    assert not found.stale(AT + 5 * PERIOD_S)


def opened(found: Priorities, name: str, **fields: Any) -> None:
    given: dict[str, Any] = {"state": "open", "placed_at": AT - 100.0, "cores": 2, "nodes": 3, "hosts": ("a", "b", "x")}
    found.custody.state.units[name] = Unit(id=name, dept="hpc", **sized(given | fields))
    found.custody.index.open.setdefault("hpc", {})[name] = None
    for host, cores in (("a", 8), ("b", 16)):
        found.custody.state.hosts[host] = Host(name=host, size=Size(cores))


@pytest.mark.parametrize(
    ("jobs", "running", "moment"),
    [
        ([], False, NEVER),
        ([], True, NEVER),
        ([AT - 1000.0], False, NEVER),
        ([AT - 999.0], False, AT + PERIOD_S),
        ([AT - 5000.0, AT - 5.0], False, AT + PERIOD_S),
        ([AT - 5.0, AT - 5000.0], False, AT + PERIOD_S),
        ([AT - 5000.0], True, AT + PERIOD_S),
    ],
)
def test_priorities_change_while_cores_are_held_or_somebody_who_waits_grows_older(
    jobs: list[float], running: bool, moment: float
) -> None:
    found = ranking()
    if running:
        opened(found, "1")
    assert found.next_moment(AT + 1.0, iter([job(since=since) for since in jobs])) == moment
    found.custody.state.config = site(order="fcfs")
    assert found.next_moment(AT, iter([job(since=since) for since in jobs])) == NEVER


def credited(found: Priorities) -> dict[str, float]:
    return {user: account.core_s for user, account in found.state.usage.accounts.items()}


@pytest.mark.parametrize(("exclusive", "cores"), [(False, 6), (True, 24)])
def test_an_attempt_that_is_over_is_credited_with_its_cores_or_those_of_its_whole_hosts(
    exclusive: bool, cores: int
) -> None:
    factors = msgspec.structs.replace(FACTORS, half_life_s=0.0)
    found = ranking({"7": job(user="bob", array=(0, 1))}, site(multi_factor=factors))
    opened(found, "7_0", exclusive=exclusive)
    found.custody.state.at = AT
    found.over("7_0", ("a", "b", "x"))
    assert credited(found) == {"bob": cores * 100.0}
    found.over("9", ())
    opened(found, "7_1", placed_at=None)
    found.over("7_1", ("a",))
    assert credited(found) == {"bob": cores * 100.0}


@pytest.mark.parametrize(
    ("weights", "exclusive", "worth"),
    [
        ({}, False, 3 * 2.0),
        ({"usage_per_core": 2.5}, False, 3 * 2 * 2.5),
        ({"usage_per_gb": 0.5}, False, 3 * (2 + 1.5 * 0.5)),
        ({"usage_per_gpu": 8.0}, False, 3 * (2 + 4 * 8.0)),
        ({"usage_per_core": 0.0, "usage_per_gpu": 1.0}, False, 3 * 4.0),
        ({"usage_per_core": 0.0}, False, 0.0),
        ({"usage_per_gb": 0.25, "usage_per_gpu": 8.0}, True, 24 + (2 + 64) * 0.25 + 5 * 8.0),
    ],
)
def test_usage_counts_each_dimension_by_its_weight(weights: dict[str, float], exclusive: bool, worth: float) -> None:
    factors = msgspec.structs.replace(FACTORS, half_life_s=0.0, **weights)
    found = ranking({"7": job()}, site(multi_factor=factors))
    opened(found, "7", exclusive=exclusive, memory_mb=1536, gpus=4)
    for host, size in (("a", Size(8, 2048, 5)), ("b", Size(16, 65536))):
        found.custody.state.hosts[host] = Host(name=host, size=size)
    assert [(holding.user, holding.cores) for holding in found._open()] == [("ann", worth)]
    found.custody.state.at = AT
    found.over("7", ("a", "b", "x"))
    assert credited(found) == {"ann": worth * 100.0}


def test_whole_hosts_that_nobody_knows_count_as_what_was_asked_for() -> None:
    factors = msgspec.structs.replace(FACTORS, half_life_s=0.0)
    found = ranking({"7": job()}, site(multi_factor=factors))
    opened(found, "7", exclusive=True)
    found.custody.state.at = AT
    found.over("7", ("x", "y"))
    assert credited(found) == {"ann": 600.0}


def test_before_the_first_credit_after_a_moment_what_all_had_used_then_is_kept() -> None:
    factors = msgspec.structs.replace(FACTORS, half_life_s=0.0)
    jobs = {"1": job(), "2": job(user="bob"), "3": job(user="cyd"), "4": job(user="dan")}
    found = ranking(jobs, site(multi_factor=factors))
    opened(found, "1", placed_at=AT - 10.0)
    opened(found, "2", placed_at=AT - 20.0)
    opened(found, "3", placed_at=AT + 5.0)
    opened(found, "nobody")
    opened(found, "4", placed_at=None)
    found.look(AT + 5.0)
    assert {user: fair.used for user, fair in found.fair.items()} == {
        "ann": pytest.approx(1 / 3),
        "bob": pytest.approx(2 / 3),
        "cyd": 0.0,
    }
    del found.custody.index.open["hpc"]["1"]
    found.custody.state.at = AT + 10.0
    found.over("1", ("a", "b", "x"))
    usage = found.state.usage
    assert (usage.moment, usage.standing) == (AT, {"ann": 60.0, "bob": 120.0, "cyd": 0.0})
    assert credited(found) == {"ann": 120.0}
    found.over("2", ("a", "b", "x"))
    assert (usage.moment, usage.standing) == (AT, {"ann": 60.0, "bob": 120.0, "cyd": 0.0}), "as it was at the moment"
    assert Holding("bob", 6, AT - 20.0).cores * 30.0 == credited(found)["bob"]
