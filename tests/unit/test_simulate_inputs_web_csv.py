"""Tables of web load: what each column means, every doubtful row named with file, line and column, and exact demand."""

from __future__ import annotations

import gzip
import math
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phoenix.simulate import traces, web_csv
from phoenix.simulate.text_input import InputError
from phoenix.simulate.web_csv import demand, load
from phoenix.simulate.workload import Series


def read(tmp_path: Path, text: str, **options: Any) -> Series:
    path = tmp_path / "web.csv"
    path.write_text(text)
    return web_csv.read(path, **options)


def refusal(tmp_path: Path, text: str, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text, **options)
    return str(caught.value).removeprefix(f"{tmp_path}/")


def requests(*values: float, step_s: float = 60.0) -> Series:
    return Series(unit="requests", starts=tuple(i * step_s for i in range(len(values))), values=values)


# ---------------------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    "times",
    [
        ("2026-07-01 13:05", "2026-07-01 13:06", "2026-07-01 13:07"),
        ("2026-07-01T13:05:00Z", "2026-07-01T13:06:00+00:00", "2026-07-01T15:07:00+02:00"),
        ("1000", "1060", "1120.0"),
        ("-60", "0", "60"),
    ],
)
def test_time_zero_is_the_first_rows_begin(tmp_path: Path, times: tuple[str, ...]) -> None:
    rows = "".join(f"{time},{value}\n" for time, value in zip(times, (5, 0, 7.5), strict=True))
    assert read(tmp_path, "minute,Requests\n" + rows) == requests(5, 0, 7.5)


def test_blank_lines_quotes_marks_and_other_columns_do_no_harm(tmp_path: Path) -> None:
    text = '\ufeffbegin, requests ,"a, note"\r\n0,5,x\r\n\r\n"60",6,"y, z"\r\n,,\r\n'
    assert read(tmp_path, text) == requests(5, 6)


def test_a_compressed_table_is_read(tmp_path: Path) -> None:
    (path := tmp_path / "web.csv.gz").write_bytes(gzip.compress(b"t,requests\n0,5\n60,6\n"))
    assert web_csv.read(path) == requests(5, 6)


def test_instances_are_a_level_with_free_distances(tmp_path: Path) -> None:
    series = read(tmp_path, "t,instances\n0,2\n10,2.5\n500,1\n")
    assert series == Series(unit="instances", starts=(0, 10, 500), values=(2, 2.5, 1))
    assert read(tmp_path, "t,instances\n7,2\n").starts == (0,)


def test_utilisation_is_of_the_column_instances_or_of_a_number(tmp_path: Path) -> None:
    beside = read(tmp_path, "t,instances,utilization\n0,2,0.5\n60,4,1.2\n")
    assert beside == Series(unit="utilisation", starts=(0, 60), values=(0.5, 1.2), instances=(2, 4))
    given_on = read(tmp_path, "t,utilisation\n0,0.5\n60,1.2\n", measured_on=3)
    assert given_on.instances == (3, 3)


def test_one_of_several_columns_may_be_named(tmp_path: Path) -> None:
    text = "t,requests,instances\n0,5,1\n60,6,2\n"
    assert read(tmp_path, text, column="requests") == requests(5, 6)
    assert read(tmp_path, text, column="instances").values == (1, 2)
    assert refusal(tmp_path, text).startswith("web.csv:1: columns instances and requests both tell the load")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "web.csv:1: the file is empty"),
        ("\n\n", "web.csv:1: the file is empty"),
        ("t,requests\n", "web.csv:2: there is no row below the header"),
        ("t;requests\n0;1\n", "web.csv:1: only one column; after the time comes one of instances, requests"),
        ("t,hits\n0,1\n", "web.csv:1: no column is called one of instances, requests, utilisation; there are: t, hits"),
        ("requests,t\n0,1\n", "web.csv:1: no column is called"),
        ("t,requests,requests\n0,1,1\n", "web.csv:1: two columns are called requests"),
        ("t,utilisation\n0,1\n", "web.csv:1: utilisation of how many instances?"),
        ("t,requests\n0,1\n", "web.csv:2: one row alone does not tell"),
        ("t,requests\n0,1\n60\n", "web.csv:3: 1 columns, where the header has 2"),
        ("t,requests\n0,1\n60,many\n", "web.csv:3: column requests: 'many' is not a number"),
        ("t,requests\n0,1\n60,\n", "web.csv:3: column requests: is empty"),
        ("t,requests\n0,1\n60,-1\n", "web.csv:3: column requests: -1 is not within 0 to 1e+15"),
        ("t,requests\n0,1\n60,nan\n", "web.csv:3: column requests: nan is not within"),
        ("t,requests\n0,1\n60,inf\n", "web.csv:3: column requests: inf is not within"),
        ("t,instances\n0,1\n60,1e7\n", "web.csv:3: column instances: 1e7 is not within 0 to 1e+06"),
        ("t,instances,utilisation\n0,1,85\n", "web.csv:2: column utilisation: 85 is not within 0 to 2; write 0.85 for 85 %"),
        ("t,instances,utilisation\n0,-1,1\n", "web.csv:2: column instances: -1 is not within"),
        ("t,requests\n0,1\nsoon,2\n", "web.csv:3: column t: 'soon' is neither seconds nor a date like"),
        ("t,requests\n0,1\n,2\n", "web.csv:3: column t: is empty"),
        ("t,requests\n0,1\n2026-13-01,2\n", "web.csv:3: column t: '2026-13-01' is neither"),
        ("t,requests\n0,1\ninf,2\n", "web.csv:3: column t: 'inf' is no time"),
        ("t,requests\n0,1\n60,2\n60,3\n", "web.csv:4: column t: the same time as the row above; times must rise"),
        ("t,instances\n0,1\n60,2\n30,3\n", "web.csv:4: column t: 30 s before the row above; times must rise"),
        ("t,requests\n0,1\n60,2\n180,3\n", "web.csv:4: column t: 120 s after the row above, where the first two are 60 s"),
        ("t,requests\n0,1\n2026-01-01,2\n", "web.csv:3: column t: written in another way"),
        ("t,requests\n2026-01-01 01:00,1\n2026-01-01T02:00Z,2\n", "web.csv:3: column t: written in another way"),
        ("t,requests\n0,1\n60,\"2\n", "web.csv:3: this is no CSV"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(tmp_path, text).startswith(message)


def test_a_clock_that_was_set_back_is_explained(tmp_path: Path) -> None:
    text = "t,instances\n2026-10-25 02:59,1\n2026-10-25 02:00,2\n"
    assert "clocks that were set back need an offset" in refusal(tmp_path, text)


def test_files_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (path := tmp_path / "latin.csv").write_bytes(b"t,requests\n0,1\n60,2,\xe9\n")
    with pytest.raises(InputError, match=r"latin\.csv:3: this is no UTF-8 text"):
        web_csv.read(path)
    with pytest.raises(InputError, match="is a directory"):
        web_csv.read(tmp_path)


def test_utilisation_of_no_instances_is_refused(tmp_path: Path) -> None:
    assert "cannot have been measured on 0 instances" in refusal(tmp_path, "t,utilisation\n0,1\n9,1\n", measured_on=0)


def test_a_column_that_is_asked_for_must_be_there(tmp_path: Path) -> None:
    message = refusal(tmp_path, "t,requests\n0,1\n60,1\n", column="utilisation")
    assert message == "web.csv:1: no column is called utilisation; there are: t, requests"


# ------------------------------------------------------------------------------------------------------- demand and load


def test_demand_of_requests_is_in_proportion_to_the_most() -> None:
    assert demand(requests(0, 1, 50, 51, 51, 100), 2) == ((0, 1), (180, 2))
    assert demand(requests(0, 0), 5) == ((0, 1),)


def test_demand_of_requests_is_exact_where_floats_are_not() -> None:
    assert 49 * (1 / 49) != 1  # what a ratio first and a product then would come to
    assert demand(requests(1, 49), 49) == ((0, 1), (60, 49))
    assert demand(requests(0.3, 0.1), 3) == ((0, 3), (60, 1))


def test_demand_of_instances_is_rounded_up_and_may_be_none() -> None:
    assert demand(Series(unit="instances", starts=(0, 5, 9), values=(0, 1.2, 2))) == ((0, 0), (5, 2))


def test_demand_of_utilisation_brings_it_to_the_threshold() -> None:
    values = (0.0, 0.8, 0.56, 1.0, 0.81)
    series = Series(unit="utilisation", starts=(0, 1, 2, 3, 4), values=values, instances=(10,) * 5)
    assert demand(series) == ((0, 1), (1, 10), (2, 7), (3, 13), (4, 11))  # 0.56 · 10 / 0.8 is 7, not a little more
    assert demand(series, threshold=0.5) == ((0, 1), (1, 16), (2, 12), (3, 20), (4, 17))


def test_load_is_what_keeps_instances_busy() -> None:
    assert load(requests(600, 600, 1200, step_s=60), 10) == ((0, 1), (120, 2))
    series = Series(unit="utilisation", starts=(0, 60), values=(0.5, 1.5), instances=(4, 2))
    assert load(series) == ((0, 2), (60, 3))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: demand(requests(1, 2)), "at least 1, not 0"),
        (lambda: load(requests(1, 2)), "must be above 0, not 0"),
        (lambda: load(Series(unit="instances", starts=(0,), values=(1,)), 5), "a demand, not a load"),
        (
            lambda: demand(Series(unit="utilisation", starts=(0,), values=(1,), instances=(1,)), threshold=0),
            "threshold of utilisation must be above 0",
        ),
    ],
)
def test_what_has_no_meaning_is_refused(ask: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask()


def level_at(changes: tuple[tuple[float, Any], ...], at: float) -> Any:
    return [level for begin, level in changes if begin <= at][-1]


COUNTS = st.lists(st.integers(0, 10**12) | st.decimals(0, 1000, places=2).map(float), min_size=1, max_size=30)


@given(COUNTS, st.integers(1, 1000))
def test_demand_is_the_least_that_is_enough_everywhere(counts: list[float], peak: int) -> None:
    series = requests(*map(float, counts))
    changes = demand(series, peak)
    assert all(a[1] != b[1] and a[0] < b[0] for a, b in pairwise(changes))
    most = max(Fraction(str(value)) for value in series.values)
    for begin, value in zip(series.starts, series.values, strict=True):
        wanted = level_at(changes, begin)
        share = Fraction(str(value)) * peak
        assert 1 <= wanted <= peak
        assert wanted * most >= share  # enough
        assert wanted == 1 or (wanted - 1) * most < share  # and one fewer would not be
    assert most == 0 or max(level for _, level in changes) == peak


@pytest.mark.traces(traces.WORLD_CUP)
def test_the_papers_trace_becomes_the_papers_demand() -> None:
    trace = traces.find(traces.WORLD_CUP)
    assert trace is not None
    becomes_the_papers_demand(web_csv.read(trace), 20_160)


def test_a_trace_of_that_shape_becomes_the_papers_demand(tmp_path: Path) -> None:
    values = [round(76_000 * (1.01 + math.sin(i / 229))) for i in range(2880)]
    times = [f"1998-06-{7 + i // 1440:02}T{i // 60 % 24:02}:{i % 60:02}:00" for i in range(2880)]
    rows = "".join(f"{time},{value}\n" for time, value in zip(times, values, strict=True))
    becomes_the_papers_demand(read(tmp_path, "minute_gmt,requests\n" + rows), 2880)


def becomes_the_papers_demand(series: Series, rows: int) -> None:
    assert (series.unit, len(series.values), series.end_s) == ("requests", rows, rows * 60)
    changes = demand(series, 64)
    assert {min(n for _, n in changes), max(n for _, n in changes)} == {1, 64}
    most = int(max(series.values))
    assert all(
        level_at(changes[:400], start) == max(1, -(-64 * int(value) // most))
        for start, value in zip(series.starts[:300], series.values[:300], strict=True)
    )
