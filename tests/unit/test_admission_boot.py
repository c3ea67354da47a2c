"""The boot document: whose grace a guest is given."""

from __future__ import annotations

from msgspec.structs import replace

from schemas.config import CloudConfig, Department, Policy, WebPolicy
from schemas.releases import Release
from schemas.size import Size
from services.admission.guests.boot import COMMAND_SCRIPT, boot_of
from services.admission.guests.boot_text import environment
from services.domain.custody.state import Unit


def test_an_instance_has_the_policys_grace_since_it_has_drained_before() -> None:
    departments = (Department(name="web", kind="web", web=WebPolicy(drain_s=7.0)),)
    config = CloudConfig(name="test", policy=Policy(grace_s=0.3), departments=departments)
    unit = Unit(id="web.1", dept="web", attempt=1, hosts=("h1",), size=Size(1, 64))
    boot = boot_of(config, unit, 0, None, None, release=Release())
    assert boot is not None
    assert (boot.kind, boot.grace_s) == ("instance", 0.3)


def test_an_instance_runs_its_release() -> None:
    departments = (Department(name="web", kind="web", web=WebPolicy(command=("old",), environment={"A": "1"})),)
    config = CloudConfig(name="test", departments=departments)
    unit = Unit(id="web.1", dept="web", attempt=1, hosts=("h1",), size=Size(1, 64), release=3)
    content = Release(
        image="shop-3", command=("serve", "-v"), environment={"B": "2", "PHOENIX_RELEASE": "x"}, health_path="/up"
    )
    boot = boot_of(config, unit, 0, None, None, release=content)
    assert boot is not None
    assert (boot.script, boot.argv, boot.health_path) == (COMMAND_SCRIPT, ("serve", "-v"), "/up")
    assert boot.environment == {"B": "2", "PHOENIX_RELEASE": "3", "PHOENIX_IMAGE": "shop-3"}
    plain = boot_of(config, unit, 0, None, None, release=Release())
    assert plain is not None
    assert (plain.script, plain.argv) == (None, ())  # the guest's default web program
    assert boot_of(config, unit, 0, None, None) is None  # nobody remembers what it was to run


def test_who_has_gpus_finds_which_and_who_has_none_finds_nothing_of_them() -> None:
    departments = (Department(name="web", kind="web", web=WebPolicy()),)
    config = CloudConfig(name="test", departments=departments)
    unit = Unit(id="web.1", dept="web", attempt=1, hosts=("h1",), size=Size(1, 64, 3))
    boot = boot_of(config, unit, 0, None, None, release=Release())
    assert boot is not None
    found = environment(boot)
    names = ("PHOENIX_GPUS", "SLURM_GPUS_ON_NODE", "CUDA_VISIBLE_DEVICES")
    assert [found[name] for name in names] == ["3", "3", "0,1,2"]
    without = boot_of(config, replace(unit, size=Size(1, 64)), 0, None, None, release=Release())
    assert without is not None
    assert not {name for name in environment(without) if "GPU" in name or "CUDA" in name}
