"""Which accepted leases another configuration would not keep."""

from __future__ import annotations

from typing import Any

import pytest

from phoenix.cli.config_leases import concerned
from schemas.config import BatchPolicy, CloudConfig, Department


def cloud(**fields: Any) -> CloudConfig:
    policy = BatchPolicy(order=fields.pop("order", "leases"))
    return CloudConfig(name="c", departments=(Department(name="hpc", kind="batch", batch=policy, **fields),))


def lease(name: str, start: str, end: str, **fields: Any) -> dict[str, Any]:
    day = "2026-02-03T"
    times = {"start_at": f"{day}{start}:00Z", "end_at": f"{day}{end}:00Z"}
    return (
        {"lease": name, "department": "hpc", "user": "ann", "kind": "advance", "nodes": 2, "hosts": []} | times | fields
    )


BEFORE = cloud(guarantee=8, maximum=8)
FREE = lease("5", "10:00", "11:00", kind="best-effort") | {"start_at": None, "end_at": None}
RUNS = lease("1", "09:00", "12:00", hosts=["h1", "h2"])
LEASES = [RUNS, lease("2", "10:00", "11:00"), lease("3", "10:30", "12:00"), lease("4", "12:00", "13:00", nodes=4), FREE]
GONE = CloudConfig(name="c", departments=())
WEB = CloudConfig(name="c", departments=(Department(name="hpc", kind="web"),))


@pytest.mark.parametrize(
    ("after", "names", "why"),
    [
        (BEFORE, [], ""),
        (cloud(guarantee=9, maximum=None), [], ""),
        (cloud(order="easy", guarantee=8, maximum=8), ["2", "3", "4"], 'order = "easy" keeps no time for it'),
        (GONE, ["1", "2", "3", "4"], "hpc would be gone, and the lease with it"),
        (WEB, ["1", "2", "3", "4"], "hpc would be gone, and the lease with it"),
        (cloud(guarantee=0, maximum=5), ["3"], "hpc may then hold 5 hosts, and leases have 6 at that time"),
        (cloud(guarantee=3, maximum=8), ["2", "3", "4"], "3 hosts are then guaranteed to hpc, and leases have "),
        (cloud(guarantee=8, windows=("daily 08:00-18:00 maximum 3",)), ["2", "3", "4"], "hpc may then hold 3 hosts"),
    ],
    ids=["nothing", "more", "order", "removed", "kind", "maximum", "guarantee", "window"],
)
def test_each_lease_that_would_not_be_kept_is_named(after: CloudConfig, names: list[str], why: str) -> None:
    found = concerned(BEFORE, after, LEASES)
    assert [line.split()[1] for line in found if why in line] == names
    assert [line for line in found if "would be gone" in line or line.split()[1] != "1"] == found


def test_a_line_says_whose_it_is_and_when() -> None:
    (line,) = concerned(BEFORE, cloud(order="fcfs"), LEASES[1:2])
    told = 'order = "fcfs" keeps no time for it: it would begin when there is room'
    assert line == f"lease 2 of ann, from 2026-02-03T10:00:00Z to 2026-02-03T11:00:00Z: {told}"


def test_where_no_times_are_kept_now_nothing_is_lost() -> None:
    assert concerned(cloud(order="easy"), GONE, LEASES) == []
