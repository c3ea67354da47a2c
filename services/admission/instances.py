"""The instances of a web department, for its load balancers: which there are, and what balancers say of them.  Pure: a look at
the state, nothing else.

Rules
  1. An instance is listed from its placement until its VM is gone: `starting` (it boots), `running` (in service), `draining`
     (until it is closed it has its address, and its open sessions go on; afterwards it has none).
  2. What the department says of its balancer (`drain_s`, `unreachable_s`, the health path of each release) is in the answer.
  3. A report is a level.  What is said already is granted without a fact, in the journal or in the same envelope; so is what
     changes nothing: `reachable` of one that nobody calls unreachable, and anything but `drained` of one that drains.
  4. `drained` of an instance that does not drain is refused: it serves, and a balancer that thinks otherwise has it wrong.
  5. Each report that counts is a fact for ever: an instance has one in `REPORT_INTERVAL_S`, but for `drained`, of which an
     attempt has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from schemas import facts as f
from schemas import requests as r
from schemas.config import Department, WebPolicy
from schemas.custody_state import Unit
from schemas.facts import Fact
from schemas.ids import is_instance
from services.admission import releases
from services.admission.compose import Caller, department_for
from services.admission.core import AdmissionCore
from services.runtime.edge import Refused

REPORT_INTERVAL_S: Final = (
    1.0  # a network that flaps faster is no news; half of what a balancer takes between two health checks
)


def listed(core: AdmissionCore, department: Department) -> r.Instances:
    """The answer to `instance.list`."""
    web = department.web or WebPolicy()
    found = {name: _live(core, web, name) for name in _open(core, department.name)}
    found |= _running_off(core, department.name, found)
    return r.Instances(
        instances=tuple(found[name] for name in sorted(found, key=lambda unit: int(unit.rpartition(".")[2]))),
        drain_s=web.drain_s,
        unreachable_s=web.unreachable_s,
        health_path=web.health_path,
    )


def _open(core: AdmissionCore, dept: str) -> list[str]:
    state = core.custody.state
    return [name for name in core.custody.index.open.get(dept, ()) if state.units[name].live]


def _live(core: AdmissionCore, web: WebPolicy, name: str) -> r.Instance:
    unit = core.custody.state.units[name]
    serves: bool = unit.began_at is not None
    return r.Instance(
        unit=name,
        attempt=unit.attempt,
        address=unit.addresses[0] if unit.addresses else None,
        state="starting" if not serves else "running" if unit.drains_until is None else "draining",
        host=unit.hosts[0],
        cores=unit.cores,
        release=unit.release,
        drains_until=unit.drains_until,
        health_path=health_path(core, web, unit),
    )


def health_path(core: AdmissionCore, web: WebPolicy, unit: Unit) -> str:
    """Of what the instance runs."""
    content = releases.content(core, unit.dept, unit.release)
    return web.health_path if content is None else content.health_path


def awaited(core: AdmissionCore, dept: str) -> dict[int, Mapping[str, str]]:
    """The secrets that instances wait for which boot, or may: by release."""
    units = core.custody.state.units
    booting = {units[name].release for name in _open(core, dept) if units[name].began_at is None}
    contents = {number: releases.content(core, dept, number) for number in sorted(booting)}
    return {number: content.secrets for number, content in contents.items() if content is not None and content.secrets}


def with_problems(found: r.Instances, problems: Mapping[int, str]) -> r.Instances:
    """Why those that boot cannot, by release."""

    def told(one: r.Instance) -> r.Instance:
        problem = problems.get(one.release, "") if one.state == "starting" else ""
        return msgspec.structs.replace(one, problem=problem) if problem else one

    return msgspec.structs.replace(found, instances=tuple(map(told, found.instances)))


def _running_off(core: AdmissionCore, dept: str, live: dict[str, r.Instance]) -> dict[str, r.Instance]:
    """Instances that are closed, while their VM ends."""
    units, prefix = core.custody.state.units, f"{dept}."
    return {
        vm.unit: r.Instance(
            unit=vm.unit,
            attempt=vm.attempt,
            address=None,
            state="draining",
            host=vm.host,
            cores=units[vm.unit].cores,
            release=units[vm.unit].release,
        )
        for vm in core.custody.state.vms.values()
        if vm.unit.startswith(prefix) and vm.unit not in live
    }


def report(
    core: AdmissionCore, caller: Caller, dept: str, request: r.InstanceReport, now: float, drafted: Sequence[Fact]
) -> list[Fact]:
    """The fact of `instance.report`, or none (rule 3).  Raises `Refused`."""
    department_for(core, caller, dept, "web")
    unit = _named(core, dept, request)
    before = core.reported(unit.id)
    said = before.state if before is not None and before.attempt == unit.attempt else None
    on_its_way = [x for x in drafted if isinstance(x, f.InstanceReported) and x.unit == unit.id]
    said = on_its_way[-1].state if on_its_way else said
    if not _changes(unit, request, said):
        return []
    if request.state != "drained" and (
        on_its_way or (before is not None and now - before.at < REPORT_INTERVAL_S and said is not None)
    ):
        raise Refused("limit", f"{unit.id} was reported as {said} a moment ago: come back in {REPORT_INTERVAL_S:g} s")
    return [
        f.InstanceReported(unit=unit.id, attempt=unit.attempt, state=request.state, user=caller.user, why=request.why)
    ]


def _named(core: AdmissionCore, dept: str, request: r.InstanceReport) -> Unit:
    """Raises `Refused`."""
    unit = core.unit(request.unit)
    if unit is None or not is_instance(request.unit) or unit.dept != dept:
        raise Refused("unknown", f"unit: {dept} has no instance {request.unit}, or it ended long ago", "unit")
    if unit.attempt != request.attempt or not unit.live:
        raise Refused("conflict", f"attempt: attempt {request.attempt} of {unit.id} is over", "attempt")
    return unit


def _changes(unit: Unit, request: r.InstanceReport, said: str | None) -> bool:
    """Rules 3 and 4.  Raises `Refused`."""
    if request.state == "drained":
        if unit.drains_until is None:
            raise Refused(
                "conflict", f"state: {unit.id} does not drain: only after instance.draining can it be drained", "state"
            )
        return said != "drained"
    if unit.drains_until is not None:
        return False
    return (said == "unreachable") != (request.state == "unreachable")
