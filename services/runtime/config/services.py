"""Meaning of the services of a batch department (`order = "svmsched"`); see `config.checks`."""

from __future__ import annotations

import math
from collections.abc import Iterator

from schemas import ids
from schemas.config import BatchPolicy
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
    if not math.isclose(batch.w_cpu + batch.w_mem, 1.0, abs_tol=1e-9):
        yield problem("w_cpu", batch.w_cpu, f"should be 1 together with w_mem ({batch.w_mem:g})")
