"""Stub."""

from __future__ import annotations
from typing import TYPE_CHECKING
from phoenix.local.opennebula.model import Host, Vm

if TYPE_CHECKING:
    from phoenix.local.opennebula.server import OpenNebula


class Hooks:
    watches_calls = False

    def __init__(self, one: OpenNebula) -> None: ...
    def vm_changed(self, vm: Vm) -> None: ...
    def host_changed(self, host: Host) -> None: ...
    def called(self, name: str, params: list[object], outcome: object) -> None: ...
    async def close(self) -> None: ...
