"""Hosts that are set apart, and what a host offers: disabled, late, left out, shared with others, overcommitted."""

from __future__ import annotations

import msgspec
import pytest

from schemas import facts as f
from schemas.size import Size, size_of
from services.domain.constraints import satisfies
from services.executor.core.calls import Deploy, Phase, Sample
from services.executor.core.host_health import DISABLED, EXCLUDED, FULL, LATE
from tests.support.executor_bench import Bench, held, kinds
from tests.support.sizes import resized


def change(bench: Bench, name: str, **what: object) -> None:
    bench.hosts[name] = resized(bench.hosts[name], what)
    bench.see_hosts()


def disable(bench: Bench, name: str) -> None:
    change(bench, name, usable=False, apart=DISABLED)


def enable(bench: Bench, name: str) -> None:
    change(bench, name, usable=True, apart="")


# ------------------------------------------------------------------------------------------------------------- disabled


def test_a_disabled_host_keeps_its_job_and_gets_no_other() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    disable(bench, "h0")
    [apart] = bench.decide()
    assert isinstance(apart, f.HostQuarantined)
    assert (apart.host, apart.reason) == ("h0", "disabled")
    assert apart.until > bench.now + 365 * 86_400
    bench.settle()
    assert bench.custody.live("1", 1)
    assert bench.vms[vm] is Phase.RUNNING
    assert bench.custody.state.hosts["h0"].state == "held"


def test_an_enabled_host_is_free_of_it_at_once_and_only_once() -> None:
    bench = held()
    disable(bench, "h0")
    bench.decide()
    enable(bench, "h0")
    assert bench.decide() == [f.HostQuarantined(host="h0", reason="no longer disabled", until=0.0)]
    bench.see_hosts()
    assert bench.decide() == []


def test_a_disabled_host_is_cleared_when_it_is_empty_and_given_to_nobody() -> None:
    bench = held()
    bench.run("1", "h0")
    disable(bench, "h0")
    bench.settle()
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    bench.settle()
    host = bench.custody.state.hosts["h0"]
    assert (host.state, host.quarantine) == ("free", "disabled")
    assert host.quarantine_until > bench.now


def test_who_was_to_start_on_a_disabled_host_is_ended_so_that_it_starts_elsewhere() -> None:
    bench = held()
    bench.place("1", "h0")
    bench.answer(bench.calls()[0])
    disable(bench, "h0")
    bench.settle()
    assert [x.why for x in bench.written if isinstance(x, f.VmEnded)] == ["its host is set apart: disabled"]
    assert not bench.custody.live("1", 1)


def test_a_new_leader_finds_a_host_enabled_that_was_disabled_under_another() -> None:
    bench = held()
    disable(bench, "h0")
    bench.decide()
    bench.core.take_over(bench.now)
    enable(bench, "h0")
    assert [(x.host, x.until) for x in bench.decide() if isinstance(x, f.HostQuarantined)] == [("h0", 0.0)]


def test_a_disabled_host_that_fails_is_lost_all_the_same() -> None:
    bench = held()
    bench.run("1", "h0")
    disable(bench, "h0")
    bench.decide()
    change(bench, "h0", apart="", bad="error")
    assert bench.decide() == [f.HostLost(host="h0", reason="error")]


# ----------------------------------------------------------------------------------------------------------------- late


def late_bench() -> Bench:
    bench = held()
    bench.configure(monitor_late_s=30.0, monitor_lost_s=90.0)
    bench.run("1", "h0")
    bench.samples = {n: Sample(1000, 0) for n in range(3)}
    bench.see_hosts()
    bench.settle()
    bench.written.clear()
    return bench


def test_a_host_that_is_monitored_late_is_set_apart_then_lost_and_comes_back_empty() -> None:
    bench = late_bench()
    bench.now += 29.0
    bench.see_hosts()
    assert bench.decide() == []
    bench.samples = {1: Sample(1030, 0), 2: Sample(1030, 0)}
    bench.now += 2.0
    bench.see_hosts()
    [apart] = bench.decide()
    assert isinstance(apart, f.HostQuarantined)
    assert (apart.host, apart.reason) == ("h0", LATE)
    assert bench.custody.live("1", 1)
    bench.now += 60.0
    bench.samples = {1: Sample(1090, 0), 2: Sample(1090, 0)}
    bench.see_hosts()
    assert f.HostLost(host="h0", reason=LATE) in bench.decide()
    bench.samples = {0: Sample(1100, 0)}
    bench.see_hosts()
    bench.settle()
    host = bench.custody.state.hosts["h0"]
    assert (host.state, host.quarantine_until) == ("free", 0.0)


def test_a_late_host_that_reports_again_goes_on_as_if_nothing_had_been() -> None:
    bench = late_bench()
    bench.now += 31.0
    bench.samples = {1: Sample(1030, 0), 2: Sample(1030, 0)}
    bench.see_hosts()
    bench.decide()
    bench.samples = {0: Sample(1031, 0)}
    bench.see_hosts()
    assert bench.decide() == [f.HostQuarantined(host="h0", reason="no longer monitored late", until=0.0)]
    assert bench.custody.live("1", 1)


def test_a_new_leader_believes_a_late_host_again_only_when_it_has_been_heard_of() -> None:
    bench = late_bench()
    bench.now += 31.0
    bench.samples = {0: Sample(1000, 0), 1: Sample(1030, 0), 2: Sample(1030, 0)}
    bench.see_hosts()
    assert [fact.reason for fact in bench.decide() if isinstance(fact, f.HostQuarantined)] == [LATE]
    bench.core.take_over(bench.now)
    bench.audit()
    bench.see_hosts()
    assert bench.decide() == []
    bench.samples = {n: Sample(1060, 0) for n in range(3)}
    bench.see_hosts()
    assert bench.decide() == [f.HostQuarantined(host="h0", reason="no longer monitored late", until=0.0)]


def test_the_age_of_a_sample_is_measured_by_our_own_clock() -> None:
    bench = late_bench()
    for seconds in range(1, 20):  # OpenNebula's clock stands an hour behind and runs
        bench.now += 10.0
        bench.samples = {n: Sample(1000 + seconds, 0) for n in range(3)}
        bench.see_hosts()
        assert {type(fact) for fact in bench.decide()} <= {f.HostObserved}


def test_a_clock_that_is_set_makes_no_host_late() -> None:
    bench = late_bench()
    bench.configure(monitor_late_s=300.0, monitor_lost_s=900.0)
    bench.now += 3600.0
    bench.see_hosts()
    assert bench.decide() == []
    bench.now -= 1800.0
    bench.see_hosts()
    assert bench.decide() == []


def test_a_host_that_was_never_sampled_is_not_late() -> None:
    bench = held()
    bench.configure(monitor_late_s=1.0, monitor_lost_s=2.0)
    bench.now += 3600.0
    bench.see_hosts()
    assert bench.decide() == []


# ------------------------------------------------------------------------------------------------------------- left out


def test_a_host_outside_the_clusters_of_the_configuration_is_never_heard_of() -> None:
    bench = Bench(2, audited=False)
    bench.configure(clusters=("batch",))
    bench.core.take_over(bench.now)
    bench.hosts["h1"] = msgspec.structs.replace(bench.hosts["h1"], cluster="batch")
    bench.audit()
    bench.see_hosts()
    assert [x.host for x in bench.decide() if isinstance(x, f.HostDescribed)] == ["h1"]


def test_a_host_that_the_configuration_leaves_out_ends_its_job_and_is_removed() -> None:
    bench = held("h0")
    bench.run("1", "h0")
    change(bench, "h0", labels={"POOL": "cloud"})
    change(bench, "h1", labels={"POOL": "cloud"})
    change(bench, "h2", labels={"POOL": "other"})
    bench.decide()
    bench.configure(use="pool=other")
    bench.see_hosts()
    found = bench.decide()
    assert [(type(x).__name__, x.host) for x in found if isinstance(x, f.HostFact)] == [
        ("HostQuarantined", "h0"),
        ("HostRemoved", "h1"),
    ]
    assert bench.custody.state.hosts["h0"].quarantine == EXCLUDED
    assert bench.custody.live("1", 1)
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    bench.settle()
    assert list(bench.custody.state.hosts) == ["h2"]


# --------------------------------------------------------------------------------------------------------------- others


def stranger(bench: Bench, vm: int, host: str, cpu: int, memory_kb: int) -> None:
    """Another tenant's VM runs there."""
    bench.vms[vm], bench.tags[vm], bench.on[vm] = Phase.RUNNING, "", host
    seen = bench.hosts[host]
    bench.hosts[host] = msgspec.structs.replace(seen, asked=Size(seen.asked[0] + cpu, seen.asked[1] + memory_kb))


def offers(bench: Bench, name: str = "h0") -> tuple[int, int]:
    host = bench.custody.state.hosts[name]
    return host.size


def test_what_another_tenant_uses_is_not_offered_and_is_when_it_has_gone() -> None:
    bench = held()
    stranger(bench, 77, "h0", 150, 1024 * 1024)
    bench.audit()
    bench.see_hosts()
    assert kinds(bench.decide()) == ["host.described"]
    assert offers(bench) == Size(2, 3072)
    bench.gone(77)
    change(bench, "h0", asked=Size(0, 0))
    bench.decide()
    assert offers(bench) == Size(4, 4096)


def test_what_our_own_vms_use_changes_nothing_whenever_it_is_seen() -> None:
    bench = held()
    stranger(bench, 77, "h0", 100, 512 * 1024)
    bench.audit()
    bench.see_hosts()
    bench.decide()
    before = offers(bench)
    [vm] = bench.run("1", "h0", cores=2)
    change(bench, "h0", asked=Size(300, (512 + 64) * 1024))
    assert bench.decide() == []
    stale = [bench.host(name) for name in bench.hosts]
    bench.write("admission", f.AttemptReported(unit="1", attempt=1, exit=0))
    bench.settle()  # its VM is ended, in the journal too
    assert vm not in bench.vms
    bench.on[vm] = "h0"  # and a poll that was begun before shows it
    bench.hosts["h0"] = next(s for s in stale if s.name == "h0")
    bench.see_hosts()
    bench.on.pop(vm)
    change(bench, "h0", asked=Size(100, 512 * 1024))
    bench.decide()
    assert offers(bench) == before
    assert [x for x in bench.written if isinstance(x, f.HostDescribed)] == [
        x for x in bench.written if isinstance(x, f.HostDescribed) and size_of(x) == before
    ]


def test_a_new_leader_says_nothing_else_before_it_knows_whose_vms_they_are() -> None:
    bench = held()
    stranger(bench, 77, "h0", 150, 1024 * 1024)
    bench.audit()
    bench.see_hosts()
    bench.decide()
    bench.core.take_over(bench.now)
    bench.see_hosts()
    assert bench.decide() == []
    bench.audit()
    bench.see_hosts()
    assert bench.decide() == []
    assert offers(bench) == Size(2, 3072)


def test_a_host_that_others_have_filled_is_set_apart_until_they_leave() -> None:
    bench = Bench()
    stranger(bench, 77, "h0", 400, 1024)
    bench.audit()
    bench.see_hosts()
    found = bench.decide()
    assert [x.reason for x in found if isinstance(x, f.HostQuarantined)] == [FULL]
    bench.gone(77)
    change(bench, "h0", asked=Size(0, 0))
    bench.settle()
    host = bench.custody.state.hosts["h0"]
    assert (host.quarantine_until, host.size.cores) == (0.0, 4)


def test_attempts_that_were_placed_before_others_came_still_get_their_vms_deployed() -> None:
    bench = held()
    bench.place("1", "h0", cores=3)
    bench.answer(bench.calls()[0])
    stranger(bench, 77, "h0", 200, 1024)
    bench.audit()
    bench.see_hosts()
    bench.decide()
    assert offers(bench)[0] == 2
    assert [type(c) for c in bench.calls()] == [Deploy]  # OpenNebula has the last word


# ----------------------------------------------------------------------------------------------------------- overcommit


def overcommitting(use: str = "") -> Bench:
    """Four cores, and OpenNebula lets VMs ask for eight."""
    bench = held()
    for name in bench.hosts:
        bench.hosts[name] = msgspec.structs.replace(bench.hosts[name], max_cpu=800)
    bench.configure(cpu_overcommit=2.0, overcommit_use=use)
    bench.see_hosts()
    assert offers(bench) == Size(4, 4096)  # nothing is known of its use
    return bench


def measure(bench: Bench, percent: int) -> tuple[int, int]:
    """Of all its cores, this is in use."""
    bench.samples = {0: Sample(int(bench.now), percent * 4)}
    bench.see_hosts()
    bench.decide()
    return offers(bench)


@pytest.mark.parametrize("seen", [[(10, 8), (59, 8), (60, 4), (55, 4), (49, 8)], [(90, 4), (50, 4), (20, 8)]])
def test_cores_are_overcommitted_below_the_threshold_and_memory_never(seen: list[tuple[int, int]]) -> None:
    bench = overcommitting()
    for percent, cores in seen:
        bench.now += 1.0
        assert measure(bench, percent) == Size(cores, 4096), percent


def test_nothing_is_overcommitted_that_opennebula_would_refuse() -> None:
    bench = overcommitting()
    change(bench, "h0", max_cpu=600)
    assert measure(bench, 10) == Size(6, 4096)
    change(bench, "h0", max_cpu=400)
    bench.decide()
    assert offers(bench) == Size(4, 4096)


def test_overcommit_may_be_for_hosts_with_a_label_only() -> None:
    bench = overcommitting(use="pool=shared")
    assert measure(bench, 10) == Size(4, 4096)
    change(bench, "h0", labels={"POOL": "shared"})
    bench.decide()
    assert offers(bench) == Size(8, 4096)


def test_without_overcommit_a_host_that_opennebula_overcommits_offers_what_it_has() -> None:
    bench = overcommitting()
    bench.configure()
    assert measure(bench, 10) == Size(4, 4096)


@pytest.mark.parametrize(
    ("text", "true"),
    [
        ("", True),
        ("gpu", True),
        ("gpu=yes", True),
        ("GPU=yes&cluster=default", True),
        ("gpu=yes&cluster=other", False),
        ("cluster=other|host=h0", True),
        ("tape", False),
        ("gpu=no", False),
        ("rack!=r2", True),
        ("tape!=yes", True),
        ("old", False),  # OLD = no
    ],
)
def test_a_constraint_means_hosts_by_label_cluster_or_name(text: str, true: bool) -> None:
    labels = {"GPU": "yes", "RACK": "r1", "OLD": "no"}
    assert satisfies("h0", "default", labels, text) is true
