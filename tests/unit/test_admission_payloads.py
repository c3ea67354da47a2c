"""Payload keys and digests: equal content is one object, a different request is another digest."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.dimensions import DIMENSIONS
from schemas.requests import InputFile, JobSignal, JobSubmit
from services.admission.storage.payloads import pack

BASE = {"script": "x", "environment": {"A": "1", "B": "2"}, "request": "r"}


def test_the_order_of_the_environment_does_not_matter() -> None:
    one = pack(JobSubmit(**BASE), "hpc")  # type: ignore[arg-type]
    other = pack(JobSubmit(**{**BASE, "environment": {"B": "2", "A": "1"}}), "hpc")  # type: ignore[arg-type]
    assert one == other
    assert one.key.startswith("job/")


@pytest.mark.parametrize(
    ("change", "same_key"),
    [
        ({"request": "other"}, True),
        ({"name": "n"}, True),
        ({"tasks": 2}, True),
        ({"nodes": 1}, True),
        ({"memory_mb": 256}, True),  # what the default would be, but asked for
        ({"memory_per_core_mb": 256}, True),
        ({"walltime_s": 5.0}, True),
        ({"priority": 1}, True),
        ({"retries": 1}, True),
        ({"on_reclaim": "kill"}, True),
        ({"on_term": "complete"}, True),
        ({"grace_s": 0.0}, True),  # not what it has anyway
        ({"array": "1"}, True),
        ({"after": "afterok:1"}, True),
        ({"held": True}, True),
        ({"service": "s"}, True),
        ({"best_effort": True}, True),
        ({"short": True}, True),
        ({"quality": "q"}, True),
        ({"constraint": "gpu"}, True),
        ({"exclusive": True}, True),
        ({"cpus_per_task": 2}, True),
        ({"script": "y"}, False),
        ({"argv": ("a",)}, False),
        ({"environment": {}}, False),
        ({"directory": "d"}, False),
        ({"stdout": "o"}, False),
        ({"stderr": "e"}, False),
        ({"stdin": "i"}, False),
        ({"keep": ("*",)}, False),
        ({"gpus": 2}, True),
        ({"gpus_per_task": 2}, True),
        *(({dimension.per_node: 2}, True) for dimension in DIMENSIONS if dimension.optional),
        ({"signal": JobSignal(number=10)}, False),
        ({"inputs": (InputFile(name="a", data=b"1"),)}, False),
    ],
)
def test_every_field_of_a_request_is_in_its_digest(change: dict[str, Any], same_key: bool) -> None:
    one, other = pack(JobSubmit(**BASE), "hpc"), pack(JobSubmit(**{**BASE, **change}), "hpc")  # type: ignore[arg-type]
    assert (one.key == other.key) is same_key
    assert (one.digest == other.digest) is ("request" in change)  # its own id is not part of what is asked
    assert pack(JobSubmit(**BASE), "bio").digest != one.digest  # type: ignore[arg-type]


def test_the_table_above_knows_every_field() -> None:
    mark = test_every_field_of_a_request_is_in_its_digest.pytestmark[0]  # type: ignore[attr-defined]
    tried = {name for change, _ in mark.args[1] for name in change}
    assert tried == set(JobSubmit.__struct_fields__)


def test_inputs_are_objects_of_their_own_by_content() -> None:
    files = (InputFile(name="a", data=b"1"), InputFile(name="b", data=b"1"), InputFile(name="c", data=b"2"))
    packed = pack(JobSubmit(script="x", inputs=files), "hpc")
    assert len(packed.inputs) == 2
    assert sorted(packed.inputs.values()) == [b"1", b"2"]
    assert b"script" in packed.data
