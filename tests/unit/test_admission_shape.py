"""Arrays, dependencies and what fits: tables, and the refusals that name field and largest host."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.facts import Dependency
from schemas.requests import JobSubmit
from schemas.size import Size
from services.admission.core import feasibility as shape_module
from services.admission.core.feasibility import (
    Capacity,
    constrained,
    cores_on_node,
    parse_after,
    parse_array,
    shape_of,
)
from services.domain.custody.state import Host
from services.domain.refusal import Refused
from services.domain.shape import Shape
from services.domain.specs import DEPENDENCIES_MAX

HOSTS = [
    Host(name="big", size=Size(16, 8000)),
    Host(name="fat", size=Size(4, 64_000), state="lost"),
    Host(name="s1", size=Size(8, 8000), cordoned="broken fan"),
    Host(name="s2", size=Size(8, 8000)),
    Host(name="absent", size=Size(0, 0)),
]


def flat(found: Shape) -> tuple[int, int, int]:
    assert found.size == Size(*found.size[:2])
    return found.nodes, *found.size[:2]


def shape(nodes_max: int | None = None, **asked: Any) -> tuple[int, int, int]:
    return flat(shape_of(JobSubmit(script="x", **asked), Capacity(HOSTS), nodes_max, 256))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, (1, 1, 256)),
        ({"tasks": 16}, (1, 16, 4096)),
        ({"tasks": 17}, (3, 6, 1536)),  # the second largest has 8: 2 nodes would need 9
        ({"tasks": 16, "nodes": 2}, (2, 8, 2048)),
        ({"tasks": 5, "nodes": 2}, (2, 3, 768)),
        ({"tasks": 1, "nodes": 3}, (3, 1, 256)),
        ({"tasks": 4, "cpus_per_task": 4}, (1, 16, 4096)),
        ({"tasks": 5, "cpus_per_task": 4}, (3, 8, 2048)),
        ({"cpus_per_task": 16}, (1, 16, 4096)),
        ({"memory_mb": 64_000, "tasks": 4}, (1, 4, 64_000)),
        ({"memory_mb": 8000, "tasks": 32}, None),
        ({"tasks": 24, "memory_mb": 1000}, (3, 8, 1000)),
        ({"memory_mb": 0}, (1, 1, 8000)),  # all of the smallest host
        ({"memory_mb": 0, "tasks": 17}, (3, 6, 8000)),
        ({"memory_mb": 0, "tasks": 24, "constraint": ""}, (3, 8, 8000)),
        ({"memory_per_core_mb": 100}, (1, 1, 100)),
        ({"memory_per_core_mb": 100, "tasks": 17}, (3, 6, 600)),
        ({"memory_per_core_mb": 500, "tasks": 16}, (1, 16, 8000)),
        ({"memory_per_core_mb": 1000, "tasks": 16}, (2, 8, 8000)),  # on one node they would be 16000 MiB
        ({"memory_per_core_mb": 2000, "tasks": 16}, (4, 4, 8000)),
        ({"memory_per_core_mb": 2001, "tasks": 16}, None),
    ],
)
def test_nodes_and_cores(asked: dict[str, Any], expected: tuple[int, int, int] | None) -> None:
    if expected is None:
        with pytest.raises(Refused):
            shape(**asked)
    else:
        assert shape(**asked) == expected


@pytest.mark.parametrize(
    ("asked", "field", "largest"),
    [
        ({"memory_mb": 64_001}, "memory_mb", "big with 16 cores and 8000 MiB"),
        ({"cpus_per_task": 17}, "cpus_per_task", "big"),
        ({"tasks": 1000}, "tasks", "big"),
        ({"tasks": 40, "nodes": 2}, "nodes", "big"),
        ({"nodes": 1, "tasks": 8, "memory_mb": 64_000}, "memory_mb", "big"),
        ({"nodes": 1, "tasks": 16, "memory_mb": 64_000}, "memory_mb", "big"),
        ({"nodes": 2, "tasks": 34}, "nodes", "big"),
    ],
)
def test_what_no_host_could_ever_hold_is_refused(asked: dict[str, Any], field: str, largest: str) -> None:
    with pytest.raises(Refused) as error:
        shape(**asked)
    assert (error.value.code, error.value.field) == ("invalid", field)
    assert largest in error.value.message


def test_memory_for_each_core_that_no_host_has_is_refused_by_its_name() -> None:
    with pytest.raises(Refused, match=r"no host has 8 cores together with 8008 MiB \(the largest is big") as error:
        shape(cpus_per_task=8, nodes=1, memory_per_core_mb=1001)
    assert error.value.field == "memory_per_core_mb"
    with pytest.raises(Refused, match="40 tasks of 1 core with 9000 MiB for each core do not fit all hosts together"):
        shape(tasks=40, memory_per_core_mb=9000)


def test_who_says_nothing_of_memory_has_the_department_s_for_each_core_and_is_not_refused_for_it() -> None:
    def default(per_core_mb: int, **asked: Any) -> tuple[int, int, int]:
        return flat(shape_of(JobSubmit(script="x", **asked), Capacity(HOSTS), None, per_core_mb))

    assert [default(mb, tasks=4) for mb in (1, 256, 2000)] == [(1, 4, 4), (1, 4, 1024), (1, 4, 8000)]
    assert default(2001, tasks=4) == (1, 4, 8000)  # no more than all of the smallest host that has the cores
    assert default(1 << 30, tasks=17) == (3, 6, 8000)


def test_more_hosts_than_the_department_may_hold() -> None:
    assert shape(nodes_max=2, nodes=2) == (2, 1, 256)
    with pytest.raises(Refused) as error:
        shape(nodes_max=2, nodes=3)
    assert error.value.field == "nodes"


def sized(*hosts: tuple[str, int, int]) -> Capacity:
    return Capacity(Host(name=name, size=Size(cores, memory_mb)) for name, cores, memory_mb in hosts)


def test_the_largest_host_has_most_cores_then_most_memory_then_the_first_name() -> None:
    hosts = [("d", 4, 900), ("0", 8, 100), ("b", 8, 200), ("a", 8, 200), ("e", 1, 999)]
    capacity = sized(*hosts)
    assert capacity.largest == "a with 8 cores and 200 MiB"
    assert capacity.most == Size(8, 999)
    assert [capacity.total(n)[:2] for n in (0, 1, 3, None)] == [(0, 0), (8, 200), (24, 500), (29, 2399)]


def test_hosts_that_are_described_with_nothing_do_not_count() -> None:
    none = sized(("a", 0, 500))
    assert (none.empty, none.most, none.total(None)) == (True, Size(), Size())
    assert (none.fitting(Size()), none.whole_mb(1)) == (0, 0)
    one = sized(("a", 1, 1))
    assert (one.empty, one.whole_mb(1), one.whole_mb(2)) == (False, 1, 0)
    assert flat(shape_of(JobSubmit(script="x", memory_mb=0), one, None, 256)) == (1, 1, 1)
    assert constrained("gpu=yes", []).empty  # nobody can say whether one will satisfy it


def test_the_smallest_host_that_could_hold_it() -> None:
    capacity = sized(("a", 8, 100), ("b", 4, 300), ("c", 4, 200), ("d", 2, 400))
    asked = [(1, 1), (4, 200), (4, 201), (5, 1), (1, 301), (2, 400)]
    assert [capacity.smallest(Size(*size))[:2] for size in asked] == [
        (2, 400),
        (4, 200),
        (4, 300),
        (8, 100),
        (2, 400),
        (2, 400),
    ]
    assert [capacity.whole_mb(cores) for cores in (1, 3, 5)] == [100, 100, 100]
    assert sized(("a", 8, 900), ("b", 4, 300)).whole_mb(5) == 900


@pytest.mark.parametrize(
    ("cores", "tasks", "memory_mb", "nodes"),
    [
        ([2, 1, 1], 3, 1, 3),  # two on one is too many for the second host
        ([2, 1], 4, 1, None),
        ([1, 1, 1], 3, 101, None),
        ([4, 2, 2], 4, 1, 1),
        ([4, 2, 2], 5, 1, 3),
        ([4, 4], 8, 1, 2),
        ([4, 4], 9, 1, None),
    ],
)
def test_the_fewest_nodes(cores: list[int], tasks: int, memory_mb: int, nodes: int | None) -> None:
    capacity = sized(*((f"h{n}", count, 100) for n, count in enumerate(cores)))
    assert capacity.fewest_nodes(tasks, 1, lambda count: Size(cores_on_node(tasks, count, 1), memory_mb)) == nodes


def test_sizes_are_looked_for_once_and_few_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_module, "FITTING_KEPT_MAX", 2)
    capacity, remembered = Capacity(HOSTS), []
    for cores in (1, 1, 8, 16, 17):
        capacity.fitting(Size(cores, 1))
        remembered.append(len(capacity._fitting))
    assert remembered == [1, 1, 2, 1, 2]
    assert [capacity.fitting(Size(*size)) for size in ((8, 8000), (8, 8001), (16, 8000), (1, 64_000))] == [3, 0, 1, 1]


def test_without_a_known_host_nobody_can_say() -> None:
    with pytest.raises(Refused) as error:
        shape_of(JobSubmit(script="x"), Capacity([]), None, 256)
    assert error.value.code == "unavailable"


@given(
    tasks=st.integers(1, 60),
    cpus=st.integers(1, 16),
    memory=st.tuples(st.just("memory_mb"), st.sampled_from([100, 8000, 64_000]))
    | st.tuples(st.just("memory_per_core_mb"), st.sampled_from([1, 500, 1000, 2000, 16_000])),
    nodes=st.none() | st.integers(1, 5),
)
def test_what_is_accepted_fits_and_takes_the_fewest_nodes(
    tasks: int, cpus: int, memory: tuple[str, int], nodes: int | None
) -> None:
    def fits(count: int) -> bool:
        cores = cores_on_node(tasks, count, cpus)
        memory_mb = memory[1] * (cores if memory[0] == "memory_per_core_mb" else 1)
        return sum(1 for h in HOSTS if h.size.cores >= cores and h.size.memory_mb >= memory_mb) >= count

    possible = [n for n in range(1, 5) if fits(n)]
    try:
        got, cores, _ = shape(tasks=tasks, cpus_per_task=cpus, nodes=nodes, **dict([memory]))
    except Refused:
        assert not possible if nodes is None else nodes not in possible
        return
    assert got in possible
    assert got == (min(possible) if nodes is None else nodes)
    assert cores * got >= tasks * cpus


ARRAYS = [
    ("5", (5,), 0),
    ("0-3", (0, 1, 2, 3), 0),
    ("1-10:3", (1, 4, 7, 10), 0),
    ("3,1,2,2", (1, 2, 3), 0),
    ("1-4%2", (1, 2, 3, 4), 2),
    ("1-4%1", (1, 2, 3, 4), 1),
    ("1,2%999999999", (1, 2), 999_999_999),
    ("0-99", tuple(range(100)), 0),
    ("1-9:2%10,200", (1, 3, 5, 7, 9, 200), 10),
    (" 1 - 3 ", (1, 2, 3), 0),
    ("999999999", (999_999_999,), 0),
]


@pytest.mark.parametrize(("spec", "indices", "throttle"), ARRAYS)
def test_arrays(spec: str, indices: tuple[int, ...], throttle: int) -> None:
    assert parse_array(spec, 100) == (indices, throttle)


BAD_ARRAYS = ["", ",", "a", "1-", "-1", "3-1", "1-5:0", "1%", "1%0", "1%x", "1%2,3%4", "1--2", "1:2", "1.5", "1-2-3"]
BAD_ARRAYS += ["1%+2", "1%1000000000", "1000000000", "٣", "1%٣", "1\n2"]


@pytest.mark.parametrize("spec", BAD_ARRAYS)
def test_bad_arrays(spec: str) -> None:
    with pytest.raises(Refused) as error:
        parse_array(spec, 100)
    assert (error.value.code, error.value.field) == ("invalid", "array")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("1-5:0", "array: '1-5:0': a step is 1 or more; for example"),
        ("1%x", "array: '1%x': after % comes how many elements may run at once, 1 or more; for example"),
        ("1%2,3%4", "array: '1%2,3%4': one % limits the whole array: give it once; for example"),
        ("3-1", "array: '3-1' ends before it begins; for example"),
        ("1,3-1", "array: '1,3-1': '3-1' ends before it begins; for example"),
        ("1," * 41, f"array: '{'1,' * 40}': '' is no index or range; for example"),  # the first 80 characters of it
    ],
)
def test_a_bad_array_is_told_why(spec: str, said: str) -> None:
    with pytest.raises(Refused) as error:
        parse_array(spec, 100)
    assert str(error.value.message).startswith(said)


@pytest.mark.parametrize("spec", ["0-100", "1-999999999", "1-60,1-60", ",".join(["1-999999999"] * 1000)])
def test_arrays_beyond_the_limit_are_refused_before_they_are_expanded(spec: str) -> None:
    with pytest.raises(Refused) as error:
        parse_array(spec, 100)
    assert (error.value.code, error.value.field) == ("limit", "array")


def after(condition: str, job: str) -> Dependency:
    return Dependency(condition=condition, job=job)  # type: ignore[arg-type]


def test_dependencies() -> None:
    assert parse_after("afterok:12") == (after("afterok", "12"),)
    assert parse_after("afterok:12,afterany:13:14_2") == (
        after("afterok", "12"),
        after("afterany", "13"),
        after("afterany", "14_2"),
    )
    assert parse_after("after:1,after:1") == (after("after", "1"),)


@pytest.mark.parametrize(
    "spec",
    ["", "afterok", "afterok:", "12", "singleton", "afterok:1?afterok:2", "afterok:x", "afterok:012", "afterok:1,"],
)
def test_bad_dependencies(spec: str) -> None:
    with pytest.raises(Refused) as error:
        parse_after(spec)
    assert (error.value.code, error.value.field) == ("invalid", "after")


def test_too_many_dependencies() -> None:
    with pytest.raises(Refused) as error:
        parse_after("afterok:" + ":".join(str(n) for n in range(1, DEPENDENCIES_MAX + 2)))
    assert error.value.code == "limit"
    assert len(parse_after("afterok:" + ":".join(str(n) for n in range(1, DEPENDENCIES_MAX + 1)))) == DEPENDENCIES_MAX


LABELLED = [
    Host(name="big", size=Size(16, 8000), cluster="batch"),
    Host(name="g1", size=Size(4, 8000), labels={"GPU": "yes"}, state="lost"),
    Host(name="g2", size=Size(4, 8000), labels={"GPU": "yes"}),
]


def test_with_a_constraint_the_hosts_that_satisfy_it_are_all_there_are() -> None:
    gpu = constrained("gpu=yes", LABELLED)
    assert flat(shape_of(JobSubmit(script="x", tasks=8, constraint="gpu=yes"), gpu, None, 256)) == (2, 4, 1024)
    with pytest.raises(Refused, match=r"no host has 5 cores \(the largest of those with gpu=yes is g1 with 4 cores"):
        shape_of(JobSubmit(script="x", cpus_per_task=5), gpu, None, 256)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"nodes": 99}, "nodes: 99 hosts with 1 core and 256 MiB each are needed, and there are only 4 hosts"),
        ({"nodes": 5}, "nodes: 5 hosts with 1 core and 256 MiB each are needed, and there are only 4 hosts"),
        (
            {"nodes": 2, "tasks": 32},
            "nodes: 2 hosts with 16 cores and 4096 MiB each are needed, and only 1 of the 4 hosts is large enough",
        ),
        (
            {"nodes": 4, "cpus_per_task": 8},
            "nodes: 4 hosts with 8 cores and 2048 MiB each are needed, and only 3 of the 4 hosts are large enough",
        ),
        (
            {"nodes": 3, "cpus_per_task": 16},
            "nodes: 3 hosts with 16 cores and 4096 MiB each are needed, and only 1 of the 4 hosts is large enough",
        ),
    ],
)
def test_a_refusal_for_too_many_hosts_gives_their_number_and_not_the_largest(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused) as error:
        shape(**asked)
    assert (error.value.message, error.value.field) == (said, "nodes")


def test_of_more_hosts_than_satisfy_a_constraint_theirs_is_the_number() -> None:
    said = "nodes: 3 hosts with 1 core and 256 MiB each are needed, and there are only 2 hosts with gpu=yes"
    with pytest.raises(Refused, match=f"{said}$"):
        shape_of(JobSubmit(script="x", nodes=3), constrained("gpu=yes", LABELLED), None, 256)


@pytest.mark.parametrize(
    ("constraint", "said"),
    [
        ("gpu==yes", "NAME=VALUE"),
        ("gpu=no", "none of the 3 known hosts satisfies 'gpu=no'"),
        ("tape&cluster=batch", "none of the 3 known hosts"),
    ],
)
def test_a_constraint_that_no_host_can_ever_satisfy_is_refused(constraint: str, said: str) -> None:
    with pytest.raises(Refused) as refused:
        constrained(constraint, LABELLED)
    assert refused.value.field == "constraint"
    assert said in str(refused.value)
