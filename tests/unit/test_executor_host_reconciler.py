"""What follows from sights of hosts, at the boundaries of the desk's rules (`executor.core.host_reconciler`)."""

from __future__ import annotations

import msgspec
import pytest

from schemas import facts as f
from schemas.facts import Fact
from services.executor.core.calls import HostSight, HostsSeen, HostTold, Look, Outcome, Phase, Result, Sample
from services.executor.core.executor import ExecutorCore
from services.executor.core.host_health import DISABLED, EXCLUDED, LATE
from services.executor.core.host_reconciler import FOR_GOOD_S, LOOK_AGAIN_S, LOOKS_MAX, HostReconciler
from tests.support.executor_bench import Bench, held, kinds
from tests.support.executor_stage import CLOUD
from tests.support.sizes import resized


def desk(bench: Bench) -> HostReconciler:
    return bench.core.host_reconciler


def change(bench: Bench, name: str, **what: object) -> None:
    bench.hosts[name] = resized(bench.hosts[name], what)
    bench.see_hosts()


def about_hosts(bench: Bench) -> list[Fact]:
    return [fact for fact in bench.decide() if type(fact) in f.HostFact.__args__]


def releasing(count: int) -> Bench:
    """So many hosts are given back, and wait to be looked at."""
    bench = Bench(count)
    bench.see_hosts()
    bench.settle()
    bench.grant(*bench.hosts)
    bench.write("scheduler.hpc", *(f.HostReleased(host=name) for name in bench.hosts))
    return bench


# ---------------------------------------------------------------------------------------------------------------- usable


@pytest.mark.parametrize(
    ("what", "usable"),
    [({}, True), ({"usable": False, "bad": "error"}, False), ({"one_id": 9}, False), ({"apart": DISABLED}, False)],
)
def test_a_host_is_usable_if_the_one_that_custody_knows_was_seen_so(what: dict[str, object], usable: bool) -> None:
    bench = held()
    change(bench, "h0", **what)
    assert desk(bench).is_usable("h0") is usable
    assert desk(bench).may_start("h0", "1/1/0") is usable
    del desk(bench).seen["h0"]
    assert not desk(bench).is_usable("h0")
    bench.custody.state.hosts.pop("h1")
    assert not desk(bench).is_usable("h1")


# ----------------------------------------------------------------------------------------------------------------- looks


@pytest.mark.parametrize(("hosts", "looks"), [(LOOKS_MAX, LOOKS_MAX), (LOOKS_MAX + 1, 0)])
def test_so_many_hosts_are_looked_at_one_by_one_and_more_by_a_pool(hosts: int, looks: int) -> None:
    bench = releasing(hosts)
    assert len([call for call in bench.calls() if isinstance(call, Look)]) == looks
    assert bench.core.hosts_wanted is (looks == 0)


def test_a_host_is_looked_at_once_at_a_time_and_only_if_it_was_seen() -> None:
    bench = releasing(2)
    first, second = bench.calls()
    bench.core.observe(HostTold(0), bench.now)
    assert bench.calls() == []
    bench.answer(second)
    bench.answer(first)
    assert bench.calls() == [first], "it has changed since that look was begun"
    bench.answer(first)
    assert bench.calls() == []
    desk(bench).looks["h9"] = 1
    assert bench.calls() == []


@pytest.mark.parametrize("known", [False, True])
def test_who_is_told_to_have_changed_is_looked_at_or_by_a_pool_if_nobody_knows_it(known: bool) -> None:
    bench = Bench(2)
    bench.core.observe(HostTold(1 if known else 7), bench.now)
    assert bench.core.hosts_wanted is not known
    assert bench.calls() == ([Look("h1", 1)] if known else [])


@pytest.mark.parametrize("ticket", ["before", "the same", "after"])
def test_a_pool_stands_for_looks_that_were_wanted_before_it_was_begun(ticket: str) -> None:
    bench = Bench(2)
    early = bench.core.ticket()
    bench.core.observe(HostTold(1), bench.now)
    wanted = desk(bench).looks["h1"]
    bench.see_hosts({"before": early, "the same": wanted, "after": wanted + 1}[ticket])
    assert list(desk(bench).looks) == (["h1"] if ticket == "before" else [])


def test_one_that_is_gone_needs_no_look() -> None:
    bench = Bench(2)
    early = bench.core.ticket()
    bench.core.observe(HostTold(1), bench.now)
    del bench.hosts["h1"]
    bench.see_hosts(early)
    assert desk(bench).looks == {}


@pytest.mark.parametrize("outcome", [Outcome.GONE, Outcome.UNSURE, Outcome.DENIED])
@pytest.mark.parametrize("wanted", [False, True])
def test_a_look_that_found_no_such_host_asks_for_a_pool_and_one_that_failed_is_made_again(
    outcome: Outcome, wanted: bool
) -> None:
    bench = releasing(1)
    [look] = bench.calls()
    desk(bench).pool_wanted = wanted
    bench.core.observe(Result(look, outcome), bench.now)
    assert bench.core.hosts_wanted is (wanted or outcome is Outcome.GONE)
    assert bench.calls() == []
    assert bench.core.wake_at() == bench.now + LOOK_AGAIN_S
    bench.now += LOOK_AGAIN_S
    assert bench.calls() == [look]


def test_a_look_that_shows_another_host_is_none() -> None:
    bench = releasing(1)
    [look] = bench.calls()
    other = msgspec.structs.replace(bench.host("h0"), name="h7")
    bench.core.observe(Result(look, Outcome.OK, found=other), bench.now)
    assert bench.decide() == []
    assert "h7" not in desk(bench).seen


@pytest.mark.parametrize("phase", [Phase.RUNNING, None])
def test_a_look_says_what_is_there_and_whether_somebody_knows_it(phase: Phase | None) -> None:
    bench = releasing(1)
    [look] = bench.calls()
    if phase is not None:
        bench.vms[9], bench.tags[9], bench.on[9] = phase, f"{CLOUD}/5/1/0", "h0"
    bench.answer(look)
    assert bench.core.audit_wanted is (phase is not None)
    assert kinds(bench.decide()) == ([] if phase is not None else ["host.cleared"])


def test_what_is_ours_and_known_is_no_reason_for_an_audit_nor_is_what_is_others_or_saved() -> None:
    bench = held("h0", "h1", "h2")
    [mine] = bench.run("1", "h0")
    [saved] = bench.run("2", "h1")
    bench.close("2", disposal=f.Disposal.SUSPEND)
    bench.settle()
    bench.vms[50], bench.tags[50], bench.on[50] = Phase.RUNNING, "", "h0"
    bench.vms[51], bench.tags[51] = Phase.RUNNING, f"{CLOUD}/77/1/0"
    bench.audit()
    assert list(bench.core.vm_reconciler.strays) == [51]
    assert bench.core._ours() == {mine: "1/1/0", saved: "", 51: "#51"}
    bench.on |= {51: "h0", saved: "h0"}
    assert not desk(bench).suspicious
    for number in (0, 1):
        bench.core.observe(HostTold(number), bench.now)
    for call in bench.calls():
        if isinstance(call, Look):
            bench.answer(call)
    assert not bench.core.audit_wanted
    bench.on[52] = "h0"
    bench.vms[52] = Phase.RUNNING
    bench.core.observe(HostTold(0), bench.now)
    [look] = [call for call in bench.calls() if isinstance(call, Look)]
    bench.answer(look)
    assert bench.core.audit_wanted, "one among those that are known is enough"


@pytest.mark.parametrize("kept", ["strays", "saved", "neither"])
def test_ours_are_those_of_the_journal_those_that_are_saved_and_strays(kept: str) -> None:
    bench = held()
    [mine] = bench.run("1", "h0")
    if kept == "strays":
        bench.vms[51], bench.tags[51] = Phase.RUNNING, f"{CLOUD}/77/1/0"
        bench.audit()
    elif kept == "saved":
        bench.run("2", "h1")
        bench.close("2", disposal=f.Disposal.SUSPEND)
        bench.settle()
    more = {"strays": {51: "#51"}, "saved": {mine + 1: ""}, "neither": {}}[kept]
    assert bench.core._ours() == {mine: "1/1/0", **more}


# -------------------------------------------------------------------------------------------------------------- X5: cleared


def test_a_look_of_the_very_tick_of_a_fact_says_nothing() -> None:
    bench = releasing(1)
    bench.core.ledger.touched["h0"] = 70
    desk(bench).empty["h0"] = 70
    assert [fact for fact in bench.decide() if isinstance(fact, f.HostCleared)] == []
    desk(bench).empty["h0"] = 71
    desk(bench).news["h0"] = None
    assert bench.decide() == [f.HostCleared(host="h0")]


def test_what_a_look_has_shown_is_forgotten_when_the_host_is_removed() -> None:
    bench = Bench(1)
    bench.grant("h0")
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    bench.settle()
    del bench.hosts["h0"]
    bench.see_hosts()
    bench.settle()
    assert bench.custody.state.hosts == {}
    assert desk(bench).empty == {}


def test_a_late_host_is_not_cleared_before_it_was_heard_of_again() -> None:
    bench = Bench(1)
    bench.configure(monitor_late_s=10.0, monitor_lost_s=0.0)
    bench.samples = {0: Sample(1, 0)}
    bench.see_hosts()
    bench.grant("h0")
    bench.decide()
    bench.now += 11.0
    bench.see_hosts()
    bench.decide()
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    bench.settle()
    assert bench.custody.index.by_state["draining"] == {"h0": None}
    bench.samples = {0: Sample(2, 0)}
    bench.see_hosts()
    bench.settle()
    assert bench.custody.index.by_state["free"] == {"h0": None}


# ---------------------------------------------------------------------------------------------------- facts: rules 1 to 3, 5


@pytest.mark.parametrize(("cores", "memory_mb", "described"), [(1, 1, True), (0, 4096, False), (4, 0, False)])
def test_a_host_that_offers_a_core_and_memory_is_described(cores: int, memory_mb: int, described: bool) -> None:
    bench = Bench(1, audited=False)
    bench.core.take_over(bench.now)
    change(bench, "h0", cores=cores, memory_mb=memory_mb)
    assert kinds(bench.decide()) == (["host.described"] if described else [])


def test_what_is_on_its_way_is_left_as_it_is() -> None:
    bench = held()
    change(bench, "h0", usable=False, cores=8)
    assert bench.decide() == []
    change(bench, "h0", usable=True, cores=0)
    assert bench.decide() == []
    change(bench, "h0", cores=8)
    assert [fact.cores for fact in bench.decide() if isinstance(fact, f.HostDescribed)] == [8]


def test_each_case_rests_once_nothing_follows_from_it() -> None:
    bench = held()
    change(bench, "h0", cores=8)
    assert desk(bench).news
    bench.decide()
    bench.decide()
    assert desk(bench).news == {}


@pytest.mark.parametrize("bad", ["", "error"])
def test_a_host_that_the_configuration_leaves_out_is_removed_when_it_is_nobodys_and_empty(bad: str) -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    bench.configure(clusters=("other",))
    change(bench, "h0", bad=bad, usable=not bad)
    facts = about_hosts(bench)
    if bad:
        assert f.HostLost(host="h0", reason="error") in facts
        assert f.HostRemoved(host="h0") not in about_hosts(bench), "its VM is open"
    else:
        assert f.HostQuarantined(host="h0", reason=EXCLUDED, until=bench.now + FOR_GOOD_S) in facts
        bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    bench.settle()
    assert "h0" not in bench.custody.state.hosts
    assert vm not in bench.vms


@pytest.mark.parametrize("state", ["held", "draining", "free", "lost"])
def test_a_host_that_is_gone_is_lost_if_it_is_somebodys_and_removed_when_no_vm_is_open_there(state: str) -> None:
    bench = held()
    if state != "free":
        bench.run("1", "h0")
    taken: dict[str, tuple[str, Fact]] = {
        "draining": ("scheduler.hpc", f.HostReleased(host="h0")),
        "lost": ("executor", f.HostLost(host="h0", reason="x")),
    }
    if state in taken:
        bench.write(*taken[state])
    name = "h2" if state == "free" else "h0"
    del bench.hosts[name]
    bench.see_hosts()
    found = about_hosts(bench)
    assert found == {"free": [f.HostRemoved(host=name)], "lost": []}.get(
        state, [f.HostLost(host=name, reason="removed")]
    )
    bench.settle()
    assert name not in bench.custody.state.hosts


@pytest.mark.parametrize(
    ("reason", "until_s", "so"), [(LATE, 100.0, True), (LATE, 0.0, False), (DISABLED, 100.0, False), (None, 0.0, False)]
)
def test_a_host_stays_late_under_a_new_leader_while_the_journal_says_so(
    reason: str | None, until_s: float, so: bool
) -> None:
    bench = Bench(1)
    bench.configure(monitor_late_s=1000.0)
    host = bench.custody.state.hosts["h0"]
    host.quarantine, host.quarantine_until = reason, bench.now + until_s
    bench.samples = {0: Sample(1, 0)}
    bench.see_hosts()
    assert desk(bench).seen["h0"].apart == (LATE if so else "")
    host.one_id = 99  # another host of that name
    bench.see_hosts()
    assert desk(bench).seen["h0"].apart == ""


def test_a_new_leader_says_what_is_so_of_each_host_once_it_has_seen_them() -> None:
    bench = Bench(3)
    bench.write("executor", f.HostQuarantined(host="h1", reason=DISABLED, until=bench.now + FOR_GOOD_S))
    bench.core.take_over(bench.now)
    desk(bench).news.clear()
    del bench.hosts["h2"]
    ticket = bench.core.ticket()
    bench.core.observe(HostsSeen(ticket, [bench.host("h0"), bench.host("h1")]), bench.now)
    assert set(desk(bench).news) >= {"h0", "h1", "h2"}
    assert bench.decide() == [
        f.HostQuarantined(host="h1", reason=f"no longer {DISABLED}", until=0.0),
        f.HostRemoved(host="h2"),
    ]


# ------------------------------------------------------------------------------------------------------------------ samples


@pytest.mark.parametrize(("cores", "memory_mb", "counted"), [(1, 1, True), (0, 4096, False), (4, 0, False)])
def test_what_is_used_is_a_share_of_what_is_there(cores: int, memory_mb: int, counted: bool) -> None:
    bench = Bench(1)
    bench.hosts["h0"] = resized(bench.hosts["h0"], {"cores": cores, "memory_mb": memory_mb})
    bench.samples = {0: Sample(7, 50 * cores, 256 * memory_mb)}
    bench.see_hosts()
    sights = bench.core.host_reconciler.utilisation.seen["h0"].sights if counted else []
    assert [(sight.cpu, sight.memory) for sight in sights] == ([(0.5, 0.25)] if counted else [])
    assert ("h0" in bench.core.host_reconciler.utilisation.seen) is counted


def test_where_a_sight_differs_from_the_one_before_who_waits_there_is_told() -> None:
    bench = Bench(1)
    sight: HostSight = bench.hosts["h0"]
    cases: list[tuple[dict[str, object], bool]] = [
        ({"cores": 9}, True), ({"labels": {"a": "b"}}, True), ({"vms": (1,)}, False), ({"cluster": "x"}, True)
    ]  # fmt: skip
    for what, differs in cases:
        assert desk(bench)._differs(sight, resized(sight, what)) is differs
    assert desk(bench)._differs(None, sight)
    assert desk(bench)._differs(sight, None)
    assert not desk(bench)._differs(None, None)


@pytest.mark.parametrize("looked", [False, True])
def test_after_a_snapshot_a_host_is_cleared_by_the_first_look_and_not_before(looked: bool) -> None:
    bench = Bench(1)
    bench.grant("h0")
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    core = ExecutorCore(bench.custody)
    core.load(bench.core.dump())
    core.take_over(bench.now)
    desk_ = core.host_reconciler
    desk_.polled, desk_.seen = True, {"h0": bench.host("h0")}
    desk_.news["h0"] = None
    if looked:
        core.observe(HostsSeen(core.ticket(), [bench.host("h0")]), bench.now)
    assert core.decide(bench.now) == ([f.HostCleared(host="h0")] if looked else [])


def test_what_the_journal_says_until_now_it_does_not_say_any_more() -> None:
    bench = Bench(1)
    host = bench.custody.state.hosts["h0"]
    host.quarantine, host.quarantine_until = DISABLED, bench.now
    desk(bench).news["h0"] = None
    assert bench.decide() == []


def test_the_room_of_a_vm_that_a_person_migrated_is_not_offered_where_it_runs() -> None:
    bench = held()
    [vm] = bench.run("1", "h0", cores=3)

    def cores() -> tuple[int, ...]:
        bench.settle()
        return tuple(bench.custody.state.hosts[name].size.cores for name in ("h0", "h1"))

    asked = msgspec.structs.replace
    bench.hosts["h0"] = asked(bench.hosts["h0"], asked=(300, 64 * 1024, 0))
    bench.see_hosts()
    assert cores() == (4, 4)
    bench.on[vm] = "h1"
    bench.hosts["h0"] = asked(bench.hosts["h0"], asked=(0, 0, 0))
    bench.hosts["h1"] = asked(bench.hosts["h1"], asked=(300, 64 * 1024, 0))
    bench.see_hosts()
    assert cores() == (4, 1)
    bench.on[vm] = "h0"
    bench.hosts["h1"] = asked(bench.hosts["h1"], asked=(0, 0, 0))
    bench.see_hosts()
    assert cores() == (4, 4)
