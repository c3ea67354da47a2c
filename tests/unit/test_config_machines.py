"""What the hypervisor means for a configuration: what can be done with running VMs, and how long saving one may take."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from phoenix.local import stack_config
from phoenix.local.stack_layout import layout
from phoenix.local.stack_ports import Ports
from phoenix.local.stack_settings import Settings
from phoenix.local.supervisor import Supervisor
from schemas.config import BatchPolicy, Capability, CloudConfig, OnReclaim
from services.domain.capabilities import ALL, CAPABILITIES, Hypervisor, can
from services.domain.saving import save_s
from services.runtime.config.checks import check_cloud
from services.runtime.config.file import ConfigError, load, loads
from services.runtime.config.machines import EMBEDDED_HAS, SAVE_S, WISHES, lacks
from services.runtime.config.text import diff, dump_toml
from tests.support.world import batch, cloud

BASE = '[cloud]\nname = "c"\n[[department]]\nname = "hpc"\nkind = "batch"\n'


def one(**values: str) -> str:
    return BASE + "[opennebula]\n" + "".join(f'{key} = "{value}"\n' for key, value in values.items())


def test_every_hypervisor_says_what_it_can_and_how_long_saving_takes() -> None:
    assert set(CAPABILITIES) == set(SAVE_S) == set(get_args(Hypervisor))
    assert all(capability in get_args(Capability) for able in CAPABILITIES.values() for capability in able)


@pytest.mark.parametrize(
    ("text", "hypervisor", "able"),
    [
        (BASE, "process", ALL),  # the embedded one
        (one(hypervisor="dummy"), "dummy", (*ALL, "keep_devices")),
        (one(endpoint="http://one:2633/RPC2"), None, ()),  # it may be anything
        (one(endpoint="http://one:2633/RPC2", hypervisor="kvm"), "kvm", ALL),
        (one(endpoint="http://one:2633/RPC2", hypervisor="lxc"), "lxc", ()),
    ],
)
def test_what_can_be_done_follows_from_the_hypervisor(text: str, hypervisor: Any, able: Any) -> None:
    config = loads(text)
    assert (config.opennebula.hypervisor, config.cloud.capabilities) == (hypervisor, able)
    assert loads(dump_toml(config)) == config


@pytest.mark.parametrize("hypervisor", sorted(set(get_args(Hypervisor)) - set(EMBEDDED_HAS)))
def test_a_hypervisor_that_the_embedded_opennebula_lacks_needs_an_endpoint(hypervisor: str, tmp_path: Path) -> None:
    """Checked, started and applied: the same words."""
    file, place = tmp_path / "site.toml", layout(tmp_path / "data")
    file.write_text(one(hypervisor=hypervisor))
    told = rf"^site\.toml:7: opennebula\.hypervisor: \"{hypervisor}\": should be \"process\" or \"dummy\": .* endpoint"
    with pytest.raises(ConfigError, match=told):
        load(file)
    with pytest.raises(ConfigError, match=told):
        stack_config.effective(place, Ports(place.ports), file, hypervisor="process")
    with pytest.raises(ConfigError, match=told):
        stack_config.applied(file.read_text(), file.name, tmp_path, loads(BASE))
    assert stack_config.named_hypervisor(file, external=False) is None


def test_the_embedded_opennebula_has_the_hypervisor_that_the_file_names(tmp_path: Path) -> None:
    file = tmp_path / "site.toml"
    for values, named in (
        ({"hypervisor": "dummy"}, "dummy"),
        ({"poll_s": "1"}, None),
        ({"endpoint": "http://one:2633/RPC2", "hypervisor": "dummy"}, None),  # that one is the site's
    ):
        file.write_text(one(**values))
        assert stack_config.named_hypervisor(file, external=stack_config.names_opennebula(file)) == named


@pytest.mark.parametrize(
    ("given", "hypervisor", "told"),
    [
        (None, "dummy", []),
        ("dummy", "process", []),  # what was given is in the settings already
        ("process", "process", ["site.toml names the hypervisor dummy; --hypervisor process goes before"]),
    ],
)
def test_the_option_goes_before_the_file_and_says_so(
    given: str | None, hypervisor: str, told: list[str], tmp_path: Path
) -> None:
    said: list[str] = []
    supervisor, file = Supervisor(layout(tmp_path / "data"), said.append), tmp_path / "site.toml"
    supervisor.settings = Settings(hypervisor="process")
    file.write_text(one(hypervisor="dummy"))
    supervisor._take_hypervisor(file, given)
    assert (supervisor.settings.hypervisor, said) == (hypervisor, told)


@pytest.mark.parametrize("wish", WISHES)
@pytest.mark.parametrize("hypervisor", get_args(Hypervisor))
def test_a_department_may_wish_what_its_hypervisor_can_and_nothing_else(hypervisor: Any, wish: OnReclaim) -> None:
    config = msgspec.structs.replace(cloud(batch("hpc", on_reclaim=wish)), capabilities=CAPABILITIES[hypervisor])
    keys = [problem.key for problem in check_cloud(config)]
    assert keys == ([] if can(CAPABILITIES[hypervisor], wish) else ["department.batch.on_reclaim"])


def test_what_cannot_be_kept_is_told_with_what_can() -> None:
    assert lacks((), "kill") == lacks((), "requeue") == lacks(ALL, "migrate") == ""
    assert lacks((), "suspend").startswith('should be "kill" or "requeue": ')
    assert lacks(("suspend",), "suspend")  # saved, and never resumed elsewhere: its host would be lost to others
    assert lacks(("live_migration",), "suspend").startswith('should be "kill" or "requeue" or "migrate": ')


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", 5.0),
        ('[opennebula]\nhypervisor = "kvm"\nendpoint = "http://one:2633/RPC2"\n', 240.0),
        ("[policy]\nsave_s = 7\n", 7.0),
    ],
)
def test_how_long_saving_may_take_follows_from_the_hypervisor_unless_it_is_said(more: str, expected: float) -> None:
    assert loads(BASE + more).cloud.policy.save_s == expected


def test_a_department_has_its_own_time_for_saving() -> None:
    config = cloud(batch("hpc", save_s=9.0), batch("bio"))
    assert (save_s(config, "hpc"), save_s(config, "bio")) == (9.0, 60.0)
    assert save_s(config, "gone") == save_s(None, "hpc") == 60.0
    assert BatchPolicy().save_s is None


def test_what_is_applied_to_a_running_cloud_has_what_its_hypervisor_can(tmp_path: Path) -> None:
    running = loads(one(endpoint="http://one:2633/RPC2", hypervisor="lxc"))
    applied = stack_config.applied(BASE, "new.toml", tmp_path, running)
    assert (applied.cloud.capabilities, applied.opennebula.hypervisor) == ((), "lxc")
    wishing = BASE + '[department.batch]\non_reclaim = "suspend"\n'
    with pytest.raises(ConfigError, match=r"^new\.toml:7: .* cannot suspend a running VM"):
        stack_config.applied(wishing, "new.toml", tmp_path, running)


def test_what_is_applied_keeps_the_time_for_saving_of_the_hypervisor_that_runs(tmp_path: Path) -> None:
    running = loads(one(endpoint="http://one:2633/RPC2", hypervisor="kvm"))
    applied = stack_config.applied(BASE, "new.toml", tmp_path, running)
    assert applied.cloud == running.cloud
    assert diff(running.cloud, loads(BASE, opennebula=running.opennebula).cloud) == []


def test_the_journal_carries_what_can_be_done() -> None:
    config = msgspec.structs.replace(cloud(batch("hpc")), capabilities=ALL)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=CloudConfig).capabilities == ALL


def test_the_document_has_the_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "explanation" / "reclaim.md").read_text()
    rows = []
    for hypervisor, able in CAPABILITIES.items():
        words = ["yes" if capability in able else "no" for capability in ALL]
        wishes = ", ".join(f"`{wish}`" for wish in WISHES if can(able, wish))
        rows.append(f"| `{hypervisor}` | {' | '.join(words)} | {wishes} |")
    head = f"| hypervisor | {' | '.join(capability.replace('_', ' ') for capability in ALL)} | `on_reclaim` |\n"
    assert head + "|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n\n" in text
    for seconds, hypervisors in ((5, "`process` and `dummy`"), (240, "`kvm`, `qemu` and `xen`")):
        names = [name.strip("`") for name in hypervisors.replace(",", " and").split(" and ")]
        assert f"{seconds} s for {hypervisors}" in text
        assert all(SAVE_S[name] == seconds for name in names)  # type: ignore[index]
