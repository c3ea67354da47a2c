"""The balancer's table: who is in service, who gets the next request, and what events and audits may change."""

from __future__ import annotations

import pytest

from phoenix.local.balancer.meter import Meter
from phoenix.local.balancer.pool import Instance, Listed, Pool


def pool_of(*units: str, healthy: bool = True) -> Pool:
    pool = Pool(drain_s=5.0, cores=1.0)
    for number, unit in enumerate(units):
        pool.began(unit, 1, [f"127.0.0.1:{9000 + number}"], now=0.0)
    if healthy:
        for instance in pool.all():
            pool.answered(instance, 0.0)
    return pool


def names(instances: list[Instance]) -> list[str]:
    return [instance.unit for instance in instances]


def test_an_instance_serves_only_after_its_first_good_probe() -> None:
    pool = pool_of("web.1", healthy=False)
    assert pool.choose() is None
    pool.answered(pool.all()[0], 1.0)
    assert names(pool.in_service()) == ["web.1"]


def test_the_fewest_open_requests_win_then_the_longest_unused() -> None:
    pool = pool_of("web.1", "web.2", "web.3")
    order = []
    for _ in range(4):
        chosen = pool.choose()
        assert chosen is not None
        order.append(chosen.unit)
    assert order == ["web.1", "web.2", "web.3", "web.1"]
    for instance in pool.all():
        instance.open_requests = 0 if instance.unit == "web.1" else 2
    assert [one.unit for one in (pool.choose(), pool.choose()) if one] == ["web.1", "web.1"]


def test_a_failed_connection_ejects_at_once_and_probes_are_patient() -> None:
    pool = pool_of("web.1", "web.2")
    first, second = pool.all()
    pool.eject(first)
    assert names(pool.in_service()) == ["web.2"]
    pool.missed(second)
    assert second.in_service
    pool.missed(second)
    assert not second.in_service
    pool.answered(first, 2.0)
    assert names(pool.in_service()) == ["web.1"]
    assert pool.choose(without=first) is None


def test_a_closed_attempt_drains_and_is_forgotten_when_its_requests_end_or_time_is_up() -> None:
    pool = pool_of("web.1", "web.2")
    first, second = pool.all()
    first.open_requests = second.open_requests = 1
    pool.closed("web.1", 1, now=10.0)
    pool.closed("web.2", 1, now=10.0)
    assert pool.choose() is None
    assert pool.forget_drained(11.0) == []
    first.open_requests = 0
    assert names(pool.forget_drained(12.0)) == ["web.1"]
    assert names(pool.forget_drained(15.0)) == ["web.2"]
    assert pool.all() == []


def test_a_late_began_does_not_bring_back_a_closed_attempt_but_a_new_attempt_serves() -> None:
    pool = pool_of()
    pool.closed("web.1", 1, now=1.0)
    pool.began("web.1", 1, ["127.0.0.1:9000"], now=2.0)
    assert pool.all() == []
    pool.began("web.1", 2, ["127.0.0.1:9001", None], now=3.0)
    assert [(one.attempt, one.rank) for one in pool.all()] == [(2, 0)]


def test_an_audit_adds_drains_and_spares_what_is_newer_than_its_question() -> None:
    pool = pool_of("web.1", "web.2")
    pool.began("web.9", 1, ["127.0.0.1:9009"], now=20.0)
    listed = [
        Listed("web.2", 1, "127.0.0.1:9001", draining=True, cores=2.0),
        Listed("web.3", 1, "127.0.0.1:9002", draining=False, cores=2.0),
        Listed("web.4", 1, "", draining=False, cores=2.0),
    ]
    pool.audited(listed, asked_at=10.0, now=21.0)
    state = {one.unit: one.draining_since is not None for one in pool.all()}
    assert state == {"web.1": True, "web.2": True, "web.3": False, "web.9": False}
    assert next(one.cores for one in pool.all() if one.unit == "web.3") == 2.0


def test_utilisation_is_used_over_allowed_of_instances_in_service_for_an_interval() -> None:
    pool, meter = pool_of("web.1", "web.2"), Meter(core_share=0.05, interval_s=0.25)
    first, second = pool.all()
    second.cores = 3.0
    for instance, cpu_s in ((first, 0.05), (second, 0.0)):
        meter.sample(instance.key, 1.0, 7.0)
        meter.sample(instance.key, 2.0, 7.0 + cpu_s)
    reading = meter.read(pool.all(), now=2.0)
    assert reading is not None
    assert reading.utilisation == pytest.approx(0.25)
    assert reading.instances == 2
    second.healthy_since = 1.9
    reading = meter.read(pool.all(), now=2.0)
    assert reading is not None
    assert reading.utilisation == pytest.approx(1.0)
    assert reading.instances == 1


def test_nothing_measured_is_no_reading_and_a_restarted_process_starts_over() -> None:
    pool, meter = pool_of("web.1"), Meter(core_share=0.05, interval_s=0.25)
    [instance] = pool.all()
    assert meter.read(pool.all(), now=1.0) is None
    meter.sample(instance.key, 1.0, 50.0)
    meter.sample(instance.key, 2.0, 0.1)
    assert meter.read(pool.all(), now=2.0) is None
    meter.sample(instance.key, 3.0, 0.125)
    reading = meter.read(pool.all(), now=3.0)
    assert reading is not None
    assert reading.utilisation == pytest.approx(0.5)
