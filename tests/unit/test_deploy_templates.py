"""The templates for a site's hypervisors: they load, the doctor finds nothing wrong, OpenNebula reads them as meant."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pyone
import pytest
from lxml import etree

from phoenix.doctor import checks
from phoenix.doctor.wanted import of_config
from phoenix.local.opennebula.testing import running_server
from services.executor.core.calls import Allocate
from services.executor.opennebula.template import Templates
from services.runtime.config.file import Config, loads

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


def until_ready(client: Any) -> None:
    """Images are copied first."""
    end = time.monotonic() + 20.0
    while any(image.STATE != 1 for image in client.imagepool.info(-2, -1, -1).IMAGE):
        assert time.monotonic() < end, "the images are ready"


@pytest.mark.parametrize("hypervisor", HYPERVISORS)
async def test_opennebula_takes_the_template_as_it_is_meant(hypervisor: str) -> None:
    site = loaded(hypervisor).opennebula.template
    text = Templates(b"key", "http://phoenix.example.org:7480", site).of("c", Allocate("3", 1, 0, "h", 2, 512, "3/1/0"))
    async with running_server(1) as one:
        client = pyone.OneServer(one.url, session=one.session)

        def run() -> Any:
            for name in ("phoenix-guest", "phoenix-guest-lxc"):
                client.image.allocate(f'NAME="{name}"\nPATH="/var/tmp/{name}"\nTYPE="OS"', 1)
            client.vn.allocate('NAME="phoenix"\nVN_MAD="dummy"\nAR=[TYPE="IP4",IP="10.0.0.1",SIZE="9"]', 0)
            until_ready(client)
            return client.vm.info(client.vm.allocate(text, True))

        vm = await asyncio.to_thread(run)
        template = one.store.vms[vm.ID].template
        (context,) = template.vectors("CONTEXT")
        assert context["GUEST_USER"] == "phoenix"
        assert context["PHOENIX_ID"] == "c/3/1/0"
        assert template.vectors("DISK")[0]["IMAGE"].startswith("phoenix-guest")
        assert template.vectors("NIC")[0]["NETWORK"] == "phoenix"
