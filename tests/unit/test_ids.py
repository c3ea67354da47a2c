"""How units and their VMs are named, and in which order they stand."""

from __future__ import annotations

import random

import pytest

from schemas import ids


def test_units_stand_by_submission() -> None:
    """By job number, a job before its elements, those by index; instances by number, then by department."""
    ordered = ["2", "9", "9_0", "shop.9", "web.9", "9_1", "9_10", "10", "web.10", "10_1"]
    mixed = ordered[:]
    random.Random(1).shuffle(mixed)
    assert sorted(mixed, key=ids.sort_key) == ordered


@pytest.mark.parametrize(("unit", "job"), [("17", "17"), ("17_3", "17"), ("web.7", "web.7")])
def test_the_job_of_a_unit(unit: str, job: str) -> None:
    assert ids.job_of(unit) == job


@pytest.mark.parametrize(
    ("tag", "parts"),
    [
        ("c/17_3/2/0", ("c", "17_3", 2, 0)),
        ("c/web.7/1/10", ("c", "web.7", 1, 10)),
        ("c/17/2", None),
        ("c/17/2/0/1", None),
        ("c/17/x/0", None),
        ("c/17/2/x", None),
        ("c/17/-2/0", None),
        ("", None),
    ],
)
def test_what_a_vm_is_tagged_with(tag: str, parts: tuple[str, str, int, int] | None) -> None:
    assert ids.parse_vm_tag(tag) == parts
    assert parts is None or ids.vm_tag(*parts) == tag


def test_instances_are_told_from_jobs() -> None:
    assert [ids.is_instance(unit) for unit in ("web.7", "7", "7_1")] == [True, False, False]
    assert ids.instance_parts(ids.instance_id("my-web", 70)) == ("my-web", 70)
    for wrong in ("7", "web", "web.0", "web.07", "Web.7", "web.7.1", "web.", ".7", "web.7\n"):
        with pytest.raises(ValueError, match="is not an instance id"):
            ids.instance_parts(wrong)
    assert ids.element_id("17", 3) == "17_3"


@pytest.mark.parametrize(
    ("name", "right"),
    [("a", True), ("a-9", True), ("a" * 32, True), ("a" * 33, False), ("9a", False), ("a_b", False), ("", False)],
)
def test_names_of_departments(name: str, right: bool) -> None:
    assert ids.is_department(name) is right
