"""A log's jobs on a cluster's hosts: shapes, limits, windows and factors; nothing made to fit, nothing dropped."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phoenix.simulate.layout import lay_out, offered_load, shape
from phoenix.simulate.text_input import InputError
from phoenix.simulate.workload import UNLIMITED_S, LogJob, Work

HOST_MB = 8000


def job(number: int = 1, **changed: Any) -> LogJob:
    return LogJob(**{"number": number, "submit_s": 10.0 * number, "run_s": 100.0, "processors": 12, **changed})


def one(given_job: LogJob, **options: Any) -> Work:
    (work,) = lay_out([given_job], cores_per_host=8, memory_per_host_mb=HOST_MB, **options)
    return work


def test_whole_hosts_are_taken_alone() -> None:
    work = one(job(user="ann"), on_reclaim="kill", priority=3)
    assert work == Work(
        number=1, submit_s=10, run_s=100, nodes=2, cores=6, memory_mb=6000, exclusive=True, walltime_s=300, user="ann",
        on_reclaim="kill", priority=3,
    )  # fmt: skip


@pytest.mark.parametrize(("processors", "nodes"), [(1, 1), (8, 1), (9, 2), (1152, 144)])
def test_the_papers_jobs_need_an_eighth_rounded_up(processors: int, nodes: int) -> None:
    assert one(job(processors=processors)).nodes == nodes


@pytest.mark.parametrize(("processors", "nodes", "cores"), [(1, 1, 1), (8, 1, 8), (9, 2, 5), (12, 2, 6), (17, 3, 6)])
def test_cores_are_even_on_as_few_hosts_as_possible(processors: int, nodes: int, cores: int) -> None:
    work = one(job(processors=processors), mode="cores")
    assert (work.nodes, work.cores, work.exclusive) == (nodes, cores, False)
    assert work.user == "user"


@pytest.mark.parametrize(
    ("memory_mb", "nodes", "cores", "node_mb"),
    [(1000, 2, 6, 6000), (2000, 3, 4, 8000), (2001, 4, 3, 6003), (8001, 12, 1, 8001), (None, 2, 6, 6000)],
)
def test_memory_spreads_a_job_over_more_hosts(memory_mb: int | None, nodes: int, cores: int, node_mb: int) -> None:
    for mode in ("cores", "whole-hosts"):
        work = one(job(memory_mb=memory_mb), mode=mode)
        assert (work.nodes, work.cores, work.memory_mb) == (nodes, cores, node_mb)
    assert one(job(memory_mb=memory_mb), use_memory=False).nodes == 2


@pytest.mark.parametrize(
    ("requested_s", "options", "walltime_s"),
    [
        (500.0, {}, 500),
        (60.0, {}, 100),  # it ran longer than it had asked for
        (60.0, {"kill_overruns": True}, 60),
        (None, {}, 300),
        (None, {"kill_overruns": True}, 300),
        (500.0, {"walltime": "exact"}, 100),
        (500.0, {"walltime": "unlimited"}, UNLIMITED_S),
        (500.0, {"time_factor": 2, "run_factor": 0.25}, 250),
        (60.0, {"run_factor": 0.5}, 50),
    ],
)
def test_the_limit_is_the_one_asked_for(requested_s: float | None, options: dict[str, Any], walltime_s: float) -> None:
    assert one(job(requested_s=requested_s), **options).walltime_s == walltime_s


def test_factors_change_what_they_say() -> None:
    jobs = [job(n) for n in (1, 2, 3)]

    def times(**options: Any) -> list[tuple[float, float]]:
        return [(work.submit_s, work.run_s) for work in lay_out(jobs, cores_per_host=8, **options)]

    assert times() == [(10, 100), (20, 100), (30, 100)]
    assert times(load_factor=2) == [(5, 100), (10, 100), (15, 100)]
    assert times(time_factor=0.5) == [(5, 50), (10, 50), (15, 50)]
    assert times(run_factor=0.5) == [(10, 50), (20, 50), (30, 50)]
    assert times(window=(20, 30)) == [(0, 100)]
    assert times(window=(15, 1e9), load_factor=2) == [(2.5, 100), (7.5, 100)]


def test_a_window_keeps_the_numbers() -> None:
    works = lay_out((job(n) for n in (3, 7, 9)), cores_per_host=8, window=(50, math.inf))
    assert [work.number for work in works] == [7, 9]


def test_the_load_offered_grows_with_the_load_factor() -> None:
    jobs = [job(n) for n in range(1, 12)]  # 11 jobs of 1200 processor-seconds in 100 s
    assert offered_load(jobs, 132) == 1
    works = lay_out(jobs, cores_per_host=1, load_factor=2)
    span_s = works[-1].submit_s - works[0].submit_s
    assert sum(work.run_s * work.nodes for work in works) / 132 / span_s == 2
    assert offered_load(jobs[:1], 132) == math.inf


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cores_per_host": 0}, "at least 1 core and 1 MiB, not 0 and"),
        ({"memory_per_host_mb": 0}, "at least 1 core and 1 MiB, not 8 and 0"),
        ({"load_factor": 0}, "the load factor must be above 0, not 0"),
        ({"time_factor": math.nan}, "the time factor must be above 0, not nan"),
        ({"run_factor": -1}, "the run time factor must be above 0, not -1"),
        ({"window": (100, 200)}, r"no job is submitted in \[100 s, 200 s\)"),
    ],
)
def test_values_without_meaning_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        lay_out([job()], **{"cores_per_host": 8, **options})


def test_no_job_at_all_is_refused() -> None:
    with pytest.raises(InputError, match="there is no job"):
        lay_out([], cores_per_host=8)


@pytest.mark.parametrize(
    "jobs", [[job(2), job(1)], [job(1), job(1)], [job(1, submit_s=5), job(2, submit_s=4)], [job(0)]]
)
def test_jobs_out_of_order_are_a_mistake_of_the_caller(jobs: list[LogJob]) -> None:
    with pytest.raises(ValueError, match="is not in order"):
        lay_out(jobs, cores_per_host=8)


@given(st.integers(1, 5000), st.none() | st.integers(1, 10_000), st.integers(1, 64), st.integers(64, 10_000))
def test_a_shape_holds_all_processors_on_the_fewest_hosts(
    processors: int, memory_mb: int | None, host_cores: int, host_mb: int
) -> None:
    nodes, cores, node_mb = shape(processors, memory_mb, host_cores, host_mb)
    assert processors <= nodes * cores < processors + nodes  # all, and fewer than one unused core a host
    assert cores <= host_cores
    assert node_mb == cores * memory_mb if memory_mb else 1 <= node_mb <= host_mb
    if memory_mb is None or memory_mb <= host_mb:
        assert node_mb <= host_mb
        fewer = -(-processors // (nodes - 1)) if nodes > 1 else math.inf  # cores on each of one host fewer
        assert fewer > host_cores or fewer * (memory_mb or 0) > host_mb
