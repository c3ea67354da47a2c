"""A fact as one plain sentence, with its reason: what the page's stream of decisions, `phoenix story` and events say.

    host003 is granted to web: web wants 3 hosts and held 2
    job 17 is queued again (attempt 1): the department had to return 2 hosts, and its order of victims (…) chose this job

Rules
  1. `told` is pure and total: a fact of a newer version, or one with fields missing, is shown by its kind and its fields.
     Nothing is hidden and nothing raises: this text is read when something has gone wrong.
  2. A sentence begins small and ends without a full stop, as a reason's does (`capital` makes a text of it).
  3. The fact is as in an event: builtins, times as UTC seconds.  `department`: whom the event concerns.
  4. A text that is people's own (a host's reason, a job's progress) is quoted as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from schemas.control_characters import shown
from schemas.dimensions import words
from schemas.size import FIELDS, Size, size_in
from schemas.subjects import SITE
from schemas.units import count, iso, some, span
from schemas.words import program_ended
from services.domain import text as sentences

FIELDS_SHOWN_MAX: Final = 12  # of a kind that is not known here: more would not be a sentence
NAMES_SHOWN_MAX: Final = 8  # hosts of a wide job; `phoenix show` has all

_PLAIN: Final = ("kind", "custody", "dept", "reason", "why", "v")


class Params(dict[str, Any]):
    """Fields of a fact; those that are missing read as `?`."""

    def __missing__(self, key: str) -> str:
        return "?"

    def number(self, key: str) -> int:
        value = self.get(key, 0)
        return int(value) if isinstance(value, int | float) else 0

    def names(self, key: str) -> str:
        value = self.get(key)
        return ", ".join(map(str, value)) if isinstance(value, list | tuple) else "" if value is None else str(value)


def told(kind: str, fact: Mapping[str, Any], department: str = "") -> str:
    """The sentence of a fact of this kind: one line, whatever others have written into the fact."""
    return shown(_told(kind, fact, department))


def _told(kind: str, fact: Mapping[str, Any], department: str) -> str:
    fields = Params(fact)
    if department not in ("", SITE) and not fields.get("dept"):
        fields["dept"] = department
    tell = _TELL.get(kind)
    if tell is None:
        return _unknown(kind, fields)
    try:
        return tell(fields)
    except (
        TypeError,
        ValueError,
        AttributeError,
        LookupError,
        OverflowError,
    ):  # rule 1: a field that is not what this version takes it for
        return _unknown(kind, fields)


def unit_name(unit: object) -> str:
    """`job 17`, `job 18_3`, `instance web.7`."""
    text = str(unit)
    return f"instance {text}" if "." in text else f"job {text}"


def ended_early(report: Mapping[str, Any]) -> bool:
    """True of a report, or an attempt with one, that completed after its guest had told its script to end."""
    return report.get("exit") == 0 and bool(report.get("terminated"))


def _unknown(kind: str, p: Params) -> str:
    shown = [f"{key.replace('_', ' ')} {_text(value)}" for key, value in p.items() if key not in _PLAIN]
    return f"{kind}: {', '.join(shown[:FIELDS_SHOWN_MAX])}" if shown else kind


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _because(p: Params, key: str = "reason") -> str:
    """`: …`, or nothing where there is none."""
    return f": {sentences.sentence(p[key])}" if p.get(key) else ""


def _names(value: object) -> str:
    return some(value, NAMES_SHOWN_MAX) if isinstance(value, list | tuple) else ""


def _attempt(p: Params) -> str:
    """`job 17`, or of a later attempt `job 17 (attempt 2)`."""
    again = f" (attempt {p['attempt']})" if p.number("attempt") > 1 else ""
    return f"{unit_name(p['unit'])}{again}"


def _time(value: object) -> str:
    return iso(value) or "an unknown time"


# ---------------------------------------------------------------------------------------------------- services and people


def _leader_started(p: Params) -> str:
    return f"a service became leader: process {p['instance']}, epoch {p['epoch']}"


def _leader_stopped(p: Params) -> str:
    return f"the leader of epoch {p['epoch']} shut down cleanly"


def _config_adopted(p: Params) -> str:
    config = p.get("config") or {}
    departments = [str(one["name"]) for one in config.get("departments") or ()]
    return f"a configuration took effect: departments {_names(departments) or 'none'}"


def _department_closed(p: Params) -> str:
    return f"department {p['dept']} was removed from the configuration: its jobs are cancelled and its hosts released"


def _scale_requested(p: Params) -> str:
    until = f", until {_time(p['until'])}" if p.get("until") is not None else ""
    if p.get("exact") is not None:
        return f"{p['user']} set {p['dept']} to {count(p.number('exact'), 'instance')}{until}"
    if p.get("minimum") is not None:
        return f"{p['user']} set {p['dept']} to at least {count(p.number('minimum'), 'instance')}{until}"
    return f"{p['user']} returned the number of instances of {p['dept']} to the autoscaler"


# ------------------------------------------------------------------------------------------------------------------ hosts


def _quota(p: Params) -> str:
    return f"{p['dept']} may keep {count(p.number('hosts'), 'host')}{_because(p)}"


def _demand(p: Params) -> str:
    instances = f" for {count(p.number('instances'), 'instance')}" if p.get("instances") is not None else ""
    prefer = f", preferably {_names(p['prefer'])}" if p.get("prefer") else ""
    return f"{p['dept']} demands {count(p.number('hosts'), 'host')}{instances}{prefer}{_because(p)}"


def _granted(p: Params) -> str:
    return f"{p['host']} is granted to {p['dept']}{_because(p)}"


def _released(p: Params) -> str:
    whose = f"{p['dept']} releases {p['host']}" if p.get("dept") else f"{p['host']} is released"
    return f"{whose}{_because(p)}"


def _seized(p: Params) -> str:
    return f"{p['host']} is seized from {p['dept']}{_because(p)}"


def _described(p: Params) -> str:
    labels = p.get("labels") or {}
    with_labels = f", {count(len(labels), 'label')}" if labels else ""
    others = size_in(p.get("others") or {})
    less = f"; VMs of other users hold {words(others)}" if any(others) else ""
    return f"{p['host']} offers {words(Size(*map(p.number, FIELDS)))}{with_labels}{less}"


_LOST: Final = {
    "stuck": "a VM there survived a hard termination, so what still runs on it is unknown",
    "replaced": "OpenNebula has another host under its name",
    "removed": "OpenNebula no longer lists it",
}


def _host_lost(p: Params) -> str:
    return f"{p['host']} is lost: {_LOST.get(str(p['reason']), p['reason'])}"


_STARTS_FAILED: Final = "starts failed"  # of these alone the end is known; others last until OpenNebula says otherwise


def _quarantined(p: Params) -> str:
    why = str(p["reason"])
    if not p.get("until"):
        return f"{p['host']} leaves quarantine: {why}"
    if why == _STARTS_FAILED:
        return f"{p['host']} is in quarantine until {_time(p['until'])}: VMs failed to start there"
    return f"{p['host']} is in quarantine: {why}"


def _observed(p: Params) -> str:
    cpu, memory = (f"{100 * float(p.get(key) or 0):.0f} %" for key in ("cpu", "memory"))
    return f"{p['host']} really uses {cpu} of its cores and {memory} of its memory"


def _cordoned(p: Params) -> str:
    why = _own_words(p)
    if p.get("until") is not None:
        return f"{p['user']} drains {p['host']}: what still runs there at {_time(p['until'])} is ended{why}"
    if p.get("drain"):
        return f"{p['user']} drains {p['host']}: jobs run to their end, instances are replaced elsewhere{why}"
    return f"{p['user']} cordoned {p['host']}: running work stays, nothing more is placed there{why}"


def _uncordoned(p: Params) -> str:
    return f"{p['user']} returned {p['host']} to use{_own_words(p)}"


def _own_words(p: Params) -> str:
    return f" ({p['reason']})" if p.get("reason") else ""


# ------------------------------------------------------------------------------------------------------ jobs and instances


def _submitted(p: Params) -> str:
    name = f" ({p['name']})" if p.get("name") else ""
    nodes, elements = p.number("nodes") or 1, p.get("array") or ()
    what = f"an array of {count(len(elements), 'job')}, job {p['job']}" if elements else f"job {p['job']}"
    each = "each " if nodes > 1 else ""
    size = (
        f"{count(nodes, 'host')} with {count(p.number('cores') or 1, 'core')} {each}for at most {span(p['walltime_s'])}"
    )
    if lease := p.get("lease"):
        starts = f" from {_time(lease['start_at'])}" if lease.get("start_at") else ""
        return f"{p['user']} leased {size}, as {lease['kind']}{starts}: {what}{name}"
    after = "; it waits for " + ", ".join(str(one["job"]) for one in p["after"]) if p.get("after") else ""
    held = "; it is held" if p.get("held") else ""
    return f"{p['user']} submitted {what}{name}: {size}{after}{held}"


def _extended(p: Params) -> str:
    who = f"{p['user']} extended lease {p['job']}" if p.get("user") else f"lease {p['job']} lasts longer"
    return f"{who}: it lasts {span(p['walltime_s'])} in total{_because(p)}"


def _cancelled(p: Params) -> str:
    if not p.get("user"):
        return f"job {p['job']} is cancelled: its time slot has passed without it"
    return f"{p['user']} cancelled job {p['job']}"


def _elements(p: Params) -> str:
    """`elements 1-100 of array 17`."""
    return f"elements {p['elements']} of array {p['job']}"


def _placed(p: Params) -> str:
    release = f" with release {p['release']}" if p.get("release") else ""
    return f"{_attempt(p)} is placed on {_names(p['hosts']) or 'no host'}{release}{_because(p)}"


_CLOSED: Final = {
    "kill": "is ended permanently",
    "requeue": "is queued again",
    "suspend": "is suspended and continues later",
    "migrate": "moves to another host",
    "timeout": "is ended",
    "cancelled": "is cancelled",
    "failed": "has failed",
    "stopped": "is stopped",
}


def _closed(p: Params) -> str:
    disposal, why = str(p["disposal"]), p.get("why")
    repeated = disposal == "cancelled" and isinstance(why, Mapping) and why.get("code") == "cancelled"
    return f"{_attempt(p)} {_CLOSED.get(disposal, disposal)}{'' if repeated else _because(p, 'why')}"


def _began(p: Params) -> str:
    where = [str(address) for address in p.get("addresses") or () if address]
    return f"{_attempt(p)} has started to run{f', and listens at {_names(where)}' if where else ''}"


def _reported(p: Params) -> str:
    ran = f" after {span(p['seconds'])}" if p.get("seconds") else ""
    note = f"; note: {p['note']}" if p.get("note") else ""
    if p.get("signal") is not None:
        return f"{_attempt(p)} was ended by signal {p['signal']}{ran}{note}"
    if ended_early(p):
        return f"{_attempt(p)} has completed, ended early{ran}: its script exited with 0 on SIGTERM{note}"
    end = "has completed" if p.get("exit") == 0 else f"has failed with exit code {p['exit']}"
    return f"{_attempt(p)} {end}{ran}{note}"


def _measured(p: Params) -> str:
    memory = f", and had {p['max_rss_mb']:.1f} MiB at most" if isinstance(p.get("max_rss_mb"), int | float) else ""
    return f"{_attempt(p)} has used {p['cpu_seconds']:g} s of CPU time{memory}"


def _checkpointed(p: Params) -> str:
    percent = f" ({p['percent']:g} %)" if isinstance(p.get("percent"), int | float) else ""
    said = f": {p['progress']}" if p.get("progress") else ""
    files = f", with {count(p.number('files'), 'file')}" if p.number("files") else ""
    return f"the work of {_attempt(p)} so far is safe{percent}{files}{said}"


def _draining(p: Params) -> str:
    return f"{_attempt(p)} gets no new sessions and stops by {_time(p['until'])} at the latest{_because(p)}"


_INSTANCE: Final = {
    "drained": "its last session has ended",
    "unready": "it is not ready",
    "ready": "it is ready again",
    "unreachable": "its health check has failed for too long",
    "reachable": "it answers again",
}


def _instance_reported(p: Params) -> str:
    if p["state"] == "ended":
        ended = "has ended"
        if "exit" in p or "signal" in p or "oom" in p:
            ended = program_ended(p.get("exit"), p.number("signal"), bool(p.get("oom")), p.get("said") or "")
        return f"the guest of {_attempt(p)} reports: its program {ended}"
    who = "the guest of" if p.get("by") == "guest" else f"load balancer {p['user']} reports on"
    said = _INSTANCE.get(str(p["state"]), str(p["state"]))
    detail = f" ({p['why']})" if p.get("why") else ""
    return f"{who} {_attempt(p)}{' reports' if p.get('by') == 'guest' else ''}: {said}{detail}"


def _release_requested(p: Params) -> str:
    content = p.get("content") or {}
    image = f" (image {content['image']})" if content.get("image") else ""
    return f"{p['user']} deployed release {p['release']}{image} to {p['dept']}"


def _release_changed(p: Params) -> str:
    state, release = str(p["state"]), f"release {p['release']} of {p['dept']}"
    words = {
        "rolling": f"{release} is being rolled out",
        "complete": f"{release} is rolled out",
        "rolled_back": f"{release} is rolled back to release {p.get('back_to') or 0}",
        "stopped": f"{release} did not start, and there is no earlier one to return to",
    }
    return f"{words.get(state, f'{release} is {state}')}{_because(p)}"


def _load(p: Params) -> str:
    found = []
    if isinstance(p.get("utilisation"), int | float):
        found.append(f"its instances are {100 * float(p['utilisation']):.0f} % busy")
    if isinstance(p.get("requests_per_s"), int | float):
        found.append(f"{p['requests_per_s']:g} requests/s arrive")
    if p.get("load_by"):
        found.append(f"reported by {', '.join(p['load_by'])}")
    if p.get("claim") is not None:
        found.append(f"{p.get('claim_by') or 'a balancer'} claims {count(p.number('claim'), 'instance')}")
    for one in p.get("answers") or ():
        found.append(f"release {one['release']} answered {count(one['answered'], 'request')}, {one['errors']} with 5xx")
    return f"{p['dept']}: {', '.join(found) or 'no load was reported'}"


# -------------------------------------------------------------------------------------------------------------------- VMs


def _rank(p: Params) -> str:
    """Of several VMs of one attempt, which."""
    return f" (node {p['rank']})" if p.number("rank") else ""


def _vm_allocated(p: Params) -> str:
    return f"VM {p['vm']} on {p['host']} is for {_attempt(p)}{_rank(p)}"


def _vm_started(p: Params) -> str:
    return f"the VM of {_attempt(p)}{_rank(p)} was started"


_ENDED: Final = {
    "suspended": "is saved and has left its host",
    "terminated": "has ended",
}


def _vm_ended(p: Params) -> str:
    why = str(p["why"])
    return f"the VM of {_attempt(p)}{_rank(p)} {_ENDED.get(why, f'has ended ({why})')}"


def _vm_failed(p: Params) -> str:
    return f"the VM of {_attempt(p)}{_rank(p)} cannot do its work: {p.get('why') or 'its guest does not say why'}"


def _vm_refused(p: Params) -> str:
    return f"OpenNebula refused a VM for {_attempt(p)}{_rank(p)}: {str(p.get('why') or p['failure']).rstrip('.')}"


def _job_held(p: Params) -> str:
    if p.get("reason"):
        return f"job {p['job']}: {sentences.sentence(p['reason'])}"
    return f"{p['user']} held job {p['job']}: it does not start"


def _starts_paused(p: Params) -> str:
    hosts = count(p.number("tried"), "host")
    return f"starts failed on {p['failed']} of {hosts}: the fault is the site's, and starts are paused ({p['why']})"


def _vm_parked(p: Params) -> str:
    return f"the VM of {_attempt(p)}{_rank(p)} stays and waits for the department's next job"


_TELL: Final[dict[str, Callable[[Params], str]]] = {
    "leader.started": _leader_started,
    "leader.stopped": _leader_stopped,
    "config.adopted": _config_adopted,
    "department.closed": _department_closed,
    "scale.requested": _scale_requested,
    "quota.changed": _quota,
    "demand.changed": _demand,
    "host.granted": _granted,
    "host.released": _released,
    "host.seized": _seized,
    "host.described": _described,
    "host.removed": lambda p: f"{p['host']} was removed from OpenNebula",
    "host.cleared": lambda p: f"{p['host']} is empty: no VM of the cloud is left on it",
    "host.lost": _host_lost,
    "host.quarantined": _quarantined,
    "host.observed": _observed,
    "host.cordoned": _cordoned,
    "host.uncordoned": _uncordoned,
    "job.submitted": _submitted,
    "job.held": _job_held,
    "job.resumed": lambda p: f"{p['user']} released job {p['job']}: it may start",
    "job.cancelled": _cancelled,
    "array.held": lambda p: f"{p['user']} held {_elements(p)}: they do not start",
    "array.resumed": lambda p: f"{p['user']} released {_elements(p)}: they may start",
    "array.cancelled": lambda p: f"{p['user']} cancelled {_elements(p)}",
    "lease.extended": _extended,
    "unit.placed": _placed,
    "attempt.closed": _closed,
    "attempt.began": _began,
    "attempt.reported": _reported,
    "attempt.measured": _measured,
    "checkpoint.reported": _checkpointed,
    "instance.draining": _draining,
    "instance.reported": _instance_reported,
    "release.requested": _release_requested,
    "release.changed": _release_changed,
    "load.observed": _load,
    "vm.allocated": _vm_allocated,
    "vm.started": _vm_started,
    "vm.ended": _vm_ended,
    "vm.refused": _vm_refused,
    "vm.parked": _vm_parked,
    "vm.failed": _vm_failed,
    "starts.paused": _starts_paused,
    "starts.resumed": lambda p: f"starts are no longer paused: {p['why']}",
}
