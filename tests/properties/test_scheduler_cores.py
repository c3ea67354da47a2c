"""Properties of the scheduler cores: whatever happens in whatever order.

S1  No placement is void, no closing or release is, when nothing is concurrent.
S2  No host is over its capacity, and nothing is placed on a host that is not held, cordoned or in quarantine.
S3  A notice is answered within one decision: at least held - quota hosts go back, or all that are not cordoned.  Of cordoned
    ones those go back that are idle, and those whose deadline has passed.
S4  Victims are enough, and idle hosts go before any (`test_victims`).
S5  A restart from the snapshot changes neither bytes nor decisions (asserted by `World` after each envelope).
S6  Left alone, with its hosts back, every job that can run ends; every wanted instance serves.
S7  Concurrent writers may make facts void, never the state inconsistent, and the cloud comes to rest.
"""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchLimits, Quality, UserLimits
from services.domain.capabilities import ALL
from services.provisioner.core.provisioner import ProvisionerCore
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.policies.registry import ORDERS
from services.scheduler.core.web.core import WebCore
from tests.support.examples import few
from tests.support.world import World, batch, cloud, web

HOSTS = ("h1", "h2", "h3", "h4")
Step = tuple[str, int, int]
KINDS = (
    *("submit", "wide", "array", "chain", "cancel", "hold", "resume", "begin", "report", "fail", "vm", "end"),
    *("quota", "grant", "lose", "cordon", "drain", "uncordon", "rest", "time", "decide", "decide", "decide"),
)
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 7), st.integers(0, 7)), min_size=5, max_size=60)
RELAXED = settings(max_examples=few(40, searching=80), deadline=None)


BOUNDS = st.sampled_from(
    (
        {},
        {"min_run_s": 5.0, "preemptions_max": 1},
        {"preemptions_per_hour_max": 1},
        {"limits": BatchLimits(jobs_running_max=2, users={"bob": UserLimits(cores_max=3)})},
        {"quality": {"q": Quality(priority=2, together=UserLimits(hosts_max=4))}, "min_run_s": 20.0},
    )
)


def hpc(order: str, short_s: float = 600.0, **policy: Any) -> World:
    """`short_s`: what a job of a service with a full share may last and start all the same, where services share."""
    shared = {"services": {"a": 1.0, "b": 2.0}, "short_s": short_s} if order == "svmsched" else {}
    config = cloud(batch("hpc", order=order, boot_timeout_s=20, requeues_max=3, **shared, **policy))
    world = World(msgspec.structs.replace(config, capabilities=ALL))
    world.hosts(4)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.grant("hpc", "h1", "h2", "h3")
    return world


def pick(world: World, number: int, *states: str) -> str | None:
    units = [name for name, state in world.states().items() if state in states]
    return units[number % len(units)] if units else None


def play(world: World, step: Step) -> None:
    """One thing that may happen outside the scheduler; nothing that would be void."""
    what, a, b = step
    host = world.custody.state.hosts[HOSTS[a % 4]]
    if what in ("submit", "wide", "array", "chain"):
        submit(world, what, a, b)
    elif what in ("cancel", "hold", "resume", "begin", "report", "fail", "vm", "end"):
        about_units(world, what, a)
    elif what == "quota":
        world.quota("hpc", a % 5)
    elif what == "grant" and host.state == "free":
        world.grant("hpc", host.name)
    elif what == "grant" and host.state == "draining" and not host.vms:
        world.write("executor", f.HostCleared(host=host.name))
    elif what == "lose" and b < 2:
        world.lose(host.name)
    elif what == "cordon":
        world.cordon(host.name)
    elif what == "drain":
        world.drain(host.name, (None, 0.0, 5.0, 20.0)[b % 4])
    elif what == "uncordon":
        world.write("admission", f.HostUncordoned(host=host.name, reason="", user="root"))
    elif what == "rest":
        world.write("executor", f.HostQuarantined(host=host.name, reason="x", until=world.now + b))
    elif what == "time":
        world.now += (0.5, 3, 10, 30)[a % 4]


def submit(world: World, what: str, a: int, b: int) -> None:
    fields: dict[str, Any] = {"cores": 1 + a % 4, "memory_mb": 1024 * (1 + b % 8), "walltime_s": 5.0 + 10 * a}
    fields |= {"priority": b % 2, "retries": a % 2, "exclusive": b == 7}
    fields |= {"service": "ab"[b % 2], "best_effort": a % 3 == 2, "short": a == 5}
    fields |= {"user": ("ann", "bob")[a % 2], "quality": "q" if b == 3 else ""}
    fields["on_reclaim"] = (None, "kill", "requeue", "suspend", "migrate")[b % 5]
    if what == "wide":
        fields["nodes"] = 1 + a % 4
    if what == "array":
        fields |= {"array": tuple(range(1 + a % 4)), "throttle": b % 3}
    known = pick(world, a, "pending", "open", "completed", "failed", "killed", "cancelled", "timeout")
    if what == "chain" and known:
        condition: Any = ("afterok", "afternotok", "afterany", "after")[b % 4]
        fields["after"] = (f.Dependency(condition=condition, job=known),)
    world.submit(**fields)


def about_units(world: World, what: str, number: int) -> None:
    waiting, alive = pick(world, number, "pending", "open"), pick(world, number, "open")
    if what == "cancel" and waiting:
        world.cancel(waiting)
    elif what in ("hold", "resume") and waiting:
        kind = f.JobHeld if what == "hold" else f.JobResumed
        world.write("admission", kind(job=waiting, user="ann"))
    elif alive and world.unit(alive).live:
        unit = world.unit(alive)
        if what == "begin":
            world.begin(alive)
        elif what in ("report", "fail"):
            world.report(alive, exit=int(what == "fail"))
        elif what == "vm" and not unit.allocated.get(unit.attempt):
            world.start_vms(alive)
        elif what == "end" and f"{alive}/{unit.attempt}/0" in world.custody.state.vms:
            world.end_vm(alive)


def decide_and_judge(world: World) -> None:
    """S2 and S3 for one decision, before it is written; then S1."""
    seat = world.seats["scheduler.hpc"]
    hosts, before = world.custody.state.hosts, world.custody.held("hpc")
    short = max(0, before - world.custody.quota("hpc").hosts) if "hpc" in world.custody.state.quotas else 0
    facts = seat.core.decide(world.now)
    moving = {
        x.unit: world.unit(x.unit).hosts for x in facts if isinstance(x, f.AttemptClosed) and x.disposal == "migrate"
    }
    for fact in facts:
        if isinstance(fact, f.UnitPlaced):
            stays = moving.get(fact.unit, ())
            assert not short or stays, "placed while hosts are asked back"
            for host in (hosts[name] for name in fact.hosts if name not in stays):
                assert host.cordoned is None
                assert host.quarantine_until <= world.now
    released = [hosts[fact.host] for fact in facts if isinstance(fact, f.HostReleased)]
    ending = {fact.unit for fact in facts if isinstance(fact, f.AttemptClosed)}
    due = [host for host in released if host.cordoned is not None]
    assert all(host.drain_due(world.now) or not host.units.keys() - ending for host in due), "a cordoned host is kept"
    apart = len(world.custody.cordoned("hpc"))
    if not any(isinstance(fact, f.AttemptClosed) and type(fact.why) is because.HostDrained for fact in facts):
        assert len(released) - len(due) == min(short, before - apart)
    if facts:
        world.write(seat.writer, *facts)
    for host in hosts.values():
        assert host.used.cores <= host.size.cores
        assert host.used.memory_mb <= host.size.memory_mb


@RELAXED
@given(st.sampled_from(sorted([*ORDERS, "multi-factor"])), BOUNDS, STEPS)
def test_whatever_happens_the_batch_core_decides_well(order: str, bounds: dict[str, Any], steps: list[Step]) -> None:
    world = hpc(order, short_s=20.0, **bounds)
    for step in steps:
        if step[0] == "decide":
            decide_and_judge(world)
        else:
            play(world, step)
    for _ in range(50):
        written = len(world.journal)
        decide_and_judge(world)
        if len(world.journal) == written:
            break
    else:
        raise AssertionError("it never comes to rest")
    assert [(fact, meta.void) for fact, meta in world.voids] == []


@RELAXED
@given(st.sampled_from(sorted([*ORDERS, "multi-factor"])), STEPS)
def test_healed_every_job_that_can_run_ends(order: str, steps: list[Step]) -> None:
    world = hpc(order)
    for step in steps:
        play(world, step)
        world.step()
    for name, host in list(world.custody.state.hosts.items()):
        world.write("admission", f.HostUncordoned(host=name, reason="", user="root"))
        if host.state == "lost":
            for vm in [vm for vm in world.custody.state.vms.values() if vm.host == name]:
                world.write("executor", f.VmEnded(unit=vm.unit, attempt=vm.attempt, rank=vm.rank, why="lost"))
            world.write("executor", f.HostCleared(host=name))
    for unit in [unit for unit, state in world.states().items() if state in ("pending", "open")]:
        world.write("admission", f.JobResumed(job=unit, user="ann"))
    world.executor()
    world.guests(boot_s=0.1, run_s=1.0)
    world.seat("provisioner", ProvisionerCore)
    world.advance(2000)
    waiting = [unit for unit, state in world.states().items() if state in ("pending", "open")]
    core = world.seats["scheduler.hpc"].core
    stuck = [unit for unit in waiting if not core.view.jobs.job(unit).after]
    assert stuck == [], "these could run, and wait"
    assert world.custody.index.by_state["draining"] == {}


# ----------------------------------------------------------------------------------------------- a cloud, and concurrency


def small_cloud() -> World:
    world = World(cloud(batch("hpc"), web("web", rule="threshold", window_s=5, signal_timeout_s=3, instances_max=3)))
    world.hosts(3)
    world.seat("provisioner", ProvisionerCore)
    world.seat("scheduler.hpc", lambda custody: BatchCore(custody, "hpc"))
    world.seat("scheduler.web", lambda custody: WebCore(custody, "web"))
    world.executor()
    world.guests(boot_s=0.2, run_s=4.0)
    world.balancer()
    world.advance(1)
    return world


CLOUD_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["load", "load", "submit", "scale", "lose", "pause", "decide", "decide", "time", "vm"]),
        st.integers(0, 4),
        st.floats(0, 1.5),
    ),
    min_size=5,
    max_size=40,
)


@RELAXED
@given(CLOUD_STEPS)
def test_a_cloud_under_concurrency_stays_consistent_and_comes_to_rest(steps: list[tuple[str, int, float]]) -> None:
    world = small_cloud()
    seats = list(world.seats.values())
    for what, number, level in steps:
        seat = seats[number]
        if what == "load":
            world.now += 1.0
            fact = f.LoadObserved(dept="web", start=world.now - 1, end=world.now, utilisation=level, samples=1)
            world.write("scheduler.web", fact)
        elif what == "submit":
            world.submit(nodes=1 + number % 2, cores=1 + number % 4)
        elif what == "scale":
            until = world.now + 20
            world.write("admission", f.ScaleRequested(dept="web", user="wes", exact=number, until=until))
        elif what == "lose" and number < 3 and level > 1.2:
            world.lose(HOSTS[number])
        elif what == "pause":
            seat.paused = not seat.paused
        elif what == "decide":
            late = seat.core.decide(max(world.now, seat.custody.state.at))  # on what it has folded, however old
            if late and seat.paused:
                world.write(seat.writer, *late)
                seat.fold(world.journal)
            else:
                world.decide(seat)
        elif what == "vm" and world.custody.state.vms:
            vm = min(world.custody.state.vms.values(), key=lambda v: v.vm)
            world.write("executor", f.VmEnded(unit=vm.unit, attempt=vm.attempt, rank=vm.rank, why="gone"))
        else:
            world.now += level
    heal(world)
    world.write("admission", f.ScaleRequested(dept="web", user="wes", exact=1))  # leaves two hosts for the widest job
    world.advance(300)
    assert set(world.states("hpc").values()) <= {"completed", "killed"}
    core = world.seats["scheduler.web"].core
    assert core.state.serving == core.state.target
    assert world.custody.held("web") == world.custody.state.demands["web"]
    assert world.custody.index.by_state["draining"] == {}
    assert world.custody.index.by_state["free"] == {}


def heal(world: World) -> None:
    for seat in world.seats.values():
        seat.paused = False
    for name in list(world.custody.index.by_state["lost"]):
        for vm in [vm for vm in world.custody.state.vms.values() if vm.host == name]:
            world.write("executor", f.VmEnded(unit=vm.unit, attempt=vm.attempt, rank=vm.rank, why="lost"))
        world.write("executor", f.HostCleared(host=name))


def test_a_spike_takes_hosts_from_batch_and_gives_them_back() -> None:
    world = small_cloud()
    jobs = [world.submit(cores=4) for _ in range(6)]
    world.settle()
    assert (world.custody.held("hpc"), world.custody.held("web")) == (2, 1)
    for _ in range(6):
        world.now += 1.0
        fact = f.LoadObserved(dept="web", start=world.now - 1, end=world.now, utilisation=0.95, samples=1)
        world.write("scheduler.web", fact)
    world.settle()
    assert (world.custody.held("hpc"), world.custody.held("web")) == (1, 2)
    world.advance(2)
    assert world.seats["scheduler.web"].core.state.serving == 2
    for _ in range(7):
        world.now += 1.0
        fact = f.LoadObserved(dept="web", start=world.now - 1, end=world.now, utilisation=0.1, samples=1)
        world.write("scheduler.web", fact)
        world.settle()
    assert (world.custody.held("hpc"), world.custody.held("web")) == (2, 1)
    world.advance(60)
    assert {job: world.states()[job] for job in jobs} == dict.fromkeys(jobs, "completed")
    assert world.voids == []
