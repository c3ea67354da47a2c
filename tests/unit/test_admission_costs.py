"""What a submission costs beside its turn (docs/reference/service-limits.md)."""

from __future__ import annotations

from typing import Any

import pytest

from schemas import facts as f
from services.admission.commands.audit_context import Asked, asking
from services.admission.commands.dispatcher import _charge
from tests.support.toy import job


@pytest.mark.parametrize(
    ("fact", "cost"),
    [
        ({}, 0.0),
        ({"array": tuple(range(10_000))}, 200.0),
        ({"after": (f.Dependency(condition="afterok", job="1"),) * 1000}, 20.0),
    ],
)
def test_elements_and_dependencies_of_a_submission_are_charged(fact: dict[str, Any], cost: float) -> None:
    asked = Asked("job.submit", "nats")
    with asking(asked):
        _charge(f.JobSubmitted(job="2", dept="hpc", user="ann", name="", payload="", walltime_s=1.0, **fact))
    assert asked.cost == cost
    _charge(job(1))  # nobody asks
