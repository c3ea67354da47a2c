"""The instances of a web department, for its load balancers: which there are, and what balancers report.  Pure: a look at
the state, nothing else.

Rules
  1. An instance is listed from its placement until its VM is gone: `starting` (it boots), `running` (in service), `draining`
     (until it is closed it has its address, and its open sessions continue; afterwards it has none).
  2. What the department's policy sets for its balancer (`drain_s`, `unreachable_s`, the health path of each release, how many
     requests it is given at a time) is in the answer.  An instance that has begun is shown with what it runs, and not with what
     the configuration says of release 0 since.
  3. A report is a level, of each watcher by itself: the instance's guest, and each load balancer's user.  What is reported
     already is granted without a fact, in the journal or in the same envelope; so is what changes nothing: `ready` of one that
     this watcher does not call unready, and anything but `drained` of one that drains.
  4. `drained` of an instance that does not drain is refused: it serves, and a balancer that thinks otherwise has it wrong.
  5. Each report that counts is a fact for ever: of a watcher an instance has one in `REPORT_INTERVAL_S`, but for `drained` and
     `ended`, of which an attempt has one.  Where the answer alone is another one, it is news once in `REWORD_S`.
  6. At most `WATCHERS_MAX` watch an instance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from schemas import facts as f
from schemas import requests as r
from schemas.config import Department, WebPolicy
from schemas.facts import Fact
from schemas.ids import is_instance
from schemas.releases import Release, connections
from schemas.times import exact
from services.admission.commands import releases
from services.admission.commands.compose import Caller, department_for, refuse_word
from services.admission.core.admission import AdmissionCore, Reported
from services.admission.core.rollouts import configured
from services.domain import readiness
from services.domain.custody.state import Unit
from services.domain.refusal import Refused

# a network that flaps faster is no news; half of what a balancer takes between two health checks
REPORT_INTERVAL_S: Final = 1.0
# a program may answer in turn by an error and not at all; half of what load balancers wait (REWORD_S)
REWORD_S: Final = 5.0
WATCHERS_MAX: Final = 8  # users that report of one instance, its guest included; two load balancers are many


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
    content = _running(core, web, name, unit)
    return r.Instance(
        unit=name,
        attempt=unit.attempt,
        address=unit.addresses[0] if unit.addresses else None,
        state="starting" if not serves else "running" if unit.drains_until is None else "draining",
        host=unit.hosts[0],
        cores=unit.size.cores,
        release=unit.release,
        drains_until=None if unit.drains_until is None else exact(unit.drains_until),
        health_path=content.health_path,
        connections=connections(web.connections_per_instance, content.command),
    )


def _running(core: AdmissionCore, web: WebPolicy, name: str, unit: Unit) -> Release:
    """What an instance runs: of release 0 what that was when it began."""
    return core.begun_with(name) or releases.content(core, unit.dept, unit.release) or configured(web)


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
            cores=units[vm.unit].size.cores,
            release=units[vm.unit].release,
        )
        for vm in core.custody.state.vms.values()
        if vm.unit.startswith(prefix) and vm.unit not in live
    }


def report(
    core: AdmissionCore, caller: Caller, dept: str, request: r.InstanceReport, now: float, drafted: Sequence[Fact]
) -> list[Fact]:
    """The fact of `instance.report`, or none (rule 3).  Raises `Refused`."""
    refuse_word(caller, department_for(core, caller, dept, "web"))
    unit = _named(core, dept, request)
    fact = f.InstanceReported(
        unit=unit.id, attempt=unit.attempt, state=request.state, user=caller.user, why=request.why
    )
    return news(core, fact, now, drafted)


def news(core: AdmissionCore, fact: f.InstanceReported, now: float, drafted: Sequence[Fact]) -> list[Fact]:
    """A watcher's word on a live instance, if it is worth a fact (rules 3 to 6).  Raises `Refused`."""
    unit, who = core.custody.state.units[fact.unit], readiness.watcher(fact)
    said = dict(core.reported(unit.id))
    on_its_way = [x for x in drafted if isinstance(x, f.InstanceReported) and x.unit == unit.id]
    said |= {readiness.watcher(x): Reported(attempt=x.attempt, at=now, state=x.state, why=x.why) for x in on_its_way}
    if fact.state == "drained":
        if unit.drains_until is None:
            raise Refused(
                "conflict", f"state: {unit.id} does not drain: only after instance.draining can it be drained", "state"
            )
        return [] if any(one.state == "drained" for one in said.values()) else [fact]
    before = said.get(who)
    if unit.drains_until is not None or not _is_other(fact, before, now):
        return []
    if fact.state != "ended" and before is not None and now - before.at < REPORT_INTERVAL_S:
        raise Refused(
            "limit", f"{unit.id} was reported as {before.state} a moment ago: come back in {REPORT_INTERVAL_S:g} s"
        )
    if before is None and len(said) >= WATCHERS_MAX:
        raise Refused(
            "limit", f"{WATCHERS_MAX} watch {unit.id} already: one load balancer's user is enough for its reports"
        )
    return [fact]


def _named(core: AdmissionCore, dept: str, request: r.InstanceReport) -> Unit:
    """Raises `Refused`."""
    unit = core.unit(request.unit)
    if unit is None or not is_instance(request.unit) or unit.dept != dept:
        raise Refused("unknown", f"unit: {dept} has no instance {request.unit}, or it ended long ago", "unit")
    if unit.attempt != request.attempt or not unit.live:
        raise Refused("conflict", f"attempt: attempt {request.attempt} of {unit.id} is over", "attempt")
    return unit


def _is_other(fact: f.InstanceReported, before: Reported | None, now: float) -> bool:
    """Whether it says something else than the watcher's last word: who has said nothing has not called it unready."""
    was = before.state if before is not None else "ready"
    if fact.state == "ended":
        return was != "ended"
    failed, fails = was in ("unready", "unreachable"), fact.state == "unready"
    if failed != fails:
        return was != "ended"
    return before is not None and fails and fact.why != before.why and now - before.at >= REWORD_S
