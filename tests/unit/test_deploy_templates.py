"""The templates for a site's hypervisors: they load, the doctor finds nothing wrong, OpenNebula reads them as meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from lxml import etree
from msgspec.structs import replace

from phoenix.doctor import checks
from phoenix.doctor.requirements import of_config
from phoenix.local.opennebula.templates import parse
from schemas.size import Size
from services.executor.core.calls import Allocate
from services.executor.opennebula.client_pool import load_templates
from services.runtime.config.file import loads
from services.runtime.config.tables import Config

DEPLOY = Path(__file__).parents[2] / "deploy" / "opennebula"
REST = """
[cloud]
name = "c"
[http]
listen = "0.0.0.0:7480"
url = "http://phoenix.example.org:7480"
[[department]]
name = "hpc"
kind = "batch"
"""
HYPERVISORS = ("kvm", "lxc", "xen")


def loaded(hypervisor: str) -> Config:
    return loads((DEPLOY / f"{hypervisor}.toml").read_text() + REST, "site.toml", Path("/"))


@pytest.mark.parametrize("hypervisor", HYPERVISORS)
def test_a_template_is_one_that_the_doctor_has_nothing_against(hypervisor: str) -> None:
    wanted = of_config(loaded(hypervisor))
    assert (wanted.hypervisor, wanted.events) == (hypervisor, "oned.example.org:2101")
    images = "<P>" + "".join(
        f"<IMAGE><ID>1</ID><NAME>{name}</NAME><STATE>1</STATE></IMAGE>"
        for name in ("phoenix-guest", "phoenix-guest-lxc")
    )
    found = checks.template(wanted, etree.fromstring(images + "</P>"))
    assert [(x.check, x.level) for x in found] == [("template", "ok")]


@pytest.mark.parametrize("hypervisor", HYPERVISORS)
def test_opennebula_reads_the_template_as_it_is_meant(hypervisor: str, tmp_path: Path) -> None:
    config = loaded(hypervisor)
    key = tmp_path / "key"
    key.write_bytes(b"key")
    config = replace(config, data=replace(config.data, guest_key_file=key))
    text = load_templates(config).of("c", Allocate("3", 1, 0, "h", Size(2, 512), "3/1/0"))
    template = parse(text)
    (context,) = template.vectors("CONTEXT")
    assert context["GUEST_USER"] == "phoenix"
    assert context["PHOENIX_ID"] == "c/3/1/0"
    # oned knows one word beside the names of models (LibVirtDriverKVM.cc): libvirt's host-model is taken for such a name
    assert [model["MODEL"] for model in template.vectors("CPU_MODEL")] in ([], ["host-passthrough"])
    assert context.get("PHOENIX_END") == ("cloud" if hypervisor == "lxc" else None)
    assert template.vectors("DISK")[0]["IMAGE"].startswith("phoenix-guest")
    assert template.vectors("NIC")[0]["NETWORK"] == "phoenix"
