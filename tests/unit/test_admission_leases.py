"""Leases at the door: what is accepted, what is refused, and that every alternative it names is then accepted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas import requests as r
from schemas.config import BatchPolicy, Department
from schemas.times import exact
from schemas.units import seconds as seconds_of
from services.admission.commands import compose, leases
from services.admission.commands.compose import Caller
from services.admission.storage.payloads import pack
from services.domain.refusal import Refused
from tests.support.admission import ANN, BOB, LEO, MIA, ROOT, Fold, cloud

NOW = 1000.0


def house(hosts: int = 4, **department: Any) -> Fold:
    """`hosts` hosts of four cores; hpc keeps leases."""
    world = Fold()
    config = cloud()
    policy = BatchPolicy(order=cast("Any", "leases"), walltime_max_s=7200.0)
    hpc = Department(name="hpc", kind="batch", batch=policy, **department)
    world.adopt(msgspec.structs.replace(config, departments=(hpc, *config.departments[1:])))
    for number in range(hosts):
        world.host(f"h{number}", 4, 4096)
    return world


def timed(asked: dict[str, Any]) -> dict[str, Any]:
    """With the UTC seconds of fields `…_at` as times."""
    return {key: text_of(x) if key.endswith("_at") else x for key, x in asked.items()}


def text_of(instant: float) -> str:
    """To the microsecond, which a request may have."""
    return datetime.fromtimestamp(instant, UTC).isoformat(timespec="microseconds")


def offer(nodes: int, start: float, end: float) -> r.LeaseOffer:
    return r.LeaseOffer(nodes=nodes, start_at=exact(start), end_at=exact(end))


def seconds(time: str | None) -> float:
    found = seconds_of(time)
    assert found is not None
    return found


def ask(
    world: Fold,
    kind: r.LeaseKind = "advance",
    *,
    caller: Caller = ANN,
    dept: str = "hpc",
    drafted: tuple[f.Fact, ...] = (),
    now: float = NOW,
    **asked: Any,
) -> f.JobSubmitted:
    request = r.LeaseCreate(kind=kind, **{"duration_s": 100.0, "nodes": 4, "cores": 4, **timed(asked)})
    return leases.create(world.core, caller, dept, request, "job/x", "d", now, drafted)


def take(world: Fold, kind: r.LeaseKind = "advance", **asked: Any) -> str:
    fact = ask(world, kind, **asked)
    assert world.put(fact) is None
    return fact.job


def refused(call: Callable[[], Any]) -> Refused:
    with pytest.raises(Refused) as error:
        call()
    assert str(error.value)
    return error.value


# --------------------------------------------------------------------------------------------------------------- acceptance


def test_an_advance_lease_keeps_its_time() -> None:
    fact = ask(house(), start_at=2000.0, name="lecture")
    assert fact.lease == f.Lease(kind="advance", start_at=2000.0)
    assert (fact.nodes, fact.cores, fact.walltime_s, fact.name, fact.best_effort) == (4, 4, 100.0, "lecture", False)


def test_a_collision_is_refused_with_alternatives_that_are_accepted() -> None:
    world = house()
    first = take(world, start_at=2000.0, nodes=3)
    error = refused(lambda: ask(world, start_at=1950.0))
    assert (error.code, error.field) == ("conflict", "start_at")
    assert error.lease == r.LeaseRefusal(
        at=exact(2000.0),
        collides_with=(first,),
        earliest=offer(4, 2100.0, 2200.0),
        smaller=offer(1, 1950.0, 2050.0),
    )
    assert f"collides with lease {first}" in error.message
    assert "the same from 1970-01-01T00:35:00Z" in error.message
    assert "1 node from 1970-01-01T00:32:30Z" in error.message
    take(world, start_at=1950.0, nodes=1)
    take(world, start_at=2100.0)


def test_a_deadline_lease_gets_the_earliest_start_that_keeps_it() -> None:
    world = house()
    take(world, start_at=1040.0)
    assert ask(world, "deadline", deadline_at=1500.0).lease == f.Lease(
        kind="deadline", start_at=1140.0, deadline_at=1500.0
    )
    later = ask(world, "deadline", start_at=1200.0, deadline_at=1500.0).lease
    assert later is not None
    assert later.start_at == 1200.0
    error = refused(lambda: ask(world, "deadline", deadline_at=1200.0))
    assert error.field == "deadline_at"
    assert error.lease is not None
    assert error.lease.smaller is None
    assert error.lease.earliest == offer(4, 1140.0, 1240.0)
    assert refused(lambda: ask(world, "deadline", deadline_at=1099.0)).field == "deadline_at"


def test_a_deadline_leaves_time_for_a_smaller_one() -> None:
    world = house()
    take(world, start_at=1040.0, nodes=2)
    error = refused(lambda: ask(world, "deadline", deadline_at=1200.0))
    assert error.lease is not None
    assert error.lease.smaller == offer(2, 1000.0, 1100.0)


def test_immediate_is_now_or_not_at_all() -> None:
    world = house()
    assert ask(world, "immediate").lease == f.Lease(kind="immediate", start_at=NOW)
    first = take(world, "immediate")
    error = refused(lambda: ask(world, "immediate"))
    assert error.lease is not None
    assert error.lease.collides_with == (first,)
    assert ask(world, "immediate", now=1100.0).lease is not None  # past its end it counts no more


@pytest.mark.parametrize(
    ("dept", "why"), [("hpc", "jobs that may save first (--grace) are on 1"), ("bio", "bio has 1 host")]
)
def test_a_host_whose_job_may_save_first_does_not_come_at_once(dept: str, why: str) -> None:
    world = house(hosts=3, guarantee=4)
    world.host("x", 4, 4096, dept)
    job = f.JobSubmitted(job="1", dept=dept, user="a", name="j", payload="p", walltime_s=9.0, best_effort=True)
    world.put(job, msgspec.structs.replace(job, job="2", grace_s=30.0))
    assert world.place("1", "x", dept=dept, cores=4) is None
    assert ask(world, "immediate").lease is not None
    world.close("1", f.Disposal.KILL, dept=dept)
    assert world.place("2", "x", dept=dept, cores=4) is None
    assert why in refused(lambda: ask(world, "immediate")).message


def test_best_effort_is_accepted_always_and_takes_no_time_from_anybody() -> None:
    world = house()
    take(world, start_at=2000.0)
    fact = ask(world, "best-effort")
    assert (fact.lease, fact.best_effort) == (f.Lease(kind="best-effort"), True)
    for _ in range(3):
        take(world, "best-effort")
    world.submit(tasks=4, walltime_s=5000.0)  # nor does an ordinary job
    take(world, "immediate")


def test_two_that_come_together_cannot_both_get_the_last_hosts() -> None:
    world = house()
    first = ask(world, start_at=2000.0, nodes=3)
    error = refused(lambda: ask(world, start_at=2000.0, nodes=2, drafted=(first,)))
    assert error.lease is not None
    assert error.lease.collides_with == (first.job,)
    assert ask(world, start_at=2000.0, nodes=1, drafted=(first,)).job == "2"
    world.put(first)
    longer = f.LeaseExtended(job=first.job, walltime_s=300.0)
    assert refused(lambda: ask(world, start_at=2150.0, nodes=2, drafted=(longer,))).lease is not None


def test_what_has_ended_or_was_cancelled_gives_its_time_back() -> None:
    world = house()
    cancelled = take(world, start_at=2000.0)
    world.put(f.JobCancelled(job=cancelled, user="ann"))
    running = take(world, "immediate")
    world.place(running, "h0", "h1", "h2", "h3", cores=4)
    assert refused(lambda: ask(world, "immediate"))
    world.close(running, f.Disposal.STOPPED)
    take(world, "immediate")
    take(world, start_at=2000.0)


def test_a_cancelled_lease_that_still_runs_has_given_up_its_time() -> None:
    world = house()
    running = take(world, "immediate")
    world.place(running, "h0", "h1", "h2", "h3", cores=4)
    world.put(f.JobCancelled(job=running, user="ann"))
    take(world, start_at=NOW + 1.0)


def test_one_that_waits_when_its_time_has_passed_can_never_start() -> None:
    world = house()
    waits, runs, best_effort = take(world, start_at=2000.0), take(world, "immediate"), take(world, "best-effort")
    assert world.core.wake_at() == 1100.0
    world.place(runs, "h0", "h1", "h2", "h3", cores=4)
    assert world.core.wake_at() == 2100.0  # what runs is the scheduler's to end
    world.put(f.LeaseExtended(job=waits, walltime_s=150.0))
    assert world.core.decide(2149.0) == []
    assert world.core.decide(2150.0) == [f.JobCancelled(job=waits, user="")]
    world.put(*world.core.decide(2150.0))
    assert (world.core.decide(1e9), world.core.wake_at()) == ([], float("inf"))
    assert world.core.unfinished("hpc") == 2
    assert world.core.job(best_effort) is not None


def test_another_departments_leases_do_not_collide() -> None:
    world = Fold()
    policy = BatchPolicy(order=cast("Any", "leases"))
    two = tuple(Department(name=name, kind="batch", batch=policy) for name in ("hpc", "bio"))
    world.adopt(msgspec.structs.replace(cloud(), departments=two))
    world.host("h1", 4, 4096)
    take(world, start_at=2000.0, nodes=1)
    take(world, start_at=2000.0, nodes=1, caller=LEO, dept="bio")


# ----------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("kind", "asked", "field"),
    [
        ("advance", {"start_at": 990.0}, "start_at"),
        ("advance", {"start_at": NOW + 367 * 86400.0}, "start_at"),
        ("deadline", {"deadline_at": NOW + 367 * 86400.0}, "deadline_at"),
        ("advance", {"start_at": 2000.0, "duration_s": 7201.0}, "duration_s"),
        ("advance", {"start_at": 2000.0, "nodes": 5}, "nodes"),
        ("advance", {"start_at": 2000.0, "cores": 5}, "cores"),
        ("immediate", {"memory_mb": 5000}, "memory_mb"),
    ],
)
def test_what_could_never_be_is_refused_with_its_field(kind: r.LeaseKind, asked: dict[str, Any], field: str) -> None:
    error = refused(lambda: ask(house(), kind, **asked))
    assert error.field == field
    assert error.message.startswith(f"{field}: ")


def test_a_clock_that_is_a_little_ahead_is_forgiven() -> None:
    assert ask(house(), start_at=NOW - 0.3).lease == f.Lease(kind="advance", start_at=NOW)


def test_hosts_that_cannot_be_counted_on() -> None:
    world = house()
    world.put(f.HostCordoned(host="h0", reason="new memory", user="root"))
    error = refused(lambda: ask(world, start_at=2000.0))
    assert (error.code, error.field, error.lease) == ("invalid", "nodes", None)
    assert "3 can be counted on" in error.message
    world.put(f.HostQuarantined(host="h1", reason="VMs fail", until=1500.0), writer="executor")
    assert refused(lambda: ask(world, "immediate", nodes=3)).field == "nodes"
    take(world, start_at=1500.0, nodes=3)
    take(world, "immediate", nodes=2)


def test_the_departments_maximum_at_all_hours_counts() -> None:
    assert refused(lambda: ask(house(maximum=3), start_at=2000.0)).field == "nodes"
    night = house(windows=("daily 20:00-06:00 maximum 2",))
    assert "2 can be counted on; hpc may hold 2" in refused(lambda: ask(night, start_at=2000.0, nodes=3)).message
    take(night, start_at=2000.0, nodes=2)


def test_departments_with_another_order_keep_no_times() -> None:
    for kind, asked in (("advance", {"start_at": 2000.0}), ("best-effort", {})):
        error = refused(lambda kind=kind, asked=asked: ask(house(), kind, caller=ROOT, dept="bio", **asked))  # type: ignore[misc]
        assert (error.code, error.field) == ("invalid", "kind")
        assert 'order = "first-fit"' in error.message
    assert refused(lambda: ask(house(), "immediate", dept="bio")).code == "denied"


def test_the_number_of_leases_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LEASES_MAX", 2)
    world = house()
    for start in (2000.0, 2100.0):
        take(world, start_at=start)
    assert refused(lambda: ask(world, start_at=2200.0)).code == "limit"


def test_beyond_the_guarantee_there_is_a_warning() -> None:
    world = house(guarantee=3)
    within, beyond = take(world, start_at=2000.0, nodes=3), take(world, start_at=2050.0, nodes=1)
    assert leases.warning(world.core, within, NOW) == leases.warning(world.core, beyond, NOW) != ""
    granted = leases.granted(world.core, beyond, None, NOW)
    assert (granted.start_at, granted.end_at, granted.nodes) == (exact(2050.0), exact(2150.0), 1)
    assert "may need 4 hosts at a time, and 3 are guaranteed" in granted.warning
    assert leases.warning(world.core, take(world, start_at=3000.0, nodes=3), NOW) == ""
    assert leases.warning(world.core, take(world, "best-effort"), NOW) == ""


def test_ordinary_jobs_that_may_still_run_are_warned_of() -> None:
    world = house(guarantee=4)
    job = world.submit(tasks=4, walltime_s=3000.0)
    world.place(job, "h0", cores=4)
    began = world.custody.state.at
    told = leases.warning(world.core, take(world, start_at=2000.0), NOW)
    assert told == "jobs that are not best-effort may still run on 1 host when it starts: it waits for their end"
    assert leases.warning(world.core, take(world, start_at=2100.0, nodes=3), NOW) == ""
    assert leases.warning(world.core, take(world, start_at=began + 3000.0), NOW) == ""


# ------------------------------------------------------------------------------------------------------------------- extend


def extend(
    world: Fold, name: str, *, caller: Caller = ANN, drafted: tuple[f.Fact, ...] = (), now: float = NOW, **asked: Any
) -> list[Any]:
    request = r.LeaseExtend(lease=name, **timed(asked))
    return leases.extend(world.core, caller, request, "d", now, drafted)


def test_extended_by_and_until() -> None:
    world = house()
    name = take(world, start_at=2000.0)
    (fact,) = extend(world, name, by_s=50.0, request="r")
    assert fact == f.LeaseExtended(job=name, walltime_s=150.0, user="ann", request="r@d")
    world.put(fact)
    assert extend(world, name, until_at=2150.0) == []
    assert extend(world, name, until_at=2200.0)[0].walltime_s == 200.0
    assert extend(world, name, by_s=10.0, drafted=(f.LeaseExtended(job=name, walltime_s=170.0),))[0].walltime_s == 180.0
    assert refused(lambda: extend(world, name, until_at=2100.0)).field == "until_at"
    assert refused(lambda: extend(world, name, by_s=7200.0)).field == "by_s"


def test_an_extension_that_collides_is_refused_with_the_latest_end() -> None:
    world = house()
    name = take(world, start_at=2000.0, nodes=3)
    other = take(world, start_at=2150.0, nodes=2)
    error = refused(lambda: extend(world, name, by_s=100.0))
    assert error.lease == r.LeaseRefusal(at=exact(2150.0), collides_with=(other,), latest_end_at=exact(2150.0))
    assert "until 1970-01-01T00:35:50Z at the latest" in error.message
    world.put(*extend(world, name, until_at=2150.0))
    assert refused(lambda: ask(world, start_at=2140.0, nodes=2)).lease is not None  # the new end counts


@pytest.mark.parametrize("now", [1000.0003, 1000.0007, 1_795_699_249.5954, 1_795_699_249.595])
def test_times_that_an_answer_has_are_accepted_when_they_are_sent_back(now: float) -> None:
    """Rule 7: they are to the millisecond, and leases begin in between."""
    world = house()
    first = take(world, "immediate", nodes=3, now=now)
    details = refused(lambda: ask(world, "immediate", now=now)).lease
    assert details is not None
    assert details.earliest is not None
    start = seconds(details.earliest.start_at)
    assert 0.0 <= start - (now + 100.0) < 0.001 + 1e-6
    take(world, start_at=now + 200.0, now=now)
    take(world, start_at=start, duration_s=99.9, now=now)
    end = leases.granted(world.core, first, None, now).end_at
    assert extend(world, first, until_at=seconds(end), now=now) == []


@pytest.mark.parametrize("now", [1000.0003, 1000.0007, 1_795_699_249.5954, 1_795_699_249.595])
def test_the_latest_end_that_a_refusal_has_is_accepted(now: float) -> None:
    world = house()
    name = take(world, "immediate", nodes=3, now=now)
    take(world, start_at=now + 150.0, nodes=2, now=now)
    details = refused(lambda: extend(world, name, by_s=100.0, now=now)).lease
    assert details is not None
    latest = seconds(details.latest_end_at)
    assert 0.0 <= now + 150.0 - latest < 0.001 + 1e-6
    assert extend(world, name, until_at=latest, now=now)[0].walltime_s == pytest.approx(150.0, abs=0.001)


def test_an_offset_changes_neither_the_time_nor_the_request() -> None:
    packed = pack(r.LeaseCreate(kind="immediate", duration_s=60.0).job("held"), "hpc")
    told = [
        r.decode(
            "lease.create", msgspec.json.encode({"kind": "advance", "duration_s": 60, "request": "r", "start_at": x})
        )
        for x in ("1970-01-01T00:33:20.000Z", "1970-01-01T02:33:20+02:00")
    ]
    assert {leases.digest(one, packed) for one in told} == {leases.digest(told[0], packed)}
    facts = [leases.create(house().core, ANN, "hpc", one, "job/x", "d", NOW, ()) for one in told]
    assert [fact.lease for fact in facts] == [f.Lease(kind="advance", start_at=2000.0)] * 2


def test_hosts_lost_since_do_not_take_back_what_was_promised() -> None:
    world = house()
    name = take(world, start_at=2000.0)
    world.put(f.HostLost(host="h0", reason="dead"), writer="executor")
    assert extend(world, name, until_at=2100.0) == []
    assert refused(lambda: extend(world, name, by_s=1.0)).code == "conflict"


def test_a_best_effort_lease_is_extended_by_how_much() -> None:
    world = house()
    name = take(world, "best-effort")
    assert extend(world, name, by_s=50.0)[0].walltime_s == 150.0
    assert refused(lambda: extend(world, name, until_at=5000.0)).field == "until_at"


def test_whose_lease_it_is() -> None:
    world = house()
    name, job = take(world, start_at=2000.0), world.submit()
    assert refused(lambda: extend(world, name, caller=BOB, by_s=1.0)).code == "denied"
    assert refused(lambda: extend(world, name, caller=LEO, by_s=1.0)).code == "unknown"
    assert extend(world, name, caller=MIA, by_s=1.0)
    assert extend(world, name, caller=ROOT, by_s=1.0)
    assert refused(lambda: extend(world, job, by_s=1.0)).code == "invalid"
    assert refused(lambda: extend(world, "99", by_s=1.0)).code == "unknown"
    assert refused(lambda: extend(world, "x_1", by_s=1.0)).code == "invalid"


def test_what_has_ended_is_not_extended() -> None:
    world = house()
    past, gone = take(world, "immediate", nodes=1), take(world, start_at=2000.0)
    drafted = (f.JobCancelled(job=gone, user="ann"),)
    assert refused(lambda: extend(world, gone, by_s=1.0, drafted=drafted)).code == "conflict"
    world.put(*drafted)
    assert refused(lambda: extend(world, gone, by_s=1.0)).code == "conflict"
    request = r.LeaseExtend(lease=past, by_s=1.0)
    assert refused(lambda: leases.extend(world.core, ANN, request, "", 1100.0, ())).code == "conflict"


# ------------------------------------------------------------------------------------------------------------ what is asked


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"kind": "advance"}, "start_at"),
        ({"kind": "deadline"}, "deadline_at"),
        ({"kind": "immediate", "start_at": exact(5)}, "start_at"),
        ({"kind": "best-effort", "deadline_at": exact(5)}, "deadline_at"),
        ({"kind": "advance", "start_at": exact(5), "deadline_at": exact(500)}, "deadline_at"),
        ({"kind": "deadline", "start_at": exact(5), "deadline_at": exact(60)}, "deadline_at"),
        ({"kind": "immediate", "name": "a\nb"}, "name"),
        ({"kind": "sometime"}, "kind"),
        ({"kind": "immediate", "duration_s": 0}, "duration_s"),
    ],
)
def test_a_request_that_says_no_time_or_two(asked: dict[str, Any], field: str) -> None:
    with pytest.raises(r.Malformed) as error:
        r.decode("lease.create", msgspec.json.encode({"duration_s": 60, **asked}))
    assert error.value.field == field


def test_by_how_much_or_until_when_but_not_both() -> None:
    for asked in ({}, {"by_s": 1, "until_at": exact(2)}):
        with pytest.raises(r.Malformed):
            r.decode("lease.extend", msgspec.json.encode({"lease": "1", **asked}))


def test_without_a_script_the_machines_are_held() -> None:
    bare = r.LeaseCreate(kind="immediate", duration_s=60.0, nodes=2, cores=3)
    assert bare.job("held").script == "held"
    assert msgspec.structs.replace(bare, argv=("true",)).job("held").script is None
    packed = pack(bare.job("held"), "hpc")
    named = msgspec.structs.replace(bare, request="r")
    later = msgspec.structs.replace(named, **timed({"start_at": 5.0}))
    digests = {leases.digest(x, packed) for x in (named, later)}
    assert len(digests) == 2
    assert leases.digest(bare, packed) == ""


def test_a_refusal_is_read_by_programs_too() -> None:
    details = r.LeaseRefusal(at=exact(5.0), collides_with=("1",))
    told = msgspec.json.decode(r.encode(Refused("conflict", "no", "start_at", details).problem()))
    assert told["lease"]["collides_with"] == ["1"]
    assert "lease" not in msgspec.json.decode(r.encode(Refused("conflict", "no").problem()))
    assert compose.failed_job("1", Refused("conflict", "no")).error == Refused("conflict", "no").problem()


# ------------------------------------------------------------------------------------------------------- immediate: the hosts


def pair(**department: Any) -> Fold:
    """8 hosts: hpc (guarantee 3) holds h0 to h2, bio (guarantee 5) the others."""
    world = house(3, guarantee=3, **department)
    config = world.custody.state.config
    assert config is not None
    bio = Department(name="bio", kind="batch", batch=BatchPolicy(), guarantee=5)
    world.adopt(msgspec.structs.replace(config, departments=(config.departments[0], bio)))
    for number in range(3, 8):
        world.host(f"h{number}", 4, 4096, "bio")
    return world


def run_elsewhere(world: Fold, *hosts: str) -> list[str]:
    jobs = []
    for host in hosts:
        jobs.append(world.submit(LEO, "bio", cpus_per_task=4))
        assert world.place(jobs[-1], host, dept="bio", cores=4) is None
    return jobs


def test_an_immediate_lease_is_refused_where_others_run_jobs_on_the_hosts() -> None:
    world = pair()
    jobs = run_elsewhere(world, "h3", "h4", "h5", "h6", "h7")
    error = refused(lambda: ask(world, "immediate", nodes=5))
    assert (error.code, error.field) == ("conflict", "kind")
    assert error.lease == r.LeaseRefusal(at=exact(NOW), smaller=offer(3, NOW, NOW + 100))
    assert "hpc holds 3 hosts, bio has 5 hosts in use" in error.message
    assert "possible instead: 3 nodes from" in error.message
    take(world, nodes=5, start_at=2000.0)  # in time it may be otherwise
    for job in jobs[:2]:
        world.put(f.AttemptReported(unit=job, attempt=1, exit=0))
    take(world, "immediate", nodes=5)


def test_an_immediate_lease_counts_what_stays_on_its_own_hosts() -> None:
    world = pair()
    run_elsewhere(world, "h3", "h4", "h5", "h6", "h7")
    best_effort, job, cancelled = take(world, "best-effort", nodes=1), world.submit(cpus_per_task=1), world.submit()
    assert world.place(best_effort, "h0", cores=4) is None
    assert world.place(cancelled, "h2", cores=1) is None
    world.put(f.JobCancelled(job=cancelled, user="ann"))
    assert ask(world, "immediate", nodes=3).lease is not None
    assert world.place(job, "h1", cores=1) is None
    error = refused(lambda: ask(world, "immediate", nodes=3))
    assert "jobs that are never preempted are on 1 of them" in error.message
    assert ask(world, "immediate", nodes=3, cores=3).lease is not None
    first = ask(world, "immediate", nodes=2)
    error = refused(lambda: ask(world, "immediate", nodes=1, drafted=(first,)))
    assert error.lease is not None
    assert (error.lease.collides_with, error.lease.smaller) == ((first.job,), None)


def test_what_is_offered_instead_of_an_immediate_lease_has_its_hosts_too() -> None:
    """Of 8 hosts a lease to come has 2, so that 6 are offered by the timetable; 3 are to be had."""
    world = pair()
    run_elsewhere(world, "h3", "h4", "h5", "h6", "h7")
    take(world, start_at=NOW + 50, nodes=2)
    error = refused(lambda: ask(world, "immediate", nodes=7))
    assert error.lease is not None
    assert error.lease.smaller == offer(3, NOW, NOW + 100)
    take(world, "immediate", nodes=3)


def test_a_lease_that_lacks_hosts_is_in_no_immediate_ones_way() -> None:
    world = pair()
    take(world, start_at=NOW + 1, nodes=5)
    run_elsewhere(world, "h3", "h4", "h5", "h6", "h7")
    take(world, "immediate", nodes=3, now=NOW + 10)


def test_hosts_of_its_own_that_are_lent_come_back_for_an_immediate_lease() -> None:
    world = pair()
    world.put(f.HostReleased(host="h0", reason=because.Queue()), writer="scheduler.hpc")
    world.put(f.HostCleared(host="h0"), writer="executor")
    assert ask(world, "immediate", nodes=3).lease is not None
    world.put(f.HostGranted(host="h0", dept="bio"), writer="provisioner")
    run_elsewhere(world, *(f"h{number}" for number in (0, 3, 4, 5, 6, 7)))
    assert ask(world, "immediate", nodes=3).lease is not None
    assert refused(lambda: ask(world, "immediate", nodes=4)).field == "kind"
