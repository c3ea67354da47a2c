"""The space of a search: what a file gives, which points there are, and what is wrong with one told at once and in place."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from random import Random
from typing import Any

import pytest

from phoenix.search import space
from phoenix.search.space import ConfigError, Space
from services.runtime.config.form import suggestion

ORDERS = ["easy", "first-fit", "multi-factor"]
GOOD = """
[fixed]
hpc.on_reclaim = "suspend"
[axis]
hpc.order = ["easy", "multi-factor"]
cluster.hosts = { from = 140, to = 160, step = 10 }
hpc.multi_factor.weight_size = { from = -20, to = 20, step = 20, when = { hpc.order = "multi-factor" } }
"""


def legal(name: str, value: Any, beside: Mapping[str, Any]) -> str | None:
    """What a search of three settings would say."""
    known = ("cluster.hosts", "hpc.order", "hpc.on_reclaim", "hpc.multi_factor.weight_size", "hpc.share")
    if name not in known:
        return f"there is no such setting{suggestion(name, known)}"
    if name == "hpc.order" and value not in ORDERS:
        return f"should be an order{suggestion(str(value), ORDERS)}"
    if name == "cluster.hosts" and not (isinstance(value, int) and 1 <= value <= 1000):
        return "should be 1 to 1000"
    if name.endswith("weight_size") and beside.get("hpc.order") == "easy":
        return "should not be here: easy has no weights"
    return None


def loaded(text: str = GOOD, *, gridded: bool = False) -> Space:
    return space.loads(text, legal, gridded=gridded)


def problems(text: str, *, gridded: bool = False) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(text, gridded=gridded)
    return str(caught.value).splitlines()


# ------------------------------------------------------------------------------------------------------------- the points


def test_an_axis_counts_only_where_its_condition_holds() -> None:
    found = list(space.grid(loaded()))
    assert len(found) == space.size(loaded()) == 3 + 3 * 3
    assert found[0] == {"hpc.order": "easy", "cluster.hosts": 140}
    assert found[-1] == {"hpc.order": "multi-factor", "cluster.hosts": 160, "hpc.multi_factor.weight_size": 20}
    assert loaded().with_fixed(found[0])["hpc.on_reclaim"] == "suspend"


def test_samples_are_points_of_the_grid_and_reach_all_of_it() -> None:
    random = Random(7)
    drawn = {space.key(space.sample(loaded(), random)) for _ in range(400)}
    assert drawn == {space.key(point) for point in space.grid(loaded())}


def test_the_same_seed_draws_the_same() -> None:
    assert [space.sample(loaded(), Random(3))] == [space.sample(loaded(), Random(3))]


def test_the_identity_of_a_point_does_not_depend_on_the_order_of_its_axes() -> None:
    assert space.key({"a": 1, "b": "x"}) == space.key({"b": "x", "a": 1})
    assert space.key({"a": 1, "b": "x"}) != space.key({"a": 2, "b": "x"})


def test_steps_are_the_numbers_that_people_write() -> None:
    found = loaded("[axis]\nhpc.share = { from = 0.1, to = 0.5, step = 0.1 }\n")
    assert [point["hpc.share"] for point in space.grid(found)] == [0.1, 0.2, 0.3, 0.4, 0.5]


@pytest.mark.parametrize(("log", "below"), [("false", 30), ("true", 500)])
def test_a_range_is_drawn_evenly_or_by_powers(log: str, below: int) -> None:
    found = loaded(f"[axis]\nhpc.share = {{ from = 0.001, to = 1.0, log = {log} }}\n")
    assert space.size(found) is None
    random = Random(1)
    drawn = [space.sample(found, random)["hpc.share"] for _ in range(1000)]
    assert min(drawn) >= 0.001
    assert max(drawn) <= 1.0
    assert abs(sum(each < 0.0316 for each in drawn) - below) < 60


def test_a_range_of_whole_numbers_has_whole_numbers() -> None:
    found = loaded("[axis]\ncluster.hosts = { from = 1, to = 1000, log = true }\n")
    random = Random(1)
    drawn = [space.sample(found, random)["cluster.hosts"] for _ in range(300)]
    assert all(isinstance(each, int) and 1 <= each <= 1000 for each in drawn)
    assert sum(each <= 31 for each in drawn) > 100


def test_a_huge_range_costs_nothing_until_it_is_asked_for() -> None:
    found = loaded("[axis]\nhpc.share = { from = 0, to = 1000000000000 }\n")
    assert list(islice(space.grid(found), 2)) == [{"hpc.share": 0}, {"hpc.share": 1}]
    assert space.size(found, most=10) == 11


# --------------------------------------------------------------------------------------------------------------- the file


def test_every_problem_is_told_at_once_with_its_line_and_what_would_be_right() -> None:
    told = problems(
        """
[fixde]
[fixed]
hpc.on_reclam = "kill"
[axis]
hpc.order = ["easy", "firstfit"]
cluster.hosts = { from = 200, to = 140 }
"hpc.share" = { from = 0.0, to = 1.0, step = 0 }
hpc.ordr = ["easy"]
"""
    )
    assert [line.split(": ")[:2] for line in told] == [
        ["space.toml:2", "fixde"],
        ["space.toml:4", "fixed.hpc.on_reclam"],
        ["space.toml:6", "axis.hpc.order"],
        ["space.toml:7", "axis.cluster.hosts.from"],
        ["space.toml:8", "axis.hpc.share.step"],
        ["space.toml:9", "axis.hpc.ordr"],
    ]
    assert 'did you mean "hpc.on_reclaim"?' in told[1]
    assert 'firstfit": should be an order; did you mean "first-fit"?' in told[2]
    assert "200: should be at most to, which is 140: the range is empty" in told[3]
    assert "should be above 0" in told[4]
    assert 'did you mean "hpc.order"?' in told[5]


@pytest.mark.parametrize(
    ("axis", "right"),
    [
        ("hpc.order = []", "should be at least one choice"),
        ('hpc.order = ["easy", "easy"]', "should be different choices"),
        ('hpc.order = "easy"', "should be a list of choices"),
        ("hpc.share = { from = 1 }", "axis.hpc.share.to: missing: should be a number"),
        ('hpc.share = { from = "a", to = 2 }', '"a": should be a number'),
        ("hpc.share = { from = 1, to = 2, stpe = 1 }", 'did you mean "step"?'),
        ("hpc.share = { from = 0, to = 2, log = true }", "should be above 0"),
        ("hpc.share = { from = 1, to = 9, step = 2, log = true }", "should not be here beside log"),
        ("hpc.share = { from = 0.0, to = inf }", "should be a number"),
        ("hpc.share = { from = 0, to = 1, step = 0.00001 }", "should make at most 10,000 values"),
        ("hpc.share = { choices = [1], to = 2 }", "should not be here beside choices"),
        ("cluster.hosts = { from = 0, to = 20 }", "0: should be 1 to 1000"),
        ("cluster.hosts = { from = 1, to = 3, step = 0.5 }", "1.0: should be 1 to 1000"),
        ('hpc.order = ["easy"]\nhpc.share = { choices = [1], when = { hpc.odrer = "easy" } }', 'did you mean "hpc.order"?'),
        ('hpc.order = ["easy"]\nhpc.share = { choices = [1], when = { hpc.order = "easi" } }', 'did you mean "easy"?'),
        ('hpc.order = ["easy"]\nhpc.share = { choices = [1], when = "easy" }', "should be a table"),
        ("hpc.on_reclaim = [1]\n[fixed]\nhpc.on_reclaim = 1", "[fixed] has it as well"),
    ],
)  # fmt: skip
def test_an_odd_axis_is_refused(axis: str, right: str) -> None:
    told = problems(f"[axis]\n{axis}\n")
    assert right in "\n".join(told)
    assert all(line.startswith(("space.toml:2: ", "space.toml:3: ", "space.toml:4: ")) for line in told)


@pytest.mark.parametrize("text", ["", "[fixed]\nhpc.share = 1\n", "[axis]\n"])
def test_a_space_without_an_axis_is_refused(text: str) -> None:
    assert "should have at least one name, and its values" in problems(text)[0]


def test_a_value_is_judged_beside_what_makes_it_count() -> None:
    assert loaded()  # weights beside multi-factor
    told = problems(GOOD.replace('hpc.order = "multi-factor"', 'hpc.order = "easy"'))
    assert "should not be here: easy has no weights" in told[0]


def test_a_value_is_judged_beside_what_counts_because_of_it() -> None:
    def needs_share(name: str, value: Any, beside: Mapping[str, Any]) -> str | None:
        return "needs a share" if value == "fair" and "hpc.share" not in beside else None

    text = '[axis]\nhpc.order = ["easy", "fair"]\n'
    assert space.loads(text + 'hpc.share = { choices = [1], when = { hpc.order = "fair" } }\n', needs_share)
    with pytest.raises(ConfigError, match=r'2: axis\.hpc\.order: "fair": needs a share'):
        space.loads(text, needs_share)


def test_what_is_fixed_is_judged_beside_what_stands_above_it() -> None:
    def alone(name: str, value: Any, beside: Mapping[str, Any]) -> str | None:
        return None if "hpc.order" in beside or name == "hpc.order" else "should be with an order"

    assert space.loads('[fixed]\nhpc.order = "easy"\nhpc.a = 1\nhpc.b = 1\n[axis]\nhpc.c = [1]\n', alone)
    with pytest.raises(ConfigError, match=r"2: fixed\.hpc\.a: 1: should be with an order"):
        space.loads("[fixed]\nhpc.a = 1\nhpc.b = 1\n[axis]\nhpc.c = [1]\n", alone)


def test_a_grid_has_its_values_and_not_too_many_points() -> None:
    assert "step: missing: should be here" in problems("[axis]\nhpc.share = { from = 0.5, to = 2 }\n", gridded=True)[0]
    wide = "[axis]\nhpc.share = { from = 0, to = 999 }\ncluster.hosts = { from = 1, to = 101 }\n"
    assert "should be at most 100,000 points" in problems(wide, gridded=True)[0]
    assert loaded(wide)
