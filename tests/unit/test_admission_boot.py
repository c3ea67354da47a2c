"""The boot document: whose grace a guest is given."""

from __future__ import annotations

from schemas.config import CloudConfig, Department, Policy, WebPolicy
from schemas.custody_state import Unit
from services.admission.boot import boot_of


def test_an_instance_has_its_departments_time_to_drain() -> None:
    departments = (Department(name="web", kind="web", web=WebPolicy(drain_s=7.0)),)
    config = CloudConfig(name="test", policy=Policy(grace_s=0.3), departments=departments)
    unit = Unit(id="web.1", dept="web", attempt=1, hosts=("h1",), cores=1, memory_mb=64)
    boot = boot_of(config, unit, 0, None, None)
    assert boot is not None
    assert (boot.kind, boot.grace_s) == ("instance", 7.0)
