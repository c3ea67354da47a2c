"""one.cluster.*, one.datastore.*, one.vn.* and their pools."""

from __future__ import annotations

import ipaddress

from phoenix.local.opennebula.auth import ADMIN, CREATE, USE, Need, need
from phoenix.local.opennebula.calls import Call, method
from phoenix.local.opennebula.errors import ACTION, INTERNAL, OneError
from phoenix.local.opennebula.methods_vm import parse_template
from phoenix.local.opennebula.methods_vmpool import filtered, paged
from phoenix.local.opennebula.model import Cluster, Datastore, Vnet
from phoenix.local.opennebula.render import ids, owner, permissions, text
from phoenix.local.opennebula.seed import reserved
from phoenix.local.opennebula.templates import cdata
from phoenix.local.opennebula.xmlrpc import escape

# The largest address range: a /16.
ADDRESSES_MAX = 65_536


def _cluster_xml(cluster: Cluster) -> str:
    return (
        f"<CLUSTER><ID>{cluster.id}</ID><NAME>{text(cluster.name)}</NAME><HOSTS>{ids(cluster.hosts)}</HOSTS>"
        f"<DATASTORES>{ids(cluster.datastores)}</DATASTORES><VNETS>{ids(cluster.vnets)}</VNETS>"
        f"<TEMPLATE>{cluster.template.inner_xml()}</TEMPLATE></CLUSTER>"
    )


def _cluster_for(call: Call, cluster_id: int, right: str) -> Cluster:
    cluster = call.store.cluster(cluster_id)
    call.one.auth.require(call.user, Need(right, "CLUSTER", None, cluster_id))
    return cluster


@method("one.cluster.info", "i?b")
def cluster_info(call: Call, cluster_id: int, decrypt: bool = False) -> str:  # noqa: ARG001 (nothing is encrypted here)
    """A cluster."""
    return escape(_cluster_xml(_cluster_for(call, cluster_id, USE)))


@method("one.clusterpool.info")
def cluster_pool(call: Call) -> str:
    """All clusters, newest first."""
    parts = [
        _cluster_xml(cluster)
        for number, cluster in sorted(call.store.clusters.items(), reverse=True)
        if call.one.auth.allowed(call.user, Need(USE, "CLUSTER", None, number))
    ]
    return escape(f"<CLUSTER_POOL>{''.join(parts)}</CLUSTER_POOL>")


@method("one.cluster.allocate", "s")
def cluster_allocate(call: Call, name: str) -> int:
    """A new, empty cluster."""
    call.one.auth.require(call.user, Need(CREATE, "CLUSTER"))
    for cluster in call.store.clusters.values():
        if cluster.name == name:
            raise OneError(INTERNAL, f"NAME is already taken by CLUSTER {cluster.id}.")
    cluster = Cluster(id=call.store.new_id("clusters"), name=name, template=reserved())
    call.store.clusters[cluster.id] = cluster
    return cluster.id


@method("one.cluster.delete", "i")
def cluster_delete(call: Call, cluster_id: int) -> int:
    """Remove an empty cluster."""
    cluster = _cluster_for(call, cluster_id, ADMIN)
    for what, members in (("hosts", cluster.hosts), ("datastores", cluster.datastores), ("vnets", cluster.vnets)):
        if members:
            raise OneError(
                ACTION, f"Cannot delete cluster. Cluster {cluster_id} is not empty, it contains {len(members)} {what}."
            )
    if cluster_id == 0:
        raise OneError(ACTION, "Cannot delete cluster. Cluster 0 is the default one.")
    del call.store.clusters[cluster_id]
    return cluster_id


def _move_host(call: Call, host_id: int, cluster_id: int) -> None:
    host = call.store.host(host_id)
    call.store.clusters[host.cluster_id].hosts.pop(host_id, None)
    host.cluster_id = cluster_id
    call.store.clusters[cluster_id].hosts[host_id] = None


@method("one.cluster.addhost", "ii")
def add_host(call: Call, cluster_id: int, host_id: int) -> int:
    """Move a host into a cluster."""
    _cluster_for(call, cluster_id, ADMIN)
    _move_host(call, host_id, cluster_id)
    return cluster_id


@method("one.cluster.delhost", "ii")
def remove_host(call: Call, cluster_id: int, host_id: int) -> int:
    """Move a host back to the default cluster."""
    _cluster_for(call, cluster_id, ADMIN)
    _move_host(call, host_id, 0)
    return cluster_id


@method("one.cluster.adddatastore", "ii")
def add_datastore(call: Call, cluster_id: int, datastore_id: int) -> int:
    """Give a cluster a datastore."""
    cluster, datastore = _cluster_for(call, cluster_id, ADMIN), call.store.datastore(datastore_id)
    cluster.datastores[datastore_id] = None
    datastore.clusters[cluster_id] = None
    return cluster_id


@method("one.cluster.deldatastore", "ii")
def remove_datastore(call: Call, cluster_id: int, datastore_id: int) -> int:
    """Take a datastore from a cluster."""
    cluster, datastore = _cluster_for(call, cluster_id, ADMIN), call.store.datastore(datastore_id)
    cluster.datastores.pop(datastore_id, None)
    datastore.clusters.pop(cluster_id, None)
    return cluster_id


# -- datastores ------------------------------------------------------------------------------------


def _datastore_xml(item: Datastore) -> str:
    return (
        f"<DATASTORE>{owner(item)}{permissions(item)}<DS_MAD>{cdata(item.ds_mad)}</DS_MAD><TM_MAD>{cdata(item.tm_mad)}</TM_MAD>"
        f"<BASE_PATH>{cdata(f'/var/lib/one/datastores/{item.id}')}</BASE_PATH><TYPE>{item.type}</TYPE><DISK_TYPE>0</DISK_TYPE>"
        f"<STATE>0</STATE><CLUSTERS>{ids(item.clusters)}</CLUSTERS><TOTAL_MB>{item.total_mb}</TOTAL_MB><FREE_MB>{item.free_mb}</FREE_MB>"
        f"<USED_MB>{item.used_mb}</USED_MB><IMAGES>{ids(item.images)}</IMAGES><TEMPLATE>{item.template.inner_xml()}</TEMPLATE></DATASTORE>"
    )


@method("one.datastore.info", "i?b")
def datastore_info(call: Call, datastore_id: int, decrypt: bool = False) -> str:  # noqa: ARG001 (nothing is encrypted here)
    """A datastore."""
    item = call.store.datastore(datastore_id)
    call.one.auth.require(call.user, need(USE, "DATASTORE", item))
    return escape(_datastore_xml(item))


@method("one.datastorepool.info")
def datastore_pool(call: Call) -> str:
    """All datastores, newest first."""
    things = filtered(call, -2, [item for _, item in sorted(call.store.datastores.items(), reverse=True)], "DATASTORE")
    return escape(
        f"<DATASTORE_POOL>{''.join(_datastore_xml(item) for item in things if isinstance(item, Datastore))}</DATASTORE_POOL>"
    )


# -- networks --------------------------------------------------------------------------------------


@method("one.vn.allocate", "s?i")
def vn_allocate(call: Call, text_: str, cluster_id: int = 0) -> int:
    """A new network with one range of IPv4 addresses."""
    call.one.auth.require(call.user, Need(CREATE, "NET"))
    cluster = call.store.cluster(max(cluster_id, 0))
    template = parse_template(text_, INTERNAL)
    name = template.get("NAME")
    if not name:
        raise OneError(INTERNAL, "Error allocating a new virtual network. NAME attribute is required.")
    first, size = _range(template.vector("AR") or {})
    vnet = Vnet(
        id=call.store.new_id("vnets"),
        name=name,
        uid=call.user.id,
        gid=call.user.groups[0],
        uname=call.user.name,
        gname=call.store.groups[call.user.groups[0]].name,
        template=template.without(("NAME", "AR")),
        cluster_id=cluster.id,
        bridge=template.get("BRIDGE", "br0"),
        vn_mad=template.get("VN_MAD", "dummy"),
        first_ip=first,
        size=size,
    )
    call.store.vnets[vnet.id] = vnet
    cluster.vnets[vnet.id] = None
    return vnet.id


def _range(vector: dict[str, str]) -> tuple[str, int]:
    try:
        first, size = str(ipaddress.IPv4Address(vector.get("IP", "10.0.0.1"))), int(vector.get("SIZE", "0"))
    except ValueError as error:
        raise OneError(INTERNAL, f"Error allocating a new virtual network. Wrong AR: {error}.") from None
    if not 0 <= size <= ADDRESSES_MAX:
        raise OneError(INTERNAL, f"Error allocating a new virtual network. AR SIZE must be 0 to {ADDRESSES_MAX}.")
    return first, size


def _vnet_xml(vnet: Vnet) -> str:
    leases = "".join(
        f"<LEASE><IP>{cdata(str(ipaddress.IPv4Address(vnet.first_ip) + offset))}</IP><VM>{cdata(str(vm))}</VM></LEASE>"
        for offset, vm in sorted(vnet.leases.items())
    )
    return (
        f"<VNET>{owner(vnet)}{permissions(vnet)}<CLUSTERS>{ids([vnet.cluster_id])}</CLUSTERS><BRIDGE>{cdata(vnet.bridge)}</BRIDGE>"
        f"<BRIDGE_TYPE>{cdata('linux')}</BRIDGE_TYPE><STATE>1</STATE><PREV_STATE>1</PREV_STATE><PARENT_NETWORK_ID></PARENT_NETWORK_ID>"
        f"<VN_MAD>{cdata(vnet.vn_mad)}</VN_MAD><PHYDEV></PHYDEV><VLAN_ID></VLAN_ID><OUTER_VLAN_ID></OUTER_VLAN_ID>"
        "<VLAN_ID_AUTOMATIC>0</VLAN_ID_AUTOMATIC><OUTER_VLAN_ID_AUTOMATIC>0</OUTER_VLAN_ID_AUTOMATIC>"
        f"<USED_LEASES>{len(vnet.leases)}</USED_LEASES><VROUTERS></VROUTERS><UPDATED_VMS></UPDATED_VMS><OUTDATED_VMS></OUTDATED_VMS>"
        f"<UPDATING_VMS></UPDATING_VMS><ERROR_VMS></ERROR_VMS><TEMPLATE>{vnet.template.inner_xml()}</TEMPLATE><AR_POOL><AR>"
        f"<AR_ID>{cdata('0')}</AR_ID><IP>{cdata(vnet.first_ip)}</IP><SIZE>{cdata(str(vnet.size))}</SIZE><TYPE>{cdata('IP4')}</TYPE>"
        f"<USED_LEASES>{len(vnet.leases)}</USED_LEASES><LEASES>{leases}</LEASES></AR></AR_POOL></VNET>"
    )


@method("one.vn.info", "i?b")
def vn_info(call: Call, vnet_id: int, decrypt: bool = False) -> str:  # noqa: ARG001 (nothing is encrypted here)
    """A network."""
    vnet = call.store.vnet(vnet_id)
    call.one.auth.require(call.user, need(USE, "NET", vnet))
    return escape(_vnet_xml(vnet))


@method("one.vn.delete", "i")
def vn_delete(call: Call, vnet_id: int) -> int:
    """Remove a network without leases."""
    vnet = call.store.vnet(vnet_id)
    call.one.auth.require(call.user, need("MANAGE", "NET", vnet))
    if vnet.leases:
        raise OneError(ACTION, "Cannot delete virtual network. Can not remove a virtual network with leases in use")
    del call.store.vnets[vnet_id]
    call.store.clusters[vnet.cluster_id].vnets.pop(vnet_id, None)
    return vnet_id


@method("one.vnpool.info", "iii")
def vn_pool(call: Call, flag: int, start: int, end: int) -> str:
    """Networks, newest first."""
    things = paged(
        filtered(call, flag, [v for _, v in sorted(call.store.vnets.items(), reverse=True)], "NET"), start, end
    )
    return escape(f"<VNET_POOL>{''.join(_vnet_xml(vnet) for vnet in things if isinstance(vnet, Vnet))}</VNET_POOL>")
