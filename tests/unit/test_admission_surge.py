"""What a deploy says that its update takes from batch."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from schemas import facts as f
from schemas.config import BatchPolicy, CloudConfig, Department, WebPolicy
from schemas.releases import Release
from services.admission.core import surge as surges
from services.admission.core.admission import AdmissionCore
from tests.support.world import RULES, World


def site(
    batch: int,
    *,
    web: int = 1,
    free: int = 0,
    busy: int | None = None,
    each: int = 1,
    surge: Literal["claim", "idle"] = "claim",
    **fields: Any,
) -> World:
    """Hosts of four cores: `batch` of hpc, on `busy` of which (default all) a job runs, `web` of web with `each` instance(s) on
    each, which has room for no more, and free ones."""
    policy = WebPolicy(instances_per_host=each, surge=surge)
    own = {"guarantee": fields.pop("guarantee", 0)}
    hpc = Department(name="hpc", kind="batch", batch=BatchPolicy(), **own)
    config = CloudConfig(name="t", departments=(hpc, Department(name="web", kind="web", web=policy, **fields)))
    world = World()
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=config))
    names = world.hosts(batch + web + free)
    world.seat("admission", AdmissionCore)
    if batch:
        world.grant("hpc", *names[:batch])
    if web:
        world.grant("web", *names[batch : batch + web])
    for name in names[: batch if busy is None else busy]:
        place(world, world.submit(), name, "hpc")
    number = 0
    for name in names[batch : batch + web]:
        for _ in range(each):
            number += 1
            place(world, f"web.{number}", name, "web")
    assert world.voids == []
    return world


def place(world: World, unit: str, host: str, dept: str) -> None:
    placed = f.UnitPlaced(unit=unit, attempt=1, hosts=(host,), cores=1, memory_mb=256, exclusive=False)
    world.write(f"scheduler.{dept}", placed)


def told(world: World, max_surge: int = 1) -> str:
    fact = f.ReleaseRequested(dept="web", release=1, user="wim", content=Release(), max_surge=max_surge)
    return surges.warning(world.seats["admission"].core, fact)


def test_on_a_full_cluster_it_says_on_how_many_hosts_jobs_make_way() -> None:
    assert told(site(3)) == (
        "the update needs 1 host more for its max_surge, and no host is idle: batch jobs on 1 host will make way; "
        "with max_unavailable 1 and max_surge 0 it needs none"
    )


@pytest.mark.parametrize(
    ("world", "max_surge", "part"),
    [
        (
            site(3, web=3, busy=2),
            2,
            "needs 2 hosts more for its max_surge, of which 1 is idle: batch jobs on 1 host will",
        ),
        (site(3, web=3), 5, "needs 3 hosts more for its max_surge, and no host is idle: batch jobs on 3 hosts will"),
        (
            site(3, web=2, each=2),
            3,
            "needs 2 hosts more for its max_surge, and no host is idle: batch jobs on 2 hosts will",
        ),
        (
            site(3, web=3, guarantee=2),
            2,
            "needs 1 host more for its max_surge, and no host is idle: batch jobs on 1 host will",
        ),
    ],
    ids=["one idle", "no more than are wanted", "two on each", "guarantee"],
)
def test_what_is_idle_is_taken_first_and_no_more_than_is_wanted(world: World, max_surge: int, part: str) -> None:
    assert part in told(world, max_surge)


@pytest.mark.parametrize(
    ("world", "max_surge"),
    [
        (site(3), 0),
        (site(3, free=1), 1),
        (site(3, busy=2), 1),
        (site(3, maximum=1), 1),
        (site(3, guarantee=3), 1),
        (site(3, web=0), 1),
        (site(0), 1),
        (site(3, surge="idle"), 1),
    ],
    ids=[
        "no surge",
        "a free one",
        "an idle one of batch",
        "maximum",
        "guarantee",
        "nothing serves",
        "no batch",
        "only idle hosts",
    ],
)
def test_where_nobody_makes_way_it_says_nothing(world: World, max_surge: int) -> None:
    assert told(world, max_surge) == ""
