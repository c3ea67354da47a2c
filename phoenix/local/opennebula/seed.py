"""What a fresh OpenNebula holds.

Oneadmin and serveradmin, two groups, a cluster, three datastores, the access rules, and the hosts.
"""

from __future__ import annotations

from phoenix.local.opennebula import pci
from phoenix.local.opennebula.auth import hash_password, new_token
from phoenix.local.opennebula.model import Acl, Cluster, Datastore, Group, Host, Image, Network, User
from phoenix.local.opennebula.settings import Settings
from phoenix.local.opennebula.store import Store
from phoenix.local.opennebula.templates import Template, Vector

ACLS = (
    "@1 VM+IMAGE+TEMPLATE+DOCUMENT+SECGROUP+VMGROUP+BACKUPJOB/* CREATE *",
    "* ZONE/* USE *",
    "* MARKETPLACE+MARKETPLACEAPP/* USE *",
    "@1 HOST/* MANAGE #0",
    "@1 NET/* USE #0",
    "@1 DATASTORE/* USE #0",
)

_SHARED = (1, 1, 0, 1, 0, 0, 0, 0, 0)
_VIEWS: Vector = {
    "DEFAULT_VIEW": "cloud",
    "GROUP_ADMIN_DEFAULT_VIEW": "groupadmin",
    "GROUP_ADMIN_VIEWS": "groupadmin,cloud",
    "VIEWS": "cloud",
}
_COMMON = {"PERSISTENT_SNAPSHOTS": "YES", "RESTRICTED_DIRS": "/", "SAFE_DIRS": "/var/tmp"}  # noqa: S108 (a setting shown, not a path used)

_SYSTEM = {
    "ALLOW_ORPHANS": "NO",
    "DISK_TYPE": "FILE",
    "DRIVER": "",
    "DS_LIVE_MIGRATE": "YES",
    "DS_MIGRATE": "YES",
    "DS_MIGRATE_SNAP": "YES",
    "SHARED": "YES",
    "TM_MAD": "dummy",
    "TYPE": "SYSTEM_DS",
}
_DEFAULT = {
    "ALLOW_ORPHANS": "NO",
    "CLONE_TARGET": "SYSTEM",
    "DISK_TYPE": "FILE",
    "DS_MAD": "dummy",
    "LN_TARGET": "NONE",
    "TM_MAD": "dummy",
    "TYPE": "IMAGE_DS",
}
_FILES = {
    "ALLOW_ORPHANS": "FORMAT",
    "CLONE_TARGET": "SYSTEM",
    "DS_MAD": "fs",
    "LN_TARGET": "SYSTEM",
    "TM_MAD": "local",
    "TYPE": "FILE_DS",
}

# id, name, type, drivers (datastore, transfer), attributes, space in MiB
_DATASTORES = (
    (0, "system", 1, "-", "dummy", _SYSTEM, 102400),
    (1, "default", 0, "dummy", "dummy", _DEFAULT, 20480),
    (2, "files", 2, "fs", "local", _FILES, 102400),
)


def template(values: dict[str, str]) -> Template:
    """A template of strings."""
    return Template({name: [value] for name, value in values.items()})


def reserved() -> Template:
    """What a new host's or cluster's TEMPLATE begins with."""
    return template({"RESERVED_CPU": "", "RESERVED_MEM": ""})


def new_host(store: Store, settings: Settings, name: str, drivers: tuple[str, str], cluster_id: int) -> Host:
    """A host in INIT, in the pool."""
    im_mad, vm_mad = drivers
    host = Host(
        id=store.new_id("hosts"),
        name=name,
        im_mad=im_mad,
        vm_mad=vm_mad,
        cluster_id=cluster_id,
        template=reserved().merged(template({"IM_MAD": im_mad, "VM_MAD": vm_mad})),
        cores=settings.size.cores,
        memory_mb=settings.size.memory_mb,
        hardware=settings.hardware,
    )
    host.devices = pci.devices_of(host.id, settings.hosts, settings.size.gpus, settings.gpu_devices)
    store.hosts[host.id] = host
    store.clusters[cluster_id].hosts[host.id] = None
    return host


def new_user(store: Store, name: str, password: str, driver: str, groups: list[int]) -> User:
    """A user, in the pool and its groups."""
    user = User(
        id=store.new_id("users"),
        name=name,
        password=hash_password(password),
        auth_driver=driver,
        groups=groups,
        template=template({"TOKEN_PASSWORD": new_token()}),
    )
    store.users[user.id] = user
    for group in groups:
        store.groups[group].users[user.id] = None
    return user


def seed(store: Store, settings: Settings) -> None:
    """Fill an empty store."""
    store.groups[0] = Group(id=0, name="oneadmin", template=Template())
    store.groups[1] = Group(id=1, name="users", template=Template({"SUNSTONE": [dict(_VIEWS)]}))
    new_user(store, settings.user, settings.password, "core", [0])
    new_user(store, "serveradmin", new_token(), "server_cipher", [0])
    store.clusters[0] = Cluster(id=0, name="default", template=reserved())
    for number, name, kind, ds_mad, tm_mad, attributes, space_mb in _DATASTORES:
        store.datastores[number] = Datastore(
            id=number,
            name=name,
            perms=_SHARED,
            template=template({**_COMMON, **attributes}),
            type=kind,
            ds_mad=ds_mad,
            tm_mad=tm_mad,
            total_mb=space_mb,
            free_mb=space_mb,
            used_mb=0,
            clusters={0: None},
        )
        store.clusters[0].datastores[number] = None
    for number, name in enumerate(settings.images):
        store.images[number] = Image(id=number, name=name, uname=settings.user)
    for number, name in enumerate(settings.networks):
        store.networks[number] = Network(id=number, name=name, uname=settings.user)
    store.acls = {number: Acl(id=number, text=text) for number, text in enumerate(ACLS)}
    # Ids below 100 belong to the installation.
    store.next_ids.update(groups=100, clusters=100, datastores=100)
    for number in range(settings.hosts):
        new_host(store, settings, f"host{number:03d}", ("dummy", "dummy"), 0)
