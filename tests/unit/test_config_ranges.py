"""Settings are documented beside their fields: a sentence, and a range wherever there is a number."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from schemas.config import BatchPolicy, CloudConfig, Department, MultiFactor, Policy, Quality, UserLimits, WebPolicy
from schemas.ranges import Range, outside
from services.runtime.config.tables import Http, Metrics, Monitor, Nats, OpenNebula, Runtime

ROOT = Path(__file__).resolve().parents[2]
TABLES: tuple[Any, ...] = (CloudConfig, Nats, Http, Monitor, OpenNebula, Metrics, Runtime)
# Judged by a rule of their own: a bound that depends on another setting.
BY_RULE = {"grace_max_s"}


def structs(found: inspect.Type) -> Iterator[inspect.StructType]:
    """Every struct of a configuration."""
    if isinstance(found, inspect.Metadata):
        yield from structs(found.type)
    elif isinstance(found, inspect.UnionType):
        for one in found.types:
            yield from structs(one)
    elif isinstance(found, inspect.VarTupleType):
        yield from structs(found.item_type)
    elif isinstance(found, inspect.DictType):
        yield from structs(found.value_type)
    elif isinstance(found, inspect.StructType):
        yield found
        for field in found.fields:
            yield from structs(field.type)


FIELDS = {
    f"{struct.cls.__name__}.{field.name}": field
    for table in TABLES
    for struct in structs(inspect.type_info(table))
    for field in struct.fields
}


def numbers(found: inspect.Type, *, ranged: bool = False) -> Iterator[bool]:
    """Of each number in a type whether it has a range."""
    if isinstance(found, inspect.Metadata):
        yield from numbers(found.type, ranged=ranged or "range" in (found.extra or {}))
    elif isinstance(found, inspect.UnionType):
        for one in found.types:
            yield from numbers(one, ranged=ranged)
    elif isinstance(found, inspect.DictType):
        yield from numbers(found.value_type, ranged=ranged)
    elif isinstance(found, inspect.IntType | inspect.FloatType):
        yield ranged


def test_every_number_has_a_range() -> None:
    assert len(FIELDS) > 150
    free = {name for name, field in FIELDS.items() if not all(numbers(field.type))}
    # `options` are judged by the plug-in that reads them, `ports` by the check that no two listeners have one address.
    assert {name.split(".")[1] for name in free} == {*BY_RULE, "options", "ports"}


def test_every_setting_is_in_the_sample_configuration() -> None:
    text = (ROOT / "deploy" / "phoenix.toml").read_text()
    derived = {"capabilities", "name", "departments"}  # `department` is the key of a table of the file
    keys = {name.split(".")[1] for name in FIELDS} - derived
    missing = {key for key in keys if re.search(rf"\b{key}\b( =|\.|\])", text) is None}
    assert missing - {"batch", "web", "users"} == set()


def test_a_range_that_the_sample_configuration_says_is_that_of_the_field() -> None:
    text = (ROOT / "deploy" / "phoenix.toml").read_text()
    said = re.findall(r"^(\w+) = \S+ # .*?\b(\d[\d.]*) to (\d+)\b", text, flags=re.MULTILINE)
    assert {key for key, _, _ in said} >= {"weight", "memory_per_core_mb", "reservations_max"}
    for key, low, high in said:
        (found,) = {
            (allowed.low, allowed.high)
            for name, field in FIELDS.items()
            if name.split(".")[1] == key and isinstance(field.type, inspect.Metadata)
            for allowed in [(field.type.extra or {}).get("range")]
            if allowed is not None
        }
        assert found == (float(low), float(high)), key


def test_the_documents_of_schemas_show_sentences_and_ranges() -> None:
    shown = json.loads((ROOT / "schemas" / "config.json").read_text())["$defs"]
    target = shown["WebPolicy"]["properties"]["target"]
    assert (target["exclusiveMinimum"], target["exclusiveMaximum"]) == (0, 1)
    assert "utilisation" in target["description"]
    mine = [field for struct in structs(inspect.type_info(CloudConfig)) for field in struct.fields]
    assert sum(isinstance(field.type, inspect.Metadata) for field in mine) > 120


@pytest.mark.parametrize(
    ("low", "high", "opened", "value", "held"),
    [
        (0, 1, (False, False), 0, True),
        (0, 1, (False, False), 1, True),
        (0, 1, (True, False), 0, False),
        (0, 1, (False, True), 1, False),
        (0, 1, (True, True), 0.5, True),
        (0, 1, (False, False), -0.1, False),
        (0, 1, (False, False), 1.1, False),
        (0, 1, (False, False), math.nan, False),
    ],
)
def test_a_range(low: float, high: float, opened: tuple[bool, bool], value: float, held: bool) -> None:
    assert Range(low, high, *opened).holds(value) is held


def test_what_is_outside_is_found_wherever_it_stands() -> None:
    batch = BatchPolicy(
        walltime_max_s=math.nan,
        multi_factor=MultiFactor(shares={"ann": -1.0}),
        quality={"urgent": Quality(each_user=UserLimits(cores_max=-1))},
    )
    departments = (Department(name="a", kind="batch", batch=batch), Department(name="b", kind="web", web=WebPolicy()))
    cloud = CloudConfig(name="c", departments=departments, policy=Policy(notice_s=0.0))
    assert [path for path, _, _ in outside(cloud)] == [
        ("departments", 0, "batch", "walltime_max_s"),
        ("departments", 0, "batch", "multi_factor", "shares", "ann"),
        ("departments", 0, "batch", "quality", "urgent", "each_user", "cores_max"),
        ("policy", "notice_s"),
    ]


def test_a_journal_that_was_written_under_another_range_can_still_be_read() -> None:
    policy = Policy(notice_s=0.0, kill_s=1e9)
    assert msgspec.json.decode(msgspec.json.encode(policy), type=Policy) == policy
