"""What the cloud is going to ask of an OpenNebula: from a configuration file, or the defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from schemas.config import Hosts
from services.runtime.config.pace import BOOT_S, SITE
from services.runtime.config.tables import Config

CONCURRENCY: Final = 8  # [opennebula] concurrency's default
REAL: Final = ("kvm", "qemu", "lxc", "xen")  # hypervisors whose VMs are machines of their own, elsewhere


@dataclass(frozen=True, slots=True)
class Wanted:
    """`hypervisor` empty: not said.  `door`: where guests call.  `events`: of the hook manager's publisher, HOST:PORT or ipc:///PATH.
    `rules`: which hosts are the cloud's, and what they offer.  `listen`: where admission listens; empty: not known.
    `boot_timeout_s`: the shortest of the departments; `grace_s`, `kill_s`: of the policy."""

    hypervisor: str = ""
    concurrency: int = CONCURRENCY
    door: str = ""
    events: str = ""
    template: dict[str, Any] = field(default_factory=dict)
    rules: Hosts = field(default_factory=Hosts)
    listen: str = ""
    boot_timeout_s: float = BOOT_S
    grace_s: float = SITE["policy"]["grace_s"]
    kill_s: float = SITE["policy"]["kill_s"]


def of_config(config: Config) -> Wanted:
    one, policies = config.opennebula, [department.batch or department.web for department in config.cloud.departments]
    return Wanted(
        hypervisor=one.hypervisor or "",
        concurrency=one.concurrency,
        door=config.http.url or f"http://{config.http.listen}",
        events=one.events.removeprefix("tcp://") if one.listens else "",
        template=dict(one.template),
        rules=config.cloud.hosts,
        listen=config.http.listen,
        boot_timeout_s=min((p.boot_timeout_s for p in policies if p is not None), default=BOOT_S),
        grace_s=config.cloud.policy.grace_s,
        kill_s=config.cloud.policy.kill_s,
    )
