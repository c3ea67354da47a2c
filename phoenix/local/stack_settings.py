"""The options of `phoenix up` beside the configuration: how large the machine room is, and what its hosts are made of.

It is kept in DATA/settings.json, so that a later `up` on the same directory has the same hosts.  An option that is given
again wins and is kept, but for `services`: that one holds for one start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from phoenix.local.stack_layout import write_private
from schemas.dimensions import EMBEDDED
from schemas.size import FIELDS, Size

Hypervisor = Literal["process", "dummy"]
Services = Literal["all", "none"]
Balancer = Literal["embedded", "haproxy", "none"]
OpenNebula = Literal["embedded", "external"]
Isolate = Literal["auto", "uid+cgroup", "uid", "none"]
JobNetwork = Literal["auto", "own", "machine"]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`size`: of each host (no GPUs: the configuration's `gpu_devices`, dealt evenly); flat in the file.  `core_share`: real
    cores behind one core of a host.  `disk_mb`: how much a job may hold on the disk."""

    hosts: int = 16
    size: Size = EMBEDDED
    disk_mb: int = 10_240
    hypervisor: Hypervisor = "process"
    services: Services = "all"
    core_share: float = 0.05
    isolate: Isolate = "auto"
    job_network: JobNetwork = "auto"  # own, if it can be had
    steering: bool = False  # the dummy hypervisor can be steered over XML-RPC
    pace: bool = False  # the embedded OpenNebula is no faster than a real one
    balancer: Balancer = "embedded"  # of the web departments; none: a person runs one
    opennebula: OpenNebula = "embedded"  # external: the configuration names a site's own; hosts and hypervisor are its

    @property
    def external(self) -> bool:
        return self.opennebula == "external"

    @property
    def runs_jobs(self) -> bool:
        """Whether jobs are processes of this machine."""
        return not self.external and self.hypervisor == "process"

    @property
    def balances(self) -> bool:
        """Whether web departments have a balancer of ours: a site has its own, as who wants none; dummy instances do not
        listen."""
        return self.balancer != "none" and self.runs_jobs


def load(path: Path) -> Settings:
    """The kept settings, or the defaults.  A damaged file counts as none: it holds nothing that cannot be said again."""
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        size = [kept.pop(field, number) for field, number in EMBEDDED.fields().items()]
        return msgspec.convert({**kept, "size": size}, Settings)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return Settings()


def save(path: Path, settings: Settings) -> None:
    kept = msgspec.structs.asdict(settings)
    write_private(path, msgspec.json.format(msgspec.json.encode({**kept, **kept.pop("size").fields()})))


def changed(settings: Settings, **given: Any) -> Settings:
    """With every option that was given (is not None); those of the size by the names of its fields."""
    said = {name: value for name, value in given.items() if value is not None}
    size = settings.size._replace(**{field: said.pop(field) for field in FIELDS if field in said})
    return msgspec.structs.replace(settings, size=size, **said)
