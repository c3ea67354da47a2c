"""What an embedded OpenNebula is made with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from phoenix.local.opennebula.model import HostHardware
from schemas.dimensions import EMBEDDED
from schemas.size import Size


@dataclass(slots=True)
class Settings:
    """What an embedded OpenNebula is made of.

    `size`: of each host; `gpu_devices`: the device nodes that stand behind its GPUs (see `pci`).

    `monitor_interval_s` None: hosts are probed only by steering. `pace`: no faster than a real `oned` (see `pace`).
    `images`, `networks`: names of what VMs' disks and NICs may name, the first user's; nothing is behind them.

    `events`: where events are published, `ipc://PATH` or `tcp://HOST:PORT`; or `events_port`, on `bind`.
    """

    hosts: int = 4
    size: Size = EMBEDDED
    gpu_devices: tuple[str, ...] = ()
    hardware: HostHardware = field(default_factory=HostHardware)
    bind: str = "127.0.0.1"
    port: int = 0
    events_port: int | None = None
    events: str = ""
    steering: bool = False
    monitor_interval_s: float | None = 2.0
    data_dir: Path | None = None
    user: str = "oneadmin"
    password: str = "opennebula"  # noqa: S105 (the installation's default; `--auth-file` replaces it)
    pace: bool = False
    images: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
