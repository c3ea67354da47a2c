"""Jobs that ask for hosts with certain labels: placement in every order, demand, why, and whose hosts they are granted."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phoenix import policies
from schemas import facts as f
from schemas import reasons as because
from services.domain.constraints import satisfies
from services.provisioner.core.provisioner import ProvisionerCore
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.lookahead.why import why
from tests.support.scheduling import cluster, core, placed
from tests.support.world import World, batch, cloud


def label(world: World, host: str, cluster: str = "", **labels: str) -> None:
    """The executor describes the host anew."""
    known = world.custody.state.hosts[host]
    world.write(
        "executor",
        f.HostDescribed(
            host=host,
            one_id=known.one_id,
            **known.size.fields(),
            labels=labels,
            cluster=cluster,
        ),
    )


def labelled(**policy: object) -> World:
    """Three held hosts; the last one has a GPU."""
    world = cluster(**policy)
    label(world, "h3", "batch", GPU="yes")
    return world


@pytest.mark.parametrize("order", [o for o in policies.names("order") if o != "leases"])
def test_a_job_starts_only_where_its_constraint_holds_in_every_order(order: str) -> None:
    world = labelled(order=order, services={"sim": 1.0} if order == "svmsched" else {})
    asked = {"cores": 3, "service": "sim" if order == "svmsched" else ""}
    one, two = world.submit(constraint="gpu=yes", **asked), world.submit(constraint="gpu=yes", **asked)
    plain = world.submit(**asked)
    assert placed(world) == {one: ("h3",)} | ({} if order == "fcfs" else {plain: ("h1",)})  # there nobody overtakes
    world.settle()
    assert world.unit(two).state == "pending"
    world.report(one)
    world.settle()
    assert world.unit(two).hosts == ("h3",)


def test_a_wide_job_needs_as_many_hosts_that_satisfy_it() -> None:
    world = labelled()
    job = world.submit(constraint="cluster=batch", nodes=2)
    assert placed(world) == {}
    label(world, "h1", "batch")
    assert placed(world) == {job: ("h1", "h3")}


def test_a_label_that_comes_or_goes_counts_at_once() -> None:
    world = labelled()
    label(world, "h3")
    job = world.submit(constraint="gpu")
    assert placed(world) == {}
    label(world, "h2", GPU="1")
    assert placed(world) == {job: ("h2",)}


def test_jobs_without_constraint_are_placed_as_ever() -> None:
    world = labelled()
    jobs = [world.submit(cores=4) for _ in range(3)]
    assert placed(world) == {jobs[0]: ("h1",), jobs[1]: ("h2",), jobs[2]: ("h3",)}
    world.settle()
    assert core(world).view.room.constraints == ()
    job = world.submit(constraint="gpu")
    assert core(world).view.room.constraints == ("gpu",)
    world.write("admission", f.JobCancelled(job=job, user="ann"))
    assert core(world).view.room.constraints == ()


def test_why_says_that_none_of_its_hosts_satisfies_it() -> None:
    world = labelled()
    label(world, "h3")
    world.hosts(1, first=9)
    label(world, "h9", GPU="yes")
    job = world.submit(constraint="gpu=yes")
    world.settle()
    [reason] = [r for r in why(core(world), job, world.now) if type(r) is because.WaitsForHosts]
    assert (
        because.fields(reason)["constraint"],
        because.fields(reason)["meeting"],
        because.fields(reason)["held"],
    ) == ("gpu=yes", 0, 3)
    label(world, "h9")
    codes = [type(r) for r in why(core(world), job, world.now)]
    assert because.TooLargeNow in codes


# ------------------------------------------------------------------------------------------------------- whose hosts come


def arbitrated(*departments: str) -> World:
    world = World(cloud(*(batch(name) for name in departments)))
    world.hosts(4)
    label(world, "h4", GPU="yes")
    for name in departments:
        world.seat(f"scheduler.{name}", lambda custody, name=name: BatchCore(custody, name))
    world.seat("provisioner", ProvisionerCore)
    world.executor()
    return world


def test_the_demand_names_what_waiting_jobs_need_and_is_silent_when_none_waits() -> None:
    world = labelled()
    job = world.submit(constraint="gpu=yes", cores=4)
    other = world.submit(constraint="gpu=yes", cores=4)
    world.settle()
    assert core(world).state.prefer == ("gpu=yes",)
    assert world.unit(job).hosts == ("h3",)
    world.write("admission", f.JobCancelled(job=other, user="ann"))
    world.settle()
    assert core(world).state.prefer == ()


def test_of_free_hosts_a_department_is_granted_those_that_its_jobs_need() -> None:
    world = arbitrated("bio", "hpc")
    job = world.submit(dept="hpc", constraint="gpu=yes")
    world.submit(dept="bio")
    world.settle()
    assert world.unit(job).hosts == ("h4",)


def test_a_department_that_holds_only_hosts_of_no_use_asks_for_more_until_one_is() -> None:
    world = cluster(4, held=2)
    label(world, "h4", GPU="yes")
    job = world.submit(constraint="gpu=yes")
    world.settle()
    assert world.custody.state.demands["hpc"] == 3  # two that are of no use, and one
    world.grant("hpc", "h3")
    world.settle()
    assert world.custody.state.demands["hpc"] == 4
    world.grant("hpc", "h4")
    world.settle()
    assert world.unit(job).hosts == ("h4",)
    assert world.custody.state.demands["hpc"] == 1


LABELS = st.sampled_from([{}, {"GPU": "yes"}, {"GPU": "no"}, {"RACK": "r1"}])
CONSTRAINTS = st.sampled_from(["", "gpu", "gpu!=yes", "rack=r1", "host=h2|gpu"])


@settings(max_examples=40, deadline=None)
@given(
    labels=st.lists(LABELS, min_size=3, max_size=3),
    jobs=st.lists(st.tuples(CONSTRAINTS, st.integers(1, 4)), max_size=8),
    order=st.sampled_from(["first-fit", "easy", "conservative", "svmsched", "multi-factor"]),
)
def test_nothing_ever_runs_where_its_constraint_does_not_hold_and_whoever_can_run_does(
    labels: list[dict[str, str]], jobs: list[tuple[str, int]], order: str
) -> None:
    shared = order == "svmsched"
    world = cluster(order=order, services={"sim": 1.0} if shared else {})
    for number, each in enumerate(labels, start=1):
        label(world, f"h{number}", **each)
    world.executor()
    world.guests(run_s=10)
    service = "sim" if shared else ""
    wanted = {world.submit(constraint=c, cores=cores, service=service): c for c, cores in jobs}
    world.settle()
    for unit, constraint in wanted.items():
        for host in world.unit(unit).hosts:
            known = world.custody.state.hosts[host]
            assert satisfies(host, known.cluster, known.labels, constraint)
    world.advance(200)
    for unit, constraint in wanted.items():
        able = any(satisfies(h.name, h.cluster, h.labels, constraint) for h in world.custody.state.hosts.values())
        assert (world.unit(unit).final == "completed") is able
