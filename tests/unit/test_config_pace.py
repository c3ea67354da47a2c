"""What a file does not name: patient at a site, quick in the embedded cloud, and never the reason why a file is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from phoenix.local import stack_config
from phoenix.local.stack_layout import layout
from phoenix.local.stack_ports import Ports
from schemas.config import BatchPolicy, Hosts, Policy, WebPolicy
from services.runtime.config.file import loads
from services.runtime.config.pace import BOOT_S, SITE
from services.runtime.config.tables import Config, OpenNebula
from services.runtime.config.text import dump_toml

CLOUD = (
    '[cloud]\nname = "c"\n[[department]]\nname = "hpc"\nkind = "batch"\n[[department]]\nname = "web"\nkind = "web"\n'
)
SITES = ("", 'hypervisor = "kvm"\n', 'hypervisor = "qemu"\n', 'hypervisor = "lxc"\n', 'hypervisor = "xen"\n')
AT_SITE = '[opennebula]\nendpoint = "http://one:2633/RPC2"\n'


def pace(config: Config) -> dict[str, Any]:
    """All that differs."""
    tables = {"policy": config.cloud.policy, "hosts": config.cloud.hosts, "opennebula": config.opennebula}
    found = {key: getattr(tables[name], key) for name, values in SITE.items() for key in values}
    hpc, web = (config.cloud.department(name) for name in ("hpc", "web"))
    assert hpc is not None
    assert web is not None
    assert hpc.batch is not None
    assert web.web is not None
    return {**found, "batch": hpc.batch.boot_timeout_s, "web": web.web.boot_timeout_s}


PATIENT = {key: value for values in SITE.values() for key, value in values.items()} | {"batch": BOOT_S, "web": BOOT_S}
QUICK = {
    "grace_s": Policy().grace_s,
    "kill_s": Policy().kill_s,
    "stuck_s": Policy().stuck_s,
    "quarantine_s": Hosts().quarantine_s,
    "poll_s": OpenNebula().poll_s,
    "batch": BatchPolicy().boot_timeout_s,
    "web": WebPolicy().boot_timeout_s,
}


@pytest.mark.parametrize("hypervisor", SITES)
def test_a_site_has_time_to_boot_end_and_answer(hypervisor: str) -> None:
    config = loads(CLOUD + AT_SITE + hypervisor)
    assert pace(config) == PATIENT
    assert loads(dump_toml(config)) == config


@pytest.mark.parametrize("hypervisor", ["", 'hypervisor = "dummy"\n', 'hypervisor = "process"\n'])
def test_the_embedded_cloud_is_as_quick_as_it_was(hypervisor: str, tmp_path: Path) -> None:
    text = CLOUD + "[opennebula]\n" + hypervisor
    assert (
        pace(loads(text))
        == QUICK
        == {
            "grace_s": 0.3,
            "kill_s": 5.0,
            "stuck_s": 30.0,
            "quarantine_s": 60.0,
            "poll_s": 1.0,
            "batch": 60.0,
            "web": 60.0,
        }
    )
    file, place = tmp_path / "cloud.toml", layout(tmp_path / "data")
    file.write_text(text)
    assert pace(stack_config.effective(place, Ports(place.ports), file)) == QUICK
    assert pace(stack_config.effective(place, Ports(place.ports), None)) == QUICK


def test_every_number_of_a_site_exceeds_what_was_measured_at_one() -> None:
    assert PATIENT["grace_s"] >= 2 * 8.5
    assert PATIENT["kill_s"] > PATIENT["grace_s"]
    assert min(PATIENT["batch"], PATIENT["web"]) >= 10 * 41
    assert all(PATIENT[key] > QUICK[key] for key in QUICK)


def test_what_the_file_names_holds() -> None:
    said = CLOUD.replace('kind = "batch"\n', 'kind = "batch"\n[department.batch]\nboot_timeout_s = 90\n')
    said += "[department.web]\nboot_timeout_s = 91\n[policy]\ngrace_s = 1\nkill_s = 2\nstuck_s = 3\n"
    said += "[hosts]\nquarantine_s = 4\n" + AT_SITE + "poll_s = 0.5\n"
    named = {"grace_s": 1, "kill_s": 2, "stuck_s": 3, "quarantine_s": 4, "poll_s": 0.5, "batch": 90, "web": 91}
    assert pace(loads(said)) == named


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("[policy]\nkill_s = 10\n", "grace_s", 10.0),
        ("[policy]\nkill_s = 100\n", "grace_s", 20.0),
        ("[hosts]\nquarantine_max_s = 120\n", "quarantine_s", 120.0),
        ("[hosts]\nquarantine_max_s = 600\n", "quarantine_s", 300.0),
    ],
)
def test_a_default_follows_the_bound_that_the_file_names(text: str, key: str, expected: float) -> None:
    assert pace(loads(CLOUD + text + AT_SITE))[key] == expected


def test_a_default_is_no_longer_than_what_jobs_may_ask_for() -> None:
    text = CLOUD.replace('kind = "batch"\n', 'kind = "batch"\n[department.batch]\ngrace_max_s = 6\n')
    assert pace(loads(text + AT_SITE))["grace_s"] == 6.0


def test_what_is_applied_to_a_site_that_runs_is_as_patient_whatever_the_text_says(tmp_path: Path) -> None:
    site, embedded = loads(CLOUD + AT_SITE), loads(CLOUD)
    applied = stack_config.applied(CLOUD, "new.toml", tmp_path, site)
    assert applied.cloud.policy == site.cloud.policy
    assert pace(applied) == PATIENT
    applied = stack_config.applied(CLOUD + AT_SITE, "new.toml", tmp_path, embedded)
    assert msgspec.structs.replace(applied.cloud, name="c") == embedded.cloud
