"""The small parts of the executor by themselves, each rule at its boundary: times, tracks, probation, what a host is worth."""

from __future__ import annotations

import msgspec
import pytest

from schemas import facts as f
from schemas.config import Hosts
from schemas.size import Size
from services.domain.custody.custody import Custody
from services.domain.custody.state import Host
from services.executor.core.calls import HostSight, Phase, Sample
from services.executor.core.host_health import DISABLED, EXCLUDED, FULL, LATE, STEP_S, HostHealth
from services.executor.core.ledger import Room
from services.executor.core.observed_vm import RETRY_MAX_S, RETRY_S, ObservedVm
from services.executor.core.overcommit import MARGIN, Overcommit, cores_offered
from services.executor.core.probation import (
    FORGIVEN,
    NO_ROOM,
    REST_MAX_S,
    REST_S,
    STARTED,
    STARTS_FAILED,
    Probation,
)
from services.executor.core.timers import NEVER, Timers, backoff_s

MIB_KB = 1024


# ------------------------------------------------------------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("failures", "waits_s"), [(0, 0.0), (1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 5.0), (10**6, 5.0)]
)
def test_a_pause_doubles_with_each_failure_in_a_row_up_to_a_bound(failures: int, waits_s: float) -> None:
    assert backoff_s(failures, 0.5, 5.0) == waits_s


def test_a_pause_doubles_twenty_times_at_most() -> None:
    assert [backoff_s(n, 1.0, 1e9) for n in (20, 21, 22, 10**6)] == [2.0**19, 2.0**20, 2.0**20, 2.0**20]


def test_what_is_due_comes_out_once_in_the_order_of_time() -> None:
    timers = Timers()
    assert timers.next() == NEVER
    for when, name in ((3.0, "c"), (1.0, "a"), (2.0, "b"), (2.5, "d")):
        timers.set(when, name)
    assert timers.due(0.9) == []
    assert timers.due(2.0) == ["a", "b"]
    assert timers.next() == 2.5
    assert timers.due(9.0) == ["d", "c"]
    assert timers.due(9.0) == []


# ------------------------------------------------------------------------------------------------------------------ tracks


@pytest.mark.parametrize("asked", ["soft_at", "hard_at", "condemned"])
def test_whose_end_was_asked_in_any_way_is_asked_to_end(asked: str) -> None:
    track = ObservedVm("1/1/0", 7)
    assert not track.is_asked_to_end
    setattr(track, asked, "failed" if asked == "condemned" else 0.0)
    assert track.is_asked_to_end


@pytest.mark.parametrize(
    ("before", "host", "after"),
    [
        (Phase.RUNNING, "h1", Phase.ELSEWHERE),
        (Phase.RUNNING, "h0", Phase.RUNNING),
        (Phase.SAVED, "h1", Phase.SAVED),
        (Phase.MOVING, "h1", Phase.MOVING),
    ],
)
def test_the_next_attempt_begins_with_nothing_asked_of_its_vm(before: Phase, host: str, after: Phase) -> None:
    track = ObservedVm(
        "1/1/0", 7, "h0", before, deployed=True, refused="no", cold=True, saved_at=1.0, unknown_since=1.0
    )
    track.try_later(100.0, Timers())
    track.rebind("1/2/0", host)
    assert track == ObservedVm("1/2/0", 7, host, after)


def test_after_a_call_without_a_useful_answer_it_waits_longer_each_time() -> None:
    track, timers = ObservedVm("1/1/0", 7), Timers()
    for waits_s in (RETRY_S, 2 * RETRY_S, 4 * RETRY_S):
        track.try_later(100.0, timers)
        assert track.not_before == 100.0 + waits_s
        assert timers.due(NEVER) == ["1/1/0"]
    for _ in range(10):
        track.try_later(100.0, timers)
    assert track.not_before == 100.0 + RETRY_MAX_S


# --------------------------------------------------------------------------------------------------------------- probation

RULES = Hosts(quarantine_after=2, quarantine_s=100.0, quarantine_max_s=300.0)


def on_trial(reason: str | None = STARTS_FAILED, until: float = 50.0) -> Probation:
    """Host h0 has been in quarantine; VM 1/1/0 is open."""
    custody = Custody()
    custody.state.hosts["h0"] = Host(name="h0", quarantine=reason, quarantine_until=until)
    custody.state.vms["1/1/0"] = custody.state.vms["2/1/0"] = None  # type: ignore[assignment]
    return Probation(custody)


@pytest.mark.parametrize(
    ("name", "reason", "until", "so"),
    [
        ("h0", STARTS_FAILED, 50.0, True),
        ("h0", STARTS_FAILED, 0.5, True),
        ("h0", STARTS_FAILED, 0.0, False),  # it was let off
        ("h0", "disabled", 50.0, False),
        ("h0", None, 0.0, False),
        ("h9", STARTS_FAILED, 50.0, False),
    ],
)
def test_who_is_on_probation_is_said_by_the_journal(name: str, reason: str | None, until: float, so: bool) -> None:
    assert on_trial(reason, until).on_probation(name) is so


def test_on_probation_one_open_vm_is_tried_and_no_other() -> None:
    probation = on_trial()
    assert probation.may_start("h0", "1/1/0")
    probation.starts("h0", "1/1/0")
    assert [probation.may_start("h0", key) for key in ("1/1/0", "2/1/0")] == [True, False]
    assert probation.may_start("h1", "2/1/0")
    del probation.custody.state.vms["1/1/0"]
    assert probation.may_start("h0", "2/1/0")


def test_where_nobody_is_on_probation_all_start() -> None:
    probation = on_trial(None, 0.0)
    probation.starts("h0", "1/1/0")
    assert probation.trying == {}
    probation.trying["h0"] = "1/1/0"  # it was, until the journal let the host off
    assert probation.may_start("h0", "2/1/0")


@pytest.mark.parametrize("how", ["failed", "succeeded", "forgiven"])
def test_when_the_one_that_was_tried_has_ended_another_is_tried(how: str) -> None:
    probation = on_trial()
    probation.starts("h0", "1/1/0")
    if how == "failed":
        probation.failed("h0", 100.0, RULES)
    elif how == "succeeded":
        probation.succeeded("h0")
    else:
        probation.forgive("h0", 100.0)
    assert probation.may_start("h0", "2/1/0")


def test_after_a_failed_start_a_host_rests_longer_each_time_in_a_row() -> None:
    probation = on_trial(None, 0.0)
    assert probation.resting_until("h0") == 0.0
    rests = []
    for _ in range(7):
        probation.failed("h0", 100.0, Hosts(quarantine_after=99))
        rests.append(probation.resting_until("h0") - 100.0)
    assert rests == [REST_S, 2 * REST_S, 4 * REST_S, 8 * REST_S, 16 * REST_S, REST_MAX_S, REST_MAX_S]
    probation.succeeded("h0")
    assert probation.resting_until("h0") == 0.0
    probation.failed("h0", 100.0, RULES)
    assert probation.resting_until("h0") == 100.0 + REST_S
    probation.forgive("h0", 0.0)
    assert probation.resting_until("h0") == 0.0


def until(probation: Probation, name: str = "h0") -> float | None:
    fact = probation.fact(probation.custody.state.hosts[name])
    return None if fact is None else fact.until


def test_so_many_in_a_row_are_a_quarantine_and_each_quarantine_in_a_row_is_twice_as_long() -> None:
    probation = on_trial(None, 0.0)
    probation.failed("h0", 100.0, RULES)
    assert until(probation) is None
    probation.failed("h0", 100.0, RULES)
    assert probation.fact(probation.custody.state.hosts["h0"]) == f.HostQuarantined(
        host="h0", reason=STARTS_FAILED, until=200.0
    )
    assert until(probation) == 200.0, "until the journal says it"
    lengths = []
    host = probation.custody.state.hosts["h0"]
    for now in (1000.0, 2000.0, 3000.0):
        host.quarantine, host.quarantine_until = STARTS_FAILED, until(probation) or 0.0
        assert until(probation) is None
        probation.failed("h0", now, RULES)
        lengths.append((until(probation) or 0.0) - now)
    assert lengths == [200.0, 300.0, 300.0]


def test_a_new_leader_goes_on_where_the_journal_is() -> None:
    probation = on_trial()
    probation.failed("h0", 100.0, Hosts(quarantine_after=9, quarantine_s=100.0, quarantine_max_s=300.0))
    assert until(probation) == 300.0


@pytest.mark.parametrize("on_probation", [False, True])
def test_what_found_no_room_is_no_reason_for_a_quarantine(on_probation: bool) -> None:
    probation = on_trial(*((STARTS_FAILED, 50.0) if on_probation else (None, 0.0)))
    for _ in range(5):
        probation.failed("h0", 100.0, RULES, f"VM {NO_ROOM} in host [0]")
    assert until(probation) is None


def test_a_success_frees_only_who_is_on_probation() -> None:
    probation = on_trial()
    assert probation.succeeded("h0")
    assert probation.fact(probation.custody.state.hosts["h0"]) == f.HostQuarantined(
        host="h0", reason=STARTED, until=0.0
    )
    assert not on_trial(None, 0.0).succeeded("h0")
    host = probation.custody.state.hosts["h0"]
    host.quarantine_until = 0.0
    assert probation.fact(host) is None
    host.quarantine_until = 500.0  # anew, later: that success was another time
    assert probation.fact(host) is None


@pytest.mark.parametrize("journaled", [False, True])
@pytest.mark.parametrize(("began", "forgiven"), [(99.0, False), (100.0, True), (101.0, True)])
def test_what_the_storm_did_to_a_host_is_taken_back_and_nothing_from_before(
    began: float, forgiven: bool, journaled: bool
) -> None:
    probation = on_trial(None, 0.0)
    probation.failed("h0", 98.0, RULES)
    probation.failed("h0", began, RULES)
    host = probation.custody.state.hosts["h0"]
    if journaled:
        host.quarantine, host.quarantine_until = STARTS_FAILED, began + 100.0
    probation.forgive("h0", 100.0)
    fact = probation.fact(host)
    if forgiven:
        assert fact == (f.HostQuarantined(host="h0", reason=FORGIVEN, until=0.0) if journaled else None)
    else:
        assert (fact is None) is journaled


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_quarantine_that_was_taken_back_is_none_in_a_row(forgotten: bool) -> None:
    probation = on_trial(None, 0.0)
    for _ in range(2):
        probation.failed("h0", 100.0, RULES)
    host = probation.custody.state.hosts["h0"]
    if forgotten:
        probation.forgive("h0", 100.0)
    else:
        host.quarantine, host.quarantine_until = STARTS_FAILED, 200.0
    for _ in range(2 if forgotten else 1):
        probation.failed("h0", 300.0, RULES)
    assert until(probation) == (400.0 if forgotten else 500.0)


def test_when_the_first_quarantine_in_a_row_began_is_what_counts_for_the_storm() -> None:
    probation = on_trial(None, 0.0)
    for _ in range(2):
        probation.failed("h0", 50.0, RULES)
    host = probation.custody.state.hosts["h0"]
    host.quarantine, host.quarantine_until = STARTS_FAILED, 150.0
    probation.failed("h0", 160.0, RULES)
    probation.forgive("h0", 100.0)
    assert until(probation) == 360.0
    probation.succeeded("h0")
    host.quarantine_until = 400.0
    probation.forgive("h0", 10.0)  # that was before the success
    assert probation.over == {"h0": STARTED}


# --------------------------------------------------------------------------------------------------------------- appraisal


def sight(**what: object) -> HostSight:
    plain = HostSight("h0", 0, True, "", Size(4, 4096), "default", {}, (), max_cpu=400)
    return msgspec.structs.replace(plain, **what)


class Judge:
    def __init__(self, **rules: object) -> None:
        self.rules, self.health = Hosts(**rules), HostHealth()  # type: ignore[arg-type]
        self.rooms: dict[int, Room] = {}
        self.stamp = 0

    def sampled(self, now: float, used_cpu: int = 0) -> None:
        self.stamp += 1
        self.health.sampled("h0", Sample(self.stamp, used_cpu), now)

    def of(
        self, now: float, before: tuple[int, int] | None = None, was_late: bool = False, **what: object
    ) -> HostSight:
        return self.health.of(sight(**what), self.rules, now, self.rooms.get, before, was_late)

    def look(self, begin: float, seconds: float) -> HostSight:
        """Looks in short steps; the last one."""
        seen = self.of(begin)
        for part in range(1, 101):
            seen = self.of(begin + seconds * part / 100)
        return seen


@pytest.mark.parametrize(
    ("silent_s", "apart", "bad"),
    [(99.0, "", ""), (100.0, LATE, ""), (199.0, LATE, ""), (200.0, LATE, LATE), (250.0, LATE, LATE)],
)
def test_a_host_is_late_and_then_lost_after_so_many_seconds_without_a_sample(
    silent_s: float, apart: str, bad: str
) -> None:
    judge = Judge(monitor_late_s=100.0, monitor_lost_s=200.0)
    judge.sampled(1000.0)
    seen = judge.look(1000.0, silent_s)
    assert (seen.apart, seen.bad, seen.usable) == (apart, bad, not apart)
    judge.sampled(1000.0 + silent_s)
    seen = judge.of(1000.0 + silent_s)
    assert (seen.apart, seen.bad, seen.usable) == ("", "", True)
    assert judge.look(1000.0 + silent_s, 99.0).apart == ""


def test_lost_may_be_asked_for_alone_and_late_alone() -> None:
    for rules, apart, bad in ((Hosts(monitor_late_s=0.0), "", LATE), (Hosts(monitor_lost_s=0.0), LATE, "")):
        judge = Judge()
        judge.rules = rules
        judge.sampled(1000.0)
        seen = judge.look(1000.0, 3000.0)
        assert (seen.apart, seen.bad, seen.usable) == (apart, bad, False)


def test_what_opennebula_says_is_bad_stays_so_in_its_words() -> None:
    judge = Judge(monitor_lost_s=1.0)
    judge.sampled(1000.0)
    judge.look(1000.0, 10.0)
    assert judge.of(1010.0, bad="error", usable=False).bad == "error"


def test_a_look_that_comes_late_or_from_before_makes_no_host_late() -> None:
    judge = Judge(monitor_late_s=2 * STEP_S)
    judge.sampled(1000.0)
    judge.of(1000.0)
    assert judge.of(9000.0).apart == ""  # counts as one step
    assert judge.of(2000.0).apart == ""  # the clock was set back: none
    assert judge.of(2000.0 + STEP_S - 1.0).apart == ""
    assert judge.of(2000.0 + STEP_S).apart == LATE


def test_the_same_sample_again_is_no_news() -> None:
    judge = Judge(monitor_late_s=100.0)
    judge.sampled(1000.0)
    judge.look(1000.0, 50.0)
    judge.health.sampled("h0", Sample(1, 0), 1050.0)
    assert judge.look(1050.0, 50.0).apart == LATE


def test_a_host_that_was_late_is_believed_with_the_second_sample_that_a_leader_finds() -> None:
    judge = Judge(monitor_late_s=100.0)
    assert judge.of(1000.0, was_late=True).apart == "", "never sampled: OpenNebula says itself if it is in error"
    judge.sampled(1000.0)
    assert judge.of(1000.0, was_late=True).apart == LATE
    assert judge.of(1000.0).apart == ""
    judge.sampled(1001.0)
    assert judge.of(1001.0, was_late=True).apart == ""


def test_one_that_is_gone_is_forgotten() -> None:
    judge = Judge(monitor_late_s=100.0)
    judge.sampled(1000.0)
    judge.look(1000.0, 150.0)
    judge.health.forget("h0")
    judge.health.forget("h0")
    assert judge.of(1150.0).apart == ""


@pytest.mark.parametrize(
    ("cluster", "apart", "why"),
    [("default", "", ""), ("default", DISABLED, DISABLED), ("other", "", EXCLUDED), ("other", DISABLED, EXCLUDED)],
)
def test_not_one_of_ours_is_the_strongest_reason(cluster: str, apart: str, why: str) -> None:
    judge = Judge(clusters=("default", "more"))
    seen = judge.of(1000.0, cluster=cluster, apart=apart, usable=not apart)
    assert (seen.apart, seen.usable) == (why, not why)


def test_without_a_rule_hosts_of_all_clusters_are_ours_and_with_a_constraint_those_that_satisfy_it() -> None:
    assert Judge().of(1000.0, cluster="any").usable
    judge = Judge(use="rack=b")
    assert [judge.of(1000.0, labels={"rack": rack}).apart for rack in "ab"] == [EXCLUDED, ""]


@pytest.mark.parametrize(
    ("cpu", "memory_kb", "offers"),
    [(0, 0, (4, 4096)), (100, 1024 * MIB_KB, (3, 3072)), (101, 1024 * MIB_KB + 1, (2, 3071)), (399, 0, (0, 4096)),
     (900, 9000 * MIB_KB, (0, 0))],
)  # fmt: skip
def test_what_others_use_is_not_offered_rounded_up(cpu: int, memory_kb: int, offers: tuple[int, int]) -> None:
    seen = Judge().of(1000.0, asked=Size(cpu, memory_kb))
    assert seen.size == Size(*offers)
    assert seen.apart == (FULL if 0 in offers else "")


def test_what_ours_use_is_not_the_others_nor_is_less_than_nothing() -> None:
    judge = Judge()
    judge.rooms = {7: Room(Size(2, 512)), 8: Room(Size(0, 0))}
    seen = judge.of(1000.0, vms=(7, 8), asked=Size(300, 1024 * MIB_KB))
    assert seen.size == Size(3, 3584)
    seen = judge.of(1000.0, vms=(7,), asked=Size(100, 1))  # HOST_SHARE is behind
    assert seen.size == Size(4, 4096)


def test_while_it_is_not_known_whose_a_vm_is_the_offer_stays_as_it_was() -> None:
    judge = Judge()
    seen = judge.of(1000.0, vms=(7,), asked=Size(100, 0))
    assert (seen.size, seen.apart) == (Size(), "")
    seen = judge.of(1000.0, before=Size(3, 99), vms=(7,), asked=Size(100, 0))
    assert seen.size == Size(3, 99)
    judge.of(1000.0, asked=Size(100, 0))
    seen = judge.of(1000.0, before=Size(1, 1), vms=(7,), asked=Size(400, 0))
    assert seen.size == Size(3, 4096)


def test_a_host_without_cores_of_its_own_is_not_used_by_others() -> None:
    seen = Judge().of(1000.0, size=Size(0, 4096))
    assert (seen.apart, seen.usable) == ("", True)
    assert Judge().of(1000.0, size=Size(4, 1), asked=Size(0, 1)).apart == FULL


@pytest.mark.parametrize(
    ("rules", "max_cpu", "used", "cores"),
    [
        ({"cpu_overcommit": 2.0}, 800, 100, 8),
        ({"cpu_overcommit": 2.0}, 800, 240, 4),  # at the threshold
        ({"cpu_overcommit": 2.0}, 600, 100, 6),
        ({"cpu_overcommit": 2.0}, 699, 100, 6),
        ({"cpu_overcommit": 2.0}, 400, 100, 4),
        ({"cpu_overcommit": 2.0, "overcommit_use": "rack=b"}, 800, 100, 4),
        ({"cpu_overcommit": 1.0}, 800, 100, 4),
    ],
)
def test_more_cores_are_offered_as_far_as_opennebula_lets_them_be_used(
    rules: dict[str, object], max_cpu: int, used: int, cores: int
) -> None:
    judge = Judge(**rules)
    assert judge.of(1000.0, max_cpu=max_cpu).size.cores == 4, "as long as nobody knows what is used"
    judge.sampled(1000.0, used)
    assert judge.of(1000.0, max_cpu=max_cpu).size.cores == cores


def test_a_host_of_one_core_that_has_stopped_begins_again_a_margin_below_too() -> None:
    rule = Overcommit(ratio=2.0, below=0.6)
    assert cores_offered(1, 0.59, 0, rule) == 2
    assert cores_offered(1, 0.59, 1, rule) == 1
    assert cores_offered(1, 0.6 - MARGIN - 0.01, 1, rule) == 2


def test_a_host_of_one_core_is_overcommitted_too() -> None:
    judge = Judge(cpu_overcommit=2.0)
    judge.sampled(1000.0, 10)
    assert judge.of(1000.0, size=Size(1, 4096), max_cpu=200).size.cores == 2
