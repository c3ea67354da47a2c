"""The balancer's table: who is in service, who gets the next request, and what events and audits may change."""

from __future__ import annotations

from datetime import UTC, datetime

from phoenix.balance.feed import Listed
from phoenix.balance.reporter import Report
from phoenix.local.balancer.pool import Instance, Pool


def pool_of(*units: str, healthy: bool = True) -> Pool:
    pool = Pool(drain_s=5.0, connections=64)
    for number, unit in enumerate(units):
        pool.began(unit, 1, [f"127.0.0.1:{9000 + number}"], now=0.0)
    if healthy:
        for instance in pool.all():
            pool.answered(instance)
    return pool


def names(instances: list[Instance]) -> list[str]:
    return [instance.unit for instance in instances]


def test_an_instance_serves_only_after_its_first_good_probe() -> None:
    pool = pool_of("web.1", healthy=False)
    assert pool.choose() is None
    pool.answered(pool.all()[0])
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
    pool.missed(second, "503")
    assert second.in_service
    pool.missed(second, "503")
    assert not second.in_service
    pool.answered(first)
    assert names(pool.in_service()) == ["web.1"]
    second.open_requests, first.connections = 64, 1
    assert pool.choose() is first
    first.open_requests = 1
    assert pool.choose() is None


def test_a_closed_attempt_gets_nothing_and_is_forgotten_when_its_requests_end_or_time_is_up() -> None:
    pool = pool_of("web.1", "web.2")
    first, second = pool.all()
    first.open_requests = second.open_requests = 1
    pool.closed("web.1", 1, now=10.0)
    pool.closed("web.2", 1, now=10.0)
    assert pool.choose() is None
    assert pool.forget_closed(11.0) == []
    first.open_requests = 0
    assert names(pool.forget_closed(12.0)) == ["web.1"]
    assert names(pool.forget_closed(15.0)) == ["web.2"]
    assert pool.all() == []


def test_a_late_began_does_not_bring_back_a_closed_attempt_but_a_new_attempt_serves() -> None:
    pool = pool_of()
    pool.closed("web.1", 1, now=1.0)
    pool.began("web.1", 1, ["127.0.0.1:9000"], now=2.0)
    assert pool.all() == []
    pool.began("web.1", 2, ["127.0.0.1:9001", None], now=3.0)
    assert [(one.attempt, one.rank) for one in pool.all()] == [(2, 0)]


def test_an_audit_adds_drains_and_spares_what_is_newer_than_its_question() -> None:
    pool = pool_of("web.1", "web.2", "web.5")
    pool.began("web.9", 1, ["127.0.0.1:9009"], now=20.0)
    listed = [
        Listed(
            unit="web.2",
            attempt=1,
            address="127.0.0.1:9001",
            state="draining",
            cores=2.0,
            drains_until=datetime.fromtimestamp(99.0, UTC),
        ),
        Listed(unit="web.3", attempt=1, address="127.0.0.1:9002", state="running", cores=2.0, health_path="/new"),
        Listed(unit="web.4", attempt=1, state="starting"),
        Listed(unit="web.5", attempt=1, state="draining"),  # over: only its VM runs off
    ]
    pool.audited(listed, asked_at=10.0, now=21.0)
    state = {one.unit: one.state for one in pool.all()}
    assert state == {
        "web.1": "closed",
        "web.2": "draining",
        "web.3": "unhealthy",
        "web.5": "closed",
        "web.9": "unhealthy",
    }
    assert next((one.cores, one.health_path) for one in pool.all() if one.unit == "web.3") == (2.0, "/new")


def test_a_draining_instance_gets_no_new_request_and_is_drained_when_its_last_one_has_ended() -> None:
    pool = pool_of("web.1", "web.2")
    first, second = pool.all()
    first.open_requests = 1
    pool.draining("web.1", 1, until=60.0, now=10.0)
    assert [one.unit for one in (pool.choose(), pool.choose()) if one] == ["web.2", "web.2"]
    assert pool.reports() == []
    first.open_requests = 0
    assert pool.reports() == [Report("web.1", 1, "drained")]
    assert pool.reports() == []
    assert pool.forget_closed(99.0) == []  # until it is closed it stays
    pool.closed("web.1", 1, now=100.0)
    assert names(pool.forget_closed(100.0)) == ["web.1"]
    assert second.in_service


def test_what_fails_its_probes_is_unready_with_its_last_answer_and_ready_when_it_is_back() -> None:
    pool = pool_of("web.1", "web.2")
    first, second = pool.all()
    pool.eject(first)
    assert pool.reports() == []  # a connection that failed: the next probe says how it is
    pool.missed(first, "/healthz: no answer within 2 s")
    assert pool.reports() == []
    pool.missed(first, "/healthz answered HTTP 500")
    assert pool.reports() == [Report("web.1", 1, "unready", "/healthz answered HTTP 500")]
    pool.answered(first)
    assert pool.reports() == [Report("web.1", 1, "ready")]
    assert pool.reports() == []
    pool.eject(second)
    pool.draining("web.2", 1, until=None, now=21.0)
    assert pool.reports() == [Report("web.2", 1, "drained")]


def test_what_has_never_answered_is_unready_after_as_many_probes() -> None:
    pool = pool_of("web.1", healthy=False)
    (one,) = pool.all()
    assert pool.reports() == []
    pool.missed(one, "/healthz: connection refused")
    pool.missed(one, "/healthz: connection refused")
    assert pool.reports() == [Report("web.1", 1, "unready", "/healthz: connection refused")]
