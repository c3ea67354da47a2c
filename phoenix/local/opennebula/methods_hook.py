"""one.hook.*, one.hookpool.info, one.hooklog.info."""

from __future__ import annotations

from phoenix.local.opennebula.auth import CREATE, MANAGE, USE, Need
from phoenix.local.opennebula.calls import Call, method
from phoenix.local.opennebula.errors import INTERNAL, OneError
from phoenix.local.opennebula.methods_vm import parse_template
from phoenix.local.opennebula.model import Hook
from phoenix.local.opennebula.render import text
from phoenix.local.opennebula.templates import Template
from phoenix.local.opennebula.xmlrpc import escape


def _xml(hook: Hook, log: str = "") -> str:
    custom = hook.template.get("ON").upper() == "CUSTOM"
    shown = hook.template.without(("ON",)) if custom else hook.template
    return (
        f"<HOOK><ID>{hook.id}</ID><NAME>{text(hook.name)}</NAME><TYPE>{hook.type}</TYPE>"
        f"<TEMPLATE>{shown.inner_xml()}</TEMPLATE>{log}</HOOK>"
    )


def _check(template: Template) -> str:
    kind = template.get("TYPE").lower()
    if kind not in ("state", "api"):
        raise OneError(INTERNAL, "Invalid Hook TYPE: must be state or api.")
    if not template.get("COMMAND"):
        raise OneError(INTERNAL, "COMMAND attribute is required.")
    if kind == "state" and not template.get("RESOURCE"):
        raise OneError(INTERNAL, "RESOURCE attribute is required for STATE hooks.")
    if kind == "api" and not template.get("CALL"):
        raise OneError(INTERNAL, "CALL attribute is required for API hooks.")
    return kind


@method("one.hook.allocate", "s")
def allocate(call: Call, text_: str) -> int:
    """A new hook."""
    call.one.auth.require(call.user, Need(CREATE, "HOOK"))
    template = parse_template(text_, INTERNAL)
    kind = _check(template)
    number = call.store.new_id("hooks")
    kept = Template({"REMOTE": ["NO"]}).merged(template.without(("NAME", "TYPE")))
    call.store.hooks[number] = Hook(id=number, name=template.get("NAME"), type=kind, template=kept)
    return number


@method("one.hook.info", "i?b")
def info(call: Call, hook_id: int, decrypt: bool = False) -> str:  # noqa: ARG001 (nothing is encrypted here)
    """A hook and its log."""
    hook = call.store.hook(hook_id)
    call.one.auth.require(call.user, Need(USE, "HOOK", None, hook_id))
    return escape(_xml(hook, f"<HOOKLOG>{''.join(hook.log)}</HOOKLOG>"))


@method("one.hookpool.info", "?iii")
def pool(call: Call, *_page: int) -> str:
    """All hooks, newest first."""
    call.one.auth.require(call.user, Need(USE, "HOOK"))
    return escape(
        f"<HOOK_POOL>{''.join(_xml(hook) for _, hook in sorted(call.store.hooks.items(), reverse=True))}</HOOK_POOL>"
    )


@method("one.hook.delete", "i")
def delete(call: Call, hook_id: int) -> int:
    """Remove a hook."""
    call.store.hook(hook_id)
    call.one.auth.require(call.user, Need(MANAGE, "HOOK", None, hook_id))
    del call.store.hooks[hook_id]
    return hook_id


def _wanted(record: str, start: int, end: int, outcome: int) -> bool:
    at = int(record.partition("<TIMESTAMP>")[2].partition("<")[0])
    failed = "<CODE>0</CODE>" not in record
    return (start < 0 or at >= start) and (end < 0 or at <= end) and (outcome == 0 or failed == (outcome < 0))


@method("one.hooklog.info", "iiii")
def log(call: Call, start: int, end: int, hook_id: int, outcome: int) -> str:
    """Executions within a time.

    `outcome` -1 those that failed, 1 those that did not, 0 all. `hook_id` -1: of all hooks.
    """
    call.one.auth.require(call.user, Need(USE, "HOOK"))
    hooks = [hook for number, hook in call.store.hooks.items() if hook_id in (-1, number)]
    records = [record for hook in hooks for record in hook.log if _wanted(record, start, end, outcome)]
    return escape(f"<HOOKLOG>{''.join(records)}</HOOKLOG>")
