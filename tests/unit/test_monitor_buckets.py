"""Sums by hour and by day, at the edges: which bucket holds a moment, how a span is cut, what grows old or loses its name."""

from __future__ import annotations

import pytest

from services.monitor.core import buckets
from services.monitor.core.buckets import DAY_MS, DAYS, HOUR_MS, HOURLY_DAYS, OTHERS, Buckets, Row, Span, key
from services.monitor.core.goodput import FAULT, PREEMPTED, Entry, Goodput, State

TODAY = 20_000
NOON = TODAY * DAY_MS + 12 * HOUR_MS
HOURLY = (TODAY - HOURLY_DAYS + 1) * DAY_MS  # the first day that is kept by the hour
OLDEST = (TODAY - DAYS + 1) * DAY_MS  # the first that is kept
ANN = key("hpc", "ann", "", "")


def book() -> Buckets:
    return Buckets(today=TODAY)


@pytest.mark.parametrize(
    ("at", "begin"),
    [
        (NOON + 1, NOON),
        (NOON - 1, NOON - HOUR_MS),
        (HOURLY, HOURLY),
        (HOURLY + HOUR_MS + 1, HOURLY + HOUR_MS),
        (HOURLY - 1, HOURLY - DAY_MS),
        (OLDEST, OLDEST),
        (OLDEST + DAY_MS - 1, OLDEST),
        (OLDEST - 1, -1),
        (0, -1),
    ],
)
def test_the_bucket_of_a_moment(at: int, begin: int) -> None:
    assert book().begin(at) == begin


def test_the_length_of_a_bucket() -> None:
    assert [book().length(begin) for begin in (HOURLY, HOURLY - DAY_MS, HOURLY + 23 * HOUR_MS)] == [
        HOUR_MS,
        DAY_MS,
        HOUR_MS,
    ]


@pytest.mark.parametrize(
    ("since", "until", "pieces"),
    [
        (NOON, NOON, []),
        (NOON - 5, NOON + 7, [(NOON - HOUR_MS, 5), (NOON, 7)]),
        (HOURLY - 3, HOURLY + HOUR_MS, [(HOURLY - DAY_MS, 3), (HOURLY, HOUR_MS)]),
        (OLDEST - 9, OLDEST + 4, [(-1, 9), (OLDEST, 4)]),
        (OLDEST, OLDEST + 4, [(OLDEST, 4)]),
        (OLDEST - 9, OLDEST - 2, [(-1, 7)]),
    ],
)
def test_a_span_is_cut_at_the_edges_of_buckets(since: int, until: int, pieces: list[tuple[int, int]]) -> None:
    assert list(book().pieces(since, until)) == pieces


def test_what_is_too_old_goes_to_the_departments_totals_and_to_no_row() -> None:
    mine = book()
    mine.span(-1, "hpc").used += 5
    mine.row(-1, ANN).used += 5
    assert (mine.before["hpc"].used, mine.kept, mine.rows) == (5, {}, 0)
    mine.span(0, "hpc").used += 7  # the bucket of 1970 is one
    assert (mine.before["hpc"].used, mine.kept[0].spans["hpc"].used) == (5, 7)
    assert mine.used() == {"hpc": 12}


def test_a_day_that_turns_makes_old_hours_a_day_and_the_oldest_day_a_total() -> None:
    mine = book()
    for begin in (OLDEST, HOURLY + HOUR_MS, HOURLY, NOON):  # in no order
        mine.row(begin, ANN).used += 10
        mine.span(begin, "hpc").used += 10
    for same in (NOON, NOON - DAY_MS):  # the same day, or one before: nothing is turned
        mine.turn(same)
        assert (mine.today, len(mine.kept), mine.rows) == (TODAY, 4, 4)
    mine.turn(NOON + DAY_MS)
    assert {begin: bucket.rows[ANN].used for begin, bucket in mine.kept.items()} == {HOURLY: 20, NOON: 10}
    assert (mine.today, mine.rows, mine.before["hpc"].used) == (TODAY + 1, 2, 10)
    assert mine.used() == {"hpc": 40}


def test_the_first_days_of_all_are_kept_by_their_begin() -> None:
    mine = Buckets(today=0)
    mine.row(mine.begin(HOUR_MS), ANN).used += 3
    mine.turn(HOURLY_DAYS * DAY_MS)
    assert {begin: bucket.rows[ANN].used for begin, bucket in mine.kept.items()} == {0: 3}


def test_what_was_measured_elsewhere_is_added_field_by_field() -> None:
    mine, more = book(), book()
    for some in (mine, more):
        some.row(NOON, ANN).ended["completed"] = 2
        some.span(NOON, "hpc").lost_to["web"] = 4
        some.bucket(NOON).site.free += 6
        some.before["hpc"] = Span(held=8)
    more.row(NOON + HOUR_MS, ANN).lost = 1
    mine.absorb(more)
    one = mine.kept[NOON]
    assert (one.rows[ANN].ended, one.spans["hpc"].lost_to, one.site.free) == ({"completed": 4}, {"web": 8}, 12)
    assert (mine.before["hpc"].held, mine.rows) == (16, 2)


@pytest.mark.parametrize("field", ["lost", "failed"])
def test_what_is_taken_back_is_taken_from_a_row_that_has_its_name_or_from_nobodys(field: str) -> None:
    mine, more = book(), book()
    setattr(more.row(NOON, ANN), field, -5)
    mine.absorb(more)
    assert [getattr(row, field) for row in mine.kept[NOON].rows.values()] == [-5]
    assert list(mine.kept[NOON].rows) == [key("hpc", OTHERS, "", "")]
    named = book()
    setattr(named.row(NOON, ANN), field, 9)
    named.absorb(more)
    assert {name: getattr(row, field) for name, row in named.kept[NOON].rows.items()} == {ANN: 4}


def test_beyond_so_many_rows_the_oldest_lose_their_names_until_there_is_room_for_a_tenth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(buckets, "ROWS_MAX", 10)
    mine = book()
    begins = [NOON, NOON - 2 * HOUR_MS, NOON - 3 * HOUR_MS, NOON - HOUR_MS]
    for n, begin in enumerate(begins):
        for user in range(2 if n == 2 else 3):
            if mine.rows < 10:
                mine.row(begin, key("hpc", f"u{user}", "", "")).used += 1
    assert (mine.rows, [len(mine.kept[begin].rows) for begin in begins]) == (10, [3, 3, 2, 2])
    mine.row(NOON, key("hpc", "u0", "", "")).used += 1  # known: no row is made
    assert mine.rows == 10
    mine.row(NOON, key("hpc", "new", "", "")).used += 1
    named = {begin: sorted(row.split("/")[1] for row in mine.kept[begin].rows) for begin in sorted(begins)}
    assert list(named.values()) == [[OTHERS], ["u0", "u1", "u2"], ["u0", "u1"], ["new", "u0", "u1", "u2"]]
    assert mine.rows == 10
    assert sum(row.used for bucket in mine.kept.values() for row in bucket.rows.values()) == 12


def test_where_no_name_is_left_to_give_up_what_is_new_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "ROWS_MAX", 2)
    mine = book()
    for dept in ("hpc", "bio", "astro"):
        for user in ("ann", "bob"):
            mine.row(NOON, key(dept, user, "", "")).used += 1
    assert {name: row.used for name, row in mine.kept[NOON].rows.items()} == {
        key(dept, OTHERS, "", ""): 2 for dept in ("hpc", "bio", "astro")
    }
    assert mine.rows == 3


def test_a_service_may_be_named_with_slashes() -> None:
    assert buckets.parts(key("hpc", "ann", "a/b/c", "7")) == ("hpc", "ann", "a/b/c", "7")
    assert buckets.nobody(key("hpc", "ann", "a/b", "7")) == key("hpc", OTHERS, "", "")


def test_of_what_is_not_kept_a_row_goes_nowhere() -> None:
    mine = book()
    assert mine.row(-1, ANN) == Row()


# ---------------------------------------------------------------------------------------------------------------- goodput


def entry(used: int = 0, doomed: int = 0, cause: str = "") -> Goodput:
    return Goodput(State(open={"1": Entry("hpc", used, doomed, cause)}))


def test_what_is_doomed_again_was_lost_before() -> None:
    one = entry(used=100)
    one.doom("1", 40, FAULT)
    assert one.state.open["1"] == Entry("hpc", 100, 60, FAULT)
    one.doom("1", 10, PREEMPTED)
    assert one.state.bad == {"hpc": {FAULT: 60}}
    assert one.state.open["1"] == Entry("hpc", 40, 30, PREEMPTED)
    one.doom("1", 50, FAULT)  # more was kept than is left
    assert (one.state.bad["hpc"], one.state.open["1"].doomed) == ({FAULT: 60, PREEMPTED: 30}, 0)


def test_a_checkpoint_saves_no_more_than_was_doomed() -> None:
    one = entry(100, 60, FAULT)
    one.save("1", 25)
    assert one.state.open["1"].doomed == 35
    one.save("1", 99)
    assert one.state.open["1"].doomed == 0
    one.save("2", 1)
    assert list(one.state.open) == ["1"]


def test_a_unit_that_used_nothing_leaves_no_word() -> None:
    for good in (True, False):
        one = entry()
        one.over("1", good=good, cause="failed")
        assert (one.state.good, one.state.bad, one.state.open) == ({}, {}, {})


def test_the_check_says_whose_sums_are_wrong() -> None:
    one = Goodput(State(good={"a": 1}, bad={"b": {FAULT: 2}}, open={"1": Entry("c", 3)}))
    assert one.check({"a": 1, "b": 2, "c": 3}) == []
    assert one.check({"a": 1, "b": 2, "c": 4, "d": 0, "e": 5}) == [
        "c used 4 and good, bad and open are 3",
        "e used 5 and good, bad and open are 0",
    ]
    assert [line.split()[0] for line in one.check({})] == ["a", "b", "c"]
    one.state.open["1"].doomed = 4
    assert one.check({"a": 1, "b": 2, "c": 3}) == ["1 is doomed for more than it used"]
