"""When starts that fail are the site's fault, and what is tried meanwhile (`executor.core.site_fault`), at each boundary.

The stories with a scheduler beside it are in `test_site_storm.py`.
"""

from __future__ import annotations

import pytest

from schemas import facts as f
from schemas.config import Hosts
from schemas.facts import Fact
from schemas.ids import instance_id
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.meta import Meta
from services.executor.core.ledger import Ledger
from services.executor.core.ledger_state import PAUSED
from services.executor.core.probation import NO_ROOM
from services.executor.core.site_fault import (
    FADES_S,
    SUCCEEDED,
    TRY_FIRST_S,
    TRY_MAX_S,
    TRY_S,
    UNWANTED,
    WINDOW_S,
    SiteFault,
)
from services.executor.core.timers import NEVER, Timers
from tests.support.executor_bench import held

WORDS = "no space left"


class Site:
    """Starts end as the test says; `now` is the time of each."""

    def __init__(self, hosts: int = 6) -> None:
        self.now = 100.0
        self.timers = Timers()
        self.ledger = Ledger(Custody())
        for n in range(hosts):
            self.fold(f.HostDescribed(host=f"h{n}", one_id=n, cores=4, memory_mb=64, cluster="default"))
        self.fault = SiteFault(self.ledger, self.timers)

    def fold(self, fact: Fact) -> None:
        void = fold_fact(self.ledger.custody, fact, 1, 0, "executor", self.now)
        self.ledger.apply(fact, Meta(position=1, index=0, writer="executor", at=self.now, void=void))

    def fails(self, host: int, job: str | None = None) -> bool:
        return self.fault.failed(f"h{host}", f"{job or host + 1}/1/0", WORDS, self.now)

    def succeeds(self, host: int, job: str | None = None) -> None:
        self.fault.succeeded(f"h{host}", f"{job or host + 1}/1/0", self.now)

    def starts(self, host: int, job: str) -> None:
        self.fault.starts(f"h{host}", f"{job}/1/0", self.now)

    def settle(self, woken: bool = False, waiting: bool = False) -> None:
        self.fault.settle(self.now, woken=woken, waiting=waiting)

    def write(self) -> list[Fact]:
        """What follows is written and folded."""
        facts = self.fault.facts()
        for fact in facts:
            self.fold(fact)
        return facts

    def may_start(self, after_s: float = 0.0) -> bool:
        return self.fault.may_start(self.now + after_s)


def paused(hosts: int = 6) -> Site:
    """Starts are paused since `now`, in the journal too."""
    site = Site(hosts)
    for host in range(3):
        site.fails(host)
    site.write()
    site.settle()
    site.timers.due(NEVER)
    return site


# ------------------------------------------------------------------------------------------------------------------ rule 1


@pytest.mark.parametrize(("hosts", "failed", "is_site"), [(6, 2, False), (6, 3, True), (3, 2, False), (3, 3, True),
                                                          (2, 1, False), (2, 2, True), (1, 1, False)])  # fmt: skip
def test_starts_must_fail_on_three_hosts_or_on_two_if_there_are_no_more(hosts: int, failed: int, is_site: bool) -> None:
    site = Site(hosts)
    assert [site.fails(host) for host in range(failed)] == [False] * (failed - 1) + [is_site]
    assert site.fault.on is is_site


@pytest.mark.parametrize(
    ("well", "failed", "is_site"), [(1, 3, True), (2, 3, False), (2, 4, False), (1, 4, True), (2, 6, True)]
)
def test_they_must_fail_on_three_of_four_hosts_on_which_one_has_ended(well: int, failed: int, is_site: bool) -> None:
    site = Site(8)
    for host in range(well):
        site.succeeds(host)
    assert [site.fails(well + host) for host in range(failed)][-1] is is_site


@pytest.mark.parametrize(
    ("on", "is_site"), [([], True), ([3], True), ([3, 4], False), ([3, 3, 3], True), ([0, 1, 3], True)]
)
def test_a_host_where_one_is_under_way_counts_once_and_not_if_one_has_ended_there(on: list[int], is_site: bool) -> None:
    site = Site()
    for number, host in enumerate(on):
        site.starts(host, f"{20 + number}")
    assert [site.fails(host) for host in range(3)][-1] is is_site


@pytest.mark.parametrize("how", ["it came up", "it failed", "it came to nothing", "it was long ago"])
def test_what_is_no_longer_under_way_does_not_count(how: str) -> None:
    site = Site(8)
    site.starts(3, "20")
    site.starts(4, "21")
    if how == "it came up":
        site.succeeds(0, "20")  # wherever that was told of
        site.succeeds(0, "21")
    elif how == "it failed":
        site.fails(0, "20")
        site.fails(0, "21")
    elif how == "it came to nothing":
        site.fault.came_to_nothing("20/1/0", site.now)
        site.fault.came_to_nothing("21/1/0", site.now)
    else:
        site.now += WINDOW_S
    assert [site.fails(host) for host in range(3)] == [False, False, True]


def test_what_began_within_the_window_is_under_way() -> None:
    site = Site(8)
    site.starts(3, "20")
    site.starts(4, "21")
    site.now += WINDOW_S - 0.1
    assert [site.fails(host) for host in range(3)][-1] is False


def test_of_each_host_the_last_start_counts() -> None:
    site = Site()
    site.fails(0)
    site.fails(1)
    site.succeeds(1)
    assert not site.fails(2)
    assert site.fault.hosts() == ["h0", "h2"]
    site.succeeds(3)
    site.succeeds(4)
    assert not site.fails(3, "4"), "of five it failed on three"
    assert site.fails(4)


@pytest.mark.parametrize(("apart_s", "is_site"), [(WINDOW_S - 0.1, True), (WINDOW_S, False)])
def test_they_must_fail_within_the_window(apart_s: float, is_site: bool) -> None:
    site = Site()
    site.fails(0)
    site.now += apart_s
    site.fails(1)
    assert site.fails(2) is is_site


@pytest.mark.parametrize(("apart_s", "is_site"), [(WINDOW_S - 0.1, False), (WINDOW_S, True)])
def test_what_succeeded_before_the_window_does_not_speak_for_the_site(apart_s: float, is_site: bool) -> None:
    site = Site()
    site.succeeds(4)
    site.succeeds(5)
    site.now += apart_s
    assert [site.fails(host) for host in range(3)][-1] is is_site


@pytest.mark.parametrize(
    ("units", "is_site"),
    [
        (("1", "1", "1"), False),
        (("1", "1", "2"), True),
        (("7_1", "7_2", "7_3"), False),
        (("7_1", "7_2", "8_3"), True),
        ((instance_id("web", 1), instance_id("web", 2), instance_id("web", 3)), False),
        ((instance_id("web", 1), instance_id("shop", 1), instance_id("web", 3)), True),
    ],
)
def test_they_must_be_of_two_jobs_and_an_array_is_one_as_a_department_of_instances_is(
    units: tuple[str, ...], is_site: bool
) -> None:
    site = Site()
    assert [site.fails(host, unit) for host, unit in enumerate(units)][-1] is is_site


def test_the_journal_is_told_since_when_where_and_why_until_it_says_so() -> None:
    site = Site()
    site.succeeds(5)
    for host in range(3):
        site.now += 1.0
        site.fails(host)
    told = f.StartsPaused(since=101.0, failed=3, tried=4, why=WORDS)
    assert site.fault.facts() == site.fault.facts() == [told]
    assert not site.may_start(1000.0), "not before the journal says it"
    assert site.write() == [told]
    assert site.fault.facts() == []


def test_what_fails_while_it_lasts_is_the_sites_fault_whatever_it_is() -> None:
    site = paused()
    assert site.fails(5, "1")
    site.now += 10 * WINDOW_S
    assert site.fails(4, "1")
    assert site.fault.facts() == []


# ------------------------------------------------------------------------------------------------------------------ rule 3


def test_the_first_try_is_made_a_little_later_and_one_at_a_time() -> None:
    site = Site()
    for host in range(3):
        site.fails(host)
    assert site.timers.next() == site.now + TRY_FIRST_S
    site.write()
    site.settle()
    assert not site.may_start(TRY_FIRST_S - 0.01)
    assert site.may_start(TRY_FIRST_S)
    site.now += TRY_FIRST_S
    site.starts(0, "1")
    assert not site.may_start(TRY_S - 0.01)
    assert site.may_start(TRY_S), "one that does not come up keeps nobody from the next try"
    assert site.timers.next() <= site.now + TRY_S


def test_each_try_that_fails_makes_the_next_one_later_up_to_a_bound() -> None:
    site, waits = paused(), list[float]()
    for number in range(6):
        site.starts(number % 3, "9")
        site.timers.due(NEVER)
        site.fails(number % 3, "9")
        waits.append(site.timers.next() - site.now)
        assert not site.may_start(waits[-1] - 0.01)
        site.now += waits[-1]
        assert site.may_start()
    assert waits == pytest.approx([1.0, 2.0, 4.0, TRY_MAX_S, TRY_MAX_S, TRY_MAX_S])


def test_a_try_of_which_nothing_came_is_one_too() -> None:
    site = paused()
    site.now += 1.0
    site.starts(0, "9")
    site.fault.came_to_nothing("9/1/0", site.now)
    assert not site.may_start(2 * TRY_FIRST_S - 0.01)
    assert site.may_start(2 * TRY_FIRST_S)


def test_what_was_not_tried_neither_delays_nor_frees_the_next_try() -> None:
    site = paused()
    site.now += 1.0
    site.starts(0, "9")
    site.fails(1, "8")
    site.fault.came_to_nothing("8/1/0", site.now)
    assert not site.may_start(TRY_S - 0.01)
    site.succeeds(1, "8")
    assert site.fault.facts() == []


def test_one_that_was_tried_and_comes_up_ends_it_and_what_failed_is_forgotten() -> None:
    site = paused()
    site.now += 1.0
    site.starts(0, "9")
    site.now += TRY_S
    site.starts(1, "8")
    site.succeeds(0, "9")  # the one before, late
    assert site.write() == [f.StartsResumed(why=SUCCEEDED)]
    site.settle()
    assert site.may_start()
    assert site.fault.facts() == []
    assert site.fault.hosts() == []
    assert [site.fails(host) for host in range(3)] == [False, False, True], "counted anew"
    site.write()
    site.settle()
    site.now += TRY_FIRST_S
    assert site.may_start()
    site.succeeds(2, "8")  # tried in the pause before
    assert site.fault.facts() == []


def test_the_second_pause_begins_with_short_waits_again() -> None:
    site = paused()
    for _ in range(4):
        site.now += TRY_MAX_S
        site.starts(0, "9")
        site.fails(0, "9")
    site.now += TRY_MAX_S
    site.starts(0, "9")
    site.succeeds(0, "9")
    site.write()
    site.settle()
    for host in (1, 2, 3):
        site.fails(host)
    site.write()
    site.settle()
    assert site.may_start(TRY_FIRST_S)
    site.now += TRY_FIRST_S
    site.starts(0, "9")
    site.fails(0, "9")
    assert site.may_start(2 * TRY_FIRST_S)


def test_a_success_while_nothing_is_paused_says_nothing() -> None:
    site = Site()
    site.starts(0, "1")
    site.succeeds(0, "1")
    site.settle()
    assert site.fault.facts() == []
    assert site.may_start()
    assert site.timers.next() == NEVER


@pytest.mark.parametrize(("after_s", "wakes_s"), [(0.1, 0.4), (TRY_FIRST_S, 0.0), (5.0, 0.0)])
def test_if_the_one_that_is_tried_ends_the_next_may_be_tried_when_its_time_has_come(
    after_s: float, wakes_s: float
) -> None:
    site = paused()
    site.fault.starts("h0", "9/1/0", site.now)  # no VM of the journal
    site.timers.due(NEVER)
    site.now += after_s
    site.settle()
    assert site.timers.next() == pytest.approx(site.now + wakes_s)
    assert site.may_start(wakes_s)
    assert site.may_start(wakes_s - 0.05) is (after_s > TRY_FIRST_S)


# ------------------------------------------------------------------------------------------------------------------ rule 4


@pytest.mark.parametrize("waiting", [False, True])
def test_it_ends_if_no_start_is_wanted_for_long_enough(waiting: bool) -> None:
    site = paused()
    began = site.now
    site.now = began + FADES_S - 0.01
    site.settle(waiting=waiting)
    assert site.fault.facts() == []
    site.now = began + FADES_S
    site.settle()
    assert site.fault.facts() == ([] if waiting else [f.StartsResumed(why=UNWANTED)])
    site.now += FADES_S
    site.settle()
    assert site.fault.facts() == [f.StartsResumed(why=UNWANTED)]


def test_it_is_looked_at_again_when_it_may_end_so() -> None:
    site = Site()
    for host in range(3):
        site.fails(host)
    site.settle()
    assert site.timers.due(site.now + FADES_S) == [PAUSED] * 2, "to try, and to end"
    site.write()
    site.now += 10.0
    site.settle(woken=True, waiting=True)
    assert site.timers.next() == site.now + FADES_S
    site.now += 1.0
    site.settle(waiting=True)
    assert site.timers.due(NEVER) == [PAUSED], "not at each look"


def test_why_it_ends_is_not_said_otherwise_a_moment_later() -> None:
    site = paused()
    site.starts(0, "9")
    site.succeeds(0, "9")
    site.now += 2 * FADES_S
    site.settle()
    site.now += 2 * FADES_S
    site.settle()
    assert site.fault.facts() == [f.StartsResumed(why=SUCCEEDED)]


def test_a_new_leader_tries_at_once_and_waits_as_long_for_somebody_who_wants_a_start() -> None:
    site = paused()
    site.now += 1000.0
    site.fault, site.timers = SiteFault(site.ledger, site.timers), site.timers
    assert site.fault.on
    assert site.may_start()
    site.settle()
    assert site.timers.next() == site.now + FADES_S
    site.now += FADES_S - 0.01
    site.settle()
    assert site.fault.facts() == []
    site.starts(0, "9")
    site.fails(0, "9")
    assert site.may_start(2 * TRY_FIRST_S)
    assert not site.may_start(2 * TRY_FIRST_S - 0.01)


# ------------------------------------------------------------------------------------------------------------------ rule 5


def test_who_found_no_room_says_nothing_of_the_site_and_rests() -> None:
    bench = held("h0", "h1", "h2")
    desk = bench.core.host_reconciler
    bench.configure(quarantine_after=1)
    for n in range(3):
        assert not desk.start_failed(f"h{n}", f"{n + 1}/1/0", bench.now, f"VM {NO_ROOM} in host")
        assert desk.probation.resting_until(f"h{n}") > bench.now
    assert not desk.site.on
    assert desk.rules == Hosts(quarantine_after=1)
    assert bench.decide() == []


def test_what_failed_in_a_pause_that_was_short_counts_no_more() -> None:
    site = paused()
    site.now += TRY_FIRST_S
    site.starts(3, "9")
    site.succeeds(3, "9")
    site.write()
    site.settle()
    assert [site.fails(host) for host in (3, 4)] == [False, False]
    assert site.fault.hosts() == ["h3", "h4"]


def test_a_pause_that_begins_before_the_end_of_the_last_one_was_looked_at_begins_anew() -> None:
    site = paused()
    site.now += TRY_FIRST_S
    site.starts(0, "9")
    site.succeeds(0, "9")
    site.write()
    site.fails(4, "9")
    assert site.fails(3) or site.fails(0)
    assert [type(fact) for fact in site.write()] == [f.StartsPaused]
    assert site.fault.facts() == []
    site.succeeds(0, "9")  # tried in the pause before
    assert site.fault.facts() == []


def test_while_somebody_is_tried_a_start_is_wanted() -> None:
    bench = held()
    [vm] = bench.run("1", "h0")
    assert vm == 0
    site = bench.core.host_reconciler.site
    bench.write("executor", f.StartsPaused(since=bench.now, failed=3, tried=3, why="x"))
    site.settle(bench.now, woken=False, waiting=False)
    site.starts("h0", "1/1/0", bench.now)
    bench.now += FADES_S
    site.settle(bench.now, woken=False, waiting=False)
    assert site.facts() == []
