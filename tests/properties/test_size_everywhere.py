"""A request with a distinct prime in each dimension of `schemas.dimensions`: each number arrives where it should.

D1  The door reads each from its own option, and custody counts each on the host.
D2  In every order a job is placed on the one host that has enough of everything, and on none that is short of one of anything.
D3  What is moved needs and takes the same on its next host; a question (`whatif`) finds the same host.
D4  A VM that waits is taken over by a job that is as large in every dimension, and by no other.
D5  The VM's template, the guest's boot document and the job's environment say each number.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import facts as f
from schemas.config import Warm
from schemas.requests import JobSubmit
from schemas.size import FIELDS, Size, size_of
from services.admission.commands import compose
from services.admission.guests.boot import boot_of
from services.admission.guests.boot_text import environment
from services.admission.storage.payloads import Payload
from services.domain.capabilities import ALL
from services.executor.core.calls import Allocate
from services.executor.opennebula.template import Templates
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.policies import registry
from services.scheduler.lookahead.start_estimate import copied
from services.scheduler.lookahead.whatif import found
from tests.support.admission import ANN, Fold, cloud
from tests.support.admission import fold as door
from tests.support.executor_bench import Bench, held
from tests.support.world import World, batch
from tests.support.world import cloud as config

PRIMES: Final = {"cores": 7, "memory_mb": 1031, "gpus": 3}
ASKED: Final = {"cores": {"cpus_per_task": 7}, "memory_mb": {"memory_mb": 1031}, "gpus": {"gpus_per_node": 3}}
SIZE: Final = Size(**PRIMES)
SHORT: Final = {field: SIZE._replace(**{field: PRIMES[field] - 1}) for field in FIELDS}  # of one dimension


def test_this_file_knows_every_dimension() -> None:
    assert set(PRIMES) == set(ASKED) == set(FIELDS)
    assert len(set(PRIMES.values())) == len(FIELDS)


# ------------------------------------------------------------------------------------------------------------------- D1


def asked() -> dict[str, Any]:
    return {name: value for each in ASKED.values() for name, value in each.items()}


def described(world: Fold, name: str, size: Size) -> None:
    world.put(f.HostDescribed(host=name, one_id=9, **size.fields()), writer="executor")


def test_d1_the_door_reads_each_and_refuses_what_lacks_one() -> None:
    world = door()
    described(world, "big", SIZE)
    fact = compose.submit(world.core, ANN, "hpc", JobSubmit(script="true", **asked()), "job/x", "d", ())
    assert size_of(fact) == SIZE
    for field, size in SHORT.items():
        described(world, "big", size)
        with pytest.raises(compose.Refused) as error:
            compose.submit(world.core, ANN, "hpc", JobSubmit(script="true", **asked()), "job/x", "d", ())
        assert error.value.code == "invalid", field


# ---------------------------------------------------------------------------------------------------------------- D2, D3


def site(*, migrates: bool = False, size: Size = SIZE, **policy: Any) -> World:
    """One host that is large enough for one job of `size`, and for each dimension one that is not."""
    capabilities = (*ALL, "keep_devices") if migrates else ()
    world = World(msgspec.structs.replace(config(batch("hpc", **policy)), capabilities=capabilities))
    hosts = {f"short-{place}": size._replace(**{field: size[place] - 1}) for place, field in enumerate(FIELDS)}
    hosts |= {"whole": size, **({"zwhole": size} if migrates else {})}
    for number, (name, has) in enumerate(hosts.items()):
        world.write("executor", f.HostDescribed(host=name, one_id=number, **has.fields()), f.HostCleared(host=name))
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", *hosts)
    return world


def options(order: str) -> dict[str, Any]:
    return {"services": {"a": 1.0}, "short_s": 1e9} if order == "svmsched" else {}


@given(st.sampled_from(sorted(registry.ORDERS)), st.permutations((2, 3, 5, 7, 11, 13, 17)))
def test_d2_every_order_places_it_where_there_is_enough_of_everything(order: str, primes: list[int]) -> None:
    size = Size(*primes[: len(FIELDS)])
    world = site(order=order, size=size, **options(order))
    job = world.submit(service="a" if order == "svmsched" else "", **size.fields())
    world.settle()
    (placed,) = world.facts(f.UnitPlaced)
    assert (placed.unit, placed.hosts, size_of(placed)) == (job, ("whole",), size)
    assert (world.unit(job).size, world.custody.state.hosts["whole"].used) == (size, size)
    assert world.voids == []


@pytest.mark.parametrize("field", FIELDS)
def test_d2_nothing_is_placed_where_one_more_is_asked_for(field: str) -> None:
    world = site()
    job = world.submit(**SIZE._replace(**{field: PRIMES[field] + 1}).fields())
    world.settle()
    assert world.unit(job).state == "pending"
    over = f.UnitPlaced(unit=job, attempt=1, hosts=("whole",), **SIZE._replace(**{field: PRIMES[field] + 1}).fields())
    [(_, meta)] = world.write("scheduler.hpc", over)
    assert meta.void == "no_room"


def test_d3_what_is_moved_takes_the_same_elsewhere() -> None:
    world = site(migrates=True)
    job = world.submit(on_reclaim="migrate", **SIZE.fields())
    world.settle()
    world.start_vms(job)
    world.begin(job)
    world.now += 7.0
    world.drain(world.unit(job).hosts[0])
    world.settle()
    first, second = world.facts(f.UnitPlaced)
    assert [first.hosts, second.hosts] == [("whole",), ("zwhole",)]
    assert (size_of(second), world.custody.state.hosts["zwhole"].used) == (SIZE, SIZE)
    assert world.custody.state.hosts["whole"].used == Size()


def test_d3_a_question_finds_the_host_that_a_job_would_have() -> None:
    world = site()
    core: BatchCore = world.seats["scheduler.hpc"].core
    job = f.JobSubmitted(job="1", dept="hpc", user="ann", name="x", payload="", walltime_s=60.0, **SIZE.fields())
    first = found(copied(core), job, world.now).first
    assert first is not None
    assert first.hosts == ("whole",)


# ------------------------------------------------------------------------------------------------------------------- D4


def waiting() -> Bench:
    """A VM of `SIZE` waits for a job on h0, which has room for four of them."""
    bench = held(warm=Warm(idle_s=100.0))
    four = SIZE.times(4)
    bench.hosts = {name: msgspec.structs.replace(sight, size=four) for name, sight in bench.hosts.items()}
    bench.see_hosts()
    bench.settle()
    place(bench, "1", SIZE)
    bench.settle()
    bench.report("1")
    bench.park("1")
    bench.settle()
    return bench


def place(bench: Bench, unit: str, size: Size) -> None:
    submitted = f.JobSubmitted(job=unit, dept="hpc", user="ann", name="x", payload="p", walltime_s=9.0, **size.fields())
    bench.write("admission", submitted)
    bench.write("scheduler.hpc", f.UnitPlaced(unit=unit, attempt=1, hosts=("h0",), **size.fields()))


@pytest.mark.parametrize("field", ["", *FIELDS])
def test_d4_a_vm_is_taken_over_by_what_is_as_large_in_every_dimension(field: str) -> None:
    bench = waiting()
    place(bench, "2", SHORT[field] if field else SIZE)
    bench.settle()
    vms = {vm.unit: vm.vm for vm in bench.custody.state.vms.values()}
    assert (vms.get("2") == 0) is (field == "")


# ------------------------------------------------------------------------------------------------------------------- D5


def test_d5_template_boot_document_and_environment_say_each() -> None:
    text = Templates(b"key", "http://phoenix:1", {}).of("c", Allocate("1", 1, 0, "h", SIZE, "1/1/0"))
    assert 'CPU = "7"\nVCPU = "7"\nMEMORY = "1031"\n' in text
    assert text.count('PCI = [ CLASS = "0302" ]') == 3
    world = door()
    described(world, "big", SIZE)
    job = world.submit(**asked())
    placed = f.UnitPlaced(unit=job, attempt=1, hosts=("big",), **SIZE.fields())
    world.put(f.HostCleared(host="big"), writer="executor")
    world.put(f.HostGranted(host="big", dept="hpc"), writer="provisioner")
    assert world.put(placed, writer="scheduler.hpc") is None
    boot = boot_of(cloud(), world.custody.state.units[job], 0, world.core.job(job), Payload(script="true"))
    assert boot is not None
    assert size_of(boot) == SIZE
    said = environment(boot)
    assert (said["PHOENIX_CPUS"], said["PHOENIX_MEMORY_MB"]) == ("7", "1031")
