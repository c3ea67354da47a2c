"""What a request is worth: every refusal and every rule of roles, jobs, scale and hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from schemas import facts as f
from schemas.config import BatchPolicy
from schemas.requests import HostDrain, HostNamed, JobSubmit, ScaleSet
from services.admission.commands import compose
from services.admission.commands.compose import Caller
from services.domain.capabilities import ALL
from services.domain.custody.meta import Void
from services.domain.refusal import Refused
from tests.support.admission import ANN, BOB, LEO, MIA, ROOT, WAL, WIM, Fold, cloud, fold


def ask(
    world: Fold, caller: Caller = ANN, dept: str = "hpc", drafted: tuple[f.Fact, ...] = (), **asked: Any
) -> f.JobSubmitted:
    request = JobSubmit(**{"script": "true", **asked})
    return compose.submit(world.core, caller, dept, request, "job/x", "d", drafted)


def refused(call: Callable[[], Any]) -> tuple[str, str | None]:
    with pytest.raises(Refused) as error:
        call()
    assert error.value.message
    return error.value.code, error.value.field


# --------------------------------------------------------------------------------------------------------------- submission


@pytest.mark.parametrize(
    ("caller", "dept", "asked", "expected"),
    [
        (ANN, "bio", {}, ("denied", "department")),
        (WIM, "web", {}, ("invalid", "department")),
        (ROOT, "operators", {}, ("unknown", "department")),
        (ROOT, "chem", {}, ("unknown", "department")),
        (ANN, "hpc", {"script": "é" * 60}, ("limit", "script")),
        (ANN, "hpc", {"walltime_s": 7201.0}, ("invalid", "walltime_s")),
        (ANN, "hpc", {"array": "1-6"}, ("limit", "array")),
        (ANN, "hpc", {"array": "x"}, ("invalid", "array")),
        (ANN, "hpc", {"after": "afterok:99"}, ("unknown", "after")),
        (ANN, "hpc", {"after": "maybe:1"}, ("invalid", "after")),
        (ANN, "hpc", {"memory_mb": 40_000}, ("invalid", "memory_mb")),
        (ANN, "hpc", {"nodes": 4}, ("invalid", "nodes")),
        (LEO, "bio", {"nodes": 2}, ("invalid", "nodes")),
        (ANN, "hpc", {"priority": 1}, ("denied", "priority")),
        (ANN, "hpc", {"priority": 1_000_000, "array": "1-2"}, ("denied", "priority")),
    ],
)
def test_refused_submissions(caller: Caller, dept: str, asked: dict[str, Any], expected: tuple[str, str]) -> None:
    world = fold(script_max_bytes=100, array_max=5)
    assert refused(lambda: ask(world, caller, dept, **asked)) == expected


def test_what_the_hypervisor_cannot_do_is_refused_at_the_door() -> None:
    world = fold()
    with pytest.raises(Refused, match='on_reclaim: "suspend" should be "kill" or "requeue"') as error:
        ask(world, on_reclaim="suspend")
    assert (error.value.code, error.value.field) == ("invalid", "on_reclaim")
    world.adopt(msgspec.structs.replace(cloud(), capabilities=ALL))
    assert ask(world, on_reclaim="suspend").on_reclaim == "suspend"
    assert ask(world, on_reclaim="migrate").on_reclaim == "migrate"


def test_before_a_configuration_is_adopted_the_door_is_unavailable() -> None:
    world = Fold()
    for call in (
        lambda: ask(world),
        lambda: compose.change_jobs(world.core, ANN, "cancel", ["1"]),
        lambda: compose.change_host(world.core, ROOT, "cordon", HostNamed(host="h1"), 0.0),
    ):
        assert refused(call) == ("unavailable", None)


def test_a_submission_as_a_fact() -> None:
    world = fold()
    fact = ask(world, tasks=8, nodes=2, array="1-4%2", request="r1", held=True, retries=3, priority=-7)
    assert (fact.job, fact.dept, fact.user, fact.nodes, fact.cores) == ("1", "hpc", "ann", 2, 4)
    assert fact.walltime_s == 600.0  # the department's default
    assert (fact.array, fact.throttle, fact.held, fact.retries, fact.priority) == ((1, 2, 3, 4), 2, True, 3, -7)
    assert fact.request == "r1@d"
    assert ask(world, walltime_s=7200.0).walltime_s == 7200.0


def test_users_lower_the_priority_of_their_jobs_and_managers_and_operators_raise_it() -> None:
    world = fold()
    with pytest.raises(Refused) as error:
        ask(world, priority=1)
    assert error.value.message == (
        "priority: 1 is more than the default: ann may lower a job's (0 or less); managers of hpc and operators raise it"
    )
    assert [ask(world, ANN, priority=p).priority for p in (0, -1, -1_000_000)] == [0, -1, -1_000_000]
    assert [ask(world, caller, priority=1_000_000).priority for caller in (MIA, ROOT)] == [1_000_000, 1_000_000]


def test_memory_that_nobody_asked_for_is_the_department_s() -> None:
    world = fold()
    assert ask(world, tasks=4, nodes=1).memory_mb == 4 * 256
    policy = BatchPolicy(memory_per_core_mb=100)
    departments = tuple(
        msgspec.structs.replace(each, batch=policy) if each.name == "hpc" else each for each in cloud().departments
    )
    world.adopt(msgspec.structs.replace(cloud(), departments=departments))
    assert ask(world, tasks=4, nodes=1).memory_mb == 400


def test_jobs_drafted_together_have_different_numbers() -> None:
    world = fold()
    world.submit()
    first = ask(world)
    second = ask(world, drafted=(first,))
    other = f.HostCordoned(host="h1", reason="", user="root")
    assert [first.job, second.job, ask(world, drafted=(first, second, other)).job] == ["2", "3", "4"]


def test_an_operator_submits_for_any_department_and_owns_the_job() -> None:
    world = fold()
    assert ask(world, ROOT, "bio").user == "root"


def test_the_limit_of_unfinished_jobs_counts_elements_and_what_is_drafted() -> None:
    world = fold(jobs_pending_max=5)
    world.submit(array="1-3")
    world.submit()
    assert refused(lambda: ask(world, array="1-2")) == ("limit", "array")
    fits = ask(world)
    assert refused(lambda: ask(world, drafted=(fits,))) == ("limit", None)
    ask(world, LEO, "bio", drafted=(fits,))  # another department's limit is its own
    world.put(f.JobCancelled(job="1_2", user="ann"))
    ask(world, array="1-2")


def test_dependencies_are_known_jobs_of_the_same_department() -> None:
    world = fold()
    job, array = world.submit(), world.submit(array="1-2")
    foreign = world.submit(LEO)
    assert [d.job for d in ask(world, after=f"afterok:{job}:{array}:{array}_2").after] == [job, array, f"{array}_2"]
    for unknown in (foreign, f"{array}_3", "77"):
        spec = f"afterok:{unknown}"
        assert refused(lambda spec=spec: ask(world, after=spec)) == ("unknown", "after")  # type: ignore[misc]
    world.put(f.JobCancelled(job=job, user="ann"))
    assert ask(world, after=f"afterany:{job}").after  # one that has ended is still known


# ------------------------------------------------------------------------------------------------------ cancel, hold, release


def change(world: Fold, caller: Caller, verb: compose.Verb, *names: str) -> list[tuple[str, bool, str | None]]:
    """Change jobs as the desk does; (job, ok, error code) of each."""
    plan = compose.change_jobs(world.core, caller, verb, names)
    for fact in compose.still_wanted(world.core, verb, compose.change_facts(world.core, caller, verb, plan), ()):
        assert world.put(fact) is None
    results = [compose.job_result(world.core, verb, result, units) for result, units in plan]
    return [(x.job, x.error is None, x.error.code if x.error else None) for x in results]


@pytest.mark.parametrize(
    ("caller", "expected"),
    [(ANN, None), (BOB, "denied"), (MIA, None), (LEO, "unknown"), (WIM, "unknown"), (ROOT, None)],
)
def test_who_may_change_a_job(caller: Caller, expected: str | None) -> None:
    for verb in ("cancel", "hold", "release"):
        world = fold()
        job = world.submit(held=verb == "release")
        assert change(world, caller, verb, job) == [(job, expected is None, expected)]


def test_unknown_and_malformed_names_are_errors_of_their_own() -> None:
    world = fold()
    job = world.submit()
    array = world.submit(array="1-2")
    results = change(world, ANN, "cancel", "99", job, "x", f"{job}_1", f"{array}_7", "web.1")
    assert [(name, code) for name, _, code in results] == [
        ("99", "unknown"),
        (job, None),
        ("x", "invalid"),
        (f"{job}_1", "unknown"),
        (f"{array}_7", "unknown"),
        ("web.1", "invalid"),
    ]


def test_an_array_is_all_its_elements() -> None:
    world = fold()
    array = world.submit(array="1-3")
    assert change(world, ANN, "cancel", f"{array}_2") == [(f"{array}_2", True, None)]
    assert change(world, ANN, "hold", array) == [(array, True, None)]
    assert [world.custody.state.units[f"{array}_{n}"].held for n in (1, 2, 3)] == [True, False, True]
    assert change(world, ANN, "cancel", array) == [(array, True, None)]
    assert {world.custody.state.units[f"{array}_{n}"].final for n in (1, 2, 3)} == {"cancelled"}
    assert change(world, ANN, "cancel", array) == [
        (array, False, "conflict")
    ]  # of a finished array no element is known


def test_an_element_that_there_is_not_is_unknown_also_when_the_job_is_over() -> None:
    world = fold()
    array, alone = world.submit(array="1-2"), world.submit()
    for _ in range(2):
        assert change(world, ANN, "cancel", f"{array}_99999") == [(f"{array}_99999", False, "unknown")]
        assert change(world, ANN, "hold", f"{alone}_1") == [(f"{alone}_1", False, "unknown")]
        change(world, ANN, "cancel", array)
        change(world, ANN, "cancel", alone)


def test_cancelling_again_is_granted_and_a_completed_job_is_a_conflict() -> None:
    world = fold()
    job, done = world.submit(), world.submit()
    assert change(world, ANN, "cancel", job) == [(job, True, None)]
    assert change(world, ANN, "cancel", job) == [(job, True, None)]
    world.place(done, "h1")
    world.put(f.AttemptReported(unit=done, attempt=1, exit=0))
    for verb in ("cancel", "hold", "release"):
        assert change(world, ANN, verb, done) == [(done, False, "conflict")]


def test_a_running_job_is_cancelled_by_request_and_once() -> None:
    world = fold()
    job = world.submit()
    world.place(job, "h1")
    assert change(world, ANN, "cancel", job) == [(job, True, None)]
    assert world.custody.state.units[job].state == "open"
    written = len(world.history)
    assert change(world, ANN, "cancel", job) == [(job, True, None)]
    assert len(world.history) == written


def test_holding_what_is_held_takes_no_fact() -> None:
    world = fold()
    job = world.submit()
    change(world, ANN, "hold", job)
    written = len(world.history)
    assert change(world, ANN, "hold", job) == [(job, True, None)]
    assert len(world.history) == written
    change(world, ANN, "release", job)
    assert change(world, ANN, "release", job) == [(job, True, None)]


def test_facts_that_could_only_be_void_are_not_drafted() -> None:
    """A hundred impatient callers in one envelope must not look like a writer that is stuck (S4)."""
    world = fold()
    job = world.submit()
    cancel, hold = (
        compose.change_facts(world.core, ANN, verb, compose.change_jobs(world.core, ANN, verb, [job]))
        for verb in ("cancel", "hold")
    )
    assert compose.still_wanted(world.core, "cancel", cancel, cancel) == []
    assert compose.still_wanted(world.core, "hold", hold, cancel) == []
    assert compose.still_wanted(world.core, "hold", hold, hold) == []
    assert compose.still_wanted(world.core, "cancel", cancel, hold) == cancel
    report = f.AttemptReported(unit=job, attempt=1, exit=0)
    assert compose.still_wanted(world.core, "cancel", cancel, [report]) == []


def test_what_is_said_of_an_array_is_one_fact_however_many_elements_it_has() -> None:
    world = fold()
    array, alone = world.submit(array="1-99:2,200"), world.submit()
    world.put(f.JobHeld(job=f"{array}_7", user="ann"), f.JobCancelled(job=f"{array}_11", user="ann"))

    def facts(verb: compose.Verb, *names: str) -> list[f.Fact]:
        plan = compose.change_jobs(world.core, MIA, verb, names)
        return compose.still_wanted(world.core, verb, compose.change_facts(world.core, MIA, verb, plan), ())

    told = {"job": array, "dept": "hpc", "user": "mia"}
    single = f.JobHeld(job=alone, user="mia")
    assert facts("hold", array, alone) == [f.ArrayHeld(elements="1-99:2,200", **told), single]
    assert facts("release", array) == [f.JobResumed(job=f"{array}_7", user="mia")]
    assert facts("hold", f"{array}_3", f"{array}_200", f"{array}_1") == [f.ArrayHeld(elements="1,3,200", **told)]
    assert facts("cancel", array) == [f.ArrayCancelled(elements="1-99:2,200", **told)]
    assert facts("hold", f"{array}_3") == [f.JobHeld(job=f"{array}_3", user="mia")]


@pytest.mark.parametrize("elements", [10_000, 10_001])
def test_one_fact_names_no_more_elements_than_are_remembered_when_they_are_final(elements: int) -> None:
    world = fold(array_max=20_000)
    array = world.submit(array=f"1-{elements}")
    facts = compose.change_facts(world.core, ANN, "cancel", compose.change_jobs(world.core, ANN, "cancel", [array]))
    pieces = ["1-10000", "10001"][: elements - 9_999]
    assert facts == [f.ArrayCancelled(job=array, dept="hpc", elements=piece, user="ann") for piece in pieces]


def test_under_older_rules_each_element_has_a_fact_of_its_own() -> None:
    world = fold()
    array = world.submit(array="1-3")
    world.put(f.JobHeld(job=f"{array}_2", user="ann"))
    world.custody.state.rules = 3
    plan = compose.change_jobs(world.core, ANN, "hold", [array])
    facts = compose.still_wanted(world.core, "hold", compose.change_facts(world.core, ANN, "hold", plan), ())
    assert facts == [f.JobHeld(job=f"{array}_{n}", user="ann") for n in (1, 3)]


def test_of_an_array_too_what_could_only_be_void_is_not_drafted() -> None:
    world = fold()
    array = world.submit(array="1-3")
    cancel, some, hold = (
        compose.change_facts(world.core, ANN, verb, compose.change_jobs(world.core, ANN, verb, names))
        for verb, names in (("cancel", [array]), ("cancel", [f"{array}_1", f"{array}_3"]), ("hold", [array]))
    )
    assert compose.still_wanted(world.core, "cancel", cancel, cancel) == []
    assert compose.still_wanted(world.core, "cancel", some, cancel) == []
    assert compose.still_wanted(world.core, "hold", hold, cancel) == []
    assert compose.still_wanted(world.core, "cancel", cancel, some) == cancel
    assert compose.still_wanted(world.core, "cancel", cancel, hold) == cancel
    each = [f.JobCancelled(job=f"{array}_{n}", user="ann") for n in (1, 2, 3)]
    assert compose.still_wanted(world.core, "cancel", cancel, each) == []


def test_what_came_too_late_is_told() -> None:
    world = fold()
    job = world.submit()
    world.place(job, "h1")
    (plan,) = compose.change_jobs(world.core, ANN, "hold", [job])
    world.put(f.AttemptReported(unit=job, attempt=1, exit=0))
    assert world.put(f.JobHeld(job=job, user="ann")) is Void.UNIT_FINAL
    result = compose.job_result(world.core, "hold", *plan)
    assert result.error is not None
    assert "completed" in result.error.detail


# --------------------------------------------------------------------------------------------------------------- scale, hosts


@pytest.mark.parametrize(
    ("caller", "dept", "asked", "expected"),
    [
        (WAL, "web", {"exact": 2}, ("denied", None)),
        (ANN, "web", {"exact": 2}, ("denied", "department")),
        (MIA, "hpc", {"exact": 2}, ("invalid", "department")),
        (ROOT, "nowhere", {"exact": 2}, ("unknown", "department")),
        (WIM, "web", {"exact": 11}, ("invalid", "exact")),
        (WIM, "web", {"minimum": 11}, ("invalid", "minimum")),
    ],
)
def test_refused_scaling(caller: Caller, dept: str, asked: dict[str, Any], expected: tuple[str, str | None]) -> None:
    world = fold()
    assert refused(lambda: compose.scale(world.core, caller, dept, ScaleSet(**asked), "", 50.0)) == expected


def test_scaling() -> None:
    world = fold()
    fact = compose.scale(world.core, WIM, "web", ScaleSet(exact=3, for_s=10.0, request="r"), "d", 50.0)
    assert (fact.exact, fact.minimum, fact.until, fact.request) == (3, None, 60.0, "r@d")
    assert compose.scale(world.core, ROOT, "web", ScaleSet(minimum=2), "", 50.0).until is None
    auto = compose.scale(world.core, WIM, "web", ScaleSet(auto=True), "", 50.0)
    assert (auto.exact, auto.minimum) == (None, None)


def test_hosts_are_the_operators() -> None:
    world = fold()
    named = HostNamed(host="h1")
    for caller in (ANN, MIA, WIM):
        call = lambda caller=caller: compose.change_host(world.core, caller, "cordon", named, 0.0)  # noqa: E731
        assert refused(call) == ("denied", None)
    assert refused(lambda: compose.change_host(world.core, ROOT, "cordon", HostNamed(host="h9"), 0.0)) == (
        "unknown",
        "host",
    )


def test_the_last_word_on_a_host_counts_and_asking_again_takes_no_fact() -> None:
    world = fold()
    named, drain = HostNamed(host="h1", reason="fan"), HostDrain(host="h1", reason="fan")
    by = HostDrain(host="h1", reason="fan", deadline_s=60.0)

    def said(verb: str, request: HostNamed) -> list[f.Fact]:
        facts = compose.change_host(world.core, ROOT, verb, request, 100.0)
        world.put(*facts)
        return facts

    assert said("cordon", named) == [f.HostCordoned(host="h1", reason="fan", user="root")]
    assert said("cordon", named) == []
    assert said("drain", drain) == [f.HostCordoned(host="h1", reason="fan", user="root", drain=True)]
    assert said("drain", drain) == []
    assert said("drain", by) == [f.HostCordoned(host="h1", reason="fan", user="root", drain=True, until=160.0)]
    assert said("drain", by) == []
    assert said("cordon", named) == [f.HostCordoned(host="h1", reason="fan", user="root")]
    assert said("cordon", HostNamed(host="h1", reason="disk"))
    assert said("uncordon", HostNamed(host="h1")) == [f.HostUncordoned(host="h1", reason="", user="root")]
    assert said("uncordon", HostNamed(host="h1")) == []


# -------------------------------------------------------------------------------------------------------------------- guests


def test_what_an_attempt_is_worth() -> None:
    world = fold()
    job = world.submit(retries=1)
    standing = lambda unit, attempt: compose.standing(world.core, unit, attempt)  # noqa: E731
    assert standing(job, 1) == "early"  # placed in the journal, not folded here yet
    assert standing("99", 1) == "early"
    assert standing("web.1", 1) == "early"
    world.place(job, "h1")
    assert standing(job, 1) == "live"
    world.close(job, f.Disposal.REQUEUE)
    assert standing(job, 1) == "over"
    world.place(job, "h1", attempt=2)
    assert (standing(job, 1), standing(job, 2), standing(job, 3)) == ("gone", "live", "early")
    world.put(f.AttemptReported(unit=job, attempt=2, exit=0))
    assert (standing(job, 2), standing(job, 3)) == ("over", "gone")
    world.place("web.4", "w1", dept="web")
    assert (standing("web.4", 1), standing("web.3", 1), standing("web.5", 1)) == ("live", "gone", "early")
    assert standing("x", 1) == "gone"


def test_began_is_one_fact_for_a_live_attempt() -> None:
    world = fold()
    job = world.submit()
    world.place(job, "h1")
    (fact,) = compose.began(world.core, job, 1, ())
    world.put(fact)
    assert compose.began(world.core, job, 1, ()) == []
    world.close(job, f.Disposal.REQUEUE)
    assert refused(lambda: compose.began(world.core, job, 1, ())) == ("conflict", None)


REPORT = f.AttemptReported


@pytest.mark.parametrize("on_term", [None, "complete"])
@pytest.mark.parametrize(("exit_code", "terminated"), [(0, False), (0, True), (1, False)])
def test_a_report_is_composed_exactly_if_it_would_be_valid(exit_code: int, terminated: bool, on_term: str) -> None:
    """Custody is the judge: whatever it calls void is not composed, whatever is valid is."""
    steps: list[Callable[[Fold], object]] = [
        lambda w: w.place("1", "h1"),
        lambda w: w.put(f.AttemptBegan(unit="1", attempt=1)),
        lambda w: w.put(f.HostLost(host="h1", reason="x"), writer="executor"),
        lambda w: w.close("1", f.Disposal.REQUEUE),
        lambda w: w.place("1", "h2", attempt=2),
        lambda w: w.put(f.JobCancelled(job="1", user="ann")),
        lambda w: w.close("1", f.Disposal.CANCELLED, attempt=2),
    ]
    verdicts = []
    for count in range(len(steps) + 1):
        for attempt in (1, 2, 3):
            world = fold()
            world.submit(retries=1, on_term=on_term)
            for step in steps[:count]:
                step(world)
            fact = REPORT(unit="1", attempt=attempt, exit=exit_code, terminated=terminated)
            try:
                composed = compose.report(world.core, fact, ())
            except Refused:
                composed = []
            verdicts.append(world.put(fact) is None)
            assert bool(composed) == verdicts[-1], (count, attempt)
    assert any(verdicts) is (on_term == "complete" or not terminated)
    assert not all(verdicts)


def test_a_second_report_in_the_same_envelope_is_not_composed() -> None:
    world = fold()
    job = world.submit()
    world.place(job, "h1")
    fact = REPORT(unit=job, attempt=1, exit=0)
    assert refused(lambda: compose.report(world.core, fact, [fact])) == ("conflict", None)


def test_a_closed_department_takes_no_jobs() -> None:
    world = fold()
    world.adopt(cloud("bio"))
    world.put(*world.core.decide(1.0))
    with pytest.raises(Refused, match="closed"):
        ask(world, ROOT, "bio")
    assert refused(lambda: ask(world, LEO, "bio")) == ("unknown", "department")
