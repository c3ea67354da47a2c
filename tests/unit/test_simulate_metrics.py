"""Metrics of a simulated run: each on an outcome that is small enough to compute by hand, and what must hold for any."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phoenix.simulate.metrics import (
    Distribution,
    Metrics,
    bounded_slowdown,
    distribution,
    hosts_gained,
    load_and_service,
    measure,
    nearest_rank,
    requeues,
    stretches,
    turnaround_s,
    wait_s,
)
from phoenix.simulate.workload import End, JobRecord, Outcome, WebRecord

WINDOW_S = 1000.0


def job(
    number: int,
    *,
    department: str = "hpc",
    submit_s: float = 0.0,
    start_s: float | None = None,
    end_s: float | None = None,
    end: End = "unfinished",
    run_s: float = 100.0,
    nodes: int = 1,
    cores: int = 1,
    preempted: int = 0,
    ran: float = 0.0,
    lost: float = 0.0,
) -> JobRecord:
    return JobRecord(
        number=number,
        department=department,
        user="u",
        submit_s=submit_s,
        run_s=run_s,
        nodes=nodes,
        cores=cores,
        start_s=start_s,
        last_start_s=start_s,
        end_s=end_s,
        end=end,
        preempted=preempted,
        lost_node_s=lost,
        ran_node_s=ran,
    )


def outcome(
    *jobs: JobRecord,
    hosts: int = 10,
    host_cores: int = 1,
    web: list[WebRecord] | None = None,
    held: list[tuple[float, str, int]] | None = None,
    window_s: float = WINDOW_S,
) -> Outcome:
    return Outcome(
        label="run",
        hosts=hosts,
        window_s=window_s,
        host_cores=host_cores,
        jobs=list(jobs),
        web=web or [],
        held=held or [],
    )


def done(number: int, submit_s: float, start_s: float, end_s: float) -> JobRecord:
    """A job that completed undisturbed."""
    ran_s = end_s - start_s
    return job(number, submit_s=submit_s, start_s=start_s, end_s=end_s, end="completed", run_s=ran_s, ran=ran_s)


# ------------------------------------------------------------------------------------------------------------- of one job


def test_the_times_of_a_job() -> None:
    one = done(1, submit_s=100, start_s=130, end_s=190)
    assert (turnaround_s(one), wait_s(one), bounded_slowdown(one)) == (90, 30, 1.5)


def test_short_jobs_are_slowed_down_against_ten_seconds_and_nobody_is_sped_up() -> None:
    assert bounded_slowdown(done(1, submit_s=0, start_s=28, end_s=30)) == 3.0  # 30 / max(2, 10)
    assert bounded_slowdown(done(1, submit_s=0, start_s=0, end_s=2)) == 1.0  # not 0.2


def test_a_job_that_never_started_has_no_times() -> None:
    assert (turnaround_s(job(1)), wait_s(job(1)), bounded_slowdown(job(1))) == (None, None, None)


@pytest.mark.parametrize(
    ("preempted", "end", "expected"), [(0, "completed", 0), (3, "completed", 3), (1, "killed", 0), (3, "killed", 2)]
)
def test_the_preemption_that_kills_is_no_requeue(preempted: int, end: End, expected: int) -> None:
    assert requeues(job(1, preempted=preempted, end=end, end_s=5.0), WINDOW_S) == expected


# ---------------------------------------------------------------------------------------------------------- distributions


def test_percentiles_are_values_that_were_there() -> None:
    values = [float(n) for n in range(1, 11)]
    assert distribution(reversed(values)) == Distribution(
        count=10, mean=5.5, median=5.0, p90=9.0, p95=10.0, p99=10.0, max=10.0
    )
    assert nearest_rank([7.0], 1) == nearest_rank([7.0], 100) == 7.0
    assert distribution([]) == Distribution(count=0)


# ------------------------------------------------------------------------------------------------------------------- jobs


def test_jobs_are_counted_by_how_they_ended_within_the_window() -> None:
    total = measure(
        outcome(
            done(1, 0, 0, 100),
            done(2, 0, 900, 1000),  # the last instant counts
            done(3, 0, 900, 1000.5),  # after it, nothing does
            job(4, start_s=5, end_s=50, end="killed", preempted=2),
            job(5, start_s=5, end_s=500, end="timeout"),
            job(6, end_s=3, end="cancelled"),
            job(7, start_s=1, end_s=3, end="failed"),
            job(8, end="refused"),
            job(9),
            job(10, start_s=900, preempted=1),
        )
    ).total
    assert total.submitted == 10
    assert (total.completed, total.killed, total.timeout) == (2, 1, 1)
    assert (total.cancelled, total.failed, total.refused) == (1, 1, 1)
    assert (total.unfinished, total.never_started) == (3, 1)
    assert (total.preempted, total.requeued, total.requeued_jobs) == (3, 2, 2)


def test_times_are_those_of_completed_jobs_alone() -> None:
    total = measure(
        outcome(
            done(1, 10, 20, 120),
            done(2, 30, 70, 270),
            job(3, submit_s=0, start_s=500, end_s=900, end="killed"),
            job(4, submit_s=0, start_s=500),
        )
    ).total
    assert (total.turnaround_s.mean, total.turnaround_s.max, total.turnaround_s.count) == (175, 240, 2)
    assert total.wait_s.mean == 25
    assert total.bounded_slowdown.mean == pytest.approx((1.1 + 1.2) / 2)
    assert total.makespan_s == 270  # from the first submission, of whichever job, to the last completion


def test_users_fare_alike_by_jains_index_of_their_mean_slowdowns() -> None:
    def of(user: str, each: JobRecord) -> JobRecord:
        return msgspec.structs.replace(each, user=user)

    alike = [of("ada", done(1, 0, 100, 200)), of("bob", done(2, 0, 100, 200))]
    assert measure(outcome(*alike)).total.user_fairness == pytest.approx(1.0)
    # ada: slowdowns 2 and 4, so 3; bob: 1.  (3 + 1)² / (2 · (9 + 1))
    apart = [of("ada", done(1, 0, 100, 200)), of("ada", done(2, 0, 300, 400)), of("bob", done(3, 0, 0, 100))]
    assert measure(outcome(*apart, of("bob", job(4)))).total.user_fairness == pytest.approx(16 / 20)


def test_nothing_completed_is_none_and_not_zero() -> None:
    total = measure(outcome(job(1))).total
    assert total.turnaround_s.mean is None
    assert total.user_fairness is None
    assert total.makespan_s is None


def test_utilisation_is_of_all_hosts_and_departments_add_up() -> None:
    measured = measure(
        outcome(
            job(1, department="b", nodes=2, ran=1000, lost=400, preempted=1),
            job(2, department="a", ran=500, lost=500, start_s=0, end_s=500, end="timeout"),
        )
    )
    assert [each.department for each in measured.batch] == ["a", "b"]
    assert [each.allocated_utilisation for each in measured.batch] == [0.05, 0.1]
    assert measured.total.allocated_utilisation == pytest.approx(0.15)
    assert measured.total.useful_utilisation == pytest.approx(0.06)
    assert (measured.total.lost_node_s, measured.total.preemption_lost_node_s) == (900, 400)


def test_jobs_that_share_a_host_count_their_cores() -> None:
    """Four jobs of two cores each on a host of eight: the host is full, not used four times."""
    jobs = [job(n, cores=2, ran=1000) for n in range(4)]
    assert measure(outcome(*jobs, hosts=1, host_cores=8)).total.allocated_utilisation == 1.0


# ------------------------------------------------------------------------------------------------------------------ hosts


def test_held_hosts_and_moves() -> None:
    held = [
        (0.0, "hpc", 8),
        (0.0, "web", 2),
        (100.0, "hpc", 5),
        (100.0, "web", 5),
        (600.0, "web", 1),
        (600.0, "hpc", 9),
    ]
    measured = measure(outcome(held=held))
    hpc, web = measured.held
    assert (hpc.held_host_s, hpc.peak_held, hpc.gained) == (8 * 100 + 5 * 500 + 9 * 400, 9, 4)
    assert (web.held_host_s, web.peak_held, web.gained) == (2 * 100 + 5 * 500 + 1 * 400, 5, 3)
    assert measured.held_utilisation == 1.0
    assert measured.hosts_moved == 7
    assert measured.hosts_moved_per_hour == pytest.approx(7 * 3.6)


def test_what_is_there_at_the_beginning_was_not_moved_and_what_comes_later_was() -> None:
    assert hosts_gained([(0.0, 5)]) == 0
    assert hosts_gained([(0.0, 5), (0.0, 7)]) == 0
    assert hosts_gained([(3.0, 5)]) == 5
    assert hosts_gained([(0.0, 5), (10.0, 3), (10.0, 5), (20.0, 6)]) == 1  # within an instant nothing has moved


# -------------------------------------------------------------------------------------------------------------------- web


def test_shortfall_and_its_longest_stretch() -> None:
    levels = [(0.0, 2, 2), (100.0, 5, 2), (200.0, 5, 4), (250.0, 3, 4), (400.0, 6, 4), (500.0, 6, 6)]
    (web,) = measure(outcome(web=[WebRecord(department="web", levels=levels)])).web
    assert web.shortfall_instance_s == 3 * 100 + 1 * 50 + 2 * 100
    assert (web.short_s, web.longest_shortfall_s, web.peak_shortfall) == (250, 150, 3)
    assert (web.peak_wanted, web.peak_in_service) == (6, 6)
    assert web.wanted_instance_s == 2 * 100 + 5 * 150 + 3 * 150 + 6 * 600
    assert web.shortfall_share == pytest.approx(550 / 5000)
    assert web.overload_instance_s is None


def test_a_level_that_lasts_no_time_is_no_level() -> None:
    levels = [(0.0, 1, 1), (100.0, 9, 1), (100.0, 2, 1), (150.0, 2, 2), (150.0, 2, 1), (200.0, 2, 2), (1000.0, 99, 0)]
    (web,) = measure(outcome(web=[WebRecord(department="web", levels=levels)])).web
    assert (web.peak_wanted, web.shortfall_instance_s, web.longest_shortfall_s) == (2, 100, 100)


def test_a_shortfall_that_does_not_end_lasts_until_the_window_does() -> None:
    (web,) = measure(outcome(web=[WebRecord(department="web", levels=[(900.0, 3, 1)])])).web
    assert (web.shortfall_instance_s, web.longest_shortfall_s) == (200, 100)


def test_load_beyond_what_serves_is_seen_even_if_the_rule_wants_no_more() -> None:
    record = WebRecord(department="web", levels=[(0.0, 2, 2), (300.0, 4, 4)], load=[(0.0, 1.5), (200.0, 3.5)])
    assert load_and_service(record) == [(0.0, (1.5, 0)), (0.0, (1.5, 2)), (200.0, (3.5, 2)), (300.0, (3.5, 4))]
    (web,) = measure(outcome(web=[record])).web
    assert web.shortfall_instance_s == 0
    assert (web.overload_instance_s, web.longest_overload_s) == (150, 100)
    assert web.load_instance_s == 1.5 * 200 + 3.5 * 800


def test_an_empty_run_has_metrics() -> None:
    measured = measure(outcome(window_s=0.0, hosts=0))
    assert (measured.total.submitted, measured.held_utilisation, measured.hosts_moved_per_hour) == (0, 0, 0)


# ------------------------------------------------------------------------------------------------------------- properties


@dataclass
class Cut:
    """One host's time, cut into attempts: a seeded way to an outcome that could be."""

    seed: int
    hosts: int

    def outcome(self) -> Outcome:
        chance = random.Random(str(self.seed))
        jobs: list[JobRecord] = []
        for _host in range(self.hosts):
            now = 0.0
            while now < WINDOW_S:
                start = now + chance.random() * 50
                now = start + chance.random() * 400
                until = min(now, WINDOW_S)
                ran = max(0.0, until - start)
                fate = chance.choices(["completed", "killed", "requeued"], weights=[3, 1, 1])[0]
                lost = ran if fate != "completed" else 0.0
                end: End = "unfinished" if fate == "requeued" else fate  # type: ignore[assignment]
                jobs.append(
                    job(
                        len(jobs) + 1,
                        department=chance.choice(["a", "b"]),
                        submit_s=start * chance.random(),
                        start_s=start,
                        end_s=None if fate == "requeued" else now,
                        end=end,
                        run_s=now - start,
                        preempted=int(fate != "completed"),
                        ran=ran,
                        lost=lost,
                    )
                )
        return outcome(*jobs, hosts=self.hosts)


@settings(max_examples=60, deadline=None)
@given(st.builds(Cut, seed=st.integers(0, 10**6), hosts=st.integers(1, 6)))
def test_counts_add_up_and_useful_is_at_most_allocated_at_most_one(cut: Cut) -> None:
    measured = measure(cut.outcome())
    for each in (measured.total, *measured.batch):
        ended = each.completed + each.killed + each.timeout + each.cancelled + each.failed + each.refused
        assert ended + each.unfinished == each.submitted
        assert 0.0 <= each.useful_utilisation <= each.allocated_utilisation <= 1.0 + 1e-12
        assert each.requeued + each.killed <= each.preempted + each.unfinished
        assert each.turnaround_s.count == each.wait_s.count == each.completed
        if each.completed:
            spread = [each.turnaround_s.median, each.turnaround_s.p90, each.turnaround_s.p99, each.turnaround_s.max]
            assert spread == sorted(spread)  # type: ignore[type-var]
    for name in ("submitted", "completed", "killed", "requeued", "unfinished"):
        assert sum(getattr(each, name) for each in measured.batch) == getattr(measured.total, name)
    parts = math.fsum(each.allocated_utilisation for each in measured.batch)
    assert parts == pytest.approx(measured.total.allocated_utilisation)


levels = st.lists(st.tuples(st.floats(-10, 1100), st.integers(0, 9), st.integers(0, 9)), max_size=20).map(
    lambda rows: sorted(rows, key=lambda row: row[0])
)


@settings(max_examples=100, deadline=None)
@given(levels)
def test_shortfall_is_never_negative_and_its_parts_fit_the_window(rows: list[tuple[float, int, int]]) -> None:
    (web,) = measure(outcome(web=[WebRecord(department="web", levels=rows)])).web
    assert 0.0 <= web.shortfall_instance_s <= web.wanted_instance_s
    assert 0.0 <= web.longest_shortfall_s <= web.short_s + 1e-9 <= WINDOW_S + 1e-6
    assert web.shortfall_instance_s <= web.short_s * web.peak_shortfall + 1e-6
    lasting = list(stretches([(at, want) for at, want, _ in rows], WINDOW_S))
    assert all(0.0 <= since < until <= WINDOW_S for since, until, _ in lasting)
    assert all(earlier[1] == later[0] for earlier, later in pairwise(lasting))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_the_order_of_jobs_changes_no_digit(seed: int, chance: random.Random) -> None:
    first = Cut(seed, 3).outcome()
    shuffled = msgspec.structs.replace(first, jobs=chance.sample(first.jobs, len(first.jobs)))
    assert msgspec.json.encode(measure(first)) == msgspec.json.encode(measure(shuffled))


def test_metrics_come_back_from_json() -> None:
    measured = measure(Cut(1, 2).outcome())
    assert msgspec.json.decode(msgspec.json.encode(measured), type=Metrics) == measured
