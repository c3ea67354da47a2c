"""When requests arrive: rates, moments, shapes of tables, and what cannot be played."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest

from phoenix.load import shape, target
from phoenix.load.curve import FRESH, POST, Curve, LoadError, arrivals, plan

TWO_STEPS = Curve((0.0, 10.0), (2.0, 8.0), 20.0)


def test_paced_arrivals_are_even_at_the_rate_of_their_time() -> None:
    moments = list(arrivals(TWO_STEPS, None))
    assert moments[:3] == [0.25, 0.75, 1.25]
    assert moments[20:23] == [10.0625, 10.1875, 10.3125]
    assert len(moments) == 20 + 80
    assert TWO_STEPS.requests == 100


def test_poisson_arrivals_have_the_curve_s_rate_and_exponential_gaps() -> None:
    moments = list(arrivals(Curve((0.0, 1000.0), (2.0, 8.0), 2000.0), 7))
    early = [at for at in moments if at < 1000]
    assert len(early) == pytest.approx(2000, abs=4 * math.sqrt(2000))
    assert len(moments) - len(early) == pytest.approx(8000, abs=4 * math.sqrt(8000))
    assert moments == sorted(moments)
    gaps = sorted(later - earlier for earlier, later in pairwise(early))
    # Kolmogorov and Smirnov: the distance from the exponential distribution is below its bound for 0.1 %
    distance = max(abs((k + 1) / len(gaps) - (1 - math.exp(-2 * gap))) for k, gap in enumerate(gaps))
    assert distance < 1.95 / math.sqrt(len(gaps))


def test_the_same_seed_gives_the_same_moments_whatever_is_sent() -> None:
    one, other = plan(TWO_STEPS, seed=3), plan(TWO_STEPS, seed=3, post_share=0.5, fresh_share=0.5)
    assert list(one.due) == list(other.due) != list(plan(TWO_STEPS, seed=4).due)
    assert set(one.flags) == {0}
    assert set(other.flags) == {0, FRESH, POST, FRESH | POST}


def test_a_time_without_load_has_no_arrival() -> None:
    moments = list(arrivals(Curve((0.0, 1.0, 2.0), (5.0, 0.0, 5.0), 3.0), 1))
    assert moments
    assert not [at for at in moments if 1.0 <= at < 2.0]


@pytest.mark.parametrize(
    ("starts", "rates", "end_s", "what"),
    [
        ((0.0,), (-1.0,), 1.0, "a rate is 0 to"),
        ((0.0,), (math.nan,), 1.0, "a rate is 0 to"),
        ((0.0,), (1e9,), 1.0, "a rate is 0 to"),
        ((0.0,), (1.0,), 1e9, "at most 24 h"),
        ((0.0,), (1000.0,), 80_000.0, "one run has at most"),
        ((0.0, 2.0), (1.0, 1.0), 2.0, "one after the other"),
        ((1.0,), (1.0,), 2.0, "begins at 0"),
    ],
)
def test_what_cannot_be_played_is_refused(starts: tuple[float], rates: tuple[float], end_s: float, what: str) -> None:
    with pytest.raises(LoadError, match=what):
        Curve(starts, rates, end_s)


# ------------------------------------------------------------------------------------------------------------------ shapes


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "load.csv"
    rows = [("12:00", 60), ("12:01", 120), ("12:02", 600), ("12:03", 300)]
    path.write_text("minute,requests\n" + "".join(f"1998-06-15 {at}:00,{count}\n" for at, count in rows))
    return path


def test_a_table_keeps_its_shape_in_less_time(table: Path) -> None:
    curve = shape.read(table, seconds=8.0, peak=50.0)
    assert curve == Curve((0.0, 2.0, 4.0, 6.0), (5.0, 10.0, 50.0, 25.0), 8.0)


def test_a_part_of_it_at_its_own_pace(table: Path) -> None:
    curve = shape.read(table, seconds=None, scale=2.0, since="1998-06-15T12:01", until="1998-06-15 12:03")
    assert curve == Curve((0.0, 60.0), (4.0, 20.0), 120.0)


def test_a_part_that_is_not_there_is_said(table: Path) -> None:
    with pytest.raises(LoadError, match="no row of the table begins between 1999-01-01 and its end"):
        shape.read(table, seconds=1.0, peak=1.0, since="1999-01-01")
    with pytest.raises(LoadError, match="neither seconds nor a date"):
        shape.read(table, seconds=1.0, peak=1.0, since="noon")
    with pytest.raises(LoadError, match="either the rate"):
        shape.read(table, seconds=1.0)


# ------------------------------------------------------------------------------------------------------------------ target


def test_only_this_machine_unless_the_other_is_named() -> None:
    assert target.parse("127.0.0.1:8080/a?b=1") == target.Target("127.0.0.1", 8080, "127.0.0.1:8080", "/a?b=1")
    assert target.parse("http://localhost").path == "/"
    with pytest.raises(LoadError, match=r"say so: --other-host 192\.0\.2\.7"):
        target.parse("http://192.0.2.7/")
    with pytest.raises(LoadError, match="another machine"):
        target.parse("http://192.0.2.7/", "192.0.2.8")
    assert target.parse("http://192.0.2.7/", "192.0.2.7").address == "192.0.2.7"


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1/", "http://", "http://127.0.0.1:99999/", "127.0.0.1/a b", "127.0.0.1/ä"]
)
def test_what_is_no_target(url: str) -> None:
    with pytest.raises(LoadError):
        target.parse(url)
