"""A request with a distinct prime in each dimension of `schemas.dimensions`: each number arrives where it should.

D1  The door reads each from its own option, and custody counts each on the host.
D2  In every order a job is placed on the one host that has enough of everything, and on none that is short of one of anything.
D3  What is moved needs and takes the same on its next host; a question (`whatif`) finds the same host.
D4  A VM that waits is taken over by a job that is as large in every dimension, and by no other.
D5  The VM's template, both ends' boot document and both builders' environment say each number; a lease asks for it as a job
    does, and a submission that is asked again for a replay is the one that was.
    The embedded cloud has an option for each: of `phoenix up`, kept for the next one, and handed to its OpenNebula.
D6  Every report says each number: hosts, show, lease, usage, what-if, the history's table, the bill, the doctor.
"""

from __future__ import annotations

import json
import re
import sqlite3
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phoenix.billing.bill import of_day as bill_of_day
from phoenix.cli import history, hosts, lease, show, submit, up, usage, whatif_job
from phoenix.cli.errors import CliError
from phoenix.cli.parser import Parser
from phoenix.cli.sbatch import directives_parser
from phoenix.doctor import checks
from phoenix.local import stack, stack_settings
from phoenix.local.guest import door as door_of_guest
from phoenix.local.guest.environment import for_job
from phoenix.local.opennebula import __main__ as opennebula
from phoenix.local.stack_layout import Layout
from phoenix.simulate.workload import Scenario, Work
from phoenix.whatif.stage import asked_by
from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchPolicy, Department, MultiFactor, UserLimits, Warm, WebPolicy
from schemas.dimensions import DIMENSIONS, Dimension, asking
from schemas.queries import QueuePlace
from schemas.requests import Foretold, JobSubmit, LeaseCreate
from schemas.size import FIELDS, Size, size_of
from services.admission.commands import compose
from services.admission.guests.boot import Boot, boot_of
from services.admission.guests.boot_text import environment
from services.admission.storage.payloads import Payload, pack
from services.domain.capabilities import ALL
from services.domain.text.facts import told
from services.executor.core.calls import Allocate
from services.executor.opennebula.template import Templates
from services.monitor.core.buckets import OF_HOSTS, USED, Row, Span, measure
from services.monitor.history.schema import SCHEMA
from services.monitor.http import billable
from services.monitor.views import usage as usage_view
from services.runtime.config.prices import PER, parse
from services.runtime.config.tables import Config, OpenNebula
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
SIZE: Final = Size._make(PRIMES.get(field, 2) for field in FIELDS)  # a row without a prime: the first test says so
SHORT: Final = {field: SIZE._replace(**{field: getattr(SIZE, field) - 1}) for field in FIELDS}  # of one dimension


def test_this_file_knows_every_dimension() -> None:
    lacking = [field for field in FIELDS if field not in PRIMES]
    assert not lacking, f"PRIMES of this file has no {', '.join(lacking)}: add a prime of its own"
    assert set(PRIMES) == set(FIELDS)
    assert len(set(PRIMES.values())) == len(FIELDS)
    options = vars(directives_parser().parse_args([]))
    unasked = [d.field for d in DIMENSIONS if d.per_node not in options]
    assert not unasked, (
        f"no option of `phoenix submit` has a dest for {', '.join(unasked)}: add one to sbatch.add_options"
    )
    unleased = [field for field in FIELDS if field not in lease.SIZES]
    assert not unleased, f"no option of `phoenix lease` is for {', '.join(unleased)}: add one to lease.SIZES"


FLAT: Final[dict[type, Callable[[Dimension], Sequence[str]]]] = {  # struct -> its fields that a dimension takes
    **dict.fromkeys((f.UnitPlaced, f.HostDescribed, f.JobSubmitted), lambda d: [d.field]),
    **dict.fromkeys(
        (LeaseCreate, Foretold, because.Needs, Work, Boot, door_of_guest.Boot, QueuePlace), lambda d: [d.field]
    ),
    JobSubmit: lambda d: [d.per_node],
    Scenario: lambda d: [f"host_{d.field}"],
    UserLimits: lambda d: [d.limit] if d.limit else [],
    Department: lambda d: [d.department_limit] if d.department_limit else [],
    BatchPolicy: lambda d: [d.weight],
    MultiFactor: lambda d: [d.worth],
    WebPolicy: lambda d: [f"instance_{d.field}"],
    Row: lambda d: d.history[:2],
    Span: lambda d: d.history[2:],
}


def test_every_struct_that_is_flat_has_its_fields_of_every_dimension() -> None:
    lacking = [
        f"{struct.__module__}.{struct.__name__}.{field}"
        for struct, fields in FLAT.items()
        for dimension in DIMENSIONS
        for field in fields(dimension)
        if field not in struct.__struct_fields__  # type: ignore[attr-defined]
    ]
    assert not lacking, f"fields to add: {', '.join(lacking)}"


def test_a_price_and_its_kind_are_known_for_each_that_has_an_hour() -> None:
    assert [d.hour for d in DIMENSIONS if d.hour and f"{d.hour}_hour" not in PER] == [], "add it to `Per` of prices.py"


# ------------------------------------------------------------------------------------------------------------------- D1


def asked() -> dict[str, Any]:
    return asking(SIZE)


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
    job = world.submit(**SIZE._replace(**{field: getattr(SIZE, field) + 1}).fields())
    world.settle()
    assert world.unit(job).state == "pending"
    over = f.UnitPlaced(
        unit=job, attempt=1, hosts=("whole",), **SIZE._replace(**{field: getattr(SIZE, field) + 1}).fields()
    )
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
    first, _ = found(copied(core), job, world.now)
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
    read = msgspec.json.decode(msgspec.json.encode(boot), type=door_of_guest.Boot)
    assert size_of(read) == SIZE
    for said in (environment(boot), for_job(read, STILL, "http://phoenix:1", "c/1/1/0")):
        for dimension, prime in zip(DIMENSIONS, SIZE, strict=True):
            names = (dimension.variable, *dimension.slurm)
            assert [said.get(name) for name in names] == [str(prime)] * len(names), dimension.field


STILL: Final[Any] = SimpleNamespace(  # a machine in which nothing runs
    room=SimpleNamespace(work="/w", tmp="/t", path="/r", file=lambda name: f"/r/{name}"),
    programs=SimpleNamespace(path="/phoenix/bin:/usr/bin"),
    core_share=1.0,
    environment={},
)


def test_d5_the_guest_reads_every_field_of_the_boot_document() -> None:
    exempt: set[str] = set()  # fields that the embedded guest has no use for, by name
    assert set(Boot.__struct_fields__) - set(door_of_guest.Boot.__struct_fields__) == exempt


def test_d5_a_lease_asks_as_a_job_does_and_a_replay_as_the_submission_did() -> None:
    parser = Parser()
    lease.add_arguments(parser)
    args = parser.parse_args(["--immediate", "--duration", "60"])
    assert set(FIELDS) <= set(vars(args))
    vars(args).update(SIZE.fields())
    asked_for = msgspec.convert(lease._request(args, [], 0.0), LeaseCreate)
    assert size_of(asked_for) == SIZE
    given = Namespace(**vars(directives_parser().parse_args([])) | asking(SIZE), script="", arguments=[])
    submitted = submit.request_of(given, given, "true")
    for request in (asked_for.job("hold"), msgspec.convert(submitted, JobSubmit)):
        world = door()
        described(world, "big", SIZE)
        fact = compose.submit(world.core, ANN, "hpc", request, "job/x", "d", ())
        again = compose.submit(world.core, ANN, "hpc", asked_by(fact), "job/x", "d", ())
        assert (size_of(fact), size_of(again)) == (SIZE, SIZE)
        for name in asking(SIZE):
            assert getattr(asked_by(fact), name) == getattr(request, name) is not None


def test_d5_the_digest_of_what_is_asked_changes_with_each() -> None:
    base = JobSubmit(script="true", request="r", **asking(SIZE))
    digests = {
        pack(msgspec.structs.replace(base, **{name: value + 1}), "hpc").digest for name, value in asking(SIZE).items()
    }
    assert len(digests | {pack(base, "hpc").digest}) == len(FIELDS) + 1


def test_d5_up_has_an_option_for_each_keeps_it_and_hands_it_on(tmp_path: Path) -> None:
    parser = Parser()
    up.add_arguments(parser)
    words = [word for dimension, n in zip(DIMENSIONS, SIZE, strict=True) for word in (dimension.option, str(n))]
    kept = tmp_path / "settings.json"
    stack_settings.save(kept, stack_settings.changed(stack_settings.Settings(), **up._given(parser.parse_args(words))))
    settings = stack_settings.load(kept)
    assert settings.size == SIZE
    assert SIZE.fields().items() <= json.loads(kept.read_bytes()).items()
    site_config = Config(cloud=config(batch("hpc")), opennebula=OpenNebula(endpoint="http://127.0.0.1:1/RPC2"))
    spec = stack.opennebula(site_config, Layout(tmp_path), settings)
    options = opennebula._parser().parse_args(spec.argv[3:])
    assert size_of(options) == SIZE
    for dimension in DIMENSIONS:
        with pytest.raises(CliError, match=f"{dimension.option} {dimension.embedded[1] + 1}: at most"):
            up._given(parser.parse_args([dimension.option, str(dimension.embedded[1] + 1)]))


# ------------------------------------------------------------------------------------------------------------------- D6


SHOWN: Final = SIZE.plus(Size._make(7000 for _ in FIELDS))  # numbers that stand nowhere else


def says_each(text: str, size: Size = SHOWN, fields: Sequence[str] = FIELDS) -> None:
    numbers = [getattr(size, field) for field in fields]
    assert [n for n in numbers if not re.search(rf"(?<![\d.]){n}(?![\d])", text)] == [], text


JOB: Final = {"job": "1", "state": "running", "attempts": [], "nodes": 1, **SHOWN.fields()}


def test_d6_hosts_jobs_leases_and_answers_to_questions_say_each() -> None:
    in_use = {dimension.used: getattr(SHOWN, dimension.field) - 1 for dimension in DIMENSIONS}
    says_each(hosts.render([{"host": "h", "state": "held", **SHOWN.fields(), **in_use}]))
    says_each(show.render(JOB))
    hours = {f"{d.hour}_s_{word}": 0.0 for d in DIMENSIONS if d.hour for word in ("used", "reserved")}
    reserved = {"lease": "1", "duration_s": 60.0, "hosts": [], "preempted": 0, "state": "running", **hours}
    says_each(", ".join(value for _, value in lease.pairs({**reserved, **SHOWN.fields()})))
    worth = {f"{d.hour}_s_used": 3600.0 * number for d, number in zip(DIMENSIONS, SHOWN, strict=True) if d.hour}
    told = dict(lease.pairs({**reserved, **SHOWN.fields(), **worth}))
    for dimension, number in zip(DIMENSIONS, SHOWN, strict=True):
        if dimension.hour:
            assert told[f"{dimension.singular} hours"].startswith(f"{number}.00 used")
    forecast = {"sure": "planned", "start_at": 0.0, "hosts": []}
    asked_for = {
        "department": "hpc",
        "at": 0.0,
        "now": True,
        "units": 1,
        "nodes": 1,
        "walltime_s": 60.0,
        "variants": [],
    }
    says_each(whatif_job.render({**asked_for, "forecast": forecast, **SHOWN.fields()}))
    assert set(FIELDS) <= set(history.COLUMNS)
    more = SHOWN._replace(memory_mb=SHOWN.memory_mb * 1024)  # which the doctor tells in GiB
    says_each(", ".join(checks._amounts(more)))


def test_d6_sentences_say_each() -> None:
    says_each(told("host.described", {"host": "h", **SHOWN.fields()}))
    says_each(because.TooLargeNow(nodes=1, able=0, **SHOWN.fields()).sentence())


@pytest.mark.parametrize("dimension", [d for d in DIMENSIONS if d.limit], ids=lambda d: d.field)
def test_d6_a_limit_of_each_is_said_in_its_unit(dimension: Dimension) -> None:
    for most in (1, 13):
        limited = because.UserLimit(user="ann", limit=dimension.limit, most=most, used=5, needs=17)
        words = f"may have {dimension.amount(most)} at once ({dimension.limit}) and has 5; it needs 17 more"
        assert words in limited.sentence()
    above = because.DepartmentLimit(limit=dimension.limit, most=13, used=5, needs=17).sentence()
    assert f"{dimension.amount(13)} at once ({dimension.department_limit})" in above


PAID: Final = tuple(dimension for dimension in DIMENSIONS if dimension.hour)
HOUR_MS: Final = 3_600_000


def test_d6_usage_says_each_that_has_an_hour() -> None:
    row, span = Row(), Span()
    measure(row, USED, SIZE, HOUR_MS)
    measure(span, OF_HOSTS, SIZE.times(2), HOUR_MS)
    one = usage_view._department("hpc", span, row, None)
    for dimension in PAID:
        prime = getattr(SIZE, dimension.field)
        assert (one[f"used_{dimension.hour}_s"], one[f"held_{dimension.hour}_s"]) == (3600 * prime, 7200 * prime)
    site = {"hosts_s": 1.0, "cores_s": 1e6, "lost_s": 0.0, "absent_s": 0.0, "free_s": 0.0}
    answer = {"by": "department", "department": None, "since": 0.0, "until": 3600.0, "began": 0.0, "site": site}
    says_each(
        usage.render({**answer, "departments": [one], "rows": [], "rows_left_out": 0}), SIZE, [d.field for d in PAID]
    )


def test_d6_the_bill_has_a_line_for_each_that_has_an_hour() -> None:
    db = sqlite3.connect(":memory:")
    db.executescript(SCHEMA)
    columns = {"unit": "1", "attempt": 1, "department": "hpc", "hosts": "h1", "placed_ms": 0, "ended_ms": HOUR_MS}
    columns |= SIZE.fields()
    marks = ", ".join("?" * len(columns))
    db.execute(f"INSERT INTO attempts ({', '.join(columns)}) VALUES ({marks})", tuple(columns.values()))
    found = billable.of_day(db, 0, None, HOUR_MS)
    table = "".join(f'[[price]]\nper = "{d.hour}_hour"\namount = "1"\n' for d in PAID)
    lines = bill_of_day(parse(f"digits = 2\n{table}"), billable.shown(0, found)).lines
    assert {line.per: line.quantity_ms // HOUR_MS for line in lines} == {
        f"{dimension.hour}_hour": getattr(SIZE, dimension.field) for dimension in PAID
    }
