"""The executor's decisions about hosts: described, cleared, lost, removed (PROTOCOL X5), and who waits how long (X8)."""

from __future__ import annotations

import pytest

from schemas import facts as f
from schemas.config import Hosts
from services.domain.custody.state import Leader
from services.executor.core.calls import HostSight, HostTold, Look, Outcome, Phase, Terminate
from services.executor.core.host_reconciler import LOOKS_MAX
from services.executor.edge.executor import wait_out_s
from tests.support.executor_bench import Bench, host_sight, kinds
from tests.support.executor_stage import CLOUD
from tests.support.sizes import resized


def changed(bench: Bench, name: str, **what: object) -> HostSight:
    bench.hosts[name] = resized(bench.hosts[name], what)
    return bench.hosts[name]


def fresh() -> Bench:
    """Nothing seen yet."""
    bench = Bench(1, audited=False)
    bench.core.take_over(bench.now)
    bench.audit()
    return bench


def test_a_new_host_is_described_then_looked_at_then_cleared() -> None:
    bench = fresh()
    assert bench.decide() == []
    bench.see_hosts()
    assert bench.decide() == [
        f.HostDescribed(host="h0", one_id=0, cores=4, memory_mb=4096, labels={}, cluster="default")
    ]
    assert bench.decide() == []
    [look] = bench.calls()
    assert look == Look("h0", 0)
    bench.answer(look)
    assert bench.decide() == [f.HostCleared(host="h0")]
    assert bench.decide() == []
    assert bench.calls() == []


@pytest.mark.parametrize("what", [{"usable": False, "bad": "error"}, {"usable": False}, {"cores": 0}, {"memory_mb": 0}])
def test_a_host_that_cannot_be_used_is_not_described(what: dict[str, object]) -> None:
    bench = fresh()
    changed(bench, "h0", **what)
    bench.see_hosts()
    assert bench.decide() == []


def test_a_host_whose_name_no_subject_could_carry_is_left_out() -> None:
    bench = fresh()
    bench.hosts["a b"] = host_sight("a b", 7)
    bench.see_hosts()
    assert [x.host for x in bench.decide() if isinstance(x, f.HostDescribed)] == ["h0"]
    assert list(bench.core.host_reconciler.ignored) == ["a b"]
    del bench.hosts["a b"]
    bench.see_hosts()
    assert not bench.core.host_reconciler.ignored


def test_hosts_that_are_gone_before_they_were_looked_at_are_not_asked_for_for_ever() -> None:
    bench = Bench(LOOKS_MAX + 1)
    bench.settle()
    bench.see_hosts()  # shows that they are empty
    bench.settle()
    bench.grant(*bench.hosts)
    bench.settle()
    bench.write("scheduler.hpc", *(f.HostReleased(host=name) for name in bench.hosts))
    bench.decide()
    assert bench.calls() == []
    assert bench.core.hosts_wanted, "so many are looked at by one pool"
    bench.hosts.clear()
    bench.see_hosts()
    bench.settle()
    assert bench.custody.state.hosts == {}
    assert bench.calls() == []
    assert not bench.core.hosts_wanted


def test_many_hosts_that_are_told_to_have_changed_are_looked_at_by_one_pool_and_no_more() -> None:
    bench = Bench(LOOKS_MAX + 2)
    bench.settle()
    bench.see_hosts()  # shows that they are empty
    bench.settle()
    bench.grant(*bench.hosts)
    bench.settle()
    assert len(bench.custody.index.by_state["held"]) == LOOKS_MAX + 2
    ticket = bench.core.ticket()
    for number in range(LOOKS_MAX + 2):
        bench.core.observe(HostTold(number), bench.now)
    bench.see_hosts(ticket)
    assert bench.calls() == []
    assert bench.core.hosts_wanted, "that pool was begun before"
    bench.see_hosts()
    assert bench.calls() == []
    assert not bench.core.hosts_wanted


def test_other_capacity_is_a_new_description_whoever_holds_the_host() -> None:
    bench = Bench()
    bench.grant("h0")
    changed(bench, "h0", cores=8)
    bench.see_hosts()
    assert [(x.host, x.cores) for x in bench.decide() if isinstance(x, f.HostDescribed)] == [("h0", 8)]


# ------------------------------------------------------------------------------------------------------------------ X5


def draining() -> tuple[Bench, int]:
    bench = Bench()
    bench.grant("h0", "h1")
    [vm] = bench.run("1", "h0")
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    return bench, vm


def test_x5_an_idle_host_is_looked_at_as_soon_as_it_is_released() -> None:
    bench = Bench()
    bench.grant("h0")
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    [look] = bench.calls()
    bench.answer(look)
    assert bench.decide() == [f.HostCleared(host="h0")]


def test_x5_a_host_is_not_even_looked_at_while_a_vm_journaled_for_it_is_open() -> None:
    bench, vm = draining()
    [terminate] = bench.calls()
    assert terminate == Terminate("1/1/0", vm, False)
    bench.gone(vm)  # gone in OpenNebula, not yet in the journal
    bench.see_hosts()
    assert bench.decide() == []
    assert [c for c in bench.calls() if isinstance(c, Look)] == []
    bench.answer(terminate)
    bench.poll()
    assert kinds(bench.decide()) == ["vm.ended"]
    assert [type(c) for c in bench.calls()] == [Look]


def test_x5_a_look_begun_before_the_last_end_was_folded_does_not_count() -> None:
    bench, _ = draining()
    early = bench.core.ticket()
    [terminate] = bench.calls()
    bench.answer(terminate)
    bench.poll()
    bench.decide()
    bench.see_hosts(early)
    assert bench.decide() == []
    bench.see_hosts()
    assert bench.decide() == [f.HostCleared(host="h0")]


def test_x5_a_look_that_was_overtaken_by_a_fact_is_made_again() -> None:
    bench = Bench()
    bench.grant("h0")
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    [look] = bench.calls()
    bench.write("executor", f.HostLost(host="h0", reason="x"))
    bench.answer(look)
    assert bench.decide() == []
    bench.now += 1.0
    assert bench.calls() == [look]


def test_x5_a_vm_of_ours_that_nobody_knows_keeps_the_host_until_it_is_swept() -> None:
    bench = Bench()
    bench.grant("h0")
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    bench.vms[9], bench.tags[9], bench.on[9] = Phase.RUNNING, f"{CLOUD}/5/1/0", "h0"
    [look] = bench.calls()
    bench.answer(look)
    assert bench.decide() == []
    assert bench.core.audit_wanted
    bench.audit()
    [sweep] = bench.calls()
    assert sweep == Terminate("#9", 9, True)
    assert bench.decide() == []
    bench.answer(sweep)
    bench.now += 1.0
    bench.settle()
    assert bench.written == [f.HostCleared(host="h0")]


def test_x5_somebody_elses_vm_does_not_keep_a_host() -> None:
    bench = Bench()
    bench.vms[9], bench.tags[9], bench.on[9] = Phase.RUNNING, "", "h0"
    bench.audit()
    bench.grant("h0")
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    bench.settle()
    assert bench.written == [f.HostCleared(host="h0")]


def test_x5_a_look_that_failed_is_made_again_a_little_later() -> None:
    bench = Bench()
    bench.grant("h0")
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    [look] = bench.calls()
    bench.answer(look, Outcome.UNSURE)
    assert bench.calls() == []
    bench.now = bench.core.wake_at()
    assert bench.calls() == [look]


def test_x5_many_hosts_are_looked_at_by_one_pool() -> None:
    bench = Bench(LOOKS_MAX + 5)
    bench.grant(*bench.hosts)
    bench.write("scheduler.hpc", *(f.HostReleased(host=h) for h in bench.hosts))
    assert bench.calls() == []
    assert bench.core.hosts_wanted
    bench.see_hosts()
    assert kinds(bench.decide()) == ["host.cleared"] * (LOOKS_MAX + 5)
    assert not bench.core.hosts_wanted


# ------------------------------------------------------------------------------------------------------ lost and removed


@pytest.mark.parametrize("bad", ["error", "offline"])
@pytest.mark.parametrize("state", ["free", "held", "draining"])
def test_a_host_in_use_that_goes_bad_is_lost_and_comes_back_only_when_it_is_empty(bad: str, state: str) -> None:
    bench = Bench()
    if state != "free":
        bench.grant("h0")
        bench.run("1", "h0")
    if state == "draining":
        bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    changed(bench, "h0", usable=False, bad=bad)
    bench.see_hosts()
    assert bench.decide() == [f.HostLost(host="h0", reason=bad)]
    bench.settle()
    assert not any(isinstance(x, f.HostCleared) for x in bench.written)
    changed(bench, "h0", usable=True, bad="")
    bench.see_hosts()
    bench.settle()
    assert bench.written[-1] == f.HostCleared(host="h0")


def test_a_lost_host_that_comes_back_with_a_vm_on_it_is_not_cleared() -> None:
    bench = Bench()
    bench.grant("h0")
    [vm] = bench.run("1", "h0")
    changed(bench, "h0", usable=False, bad="error")
    bench.see_hosts()
    bench.decide()
    changed(bench, "h0", usable=True, bad="")
    bench.see_hosts()
    assert bench.decide() == []
    assert [c for c in bench.calls() if isinstance(c, Look)] == []
    assert vm in bench.vms


def test_a_host_that_is_gone_is_lost_then_removed_when_nothing_is_open() -> None:
    bench = Bench()
    bench.grant("h0")
    bench.run("1", "h0")
    del bench.hosts["h0"]
    bench.see_hosts()
    assert bench.decide() == [f.HostLost(host="h0", reason="removed")]
    assert bench.decide() == []
    bench.settle()
    assert kinds(bench.written)[-2:] == ["vm.ended", "host.removed"]


def test_a_free_host_that_is_gone_is_removed() -> None:
    bench = Bench()
    del bench.hosts["h2"]
    bench.see_hosts()
    assert bench.decide() == [f.HostRemoved(host="h2")]


def test_the_same_name_with_another_id_is_another_host() -> None:
    bench = Bench()
    bench.grant("h0")
    changed(bench, "h0", one_id=55)
    bench.see_hosts()
    assert bench.decide() == [f.HostLost(host="h0", reason="replaced")]
    bench.settle()
    described = [x for x in bench.written if isinstance(x, f.HostDescribed)]
    assert [x.one_id for x in described] == [55]
    assert bench.written[-1] == f.HostCleared(host="h0")


def test_a_host_on_which_starts_fail_again_and_again_is_quarantined() -> None:
    bench = Bench()
    bench.grant("h0")
    for attempt in range(1, 4):
        bench.place("1", "h0", attempt=attempt)
        bench.answer(bench.calls()[0])
        bench.decide()
        bench.now += 10.0
        [deploy] = bench.calls()
        bench.answer(deploy)
        bench.vms[attempt - 1] = Phase.FAILED
        bench.settle()
        bench.close("1", attempt)
    found = [x for x in bench.written if isinstance(x, f.HostQuarantined)]
    assert [(x.host, x.until - bench.now) for x in found] == [("h0", Hosts().quarantine_s)]
    assert bench.custody.state.hosts["h0"].quarantine == "starts failed"


def test_nothing_is_said_of_hosts_before_they_were_seen() -> None:
    bench = Bench()
    bench.core.take_over(bench.now)  # a new leader
    assert bench.decide() == []
    assert bench.core.hosts_wanted


# ------------------------------------------------------------------------------------------------------------------ X8

LED = Leader(epoch=3, instance="e1", since=0.0)


@pytest.mark.parametrize(
    ("predecessor", "reaped", "wait_s"),
    [
        (None, (), 0.0),
        (LED, (), 3.0),
        (LED, ("e0", "e2"), 3.0),
        (LED, ("e0", "e1"), 0.0),
        (Leader(epoch=3, instance="e1", since=0.0, stopped=True), (), 0.0),
    ],
    ids=["the first", "one before", "others reaped", "reaped", "stopped"],
)
def test_x8_a_new_leader_waits_until_the_one_before_can_call_no_more(
    predecessor: Leader | None, reaped: tuple[str, ...], wait_s: float
) -> None:
    assert wait_out_s(predecessor, frozenset(reaped), lease_ttl_s=2.0, timeout_s=1.0) == wait_s
