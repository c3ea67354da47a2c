"""Series at their edges: gauges, steps that are over, what is known, what is forgotten, and how points are grouped."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import facts as f
from services.monitor.core import series
from services.monitor.core.series import STEPS, Gauge, Point, State, Tier
from tests.unit.test_page_series import T0, Fold

STEP = STEPS[0][0]


def test_a_gauge_counts_from_its_beginning_to_its_end() -> None:
    gauge = Gauge(level=3, since=100, until=150, area=7, known=2)
    assert [gauge.at(now) for now in (90, 100, 101, 150, 999)] == [(7, 2), (7, 2), (10, 3), (157, 52), (157, 52)]
    gauge.turn(5, 120)
    assert gauge.at(130) == (7 + 60 + 50, 2 + 30)


def test_a_word_of_no_time_is_no_word_of_the_load() -> None:
    fold = Fold()
    moment = f.LoadObserved(dept="web", start=T0, end=T0, samples=0, utilisation=0.9)
    fold.at(0, "scheduler.web", moment)
    assert "utilisation/web" not in fold.core.state.series.gauges


def test_a_word_that_says_the_same_counts_anew() -> None:
    fold = Fold()
    for seconds in (0, 8):
        fold.hear(seconds, 0.5)
    assert fold.timeline(0, 25)["load"]["web"]["utilisation"] == [0.5, 0.5, 0.5, 0.5, None]


def test_who_holds_nothing_any_more_has_nought_and_is_not_told_again() -> None:
    fold = Fold()
    fold.grant(0)
    fold.at(5, "scheduler.hpc", f.HostReleased(host="h1"))
    fold.grant(7, "h2", "web")
    gauges = fold.core.state.series.gauges
    assert (gauges["owner/hpc"].level, gauges["owner/hpc"].since) == (0, round((T0 + 5) * 1000))
    assert gauges["owner/web"].level == 1000


def test_an_instance_that_breaks_does_not_serve_from_then_on() -> None:
    fold = Fold()
    fold.grant(0, "h1", "web")
    fold.at(0, "scheduler.web", f.DemandChanged(dept="web", hosts=1, instances=1))
    fold.at(0, "scheduler.web", f.UnitPlaced(unit="web.1", attempt=1, hosts=("h1",), cores=1, memory_mb=1))
    fold.at(0, "executor", f.VmAllocated(unit="web.1", attempt=1, rank=0, vm=1, host="h1"))
    fold.at(0, "admission", f.AttemptBegan(unit="web.1", attempt=1))
    fold.at(5, "executor", f.HostLost(host="h1", reason="x"))
    assert fold.timeline(0, 10)["load"]["web"]["serving"] == [1.0, 0.0]


def test_a_step_ends_with_the_fact_at_its_end_and_not_before() -> None:
    fold = Fold()
    fold.grant(4.999)
    assert fold.core.state.series.tiers[0].length == 0
    fold.grant(5, "h2")
    tier = fold.core.state.series.tiers[0]
    assert (tier.length, tier.end, fold.core.state.series.due) == (1, round((T0 + 5) * 1000), round((T0 + 10) * 1000))


def test_nothing_is_measured_before_the_first_host() -> None:
    fold = Fold(hosts_at=70)
    assert fold.core.state.series.began == round((T0 + 70) * 1000)
    assert fold.timeline(0, 80)["owners"] == {"(free)": [2.0, 2.0]}


@pytest.mark.parametrize("now", [9.9, 10.0, 12.0, 14.9])
def test_the_newest_point_is_that_of_the_last_step_that_is_over(now: float) -> None:
    fold = Fold()
    fold.grant(5)
    end = 5.0 if now < 10 else 10.0
    owners = {"(free)": 2.0} if now < 10 else {"(free)": 1.0, "hpc": 1.0}
    point = fold.core.series.newest(T0 + now)
    assert point.at == T0 + end
    assert point.values == {f"owner/{name}": value for name, value in owners.items()}
    told = series.of_point(point, 5.0)
    assert told == {"at": T0 + end, "step_s": 5.0, "owners": owners, "load": {}}


def test_a_point_of_the_stream_is_like_a_timeline_of_one() -> None:
    point = Point(5.0, {"owner/hpc": 2.0, "utilisation/web": 0.5, "wanted/web": 3.0})
    assert series.of_point(point, 1.0) == {
        "at": 5.0,
        "step_s": 1.0,
        "owners": {"hpc": 2.0},
        "load": {"web": {"utilisation": 0.5, "requests_per_s": None, "wanted": 3.0, "serving": 0.0}},
    }


@pytest.mark.parametrize("points", [0, 1])
def test_at_least_one_point_is_told(points: int) -> None:
    fold = Fold()
    fold.grant(0)
    found = fold.timeline(0, 10, points)
    assert (found["at"], found["step_s"], found["owners"]["hpc"]) == ([T0 + 10], 10.0, [1.0])


def test_groups_are_cut_at_whole_multiples_whatever_is_asked_for() -> None:
    assert series._groups(offset=0, begin=0, end=5, wide=2) == [(0, 2), (2, 4), (4, 5)]
    assert series._groups(offset=1, begin=0, end=5, wide=3) == [(0, 2), (2, 5)]
    assert series._groups(offset=7, begin=3, end=3, wide=2) == []
    fold = Fold(hosts_at=600 + 5)  # the first point is not the first of a group of two
    fold.grant(615)
    assert fold.timeline(600, 625, 3)["at"] == [T0 + 610, T0 + 620, T0 + 625]
    assert fold.timeline(600, 625, 3)["owners"]["hpc"] == [0.0, 0.5, 1.0]


def tier(**given: Any) -> Tier:
    return Tier(**({"step": 10, "most": 3} | given))


def test_after_a_silence_only_what_is_kept_is_worked_out() -> None:
    state = State(gauges={"owner/hpc": Gauge(level=2, since=0)}, began=0)
    for silence, length in ((29, 2), (30, 3), (39, 3), (40, 3), (999, 3)):
        one = tier()
        series._advance(one, state, silence)
        assert (one.end, one.length, one.columns) == (silence // 10 * 10, length, {"owner/hpc": [2] * length})


def test_after_a_longer_silence_the_first_point_is_of_its_own_step() -> None:
    gauge = Gauge(level=0, since=5_000, area=77 * 5_000, known=5_000)
    one = tier(columns={"owner/hpc": [1, 1, 1]}, length=3, marks={"owner/hpc": (0, 0)})
    series._advance(one, State(gauges={"owner/hpc": gauge}, began=0), 10_000)
    assert (one.columns, one.length) == ({}, 3)


def test_of_a_step_the_oldest_point_goes_as_the_newest_comes() -> None:
    one = tier(columns={"owner/hpc": [1, 2, 3]}, length=3, end=30, marks={"owner/hpc": (0, 0)})
    series._advance(one, State(gauges={"owner/hpc": Gauge(level=4, since=30)}, began=0), 45)
    assert (one.columns, one.length, one.end) == ({"owner/hpc": [2, 3, 4]}, 3, 40)


def test_a_column_with_nothing_left_goes_and_comes_back_when_there_is_something() -> None:
    gauge = Gauge(level=0, since=0)
    one, state = tier(columns={"owner/hpc": [5]}, length=1, end=0, marks={"owner/hpc": (0, 0)}), State(began=0)
    state.gauges["owner/hpc"] = gauge
    for end in (10, 20):
        series._advance(one, state, end)
        assert one.columns["owner/hpc"][-1] == 0
    series._advance(one, state, 30)
    assert one.columns == {}
    gauge.turn(6, 30)
    series._advance(one, state, 40)
    assert one.columns == {"owner/hpc": [0, 0, 6]}


@pytest.mark.parametrize(
    ("gauge", "kept"),
    [
        (Gauge(level=0, since=10), False),
        (Gauge(level=0, since=11), True),
        (Gauge(level=5, since=1), True),
        (Gauge(level=5, since=1, until=10), False),
        (Gauge(level=5, since=1, until=11), True),
    ],
)
def test_a_gauge_is_forgotten_that_shows_nothing_and_will_not_change_by_itself(gauge: Gauge, kept: bool) -> None:
    tiers = [tier(end=90, marks={"owner/x": (1, 1)}), tier(step=5, end=10, marks={"owner/x": (1, 1)})]
    state = State(gauges={"owner/x": gauge}, tiers=tiers)
    series._forget(state)
    assert ("owner/x" in state.gauges) == kept
    assert all(("owner/x" in one.marks) == kept for one in tiers)
    state.gauges["owner/x"] = gauge
    tiers[0].columns["owner/x"] = [1]
    series._forget(state)
    assert "owner/x" in state.gauges


def test_the_check_tells_columns_of_another_length() -> None:
    fold = Fold()
    fold.grant(6)
    fold.grant(11, "h2")
    first = fold.core.state.series.tiers[0]
    assert first.length == 2
    first.columns["owner/hpc"].append(0)
    assert fold.core.check() == ["series owner/hpc of 5000 ms has 3 points, not 2"]
    first.columns["owner/hpc"].pop()
    first.most = 1
    assert len(fold.core.check()) == len(first.columns) > 0
