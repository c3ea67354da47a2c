"""one.system.*, and pools that this server only shows: zones, marketplaces, access rules."""

from __future__ import annotations

import json
from importlib import resources

from phoenix.local.opennebula.auth import acl_numbers
from phoenix.local.opennebula.calls import Call, method
from phoenix.local.opennebula.render import text
from phoenix.local.opennebula.templates import Template

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


@method("one.zonepool.info")
def zones(call: Call) -> str:
    """One zone: this server."""
    endpoint = Template({"ENDPOINT": [call.one.url], "ENDPOINT_GRPC": [""]}).inner_xml()
    return (
        "<ZONE_POOL><ZONE><ID>0</ID><NAME>OpenNebula</NAME><STATE>0</STATE>"
        f"<TEMPLATE>{endpoint}</TEMPLATE><SERVER_POOL></SERVER_POOL></ZONE></ZONE_POOL>"
    )


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
