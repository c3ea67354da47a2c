"""Meaning of the services of a batch department (`order = "svmsched"`); see `config.checks`."""

from __future__ import annotations

import math
from collections.abc import Iterator

from schemas import ids
from schemas.config import BatchPolicy
from schemas.dimensions import DIMENSIONS
from services.runtime.config.form import NAME_RIGHT, Path_, Problem, shown


def check(batch: BatchPolicy, path: Path_, label: str) -> Iterator[Problem]:
    def problem(key: str, value: object, right: str) -> Problem:
        return Problem(path=(*path, key), found=shown(value), right=right, label=label)

    if batch.order == "svmsched" and not batch.services:
        example = "should name the services and their weights, for example services = { jivaro = 65, bof = 19 }"
        yield problem("services", "none", example)
    if batch.order != "svmsched" and batch.services:
        yield problem("services", ", ".join(batch.services), 'should be with order = "svmsched": no other shares hosts')
    for name in batch.services:
        if not ids.is_department(name):
            yield problem("services", name, NAME_RIGHT)
    (first, weight), *rest = ((each.weight, getattr(batch, each.weight)) for each in DIMENSIONS)
    if not math.isclose(weight + sum(value for _, value in rest), 1.0, abs_tol=1e-9):
        others = ", ".join(f"{name} ({value:g})" for name, value in rest)
        yield problem(first, weight, f"should be 1 together with {others}")
