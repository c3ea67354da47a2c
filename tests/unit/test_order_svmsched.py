"""SVMSched in the batch core: shares, turns, borrowing, best-effort, the reservation (acceptance 1 to 6, 8 to 11)."""

from __future__ import annotations

import pytest

from phoenix_papers.svmsched.order import in_turn
from phoenix_papers.svmsched.shares import needs
from schemas import facts as f
from schemas import reasons as because
from schemas.config import BatchPolicy
from schemas.facts import Disposal
from schemas.size import Size
from services.domain.sharing.service_share import Shares, percent
from services.scheduler.core.state.room import Free
from services.scheduler.core.state.shape import Shape
from services.scheduler.lookahead.why import why
from tests.support.scheduling import closed, core, decide, placed, wait_for
from tests.support.services import SHORT_S, best_effort, long, shared, short, start, started, used
from tests.support.world import World

WEIGHTS = {"jivarod": 65.0, "bof": 19.0, "third": 12.0}


# ----------------------------------------------------------------------------------------------- shares (acceptance 10, 11)


def test_granted_shares_of_the_thesis() -> None:
    shares = Shares(BatchPolicy(services=WEIGHTS), Size(64, 196_529))
    assert {name: percent(granted) for name, granted in shares.granted.items()} == {
        "jivarod": 67.71,
        "bof": 19.79,
        "third": 12.5,
    }


def test_usage_of_figure_6_3() -> None:
    """8 hosts, 64 cores, 196,529 MiB: jivarod uses 40 cores and 2,560 MiB, bof 8 cores and 256 MiB."""
    cpu = Shares(BatchPolicy(services=WEIGHTS), Size(64, 196_529))
    mem = Shares(BatchPolicy(services=WEIGHTS, w_cpu=0.0, w_mem=1.0), Size(64, 196_529))
    assert [percent(cpu.usage(Size(40, 2560))), percent(mem.usage(Size(40, 2560)))] == [62.5, 1.3]
    assert [percent(cpu.usage(Size(8, 256))), percent(mem.usage(Size(8, 256)))] == [12.5, 0.13]
    assert percent(cpu.usage(Size(44, 2816))) == 68.75
    assert not cpu.complies("jivarod", Size(44, 2816))  # its job 20 waits, and 16 cores are free
    assert cpu.complies("jivarod", Size(43, 0))


def test_exactly_the_share_is_within_it_and_numbers_are_as_they_were_written() -> None:
    thirds = Shares(BatchPolicy(services={"a": 0.1, "b": 0.1, "c": 0.1}), Size(48, 1))
    assert (thirds.complies("a", Size(16, 0)), thirds.complies("a", Size(17, 0))) == (True, False)
    both = Shares(BatchPolicy(services={"a": 3.0, "b": 7.0}, w_cpu=0.6, w_mem=0.4), Size(10, 100))
    assert both.complies("a", Size(3, 30))
    assert not both.complies("a", Size(3, 31))
    assert not both.complies("unknown", Size(1, 1))


# ------------------------------------------------------------------------------------------ production (acceptance 1 to 3)


def test_a_long_job_never_pushes_its_service_above_its_share() -> None:
    world = shared(3)  # 12 cores: 4 each
    jobs = [long(world, "a", 2) for _ in range(4)]
    world.settle()
    assert [world.states()[job] for job in jobs] == ["open", "open", "pending", "pending"]
    (first, *_) = why(core(world), jobs[2], world.now)
    assert first == because.ShareFull(service="a", share_pct=33.33, used_pct=33.33, with_it_pct=50.0)
    world.report(jobs[0])
    assert started(world) == [jobs[2]]


def test_a_short_job_borrows_only_if_no_other_within_a_share_can_start() -> None:
    world = shared(3)
    start(world, *[long(world, "a", 4)])
    borrower = short(world, "a", 4)
    assert started(world) == [borrower]
    mine, theirs = long(world, "b", 4), long(world, "c", 4)
    assert started(world) == [mine, theirs]  # nothing is left for the borrower
    world.settle()
    assert used(world, "a") == 4


def test_the_reason_says_who_borrows_and_how_much() -> None:
    world = shared(3)
    start(world, long(world, "a", 4))
    short(world, "a", 2)
    (fact,) = [x for x in decide(world) if isinstance(x, f.UnitPlaced)]
    assert fact.reason == because.Borrows(service="a", used_pct=50.0, share_pct=33.33)


def test_the_first_short_one_borrows_not_the_last() -> None:
    """Defect D1 of the thesis: the printed algorithm ends up with the last one."""
    world = shared(2)  # 8 cores, 2 1/3 each
    start(world, long(world, "a", 2), long(world, "b", 2))
    low, high = short(world, "a", 4), short(world, "a", 4, priority=1)
    short(world, "b", 4)
    world.settle()
    assert [unit for unit, state in world.states().items() if state == "open"][2:] == [high]
    assert world.states()[low] == "pending"


@pytest.mark.parametrize("declared", [False, True])
def test_with_threshold_0_nobody_borrows(declared: bool) -> None:
    world = shared(3, short_s=0.0)
    for _ in range(3):
        world.submit(service="a", cores=3, walltime_s=1.0, short=declared)
    world.settle()
    assert used(world, "a") == 3


def test_a_declared_short_job_borrows_until_it_overruns() -> None:
    world = shared(3)
    first = long(world, "a", 4, short=True)
    start(world, first, long(world, "a", 2, short=True))
    assert used(world, "a") == 6
    world.now += SHORT_S + 1
    next_one = long(world, "a", 1, short=True)
    assert started(world) == []  # its service's word is not believed while one overruns
    honest = short(world, "a", 1)
    assert started(world) == [honest]
    world.end_vm(first)
    world.settle()
    assert core(world).state.jobs[first].overran
    assert [world.states()[job] for job in (next_one, first)] == [
        "open",
        "pending",
    ]  # within the share; not short any more


def test_the_elements_of_an_array_that_overran_are_not_short_any_more() -> None:
    world = shared(2, services={"a": 1.0, "b": 3.0})  # 2 of 8 cores
    job = world.submit(service="a", cores=2, walltime_s=7200.0, short=True, array=(0, 1, 2), throttle=1)
    start(world, f"{job}_0")
    world.now += SHORT_S + 1
    start(world, long(world, "b", 1))
    world.report(f"{job}_0")
    world.settle()
    start(world, f"{job}_1")
    assert [key.kind.declared for key in core(world).view.jobs.queue.lanes] == [False]


def test_who_names_no_known_service_may_only_borrow() -> None:
    world = shared(1)
    nobody, brief = long(world, "", 1), short(world, "other", 1)
    assert started(world) == [brief]
    assert type(why(core(world), nobody, world.now)[0]) is because.ShareFull


def test_shares_are_of_the_hosts_that_may_be_used() -> None:
    world = shared(3)
    job = long(world, "a", 4)
    world.cordon("h3")  # 8 cores are left: 2 2/3 each
    assert started(world) == []
    assert because.fields(why(core(world), job, world.now)[0])["with_it_pct"] == 50.0


def test_an_exclusive_job_uses_whole_hosts() -> None:
    world = shared(3)
    first, second = long(world, "a", 1, exclusive=True), long(world, "a", 1)
    assert started(world) == [first]
    world.settle()
    assert world.states()[second] == "pending"


def test_an_exclusive_job_counts_as_on_the_smallest_hosts_that_hold_it() -> None:
    wholes = {Free.of(True, Size(8, 16384)): 1, Free.of(True, Size(4, 8192)): 2}
    found = [needs(Shape(2, Size(cores, 100), True), wholes) for cores in (4, 5, 9)]
    assert found == [Size(8, 16384), Size(16, 32768), Size(18, 200)]


def test_more_hosts_are_wanted_where_a_share_is_too_small() -> None:
    world = shared(1)
    world.hosts(5, first=2)
    long(world, "a", 4)
    world.settle()
    assert world.custody.state.demands["hpc"] == 3  # of three hosts a third holds it


# --------------------------------------------------------------------------------------------------- turns (acceptance 6)


def test_services_take_turns_and_within_one_priority_and_date_decide() -> None:
    world = shared(3)
    late = long(world, "a")
    a, urgent = long(world, "a"), long(world, "a", priority=5)
    b, c = long(world, "b"), long(world, "c")
    assert started(world) == [urgent, b, c, late, a]


def test_the_turn_goes_on_where_it_was() -> None:
    world = shared(3)
    start(world, long(world, "a"))
    a, b = long(world, "a"), long(world, "b")
    assert started(world) == [b, a]
    world.restart("scheduler.hpc")
    assert started(world) == [b, a]
    assert in_turn(["c", "a", "b"], "b") == ["c", "a", "b"]


# ------------------------------------------------------------------------------------ best-effort (acceptance 4, 5, 8)


def test_best_effort_runs_on_what_is_free_and_no_share_counts_it() -> None:
    world = shared(2)
    jobs = [best_effort(world) for _ in range(3)]
    world.settle()
    assert [world.states()[job] for job in jobs] == ["open", "open", "pending"]
    assert used(world, "a") == 0
    assert core(world).custody.state.units[jobs[0]].hosts == ("h1",)


def test_best_effort_makes_way_for_production_the_newest_first() -> None:
    world = shared(3)
    old = best_effort(world)
    start(world, old)
    world.now += 10
    new = best_effort(world)
    start(world, new)
    world.now += 10
    newest = best_effort(world)
    start(world, newest)
    job = long(world, "b", 4)
    assert closed(world) == {newest: (Disposal.SUSPEND, because.Preempted)}
    assert placed(world) == {job: world.unit(newest).hosts}
    world.settle()
    assert world.voids == []
    assert (world.unit(newest).suspended, world.states()[old], world.states()[new]) == (True, "open", "open")


def test_only_those_make_way_that_must() -> None:
    world = shared(2, services={"a": 1.0})
    start(world, best_effort(world, 4))
    world.now += 1
    start(world, best_effort(world, 1))
    world.now += 1
    start(world, best_effort(world, 1))
    job = long(world, "a", 3)  # beside one of the small ones on h2: the older one is spared
    assert closed(world) == {"3": (Disposal.SUSPEND, because.Preempted)}
    assert placed(world)[job] == ("h2",)


def test_who_went_in_thought_and_would_not_help_stays() -> None:
    world = shared(2, services={"a": 1.0})
    start(world, long(world, "a", 3), older := best_effort(world, 4))
    world.now += 1
    start(world, best_effort(world, 1))  # the newest, beside production
    long(world, "a", 4)
    assert closed(world) == {older: (Disposal.SUSPEND, because.Preempted)}


def test_where_it_cannot_be_suspended_it_is_requeued_or_as_it_wishes() -> None:
    world = shared(1, able=False, services={"a": 1.0})
    start(world, best_effort(world, 2), best_effort(world, 2, on_reclaim="kill"))
    long(world, "a", 4)
    assert closed(world) == {"2": (Disposal.KILL, because.Preempted), "1": (Disposal.REQUEUE, because.Preempted)}
    world.settle()
    assert core(world).state.again["1"].requeues == 1


def test_nobody_makes_way_where_there_is_room_or_it_would_not_help() -> None:
    world = shared(2, services={"a": 1.0})
    start(world, best_effort(world, 4))
    beside = long(world, "a", 4)
    assert (closed(world), started(world)) == ({}, [beside])
    start(world, beside)
    long(world, "a", 4, nodes=2)
    assert (closed(world), started(world)) == ({}, [])


@pytest.mark.parametrize("exclusive", [False, True])
def test_nobody_makes_way_on_a_host_in_quarantine(exclusive: bool) -> None:
    world = shared(1, services={"a": 1.0})
    start(world, best_effort(world, 4, exclusive=exclusive))
    world.rest("h1")
    long(world, "a", 4)
    assert (closed(world), started(world)) == ({}, [])


def test_who_makes_way_and_ends_anyway_ends_once() -> None:
    world = shared(1, services={"a": 1.0})
    job = best_effort(world)
    start(world, job)
    world.cancel(job)
    after = long(world, "a", 4)
    assert closed(world) == {job: (Disposal.CANCELLED, because.Cancelled)}
    world.settle()
    assert (world.voids, world.states()[after]) == ([], "open")


def test_production_is_never_suspended_for_another_job() -> None:
    world = shared(1, services={"a": 1.0, "b": 1.0})
    start(world, short(world, "a", 4))
    long(world, "b", 2, priority=9)
    assert decide(world) == []


def test_what_web_claims_production_is_disposed_of_as_the_department_says_and_goes_on_in_its_place() -> None:
    """Best-effort first; then production, by `on_reclaim`: the thesis promises only that no other job suspends it."""
    world = shared(3, services={"a": 1.0}, on_reclaim="suspend")
    spare, brief, first = best_effort(world), short(world, "a", 4), long(world, "a", 4)
    start(world, spare, brief, first)
    world.now += 5
    later = short(world, "a", 4)
    world.quota("hpc", 1)
    assert closed(world) == dict.fromkeys((spare, first), (Disposal.SUSPEND, because.Reclaimed))
    world.settle()
    world.report(brief)
    assert started(world) == [first]  # before what came later: its work is saved
    assert core(world).view.jobs.used_s(first) == 5.0
    assert {spare, later} <= set(core(world).view.jobs.queue.where)


def test_suspended_best_effort_is_resumed_first_and_where_it_was() -> None:
    world = shared(2, services={"a": 1.0})
    victim = best_effort(world)
    start(world, victim)
    world.now += 5
    start(world, first := long(world, "a", 4, nodes=2))
    assert world.unit(victim).suspended
    fresh = best_effort(world, 1, priority=9)
    world.report(first)
    facts = [fact for fact in decide(world) if isinstance(fact, f.UnitPlaced)]
    assert (facts[0].hosts, facts[0].reason) == (("h1",), because.Resumes())
    assert [fact.unit for fact in facts] == [victim, fresh]
    world.settle()
    assert (core(world).state.again[victim].used_s, world.states()[victim]) == (5.0, "open")


def test_when_hosts_must_go_back_best_effort_goes_first() -> None:
    world = shared(3, services={"a": 1.0})
    start(world, best_effort(world, 4, nodes=2), short(world, "a", 4))  # by size the other one would be the victim
    world.quota("hpc", 2)
    assert closed(world) == {"1": (Disposal.SUSPEND, because.Reclaimed)}
    world.quota("hpc", 0)
    assert list(closed(world)) == ["1", "2"]


def test_it_goes_elsewhere_if_there_is_no_room_where_it_was() -> None:
    world = shared(2, services={"a": 1.0})
    other, victim = best_effort(world, 3), best_effort(world, 3)
    start(world, other, victim)
    start(world, production := long(world, "a", 4))
    assert world.unit(victim).suspended
    world.report(other)
    (fact,) = [fact for fact in decide(world) if isinstance(fact, f.UnitPlaced)]
    assert (fact.unit, fact.hosts) == (victim, ("h1",))
    assert fact.reason == because.Resumes(from_hosts=list(world.unit(production).hosts))


def test_best_effort_takes_turns_in_order_of_date_and_passes_over_what_does_not_fit() -> None:
    world = shared(2)
    wide = best_effort(world, 4, "a", nodes=3)
    b, a, again = best_effort(world, 1, "b"), best_effort(world, 1, "a"), best_effort(world, 1, "a")
    assert started(world) == [a, b, again]
    world.settle()
    assert world.states()[wide] == "pending"


def test_best_effort_keeps_the_throttle_of_its_array() -> None:
    world = shared(2, services={"a": 1.0})
    array = best_effort(world, 1, array=(0, 1, 2), throttle=2)
    start(world, f"{array}_0", f"{array}_1")
    world.now += 1
    start(world, first := long(world, "a", 4, nodes=2))
    assert [world.unit(f"{array}_{i}").suspended for i in range(3)] == [True, True, False]
    world.report(first)
    assert started(world) == [f"{array}_0", f"{array}_1"]


def test_when_a_task_ends_its_machine_ends_and_its_room_is_free_at_once() -> None:
    """Acceptance 8: the whole way, with a stand-in for the executor that ends what is not live."""
    world = shared(1, services={"a": 1.0})
    world.executor()
    job, after = long(world, "a", 4), long(world, "a", 4)
    world.settle()
    world.begin(job)
    assert len(world.custody.state.vms) == 1
    world.report(job)
    world.settle()
    assert world.states() == {job: "completed", after: "open"}
    assert [vm.unit for vm in world.custody.state.vms.values()] == [after]


# -------------------------------------------------------------------------------------------- reservation (2.7 of the brief)


def endless(world: World, count: int, service: str = "a") -> None:
    """Short jobs of a core, staggered: a new one as soon as one ends."""
    alive = [unit for unit, state in world.states().items() if state == "open"]
    if alive:
        world.report(alive[0])
    for _ in range(count):
        short(world, service)
    world.now += SHORT_S / 4
    world.settle()


def test_a_wide_job_within_its_share_does_not_wait_for_ever() -> None:
    """Two hosts of two cores, halves; a floods them with short jobs of one core.  By the thesis b's job of two cores never
    starts; here it does when the jobs that are there have run."""
    world = shared(2, cores=2, services={"a": 1.0, "b": 1.0})
    endless(world, 20)
    world.settle()
    wide = long(world, "b", 2)
    world.settle()
    assert world.states()[wide] == "pending"
    for _ in range(4):
        endless(world, 1)
    assert world.states()[wide] == "open"


def test_room_is_kept_for_the_oldest_and_why_says_so() -> None:
    world = shared(1, cores=8, services={"a": 1.0, "b": 1.0})
    start(world, long(world, "a", 4), short(world, "a", 1))
    head = long(world, "b", 4)
    world.now += 60
    late = short(world, "a", 1)
    early = world.submit(service="a", cores=1, walltime_s=SHORT_S - 60)
    assert started(world) == [early]
    reasons = {type(reason): because.fields(reason) for reason in why(core(world), head, world.now)}
    assert reasons[because.WaitsForHosts]["reserved_in_s"] == SHORT_S - 60
    assert type(why(core(world), late, world.now)[0]) is because.ShareFull


def test_siblings_do_not_fill_the_share_that_the_head_waits_for() -> None:
    """Also not one that would be gone by the head's turn: until then the head would be above the share, and be no head."""
    world = shared(1, cores=8, services={"a": 1.0, "b": 1.0})
    start(world, long(world, "a", 4), short(world, "a", 1), long(world, "b", 1))
    head, sibling, other = long(world, "b", 3), short(world, "b", 1), short(world, "a", 1)
    assert started(world) == [other]
    world.settle()
    assert [world.states()[job] for job in (head, sibling)] == ["pending", "pending"]
    world.report("2")
    world.report(other)
    assert started(world) == [head]


def test_behind_one_that_is_in_the_heads_way_another_one_of_its_kind_may_start() -> None:
    world = shared(2, services={"a": 4.0, "b": 2.0, "c": 2.0})
    start(world, long(world, "b", 2), long(world, "c", 1), short(world, "b", 1), short(world, "b", 3))
    head = long(world, "a", 4)
    staying, brief = long(world, "c", 1), short(world, "c", 1)
    assert started(world) == [brief]
    world.settle()
    assert [world.states()[job] for job in (head, staying)] == ["pending", "pending"]


def test_who_needs_less_leaves_an_older_one_its_room_until_its_turn() -> None:
    world = shared(1, services=dict.fromkeys("cdez", 1.0), cores=8)
    start(world, first := long(world, "e", 2), long(world, "c", 2), short(world, "c", 4))
    wide, narrow = long(world, "z", 2), long(world, "d", 1)
    world.settle()
    assert [world.states()[x] for x in (wide, narrow)] == ["pending", "pending"]
    world.report(first)  # the turn is d's, but then there would be no room for the older and wider one
    assert started(world) == [wide]


def test_a_job_with_a_dependency_or_a_hold_is_in_no_election() -> None:
    world = shared(1)
    first = long(world, "a", 1)
    long(world, "b", 1, held=True)
    long(world, "c", 1, after=wait_for(first))
    assert started(world) == [first]


# ------------------------------------------------------------------------------------------- the state machine (acceptance 9)


def test_no_transition_but_those_of_the_life_cycle() -> None:
    world = shared(1, services={"a": 1.0})
    waiting = best_effort(world)
    attempt: dict[str, object] = {"unit": waiting, "attempt": 1}
    facts: dict[str, f.Fact] = {
        "begins": f.AttemptBegan(**attempt),  # type: ignore[arg-type]
        "ends": f.AttemptReported(**attempt, exit=0),  # type: ignore[arg-type]
        "is suspended": f.AttemptClosed(**attempt, disposal=Disposal.SUSPEND, why=because.Preempted()),  # type: ignore[arg-type]
    }

    def void(name: str) -> bool:
        writer = "scheduler.hpc" if name == "is suspended" else "admission"
        return world.write(writer, facts[name])[0][1].void is not None

    assert [void(name) for name in facts] == [True, True, True]  # it waits
    start(world, waiting)
    long(world, "a", 4)
    world.settle()
    assert world.unit(waiting).suspended
    assert [void("begins"), void("is suspended")] == [True, True]  # the only way out is to be resumed
    world.report("2")
    start(world, waiting)
    assert world.unit(waiting).attempt == 2
    assert [void("begins"), void("is suspended")] == [True, True]  # of the first attempt
    world.report(waiting)
    late = f.AttemptClosed(unit=waiting, attempt=2, disposal=Disposal.SUSPEND, why=because.Preempted())
    assert world.write("scheduler.hpc", late)[0][1].void is not None  # final
