"""GPUs as OpenNebula's PCI devices: what each host has, and which VM has which of them.

1. A host's devices are made with the host: `Settings.size.gpus` of them.  Where device nodes are named (`Settings.gpu_devices`)
   they are dealt host by host, none twice, so that the last hosts may have fewer, or none.
2. A VM's template has a PCI attribute for each device that it asks for: SHORT_ADDRESS, or any of VENDOR, DEVICE and CLASS.
3. A VM has its devices exactly as long as it counts on the host (`Store.count`); its PCI attributes name them.
   A deployment that is not enforced gets those that are free, as in `oned`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from phoenix.local.opennebula.model import Host, PciDevice, Vm
from phoenix.local.opennebula.templates import Value, Vector, cdata

GPU_CLASS = "0302"  # a 3D controller, as data-centre GPUs are
_KIND = {"VENDOR": "10de", "DEVICE": "20b0", "CLASS": GPU_CLASS}
_WORDS = {"VENDOR_NAME": "NVIDIA Corporation", "DEVICE_NAME": "GPU", "CLASS_NAME": "3D controller"}
_ASKED = ("SHORT_ADDRESS", "VENDOR", "DEVICE", "CLASS")


def devices_of(host: int, hosts: int, gpus: int, nodes: Sequence[str]) -> list[PciDevice]:
    """Of the host with this number (rule 1).  `gpus`: on each; 0: the nodes are dealt evenly."""
    each = gpus or math.ceil(len(nodes) / max(1, hosts))
    numbers = range(host * each, host * each + each)
    if nodes:
        return [PciDevice(slot, number, nodes[number]) for slot, number in enumerate(numbers) if number < len(nodes)]
    return [PciDevice(slot, slot) for slot in range(each)]


def address(device: PciDevice) -> Vector:
    """Where it is, as a host and a VM's PCI show it."""
    bus = f"{device.slot + 1:02x}"
    where = {"DOMAIN": "0000", "BUS": bus, "SLOT": "00", "FUNCTION": "0"}
    return {**where, "ADDRESS": f"0000:{bus}:00:0", "SHORT_ADDRESS": f"{bus}:00.0"}


def render(devices: Sequence[PciDevice]) -> str:
    """What PCI_DEVICES of a host holds."""
    return "".join(f"<PCI>{_elements(device)}</PCI>" for device in devices)


def _elements(device: PciDevice) -> str:
    kind = ":".join(_KIND.values())
    values = {**address(device), **_KIND, **_WORDS, "NUMA_NODE": "-", "TYPE": kind, "VMID": str(device.vm_id)}
    return "".join(f"<{name}>{cdata(values[name])}</{name}>" for name in sorted(values))


def available(vm: Vm, host: Host) -> bool:
    """Whether the host has a free device for each that the VM asks for."""
    return None not in _matches(map(_wish, vm.template.vectors("PCI")), host)


def take(vm: Vm, host: Host) -> None:
    """The VM counts on the host from now on (rule 3)."""
    asked = vm.template.vectors("PCI")
    if not asked:
        return
    given: list[Value] = []
    for want, device in zip(asked, _matches(asked, host), strict=True):
        if device is not None:
            device.vm_id = vm.id
        given.append({**want, **(address(device) if device is not None else {})})
    vm.template = vm.template.with_value("PCI", *given)
    vm.touch()


def release(vm: Vm, host: Host) -> None:
    """The VM does not count on the host any more: what it asked for remains, what it had does not."""
    asked = vm.template.vectors("PCI")
    if not asked:
        return
    for device in host.devices:
        if device.vm_id == vm.id:
            device.vm_id = -1
    vm.template = vm.template.with_value("PCI", *map(_wish, asked))
    vm.touch()


def _wish(pci: Vector) -> Vector:
    """What was asked for, without what `take` has added: an address that was asked for names no class beside it."""
    by_kind = {name: pci[name] for name in _ASKED[1:] if name in pci}
    return by_kind or {"SHORT_ADDRESS": pci.get("SHORT_ADDRESS", "")}


def _matches(wishes: Iterable[Vector], host: Host) -> list[PciDevice | None]:
    """A free device for each wish, None where there is none; no device twice."""
    free = [device for device in host.devices if device.vm_id < 0]
    found: list[PciDevice | None] = []
    for want in wishes:
        match = next((device for device in free if _is(device, want)), None)
        found.append(match)
        if match is not None:
            free.remove(match)
    return found


def _is(device: PciDevice, want: Vector) -> bool:
    has = {**address(device), **_KIND}
    asked = {name: want[name] for name in _ASKED if want.get(name)}
    return bool(asked) and all(has[name].lower() == value.lower() for name, value in asked.items())
