"""one.system.*, and pools that this server only shows: access rules, datastores, images, networks."""

from __future__ import annotations

import json
from importlib import resources

from phoenix.local.opennebula.auth import acl_numbers
from phoenix.local.opennebula.calls import Call, method
from phoenix.local.opennebula.methods_vmpool import ANY, filtered
from phoenix.local.opennebula.model import Datastore, Image
from phoenix.local.opennebula.render import ids, owner, permissions, text
from phoenix.local.opennebula.templates import Template, cdata
from phoenix.local.opennebula.xmlrpc import escape

VERSION = "7.4.0"


@method("one.system.version")
def version(call: Call) -> str:  # noqa: ARG001
    """The version of OpenNebula that this server answers as."""
    return VERSION


def configuration() -> Template:
    """The configuration this server stands for: the defaults of oned 7.4, with dummy drivers."""
    loaded = json.loads(resources.files(__package__).joinpath("configuration.json").read_text("utf-8"))
    return Template(loaded)


@method("one.system.config")
def config(call: Call) -> str:  # noqa: ARG001
    """oned's configuration."""
    return f"<OPENNEBULA_CONFIGURATION>{configuration().inner_xml()}</OPENNEBULA_CONFIGURATION>"


@method("one.acl.info")
def acls(call: Call) -> str:
    """The access rules; those that every user has come last, as oned prints them."""
    rules = sorted(call.store.acls.values(), key=lambda rule: (acl_numbers(rule)[0], rule.id))
    parts: list[str] = []
    for rule in rules:
        user, resource, rights, zone = acl_numbers(rule)
        parts.append(
            f"<ACL><ID>{rule.id}</ID><USER>{user:x}</USER><RESOURCE>{resource:x}</RESOURCE><RIGHTS>{rights:x}</RIGHTS>"
            f"<ZONE>{zone:x}</ZONE><STRING>{text(rule.text)}</STRING></ACL>"
        )
    return f"<ACL_POOL>{''.join(parts)}</ACL_POOL>"


def _datastore_xml(item: Datastore) -> str:
    return (
        f"<DATASTORE>{owner(item)}{permissions(item)}<DS_MAD>{cdata(item.ds_mad)}</DS_MAD><TM_MAD>{cdata(item.tm_mad)}</TM_MAD>"
        f"<BASE_PATH>{cdata(f'/var/lib/one/datastores/{item.id}')}</BASE_PATH><TYPE>{item.type}</TYPE><DISK_TYPE>0</DISK_TYPE>"
        f"<STATE>0</STATE><CLUSTERS>{ids(item.clusters)}</CLUSTERS><TOTAL_MB>{item.total_mb}</TOTAL_MB><FREE_MB>{item.free_mb}</FREE_MB>"
        f"<USED_MB>{item.used_mb}</USED_MB><IMAGES></IMAGES><TEMPLATE>{item.template.inner_xml()}</TEMPLATE></DATASTORE>"
    )


@method("one.datastorepool.info")
def datastores(call: Call) -> str:
    """All datastores, newest first."""
    things = filtered(call, ANY, [item for _, item in sorted(call.store.datastores.items(), reverse=True)], "DATASTORE")
    return escape(
        f"<DATASTORE_POOL>{''.join(_datastore_xml(item) for item in things if isinstance(item, Datastore))}</DATASTORE_POOL>"
    )


@method("one.imagepool.info", "iii")
def images(call: Call, flag: int, start: int, end: int) -> str:  # noqa: ARG001
    """Images that disks may name."""
    things = filtered(call, flag, call.store.images.values(), "IMAGE")
    found = (f"<IMAGE>{owner(x)}<STATE>{x.state}</STATE></IMAGE>" for x in things if isinstance(x, Image))
    return escape(f"<IMAGE_POOL>{''.join(found)}</IMAGE_POOL>")


@method("one.vnpool.info", "iii")
def networks(call: Call, flag: int, start: int, end: int) -> str:  # noqa: ARG001
    """Virtual networks that NICs may name."""
    things = filtered(call, flag, call.store.networks.values(), "NET")
    return escape(f"<VNET_POOL>{''.join(f'<VNET>{owner(x)}</VNET>' for x in things)}</VNET_POOL>")
