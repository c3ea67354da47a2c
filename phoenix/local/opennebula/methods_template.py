"""one.template.* and one.templatepool.*: VM templates, and VMs made of them."""

from __future__ import annotations

from phoenix.local.opennebula.auth import CREATE, MANAGE, USE, Need, need
from phoenix.local.opennebula.calls import Call, method
from phoenix.local.opennebula.errors import ACTION, ALLOCATE, INTERNAL, OneError
from phoenix.local.opennebula.methods_vm import create, parse_template, updated
from phoenix.local.opennebula.methods_vmpool import filtered, paged
from phoenix.local.opennebula.model import VmTemplate
from phoenix.local.opennebula.render import owner, permissions
from phoenix.local.opennebula.xmlrpc import escape


def _template_for(call: Call, template_id: int, right: str) -> VmTemplate:
    item = call.store.template(template_id)
    call.one.auth.require(call.user, need(right, "TEMPLATE", item))
    return item


def _xml(item: VmTemplate) -> str:
    return (
        f"<VMTEMPLATE>{owner(item)}{permissions(item)}<REGTIME>{item.regtime}</REGTIME>"
        f"<TEMPLATE>{item.template.inner_xml()}</TEMPLATE></VMTEMPLATE>"
    )


@method("one.template.allocate", "s")
def allocate(call: Call, text: str) -> int:
    """A new template."""
    call.one.auth.require(call.user, Need(CREATE, "TEMPLATE"))
    template = parse_template(text, INTERNAL)
    name = template.get("NAME")
    for other in call.store.templates.values():
        if name and other.name == name and other.uid == call.user.id:
            raise OneError(INTERNAL, f"NAME is already taken by TEMPLATE {other.id}.")
    number = call.store.new_id("templates")
    call.store.templates[number] = VmTemplate(
        id=number,
        name=name or f"template-{number}",
        uid=call.user.id,
        gid=call.user.groups[0],
        uname=call.user.name,
        gname=call.store.groups[call.user.groups[0]].name,
        template=template.without(("NAME",)),
        regtime=call.one.clock.second(),
    )
    return number


@method("one.template.info", "i?bb")
def info(call: Call, template_id: int, extended: bool = False, decrypt: bool = False) -> str:  # noqa: ARG001
    """A template."""
    return escape(_xml(_template_for(call, template_id, USE)))


@method("one.templatepool.info", "iii")
def pool(call: Call, flag: int, start: int, end: int) -> str:
    """Templates, newest first."""
    things = paged(
        filtered(call, flag, [item for _, item in sorted(call.store.templates.items(), reverse=True)], "TEMPLATE"),
        start,
        end,
    )
    return escape(
        f"<VMTEMPLATE_POOL>{''.join(_xml(item) for item in things if isinstance(item, VmTemplate))}</VMTEMPLATE_POOL>"
    )


@method("one.template.update", "isi")
def update(call: Call, template_id: int, text: str, mode: int) -> int:
    """Change a template."""
    item = _template_for(call, template_id, MANAGE)
    item.template = updated(item.template, text, mode, ACTION)
    return template_id


@method("one.template.delete", "i?b")
def delete(call: Call, template_id: int, recursive: bool = False) -> int:  # noqa: ARG001 (its images stay)
    """Remove a template."""
    _template_for(call, template_id, MANAGE)
    del call.store.templates[template_id]
    return template_id


@method("one.template.instantiate", "isbs?b")
def instantiate(call: Call, template_id: int, name: str, hold: bool, extra: str, persistent: bool = False) -> int:  # noqa: ARG001
    """A new VM of a template; `extra` replaces attributes of it."""
    item = _template_for(call, template_id, USE)
    source = item.template.merged(parse_template(extra, INTERNAL)).with_value("TEMPLATE_ID", str(template_id))
    if name:
        source = source.with_value("NAME", name)
    try:
        return create(call, source, hold)
    except OneError as error:
        if error.code != INTERNAL:
            raise
        raise OneError(ALLOCATE, f"Error allocating a new virtual machine template. {error.text}") from None
