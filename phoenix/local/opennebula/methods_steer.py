"""phoenix.dummy.steer: steering over the wire, for administrators, and only where it was asked for.

One parameter: a JSON object with `op` and its fields; the answer is JSON.

    {"op": "rule", "step": "boot", "vm": 3, "host": 0, "delay_s": 0.5, "hold": true, "fail": "no", "times": 1}  → {"rule": 7}
    {"op": "release", "rule": 7}   {"op": "clear"}   {"op": "settle", "timeout_s": 5}   {"op": "advance", "seconds": 31}
    {"op": "host", "host": 3, "down": "probe died"}   (null: back again)   {"op": "probe", "host": 3}
    {"op": "report", "vm": 24, "state": "RUNNING", "deploy_id": "x", "full": false}  → {"taken": true}
    {"op": "sync", "host": 3, "present": {"24": "RUNNING"}, "zombies": ["99"], "missing": "POWEROFF"}
    {"op": "end", "vm": 24}        the VM ends by itself
    {"op": "usage"}                what VMs use is read now
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from phoenix.local.opennebula.calls import Call, method
from phoenix.local.opennebula.errors import AUTHORIZATION, INTERNAL, OneError
from phoenix.local.opennebula.steering import Steering

METHOD = "phoenix.dummy.steer"

# Longer than this a call would outlive its caller's patience.
SETTLE_S_MAX = 60.0

Fields = dict[str, Any]


def _steering(call: Call) -> Steering:
    assert call.one.steering is not None
    return call.one.steering


async def _rule(call: Call, fields: Fields) -> Fields:
    return {"rule": _steering(call).add_fields(fields)}


async def _release(call: Call, fields: Fields) -> Fields:
    _steering(call).release(int(fields["rule"]))
    return {}


async def _clear(call: Call, fields: Fields) -> Fields:  # noqa: ARG001
    _steering(call).clear()
    return {}


async def _settle(call: Call, fields: Fields) -> Fields:
    await call.one.settle(min(float(fields.get("timeout_s", 10.0)), SETTLE_S_MAX))
    return {}


async def _advance(call: Call, fields: Fields) -> Fields:
    call.one.clock.advance(float(fields["seconds"]))
    return {"now": call.one.clock.now()}


async def _host(call: Call, fields: Fields) -> Fields:
    host = call.store.host(int(fields["host"]))
    down = fields.get("down")
    if down is None:
        call.one.monitor.down.pop(host.id, None)
    else:
        call.one.monitor.down[host.id] = str(down)
    call.one.monitor.probe(host)
    return {"state": int(host.state)}


async def _probe(call: Call, fields: Fields) -> Fields:
    host = call.store.host(int(fields["host"]))
    call.one.monitor.probe(host)
    return {"state": int(host.state)}


async def _report(call: Call, fields: Fields) -> Fields:
    vm = call.store.vm(int(fields["vm"]))
    taken = call.one.monitor.report(vm, str(fields["state"]), fields.get("deploy_id"), bool(fields.get("full", False)))
    return {"taken": taken}


async def _sync(call: Call, fields: Fields) -> Fields:
    host = call.store.host(int(fields["host"]))
    present = {int(vm): str(state) for vm, state in dict(fields.get("present", {})).items()}
    call.one.monitor.sync(
        host, present, list(map(str, fields.get("zombies", []))), str(fields.get("missing", "POWEROFF"))
    )
    return {}


async def _end(call: Call, fields: Fields) -> Fields:
    end = getattr(call.one.driver, "end", None)
    if end is None:
        raise ValueError(f"the {call.one.driver.name} driver cannot end a VM by steering")
    end(int(fields["vm"]))
    return {}


async def _usage(call: Call, fields: Fields) -> Fields:  # noqa: ARG001
    await call.one.monitor.read_usage(idle_too=True)
    return {}


_OPS: dict[str, Callable[[Call, Fields], Awaitable[Fields]]] = {
    "rule": _rule,
    "release": _release,
    "clear": _clear,
    "settle": _settle,
    "advance": _advance,
    "host": _host,
    "probe": _probe,
    "report": _report,
    "sync": _sync,
    "end": _end,
    "usage": _usage,
}


@method(METHOD, "s")
async def steer(call: Call, text: str) -> str:
    """See the module."""
    if 0 not in call.user.groups:
        raise OneError(AUTHORIZATION, f"User [{call.user.id}] : Not authorized to steer.")
    try:
        fields = json.loads(text)
        operation = _OPS.get(fields.get("op", ""))
        if operation is None:
            raise ValueError(f"op must be one of {', '.join(_OPS)}")
        return json.dumps(await operation(call, fields))
    except (ValueError, KeyError, TypeError, AttributeError, TimeoutError) as error:
        raise OneError(INTERNAL, f"steering: {type(error).__name__}: {error}") from error
