"""VMs of other users that OpenNebula does not show to ours: which they are, what they take, and that no host waits for them."""

from __future__ import annotations

import msgspec
import pytest

from schemas import facts as f
from schemas import reasons as because
from schemas.size import Size
from services.domain.others import used_by_others
from services.domain.text.facts import told
from services.executor.core.calls import HostSight, HostsSeen, HostTold, Look, Outcome, Phase, PoolSeen, Result, Sight
from services.executor.core.hidden_vms import HiddenVms
from tests.support.executor_bench import Bench, held

GIB = 1 << 20  # KiB, as hosts count memory


def test_hidden_is_what_was_listed_before_and_after_an_audit_that_lacks_it() -> None:
    vms = HiddenVms()
    assert not vms.listed([7], ticket=1, tick=2)
    assert vms.audited({}, ticket=2, tick=4) == [], "begun before it was listed: it proves nothing"
    assert vms.listed([7], ticket=5, tick=6), "twice in a row: an audit is wanted"
    assert vms.audited({}, ticket=7, tick=8) == [7]
    assert not vms.listed([7], ticket=8, tick=9)
    assert vms.hidden == {}, "begun before the audit had come"
    assert not vms.listed([7], ticket=9, tick=10)
    assert vms.hidden == {7: None}


def test_what_a_pool_shows_is_not_hidden_any_more_and_what_no_host_lists_is_forgotten() -> None:
    vms = HiddenVms()
    vms.listed([7, 8, 9], ticket=1, tick=2)
    assert vms.audited({9: None}, ticket=3, tick=4) == [7, 8]
    vms.listed([7, 8], ticket=5, tick=6)
    assert vms.audited({8: None}, ticket=7, tick=8) == []
    assert vms.hidden == {7: None}
    vms.forget([8, 9])
    assert vms.hidden == {}
    assert not vms.listed([7], ticket=9, tick=10), "as if it were new"


def test_one_that_ends_before_the_second_look_is_never_hidden() -> None:
    vms = HiddenVms()
    vms.listed([7], ticket=1, tick=2)
    assert vms.audited({}, ticket=3, tick=4) == [7]
    vms.forget([])
    vms.listed([7], ticket=5, tick=6)
    assert vms.hidden == {}


# ------------------------------------------------------------------------------------------------------------- in the core


def lists(bench: Bench, *vms: int, cores: int = 2) -> HostSight:
    """h0, with these VMs beside ours, which our user may not see: these cores and as many GiB together."""
    ours = tuple(vm for vm, host in bench.on.items() if host == "h0")
    mine = sum(room.size.cores for room in bench.core.ledger.state.rooms.values() if room.host == "h0")
    mine_mb = sum(room.size.memory_mb for room in bench.core.ledger.state.rooms.values() if room.host == "h0")
    asked = (100 * (mine + cores), mine_mb * 1024 + cores * GIB, 0)
    return msgspec.structs.replace(bench.host("h0"), vms=(*ours, *vms), asked=asked)


def look(bench: Bench, sight: HostSight) -> None:
    """One look at h0, which shows this."""
    bench.core.observe(HostTold(0), bench.now)
    [call] = [call for call in bench.calls() if isinstance(call, Look)]
    bench.core.observe(Result(call, Outcome.OK, found=sight), bench.now)


def audit(bench: Bench) -> None:
    """A pool of what our user may see: its own."""
    shown = [Sight(vm, phase) for vm, phase in bench.vms.items()]
    bench.core.observe(PoolSeen(bench.core.ticket(), shown, []), bench.now)


def found_out(bench: Bench, sight: HostSight) -> None:
    look(bench, sight)
    audit(bench)
    look(bench, sight)


def test_what_hidden_vms_take_is_not_offered_beside_ours_that_are_counted_already() -> None:
    bench = held("h0")
    bench.run("1", "h0")
    bench.written.clear()
    sight = lists(bench, 70, 71)
    look(bench, sight)
    assert bench.decide() == [], "it may be one of ours that has just ended: nothing is said yet"
    audit(bench)
    look(bench, sight)
    [described] = bench.decide()
    others = {"cores": 2, "memory_mb": 2048}
    assert described == f.HostDescribed(host="h0", one_id=0, cores=2, memory_mb=2048, cluster="default", others=others)
    assert bench.custody.state.hosts["h0"].others == Size(2, 2048)
    look(bench, bench.host("h0"))
    assert [(x.cores, x.others) for x in bench.decide() if isinstance(x, f.HostDescribed)] == [(4, {})]


def test_a_host_that_is_given_back_does_not_wait_for_hidden_vms() -> None:
    bench = held("h0")
    sight = lists(bench, 70)
    bench.write("scheduler.hpc", f.HostReleased(host="h0"))
    look(bench, sight)
    assert bench.decide() == []
    assert bench.core.audit_wanted, "it may be ours: an audit tells"
    audit(bench)
    look(bench, sight)
    assert [type(fact) for fact in bench.decide()] == [f.HostDescribed]
    look(bench, sight)
    assert bench.decide() == [f.HostCleared(host="h0")]
    assert not bench.core.audit_wanted


def test_a_new_host_on_which_hidden_vms_are_is_described_with_what_is_left() -> None:
    bench = Bench(hosts=1, audited=False)
    bench.core.take_over(bench.now)
    sight = lists(bench, 70)
    bench.core.observe(HostsSeen(bench.core.ticket(), [sight]), bench.now)
    assert bench.decide() == []
    audit(bench)
    bench.core.observe(HostsSeen(bench.core.ticket(), [sight]), bench.now)
    [described] = [fact for fact in bench.decide() if isinstance(fact, f.HostDescribed)]
    assert (described.cores, described.others) == (2, {"cores": 2, "memory_mb": 2048})


def test_a_host_that_hidden_vms_fill_is_set_apart() -> None:
    bench = held("h0")
    found_out(bench, lists(bench, 70, cores=4))
    apart = [fact.reason for fact in bench.decide() if isinstance(fact, f.HostQuarantined)]
    assert apart == ["used by others"]


def test_one_of_ours_that_has_just_ended_asks_for_no_audit() -> None:
    """A pool of hosts that was begun before its end was folded lists it once more."""
    bench = held("h0")
    [vm] = bench.run("1", "h0")
    stale = lists(bench, cores=0)
    bench.report("1")
    bench.vms[vm] = Phase.OVER
    del bench.on[vm]
    bench.settle()
    seen = [HostsSeen(bench.core.ticket(), [stale])] * 2
    bench.core.observe(seen[0], bench.now)
    assert not bench.core.audit_wanted
    bench.core.observe(seen[1], bench.now)
    assert bench.core.audit_wanted, "twice: it is there"


# --------------------------------------------------------------------------------------------------------------- in words


@pytest.mark.parametrize("count", [1, 9])
def test_why_names_the_hosts_and_what_is_taken(count: int) -> None:
    bench = Bench(hosts=count)
    for host in bench.custody.state.hosts.values():
        host.others = Size(2, 1024)
    [reason] = used_by_others(bench.custody.state.hosts.values())
    assert isinstance(reason, because.UsedByOthers)
    size = f"{2 * count} cores and {1024 * count} MiB"
    hosts = "host h0" if count == 1 else "hosts h0, h1, h2, h3, h4, h5, h6, h7 …"
    assert reason.sentence() == f"VMs of other users of OpenNebula hold {size} on {hosts}"
    assert "onehost show" in reason.remedy()
    bench.custody.state.hosts.clear()
    assert used_by_others(bench.custody.state.hosts.values()) == []


def test_an_event_says_what_others_hold() -> None:
    fact = {
        "host": "h0",
        "one_id": 0,
        "cores": 2,
        "memory_mb": 2048,
        "gpus": 0,
        "others": {"cores": 2, "memory_mb": 64},
    }
    said = "h0 offers 2 cores and 2048 MiB; VMs of other users hold 2 cores and 64 MiB"
    assert told("host.described", fact, "") == said
