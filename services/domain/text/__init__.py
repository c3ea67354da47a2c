"""Reasons as sentences: the only place where a `schemas.reasons.Reason` becomes prose.

`short` fits a column of the queue, `sentence` tells it in full, `remedy` says what would unblock it.  A reason of a newer
version is told by its code and parameters: never hidden, never an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from schemas.control_characters import shown
from services.domain.text import told_foreseen, told_grace, told_health, told_moves, told_web
from services.domain.text.params import Params as Told
from services.domain.text.told import TELL, UNBLOCK

Params = Mapping[str, Any]


# code -> (in a column, in full, what would unblock it)
_TEXTS: Final[dict[str, tuple[str, str, str]]] = {
    "web_demand": ("web demand", "a web department wants more hosts than it holds", ""),
    "web_share": ("web share", "what is short for web is divided, and another one had less than its part", ""),
    "idle_to_batch": ("idle", "nobody with precedence wants the host, so batch gets it", ""),
    "guarantee": ("guarantee", "it belongs to the department's guaranteed minimum", ""),
    "notice_expired": ("notice expired", "the department was given notice and still held more than its quota", ""),
    "notice": ("notice", "the department gives it back because its quota fell below what it holds", ""),
    "not_needed": ("not needed", "the department has no use for it", ""),
    "batch_share": ("batch share", "the shares of batch departments have changed", ""),
    "department_removed": ("department removed", "the department was removed from the configuration", ""),
    "cordoned": ("cordoned", "the host is cordoned, and nothing runs there any more", "phoenix hosts uncordon HOST"),
    "window": ("window", "at these hours a department has another guarantee or maximum", "phoenix lending"),
    "lending": ("lending", "its owner wants it back, as they have agreed", "phoenix lending"),
    "first_fit": ("first fit", "it was the first job of the queue that fitted", ""),
    "head_of_queue": ("head of queue", "it was at the head of the queue", ""),
    "backfill": ("backfill", "it fitted into a gap without delaying an earlier job", ""),
    "shortest_first": ("shortest first", "of the jobs that fitted it had the shortest time limit", ""),
    "elected": ("its turn", "it was its service's turn, and its service stays within its share", ""),
    "borrows": ("borrows", "it is short, and no job within its service's share could start", ""),
    "best_effort": ("best effort", "it runs on what production leaves", ""),
    "resumes": ("resumes", "it had made way for production, and there is room again", ""),
    "migrates": ("migrates", "its host had to be returned, and another one had room for it", ""),
    "balanced": ("moved", "it goes on where there is more room", ""),
    "by_policy": ("by policy", "the department's policy says so", ""),
    "lease_starts": ("its time", "its time slot had begun", ""),
    "rolling": ("rolling update", "another release is deployed, and it is replaced by an instance of that one", ""),
    "draining": ("draining", "it is not needed any more, and gets no new session", ""),
    "drained": ("drained", "it was not needed any more, and its last session has ended", ""),
    "drain_timeout": (
        "drain timeout",
        "it was not needed any more; sessions were still open when its time to drain was over",
        "",
    ),
    "not_ready": ("not ready", "its health check has failed for too long", ""),
    "program_ended": ("program ended", "its program ended by itself", ""),
    "last_failed": ("failed", "an instance has failed", ""),
    "unreachable": ("unreachable", "the load balancer has not reached it for too long", ""),
    "claimed": ("claimed", "a signal claims so many", ""),
    "release_deployed": ("release deployed", "a person has deployed it", ""),
    "release_complete": ("release complete", "all instances run it", ""),
    "release_failed": (
        "release failed",
        "none of its instances stayed in service",
        "look at phoenix logs INSTANCE, and deploy one that runs",
    ),
    "release_errors": (
        "release errors",
        "it answers more requests with 5xx than the one before",
        "look at phoenix logs INSTANCE, and deploy one that answers",
    ),
    "requests_fail": ("requests fail", "many requests are answered with 5xx", "look at phoenix logs INSTANCE"),
    "roll_stuck": (
        "update waits",
        "the rolling update waits for a host",
        "free a host, or deploy with a higher --max-unavailable",
    ),
    "scale_up": ("scale up", "the load asks for more instances", ""),
    "replacement": ("replacement", "it replaces an instance that was lost", ""),
    "reclaimed": ("reclaimed", "its host had to be returned", ""),
    "made_way": ("made way", "it is best-effort, and its room was needed", ""),
    "host_taken": ("host taken", "its host was seized because the department had not given it back in time", ""),
    "host_drained": ("host drained", "a person drained its host, and the deadline has passed", ""),
    "host_lost": ("host lost", "its host was lost", ""),
    "vm_ended": ("VM ended", "its VM ended without a report", ""),
    "not_saved": ("not saved", "what it had saved, or a part of it, was lost before it could go on", ""),
    "walltime": ("time limit", "it ran into its time limit", "submit it again with a longer --time"),
    "lease_ended": ("time over", "its time was over, as agreed", ""),
    "cancelled": ("cancelled", "it was cancelled", ""),
    "scale_down": ("scale down", "the load needs one instance fewer", ""),
    "boot_timeout": ("boot timeout", "its machines did not start in time", ""),
    "utilisation_high": ("load high", "utilisation was above the threshold over the whole window", ""),
    "utilisation_low": ("load low", "one instance fewer would still be below the threshold", ""),
    "utilisation_steady": ("load steady", "the load asks for no other number", ""),
    "signal_missing": (
        "no signal",
        "nobody has said for a while how busy the instances are, so their number is held",
        "look at the load balancer; by hand: phoenix scale DEPARTMENT N",
    ),
    "signals_dropped": (
        "signals dropped",
        "signals that arrive do not count",
        "publish what docs/reference/signals.md asks for",
    ),
    "requests_queued": (
        "requests wait",
        "requests wait at the load balancer, and the rule does not see for what",
        "set requests_per_instance: how many requests/s one instance is to serve; or, if instances are idle, "
        "connections_per_instance (docs/reference/web.md)",
    ),
    "requests_refused": (
        "requests refused",
        "the load balancer turns requests away, since no instance has room for them",
        "raise instances_max, if there are hosts; or let one instance take more at a time: connections_per_instance "
        "(docs/reference/web.md)",
    ),
    "scaled_by_person": ("scaled by hand", "a person set the number of instances", "phoenix scale DEPARTMENT --auto"),
    "at_minimum": ("at minimum", "the department is at its minimum", ""),
    "at_maximum": ("at maximum", "the department is at its maximum", "raise the maximum in the configuration"),
    "schedule": (
        "scheduled",
        "the schedule asks for so many at this hour",
        "the department's schedule, in the configuration",
    ),
    "forecast": ("foreseen", "at this time of the last days so many were needed", ""),
    "step_limit": (
        "step limit",
        "the load asks for more or fewer than a step may be",
        "the limits in the configuration",
    ),
    "flap_budget": ("flap budget", "the number has changed its direction too often, so the higher one is held", ""),
    "room_beside": ("room beside", "so many hosts carry them, and nothing needs room beside them", ""),
    "queue": ("in the queue", "the jobs in its queue want them", ""),
    "waits_for_hosts": ("waits for hosts", "too little is free on the department's hosts for what it needs", ""),
    "hosts_left": ("hosts are left", "jobs on hosts that are given up have time to save", ""),
    "saves": ("saves", "it was told to end, and has time to save", ""),
    "waits_behind": (
        "waits behind",
        "there is room for it, but others go first",
        'it starts after that job; order = "first-fit" would pass it',
    ),
    "lease_starts_at": ("at its time", "its time slot is to come", ""),
    "lease_late": ("late", "its time slot has begun, and there is no room for it", ""),
    "lease_over": ("missed", "its time slot has passed without it", "cancel it, and ask for another time"),
    "lease_keeps_room": (
        "lease to come",
        "there is room for it, and a lease will need that before it would be away",
        "a shorter time limit would let it start",
    ),
    "share_full": (
        "share full",
        "with it its service would have more than its share of the department's hosts",
        "it starts when jobs of its service end; a short one (--short, or a --time within short_s) may borrow",
    ),
    "priority": ("priority", "its priority is a sum of points", ""),
    "start_failed": (
        "start failed",
        "its last starts failed, and it is tried again later",
        "it starts as soon as a host lets it; phoenix hosts shows what is wrong with hosts",
    ),
    "held": ("held", "it is held", "phoenix release JOB"),
    "dependency": ("dependency", "it waits for another job", "it starts when that job has ended as asked"),
    "dependency_failed": (
        "dependency failed",
        "a job that it depends on did not end as asked: it can never start",
        "cancel it, and submit it again without that dependency",
    ),
    "array_throttle": (
        "array throttle",
        "its array runs as many elements at once as it may",
        "it starts when one of them ends",
    ),
    "user_limit": (
        "user limit",
        "with it its user would be over a limit",
        "it starts when jobs of its user end, and keeps nobody else waiting",
    ),
    "quality_limit": (
        "quality limit",
        "with it all jobs of its quality of service together would be over a limit",
        "it starts when some of them end; another --qos may start it sooner",
    ),
    "department_limit": (
        "department limit",
        "with it the department would have more cores than its maximum_cores",
        "it starts when jobs of the department end",
    ),
    "spared": (
        "spared",
        "best-effort is in its way that may not be ended yet",
        "it starts when they may be ended, or end",
    ),
    "no_hosts_held": (
        "no hosts",
        "the department holds no host at all",
        "it starts when a host comes back; `phoenix departments` shows who holds them",
    ),
    "too_large_now": (
        "too large now",
        "no host that is known now could hold it",
        "bring larger hosts, or submit it again with fewer cores or less memory a node",
    ),
    "reserved": ("reserved", "room is kept for it", ""),
    "by_walltimes": ("by time limits", "it starts then if all that runs and goes first runs to its time limit", ""),
    "too_far": ("too far ahead", "more has to end before it than is looked at", ""),
    "running": ("running", "it runs", ""),
    "starting": ("starting", "its machines are being started", "it begins when they have booted"),
    "finished": ("finished", "it is finished", ""),
}
_GLUE: Final = {
    "passed_over": "passed over job",
    "nodes": "nodes",
    "cores": "cores on each",
    "memory_mb": "MiB on each",
}


def code_of(reason: object) -> tuple[str, Params]:
    """Code and parameters of a Reason, of its JSON, or of a bare code."""
    if isinstance(reason, Mapping):
        return str(reason.get("code", "")), reason.get("params") or {}
    if isinstance(reason, str):
        return reason, {}
    return str(getattr(reason, "code", "")), getattr(reason, "params", {})


def short(reason: object) -> str:
    """For a column: a few words."""
    code, params = code_of(reason)
    words = _TEXTS[code][0] if code in _TEXTS else code.replace("_", " ")
    if code == "vm_ended" and "began" in params:
        return "start failed"
    if code == "starting" and "paused_since" in params:
        return "starts paused"
    if code == "held" and "failed" in params:
        return "starts failed, held"
    if code == "user_limit" and "quality" in params:
        return f"user limit in {params['quality']}"
    subject = params.get("job") or params.get("jobs") or params.get("behind")
    return f"{words} {_plain(subject)}" if subject and code in ("waits_behind", "dependency") else words


def sentence(reason: object) -> str:
    """In full, with its numbers; and by whose word, where that does not go without saying."""
    code, params = code_of(reason)
    by = params.get("load_by")
    if not by:
        return shown(_sentence(code, params))
    told = _sentence(code, {name: value for name, value in params.items() if name != "load_by"})
    return shown(f"{told} (by the word of {_plain(by)})")


def _sentence(code: str, params: Params) -> str:
    tables = (TELL, told_web.TELL, told_health.TELL, told_moves.TELL, told_foreseen.TELL, told_grace.TELL)
    for table in tables:
        told = table[code](Told(params)) if code in table else None
        if told is not None:
            return told
    words = _TEXTS[code][1] if code in _TEXTS else code.replace("_", " ")
    details = ", ".join(f"{_GLUE.get(key, key.replace('_', ' '))} {_plain(value)}" for key, value in params.items())
    return f"{words} ({details})" if details else words


def remedy(reason: object) -> str:
    """What would unblock it, or an empty string."""
    code, params = code_of(reason)
    special = UNBLOCK.get(code)
    told = special(Told(params)) if special else None
    if told is not None:
        return told
    return _TEXTS[code][2] if code in _TEXTS else ""


def capital(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)
