"""What the cloud is going to ask of an OpenNebula: from a configuration file, or the defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from schemas.config import Hosts
from services.runtime.config.tables import Config

CONCURRENCY: Final = 8  # [opennebula] concurrency's default
REAL: Final = ("kvm", "lxc", "xen")  # hypervisors whose VMs are machines of their own, elsewhere


@dataclass(frozen=True, slots=True)
class Wanted:
    """`hypervisor` empty: not said.  `door`: where guests call.  `events`: of the hook manager's publisher, HOST:PORT or ipc:///PATH.
    `rules`: which hosts are the cloud's, and what they offer."""

    hypervisor: str = ""
    concurrency: int = CONCURRENCY
    door: str = ""
    events: str = ""
    template: dict[str, Any] = field(default_factory=dict)
    rules: Hosts = field(default_factory=Hosts)


def of_config(config: Config) -> Wanted:
    one = config.opennebula
    return Wanted(
        hypervisor=one.hypervisor or "",
        concurrency=one.concurrency,
        door=config.http.url or f"http://{config.http.listen}",
        events=one.events.removeprefix("tcp://") if one.listens else "",
        template=dict(one.template),
        rules=config.cloud.hosts,
    )
