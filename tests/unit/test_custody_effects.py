"""What valid facts do: breaking, closing, finishing, forgetting, quotas with deadlines, time, compatibility."""

from __future__ import annotations

import msgspec
import pytest

from schemas import facts as f
from schemas.config import CloudConfig, Department
from schemas.envelope import UnknownFact
from schemas.size import Size
from services.domain.custody import effects
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.meta import Void
from services.domain.custody.rules import RULES, Incompatible
from services.domain.custody.state import RELEASES_KEPT, Broken, Host, Quota
from tests.unit.test_custody_rules import (
    CANCEL,
    CLEAR,
    INSTANCE,
    LOST,
    QUOTA_0,
    RELEASE,
    RESUMES,
    RUNNING,
    RUNNING_3,
    SEIZE,
    STOPPED,
    TERMINATED,
    WISHES,
    A,
    E,
    P,
    bound,
    closed,
    ended,
    granted,
    job,
    placed,
    play,
    release,
    reported,
)


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([RELEASE], Broken.HOST_RELEASED),
        ([QUOTA_0, SEIZE], Broken.HOST_SEIZED),
        ([LOST], Broken.HOST_LOST),
        ([ended()], Broken.VM_ENDED),
        ([ended(), LOST], Broken.VM_ENDED),  # the first cause is the cause
    ],
)
def test_broken_for_ever_and_occupies_nothing(steps: list[tuple[str, f.Fact]], why: Broken) -> None:
    custody, _ = play([*RUNNING, *steps])
    unit = custody.state.units["1"]
    assert (unit.state, unit.broken, unit.live) == ("open", why, False)
    assert custody.state.hosts["h1"].used.cores == 0
    assert list(custody.index.broken["hpc"]) == ["1"]


def test_a_gang_gives_back_all_its_hosts_when_one_leaves() -> None:
    custody, _ = play([*granted("h1"), *granted("h2"), job(nodes=2), placed(hosts=("h1", "h2")), LOST])
    assert custody.newly_broken == ["1"]
    assert custody.state.hosts["h2"].used.cores == 0


def test_a_vm_of_an_older_attempt_breaks_nothing() -> None:
    custody, _ = play([*RUNNING, closed(), placed(attempt=2), ended(attempt=1)])
    assert custody.state.units["1"].live


def test_a_lost_host_comes_back_free_and_empty() -> None:
    assert play([*RUNNING, LOST])[0].state.hosts["h1"].lost == "no answer"
    custody, _ = play([*RUNNING, LOST, ended(), CLEAR])
    host = custody.state.hosts["h1"]
    assert (host.state, host.dept, host.lost, host.units, host.vms) == ("free", None, None, {}, {})


@pytest.mark.parametrize(
    ("disposal", "state", "final"),
    [
        (f.Disposal.KILL, "final", "killed"),
        (f.Disposal.REQUEUE, "pending", None),
        (f.Disposal.SUSPEND, "pending", None),
        (f.Disposal.MIGRATE, "pending", None),
        (f.Disposal.TIMEOUT, "final", "timeout"),
        (f.Disposal.CANCELLED, "final", "cancelled"),
        (f.Disposal.FAILED, "final", "failed"),
    ],
)
def test_disposals(disposal: f.Disposal, state: str, final: str | None) -> None:
    unit = play([*RUNNING, closed(disposal=disposal)])[0].state.units["1"]
    assert (unit.state, unit.final, unit.suspended) == (
        state,
        final,
        disposal in (f.Disposal.SUSPEND, f.Disposal.MIGRATE),
    )


def test_as_many_failures_are_retried_as_were_asked_for() -> None:
    steps = [*granted(), job(retries=2), placed(), reported(exit=1), placed(attempt=2), reported(2, exit=1)]
    unit = play(steps)[0].state.units["1"]
    assert (unit.state, unit.failures, unit.exit) == ("pending", 2, 1)
    unit = play([*steps, placed(attempt=3), reported(3, exit=2)])[0].state.units["1"]
    assert (unit.state, unit.final, unit.failures, unit.exit) == ("final", "failed", 2, 2)


def test_retries_are_spent_by_failures_alone() -> None:
    steps = [*granted(), job(retries=1), placed(), closed(), placed(attempt=2), reported(2, exit=1), placed(attempt=3)]
    custody, _ = play(steps)
    assert custody.state.units["1"].live
    assert play([*steps, reported(3, exit=1)])[0].state.units["1"].final == "failed"


def test_a_job_cancelled_while_it_runs_is_final_when_its_attempt_ends() -> None:
    for end in (closed(), reported(exit=1), closed(disposal=f.Disposal.CANCELLED)):
        assert play([*RUNNING, CANCEL, end])[0].state.units["1"].final == "cancelled"
    assert play([*RUNNING, CANCEL, reported()])[0].state.units["1"].final == "completed"


def test_an_array_is_one_fact_and_many_units() -> None:
    custody, _ = play([job("3", array=(1, 2, 9))])
    assert list(custody.state.units) == ["3_1", "3_2", "3_9"]


def test_a_closed_department_ends_its_jobs() -> None:
    custody, _ = play([*RUNNING, job("2"), (A, f.DepartmentClosed(dept="hpc"))])
    assert [u.final for u in custody.state.units.values()] == ["cancelled", "cancelled"]
    assert custody.state.hosts["h1"].used.cores == 0


def test_a_department_that_is_closed_ends_nothing_else_and_may_come_back() -> None:
    config = CloudConfig(name="c", departments=(Department(name="hpc", kind="batch"),))
    adopted = (P, f.ConfigAdopted(cloud="c", custody_rules=RULES, config=config))
    steps = [*RUNNING, reported(), job("2", dept="bio"), (A, f.DepartmentClosed(dept="hpc"))]
    custody, _ = play(steps)
    ends = [(unit.state, unit.final) for unit in custody.state.units.values()]
    assert (ends, custody.state.closed) == ([("final", "completed"), ("pending", None)], {"hpc": None})
    again, _ = play([*steps, adopted])
    assert (again.state.closed, again.state.cloud, again.state.rules, again.state.config) == ({}, "c", RULES, config)


def test_an_attempt_that_ends_gives_its_room_back_and_ends_then() -> None:
    custody, _ = play([*granted(), job(), placed(cores=4, memory_mb=1000, exclusive=True), closed()])
    host, unit = custody.state.hosts["h1"], custody.state.units["1"]
    assert (host.used.cores, host.used.memory_mb, host.exclusive, host.units) == (0, 0, False, {})
    assert (unit.hosts, unit.addresses, unit.ended_at, custody.index.occupied["hpc"]) == ((), (), 6.0, {})


def test_a_new_attempt_knows_nothing_of_the_one_before() -> None:
    began = (A, f.AttemptBegan(unit="1", attempt=1, addresses=("127.0.0.1:1",)))
    unit = play([*RUNNING, began])[0].state.units["1"]
    assert (unit.placed_at, unit.began_at, unit.addresses, unit.ended_at) == (5.0, 7.0, ("127.0.0.1:1",), None)
    unit = play([*RUNNING, began, closed(), placed(attempt=2, cores=2, memory_mb=5)])[0].state.units["1"]
    assert (unit.placed_at, unit.began_at, unit.addresses, unit.ended_at) == (9.0, None, (), None)
    assert (unit.attempt, unit.size, unit.exclusive) == (2, Size(2, 5), False)


def test_a_cordoned_host_that_is_used_again_is_as_it_was() -> None:
    drained = (A, f.HostCordoned(host="h1", reason="fan", user="o", drain=True, until=9.0))
    host = play([*granted(), drained])[0].state.hosts["h1"]
    assert (host.cordoned, host.drain, host.drain_until) == ("fan", True, 9.0)
    custody, _ = play([*granted(), drained, (A, f.HostUncordoned(host="h1", reason="", user="o"))])
    host = custody.state.hosts["h1"]
    assert (host.cordoned, host.drain, host.drain_until, custody.index.apart) == (None, False, None, {})


def test_leaders_are_known_by_who_they_write_as() -> None:
    stopped = (P, f.LeaderStopped(epoch=3))
    assert play([stopped])[0].state.leaders == {}
    started = (P, f.LeaderStarted(epoch=3, instance="a"))
    leaders = play([(E, f.LeaderStarted(epoch=1, instance="b")), started, stopped])[0].state.leaders
    assert {w: (one.epoch, one.instance, one.since, one.stopped) for w, one in leaders.items()} == {
        E: (1, "b", 1.0, False),
        P: (3, "a", 2.0, True),
    }


def test_what_a_fact_broke_or_pushed_out_is_told_until_the_next_one() -> None:
    custody, _ = play([*RUNNING, LOST])
    assert (custody.newly_broken, custody.state.position, custody.state.index) == (["1"], 7, 0)
    fold_fact(custody, job("2")[1], 8, 2, A, 8.0)
    assert (custody.newly_broken, custody.state.position, custody.state.index) == ([], 8, 2)


def test_walltime_starts_once() -> None:
    began = (A, f.AttemptBegan(unit="1", attempt=1, addresses=("127.0.0.1:1",)))
    first, _ = play([*RUNNING, began])
    again, _ = play([*RUNNING, began, began])
    assert again.state.units["1"].began_at == first.state.units["1"].began_at


def test_old_final_units_are_forgotten_and_never_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "FINALS_MAX", 2)
    steps = [*granted()]
    for n in range(1, 5):
        steps += [job(str(n)), (A, f.JobCancelled(job=str(n), user="a"))]
    custody, _ = play(steps)
    assert list(custody.state.units) == ["3", "4"]
    assert custody.forgotten == ["2"]
    assert play([*steps, job("1")])[1][-1] is not None


def test_the_number_of_a_forgotten_instance_is_never_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "FINALS_MAX", 0)
    custody, verdicts = play([*INSTANCE, STOPPED, placed("web.1"), placed("web.2")])
    assert (verdicts[-2:], list(custody.state.units)) == ([Void.ATTEMPT_NOT_NEXT, None], ["web.2"])


def test_a_final_unit_with_an_open_vm_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effects, "FINALS_MAX", 0)
    custody, _ = play([*RUNNING, reported()])
    assert "1" in custody.state.units
    assert "1" not in play([*RUNNING, reported(), ended()])[0].state.units


class TestQuota:
    def test_each_lowering_keeps_its_own_deadline(self) -> None:
        quota = Quota(hosts=10)
        quota.change(8, 1.0)
        quota.change(5, 2.0)
        assert [quota.overdue(10, t) for t in (0.9, 1.0, 1.9, 2.0)] == [0, 2, 2, 5]

    def test_a_later_lowering_postpones_nothing(self) -> None:
        quota = Quota(hosts=10)
        quota.change(5, 1.0)
        quota.change(4, 9.0)
        assert quota.overdue(10, 1.0) == 5

    def test_raising_drops_what_it_satisfies(self) -> None:
        quota = Quota(hosts=10)
        quota.change(8, 1.0)
        quota.change(5, 2.0)
        quota.change(7, 3.0)
        assert [quota.overdue(10, t) for t in (1.0, 2.0)] == [2, 3]
        quota.change(10, 3.0)
        quota.keep(10)
        assert quota.next_due() == float("inf")

    def test_met_lowerings_are_forgotten(self) -> None:
        quota = Quota(hosts=3)
        quota.change(1, 1.0)
        quota.keep(1)
        assert quota.lowerings == []

    def test_what_is_held_no_more_is_forgotten_with_its_lowering(self) -> None:
        """A host that is given back, and one that is granted later, are not confused."""
        two = [*granted(), *granted("h2")]
        keeps = [(P, f.QuotaChanged(dept="hpc", hosts=hosts, by=1.0)) for hosts in (2, 1)]
        assert play([*two, *keeps])[0].quota("hpc").lowerings == [(1, 1.0)]
        assert play([*two, *keeps, RELEASE])[0].quota("hpc").lowerings == []
        assert play([*granted(), *keeps])[0].quota("hpc").lowerings == []

    def test_a_lowering_that_an_earlier_one_implies_is_dropped(self) -> None:
        quota = Quota(hosts=10)
        for hosts, by in ((8, 2.0), (5, 1.0), (5, 3.0), (4, 3.0), (3, 3.0)):
            quota.change(hosts, by)
        assert (quota.lowerings, quota.next_due()) == ([(5, 1.0), (3, 3.0)], 1.0)
        quota.change(3, 0.0)  # neither lower nor higher
        assert quota.lowerings == [(5, 1.0), (3, 3.0)]

    def test_raising_softens_what_is_left(self) -> None:
        quota = Quota(hosts=10)
        quota.change(6, 1.0)
        quota.change(3, 2.0)
        quota.change(5, 0.0)
        assert (quota.hosts, quota.lowerings) == (5, [(6, 1.0), (5, 2.0)])
        quota.keep(6)
        assert quota.lowerings == [(5, 2.0)]
        quota = Quota(hosts=10)
        quota.change(6, 1.0)
        quota.change(3, 2.0)
        quota.change(6, 0.0)
        assert quota.lowerings == [(6, 1.0)]  # the same number by then is implied

    def test_nothing_is_overdue_of_what_is_not_held(self) -> None:
        quota = Quota(hosts=3)
        quota.change(2, 1.0)
        assert [quota.overdue(held, 1.0) for held in (3, 2, 1)] == [1, 0, 0]
        assert quota.overdue(3, 0.5) == 0


def test_time_is_the_running_maximum() -> None:
    custody = Custody()
    for position, at in enumerate([5.0, 3.0, 6.0], 1):
        fold_fact(custody, f.DemandChanged(dept="hpc", hosts=1), position, 0, "scheduler.hpc", at)
    assert custody.state.at == 6.0
    fold_fact(custody, f.DemandChanged(dept="hpc", hosts=1), 4, 0, "scheduler.hpc", 1.0)
    assert custody.state.at == 6.0


def test_an_unknown_custody_kind_stops_the_reader_and_a_plain_one_does_not() -> None:
    custody = Custody()
    assert fold_fact(custody, UnknownFact(kind="tea.poured", custody=False), 1, 0, P, 0.0) is None
    with pytest.raises(Incompatible, match=r"tea\.poured"):
        fold_fact(custody, UnknownFact(kind="tea.poured", custody=True), 2, 0, P, 0.0)


def test_unknown_rules_stop_the_reader() -> None:
    config = CloudConfig(name="c", departments=(Department(name="hpc", kind="batch"),))
    adopted = f.ConfigAdopted(cloud="x", custody_rules=RULES + 1, config=config)
    with pytest.raises(Incompatible, match=str(RULES + 1)):
        fold_fact(Custody(), adopted, 1, 0, P, 0.0)


def test_a_job_that_its_guest_stopped_takes_the_disposal_already_decided() -> None:
    for disposal, state, final in (
        (f.Disposal.REQUEUE, "pending", None),
        (f.Disposal.KILL, "final", "killed"),
        (f.Disposal.TIMEOUT, "final", "timeout"),
        (f.Disposal.CANCELLED, "final", "cancelled"),
    ):
        custody, _ = play([*RUNNING_3, closed(disposal=disposal), TERMINATED])
        unit = custody.state.units["1"]
        assert (unit.state, unit.final, unit.exit, unit.early) == (state, final, None, False)


def test_a_drain_is_due_from_its_deadline_on() -> None:
    assert [Host(name="h", drain_until=5.0).drain_due(at) for at in (4.9, 5.0, 5.1)] == [False, True, True]
    assert not Host(name="h").drain_due(9e9)


def test_a_host_that_was_ever_in_quarantine_is_looked_at_apart() -> None:
    for until, apart in ((0.0, {}), (0.5, {"h1": None})):
        custody, _ = play([*granted(), (E, f.HostQuarantined(host="h1", reason="r", until=until))])
        assert (custody.index.apart, custody.state.hosts["h1"].quarantine) == (apart, "r")


def test_how_a_unit_has_ended_is_told() -> None:
    for steps, end in (([], None), ([reported()], "completed"), ([closed(), TERMINATED], "ended_early")):
        assert play([*WISHES, *steps])[0].state.units["1"].end == end


def test_a_job_that_completes_on_sigterm_has_ended_early() -> None:
    for steps, early in (([closed(), TERMINATED], True), ([closed(), reported()], False), ([reported()], False)):
        unit = play([*WISHES, *steps])[0].state.units["1"]
        assert (unit.state, unit.final, unit.early) == ("final", "completed", early)


def test_a_resumed_vm_that_never_ran_was_not_saved_and_one_that_ran_has_ended() -> None:
    gone = (E, f.VmEnded(unit="1", attempt=2, rank=0, why="gone"))
    assert play([*RESUMES, bound(), gone])[0].state.units["1"].broken == "not_saved"
    started = (E, f.VmStarted(unit="1", attempt=2, rank=0))
    assert play([*RESUMES, bound(), started, gone])[0].state.units["1"].broken == "vm_ended"
    assert play([*RUNNING, ended()])[0].state.units["1"].broken == "vm_ended"


def test_the_newest_releases_are_kept_and_those_that_run() -> None:
    writer, fact = placed("web.1")
    runs = writer, msgspec.structs.replace(fact, release=2)
    asked = [release(number) for number in range(1, RELEASES_KEPT + 4)]
    custody, _ = play([*granted(dept="web"), *asked[:2], runs, *asked[2:]])
    newest = range(RELEASES_KEPT + 4 - (RELEASES_KEPT - 1), RELEASES_KEPT + 4)
    assert list(custody.state.releases["web"]) == [2, *newest]
    custody, _ = play([*granted(dept="web"), *asked[:2], runs, (writer, STOPPED[1]), *asked[2:]])
    assert len(custody.state.releases["web"]) == RELEASES_KEPT
    assert 2 not in custody.state.releases["web"]
