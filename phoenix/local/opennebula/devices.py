"""Disks and network interfaces of a VM: from what the template names to what the VM has.

1. A disk names an image (IMAGE_ID, or IMAGE by name) or a volatile TYPE with a SIZE; an image in use counts its VMs.
2. A NIC names a network (NETWORK_ID, or NETWORK by name) and takes its lowest free address; the VM gives it back when
   DONE.
3. Images and networks restrict the clusters a VM may run in; the requirements say so as OpenNebula words them.
"""

from __future__ import annotations

import ipaddress

from phoenix.local.opennebula.errors import ACTION, INTERNAL, OneError
from phoenix.local.opennebula.model import Datastore, Image, Vm, Vnet
from phoenix.local.opennebula.states import ImageState
from phoenix.local.opennebula.store import Store
from phoenix.local.opennebula.templates import Template, Value, Vector

_CONTEXT_ETH = (
    *(
        "DNS",
        "EXTERNAL",
        "GATEWAY",
        "IP",
        "IP6",
        "IP6_GATEWAY",
        "IP6_METHOD",
        "IP6_METRIC",
        "IP6_PREFIX_LENGTH",
        "IP6_ULA",
    ),
    *(
        "MAC",
        "MASK",
        "METHOD",
        "METRIC",
        "MTU",
        "NETWORK",
        "ROUTES",
        "SEARCH_DOMAIN",
        "VLAN_ID",
        "VROUTER_IP",
        "VROUTER_IP6",
    ),
    "VROUTER_MANAGEMENT",
)


def requirements(clusters: set[int] | None, pinning: str) -> dict[str, list[Value]]:
    """AUTOMATIC_REQUIREMENTS and its kin; `clusters` None: any cluster will do."""
    if clusters is None:
        return {"AUTOMATIC_REQUIREMENTS": [pinning]}
    ordered = sorted(clusters)
    hosts = " | ".join(f"CLUSTER_ID = {cluster}" for cluster in ordered)
    stores = " | ".join(f'"CLUSTERS/ID" @> {cluster}' for cluster in ordered)
    return {
        "AUTOMATIC_REQUIREMENTS": [f"({hosts}) & {pinning}"],
        "AUTOMATIC_DS_REQUIREMENTS": [f"({stores})"],
        "AUTOMATIC_NIC_REQUIREMENTS": [f"({stores})"],
    }


def _find_image(store: Store, disk: Vector, number: int) -> Image | None:
    if "IMAGE_ID" in disk:
        wanted = disk["IMAGE_ID"]
        image = store.images.get(int(wanted)) if wanted.isdigit() else None
        if image is None:
            raise OneError(INTERNAL, f"DISK {number}: Image with ID: {wanted} does not exist")
        return image
    if "IMAGE" in disk:
        for image in store.images.values():
            if image.name == disk["IMAGE"]:
                return image
        raise OneError(
            INTERNAL,
            f"DISK {number}: User 0 does not own an image with name: {disk['IMAGE']} . Set IMAGE_UNAME or IMAGE_UID.",
        )
    return None


def _image_disk(image: Image, datastore: Datastore, number: int) -> Vector:
    size = str(image.size_mb)
    persistent = "YES" if image.persistent else "NO"
    return {
        "ALLOW_ORPHANS": datastore.template.get("ALLOW_ORPHANS", "NO"),
        "CLONE": "NO" if image.persistent else "YES",
        "CLONE_TARGET": datastore.template.get("CLONE_TARGET", "SYSTEM"),
        "CLUSTER_ID": ",".join(map(str, datastore.clusters)),
        "DATASTORE": datastore.name,
        "DATASTORE_ID": str(datastore.id),
        "DEV_PREFIX": image.template.get("DEV_PREFIX", "sd"),
        "DISK_ID": str(number),
        "DISK_SNAPSHOT_TOTAL_SIZE": "0",
        "DISK_TYPE": "FILE",
        "DRIVER": image.format,
        "FORMAT": image.format,
        "IMAGE": image.name,
        "IMAGE_ID": str(image.id),
        "IMAGE_STATE": str(int(ImageState.USED_PERS if image.persistent else ImageState.USED)),
        "LN_TARGET": datastore.template.get("LN_TARGET", "NONE"),
        "ORIGINAL_SIZE": size,
        "PERSISTENT_SNAPSHOTS": datastore.template.get("PERSISTENT_SNAPSHOTS", "YES"),
        "READONLY": "NO",
        "SAVE": persistent,
        "SIZE": size,
        "SOURCE": image.source,
        "TARGET": f"sd{chr(ord('a') + number)}",
        "TM_MAD": datastore.tm_mad,
        "TYPE": "FILE",
    }


def volatile_disk(disk: Vector, number: int, position: int) -> Vector:
    """A disk that lives and dies with its VM, the `position`th of its bus. Raises `OneError` without a SIZE."""
    if not disk.get("SIZE", "").isdigit():
        raise OneError(INTERNAL, f"DISK {number}: Not valid or missing SIZE.")
    letter = f"sd{chr(ord('a') + position)}"
    format_ = disk.get("FORMAT", "raw")
    base = {
        "DEV_PREFIX": "sd",
        "DISK_ID": str(number),
        "DRIVER": format_,
        "FORMAT": format_,
        "TARGET": letter,
        "DISK_TYPE": "FILE",
    }
    return {**base, **disk, "SIZE": disk["SIZE"], "TYPE": disk.get("TYPE", "fs")}


def place_volatile(disk: Vector, datastore: Datastore) -> Vector:
    """A volatile disk once its VM is on a system datastore."""
    template = datastore.template
    return {
        **disk,
        "ALLOW_ORPHANS": template.get("ALLOW_ORPHANS", "NO"),
        "CLUSTER_ID": ",".join(map(str, datastore.clusters)),
        "DATASTORE": datastore.name,
        "DATASTORE_ID": str(datastore.id),
        "PERSISTENT_SNAPSHOTS": template.get("PERSISTENT_SNAPSHOTS", "YES"),
        "TM_MAD": datastore.tm_mad,
    }


def attached(template: Template) -> Template:
    """A template whose new devices are in place."""
    for name in ("DISK", "NIC"):
        vectors = template.vectors(name)
        if any("ATTACH" in vector for vector in vectors):
            template = template.with_value(
                name, *({k: v for k, v in vector.items() if k != "ATTACH"} for vector in vectors)
            )
    return template


def build_disks(store: Store, source: Template) -> tuple[list[Vector], set[int] | None]:
    """The VM's disks, and the clusters they allow (None: all). Raises `OneError`."""
    disks: list[Vector] = []
    clusters: set[int] | None = None
    for number, disk in enumerate(source.vectors("DISK")):
        image = _find_image(store, disk, number)
        if image is None:
            disks.append(volatile_disk(disk, number, number))
            continue
        datastore = store.datastore(image.datastore_id)
        disks.append(_image_disk(image, datastore, number))
        clusters = set(datastore.clusters) if clusters is None else clusters & set(datastore.clusters)
    for nic in source.vectors("NIC"):
        vnet = _find_vnet(store, nic)
        if vnet is not None:
            clusters = {vnet.cluster_id} if clusters is None else clusters & {vnet.cluster_id}
    return disks, clusters


def take_images(store: Store, disks: list[Vector], vm_id: int) -> None:
    """Count a VM on its images."""
    for disk in disks:
        image = store.images.get(int(disk.get("IMAGE_ID", "-1")))
        if image is not None:
            image.vms[vm_id] = None
            image.state = image.prev_state = ImageState.USED_PERS if image.persistent else ImageState.USED


def release(store: Store, vm: Vm) -> None:
    """Give back what a VM that is DONE had."""
    for disk in vm.template.vectors("DISK"):
        image = store.images.get(int(disk.get("IMAGE_ID", "-1")))
        if image is not None and image.vms.pop(vm.id, 0) is None and not image.vms:
            image.state = image.prev_state = ImageState.READY
    for nic in vm.template.vectors("NIC"):
        vnet = store.vnets.get(int(nic.get("NETWORK_ID", "-1")))
        if vnet is not None:
            vnet.leases = {offset: owner for offset, owner in vnet.leases.items() if owner != vm.id}


def _find_vnet(store: Store, nic: Vector) -> Vnet | None:
    wanted = nic.get("NETWORK_ID", "")
    if wanted.isdigit():
        return store.vnets.get(int(wanted))
    return next((vnet for vnet in store.vnets.values() if vnet.name == nic.get("NETWORK")), None)


def find_vnet(store: Store, nic: Vector, code: int) -> Vnet:
    """The network a NIC names. Raises `OneError`."""
    vnet = _find_vnet(store, nic)
    if vnet is not None:
        return vnet
    if "NETWORK_ID" in nic:
        raise OneError(code, f"Virtual network with ID: {nic['NETWORK_ID']} does not exist")
    raise OneError(
        code,
        f"User 0 does not own a network with name: {nic.get('NETWORK', '')} . Set NETWORK_UNAME or NETWORK_UID in NIC.",
    )


def check_nics(store: Store, source: Template) -> None:
    """Raises `OneError` if a NIC names no network, or the network has no address left."""
    for nic in source.vectors("NIC"):
        vnet = find_vnet(store, nic, INTERNAL)
        if len(vnet.leases) >= vnet.size:
            raise OneError(INTERNAL, f"Cannot get IP/MAC lease from virtual network {vnet.id}.")


def _mac(ip: ipaddress.IPv4Address) -> str:
    return ":".join(f"{byte:02x}" for byte in (2, 0, *ip.packed))


def take_nics(store: Store, source: Template, vm_id: int, first: int = 0) -> list[Vector]:
    """Lease an address for each NIC; `first` is the number of the first."""
    nics: list[Vector] = []
    for number, nic in enumerate(source.vectors("NIC"), first):
        vnet = find_vnet(store, nic, INTERNAL)
        offset = next((free for free in range(vnet.size) if free not in vnet.leases), None)
        if offset is None:
            raise OneError(ACTION, f"Cannot get IP/MAC lease from virtual network {vnet.id}.")
        vnet.leases[offset] = vm_id
        ip = ipaddress.IPv4Address(vnet.first_ip) + offset
        nics.append(_nic(vnet, ip, number, vm_id))
    return nics


def _nic(vnet: Vnet, ip: ipaddress.IPv4Address, number: int, vm_id: int) -> Vector:
    return {
        "AR_ID": "0",
        "BRIDGE": vnet.bridge,
        "BRIDGE_TYPE": "linux",
        "CLUSTER_ID": str(vnet.cluster_id),
        "IP": str(ip),
        "MAC": _mac(ip),
        "NAME": f"NIC{number}",
        "NETWORK": vnet.name,
        "NETWORK_ID": str(vnet.id),
        "NIC_ID": str(number),
        "SECURITY_GROUPS": "0",
        "TARGET": f"one-{vm_id}-{number}",
        "VN_MAD": vnet.vn_mad,
    }


def security_rules() -> list[Value]:
    """What the default security group lets through: everything."""
    common = {"PROTOCOL": "ALL", "SECURITY_GROUP_ID": "0", "SECURITY_GROUP_NAME": "default"}
    return [{**common, "RULE_TYPE": "OUTBOUND"}, {**common, "RULE_TYPE": "INBOUND"}]


def context_network(nics: list[Vector]) -> Vector:
    """The ETHn_ variables of CONTEXT with NETWORK=YES."""
    variables: Vector = {}
    for number, nic in enumerate(nics):
        for name in _CONTEXT_ETH:
            variables[f"ETH{number}_{name}"] = nic.get(name, "") if name in ("IP", "MAC") else ""
    return variables
