"""What a fact is because of: where to look for the decision that led to it.  Pure; `story` looks.

    web wants 3 hosts → hpc may keep 13 → job 17 is queued again → host003 is given back → it is empty → it goes to web

Rules
  1. The cause is the newest fact before it of the kinds and entities that are named here.  An envelope's own `cause` is the
     position that its writer had read, which is an upper bound of it and not it.
  2. The reason of a fact decides which way to look: a host that is given back on notice goes because of a quota, one that is
     not needed because of a demand.
  3. Where nothing is named, the fact is a beginning: a person, the load, a machine, a job that ends by itself; or hosts that
     no other department wants, of which no single fact is the cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from schemas.ids import job_of
from services.monitor.history.story_index import DEPARTMENT, HOST

Asked = list[tuple[str, tuple[str, ...]]]  # entity, kinds
Fields = Mapping[str, Any]  # of a fact, as builtins

_LOST_ROOM: Final = ("host.seized", "host.lost", "host.released")


def of(kind: str, fact: Fields, department: str, departments: Sequence[str] = ()) -> Asked:
    """`department`: the unit's or the host's, as far as it is known; `departments`: all of them."""
    if kind == "quota.changed":
        return _quota(fact, departments)
    look = _BECAUSE.get(kind)
    return look(fact, department) if look is not None else []


def _code(fact: Fields, key: str = "reason") -> tuple[str, Fields]:
    reason = fact.get(key) or {}
    return str(reason.get("code", "")), reason


def _demand(department: str) -> Asked:
    return [(DEPARTMENT + department, ("demand.changed",))]


def _quota(fact: Fields, departments: Sequence[str]) -> Asked:
    code, params = _code(fact)
    if code in ("web_demand", "web_share"):
        return [ask for name in fact.get("claimants") or [fact["dept"]] for ask in _demand(name)]
    if code == "batch_share":  # another one wants more, or this one less
        return [ask for name in departments for ask in _demand(name)]
    return _set_apart(params.get("hosts")) if code == "cordoned" else []


def _set_apart(hosts: Iterable[str] | None) -> Asked:
    """A person's word on each of these."""
    return [(HOST + host, ("host.cordoned",)) for host in hosts or ()]


def _demanded(fact: Fields, _department: str) -> Asked:
    code, params = _code(fact)
    own = DEPARTMENT + fact["dept"]
    if code == "scaled_by_person":
        return [(own, ("scale.requested",))]
    return _beside(own, params) if code == "room_beside" else []


def _beside(own: str, params: Fields) -> Asked:
    """Of hosts alone: whose room it is, or was."""
    asked: Asked = [(own, ("release.requested", "release.changed"))] if params.get("surge") else []
    asked += _set_apart(params.get("cordoned"))
    return asked + [(HOST + host, ("attempt.closed", "attempt.reported")) for host in params.get("freed") or ()]


def _closed(fact: Fields, department: str) -> Asked:
    code, params = _code(fact, "why")
    unit, own = fact["unit"], DEPARTMENT + department
    if code in ("reclaimed", "migrates"):
        return [(own, ("quota.changed",))]
    if code == "host_drained":
        return _set_apart([str(params.get("host"))])
    if code in ("host_taken", "host_lost"):
        return [(unit, _LOST_ROOM)]
    if code == "cancelled":
        return [(unit, ("job.cancelled",)), (job_of(unit), ("array.cancelled",))]
    if code == "preempted":
        return [(str(params.get("job") or ""), ("job.submitted",))]
    if code == "scale_down":
        return _demand(department)
    if code in ("drained", "drain_timeout", "not_ready", "program_ended", "unreachable"):
        return [(unit, ("instance.reported", "instance.draining"))]
    if code in ("vm_ended", "boot_timeout"):
        return [(unit, ("vm.failed", "vm.ended", "vm.refused", "instance.reported", "unit.placed"))]
    return [(own, ("release.requested",))] if code == "rolling" else []


def _released(fact: Fields, department: str) -> Asked:
    code, _ = _code(fact)
    if code in ("cordoned", "host_drained"):
        return _set_apart([fact["host"]])
    return [(DEPARTMENT + department, ("quota.changed",))] if code == "notice" else _demand(department)


def _seized(fact: Fields, department: str) -> Asked:
    code, _ = _code(fact)
    return _set_apart([fact["host"]]) if code == "host_drained" else [(DEPARTMENT + department, ("quota.changed",))]


def _draining(fact: Fields, department: str) -> Asked:
    code, _ = _code(fact)
    own = DEPARTMENT + department
    if code == "rolling":
        return [(own, ("release.requested", "release.changed"))]
    return [(own, ("quota.changed",))] if code == "reclaimed" else _demand(department)


def _placed(fact: Fields, department: str) -> Asked:
    """What made it possible last: that it was asked for, that it waits again, that there was room."""
    unit = fact["unit"]
    room = ("host.granted", "attempt.closed", "attempt.reported", "host.uncordoned")
    asked: Asked = [(HOST + host, room) for host in fact.get("hosts") or ()]
    if "." in unit:
        return [*asked, *_demand(department)]
    again = ("job.submitted", "job.resumed", "array.resumed", "attempt.closed", "attempt.reported")
    return [*asked, (unit, again), (job_of(unit), again)]


_BECAUSE: Final[dict[str, Callable[[Fields, str], Asked]]] = {
    "demand.changed": _demanded,
    "attempt.closed": _closed,
    "attempt.began": lambda fact, _: [(fact["unit"], ("unit.placed",))],
    "vm.allocated": lambda fact, _: [(fact["unit"], ("unit.placed",))],
    "vm.started": lambda fact, _: [(fact["unit"], ("vm.allocated",))],
    "vm.ended": lambda fact, _: [(fact["unit"], ("attempt.closed", "attempt.reported", "vm.failed", *_LOST_ROOM))],
    "vm.parked": lambda fact, _: [(fact["unit"], ("attempt.reported",))],
    "host.released": _released,
    "host.seized": _seized,
    "host.cleared": lambda fact, _: [(HOST + fact["host"], (*_LOST_ROOM, "host.described"))],
    "host.granted": lambda fact, _: [(HOST + fact["host"], ("host.cleared", "host.uncordoned"))],
    "unit.placed": _placed,
    "instance.draining": _draining,
    "instance.reported": lambda fact, _: [(fact["unit"], ("instance.draining", "attempt.began"))],
    "release.changed": lambda fact, _: [(DEPARTMENT + fact["dept"], ("release.requested", "release.changed"))],
    "job.resumed": lambda fact, _: [(fact["job"], ("job.held",)), (job_of(fact["job"]), ("array.held",))],
    "array.resumed": lambda fact, _: [(fact["job"], ("array.held",))],
}
