"""For one department: what it holds and may keep, what of it waits and why, what it lost to whom, how its service does."""

from __future__ import annotations

from typing import Final

from phoenix.dashboards.form import (
    CLOUD,
    CLOUDS,
    RARE,
    Dashboard,
    Panel,
    Query,
    Row,
    Variable,
    glance,
    increase,
    quantiles,
    rate,
    series,
    total,
)
from services.monitor.metrics.families import FOR_ELSE

OWN: Final = "$department"
_FOR_HOSTS: Final = f"!~{'|'.join(FOR_ELSE)}"


_GLANCE: Final = Row(
    "At a glance",
    (
        glance("Hosts held", "Hosts that it has now.", total(series("phoenix_hosts", state="held", department=OWN))),
        glance("Jobs that wait", "For whatever reason.", total(series("phoenix_queue_jobs", department=OWN))),
        glance(
            "Waited longest for hosts",
            "The job that has waited longest for nothing but hosts.",
            f"max({series('phoenix_queue_oldest_seconds', department=OWN, reason=_FOR_HOSTS)})",
            "s",
        ),
        glance(
            "Instances short",
            "Instances that it wants in service and that do not serve yet.",
            f"clamp_min({series('phoenix_web_instances_wanted', department=OWN)} - "
            f"{series('phoenix_web_instances_serving', department=OWN)}, 0)",
            bad=1,
        ),
        glance(
            "Signal missing",
            "1: nobody says how busy it is, and the number of instances is held (docs/reference/signals.md).",
            series("phoenix_web_signal_missing", department=OWN),
            "none",
            bad=1,
        ),
        glance(
            "Release",
            "That instances are to run; 0: the configuration's (docs/howto/deploy.md).",
            series("phoenix_web_release", department=OWN),
            "none",
        ),
    ),
)

_HOSTS: Final = Row(
    "Hosts",
    (
        Panel(
            "Held, wanted, allowed",
            "held: what it has; demanded: what it wants; may keep: its quota; its own: by guarantee and weight. Held above its "
            "own is borrowed, below is lent.",
            "short",
            (
                Query(total(series("phoenix_hosts", state="held", department=OWN)), "held"),
                Query(series("phoenix_hosts_demanded", department=OWN), "demanded"),
                Query(series("phoenix_hosts_quota", department=OWN), "may keep"),
                Query(series("phoenix_hosts_own", department=OWN), "its own"),
                Query(series("phoenix_hosts_idle", department=OWN), "idle"),
            ),
            stepped=True,
        ),
        Panel(
            "Lent and borrowed",
            "Hosts of its own that it did not hold, and hosts beyond its own that it held, on average.",
            "short",
            (
                Query(rate("phoenix_lent_host_seconds_total", department=OWN), "lent"),
                Query(rate("phoenix_borrowed_host_seconds_total", department=OWN), "borrowed"),
            ),
        ),
        Panel(
            "Hosts that moved",
            "Grants to it and from it, in each interval of the graph.",
            "short",
            (
                Query(total(increase("phoenix_host_moves_total", to=OWN), "from"), "from {{from}}"),
                Query(total(increase("phoenix_host_moves_total", **{"from": OWN}), "to"), "to {{to}}"),
            ),
            width=8,
        ),
        Panel(
            "Asked for and given back",
            "noticed: it gave the host back itself; seized: it did not in time. asked: hosts that it still has to return.",
            "short",
            (
                Query(total(increase("phoenix_hosts_taken_back_total", department=OWN), "how"), "{{how}}"),
                Query(series("phoenix_reclaim_hosts", department=OWN), "asked"),
            ),
            width=8,
        ),
        Panel(
            "From asking to clear",
            f"How long it took until a host that it was asked for was clear; of the last {RARE}.",
            "s",
            quantiles("phoenix_reclaim_seconds", RARE, department=OWN),
            width=8,
        ),
    ),
)

_QUEUE: Final = Row(
    "Jobs",
    (
        Panel(
            "What waits, and for what",
            "Jobs and elements of arrays by reason; queue: for hosts, behind the first ones. phoenix why JOB tells of one.",
            "short",
            (Query(series("phoenix_queue_jobs", department=OWN), "{{reason}}"),),
            stacked=True,
            stepped=True,
        ),
        Panel(
            "The one that waits longest",
            "Since it was submitted or its last attempt ended, by reason.",
            "s",
            (Query(series("phoenix_queue_oldest_seconds", department=OWN), "{{reason}}"),),
        ),
        Panel(
            "Time in the queue",
            f"From submission to the first attempt, of jobs that began in the last {RARE}.",
            "s",
            quantiles("phoenix_queue_wait_seconds", RARE, department=OWN),
            width=8,
        ),
        Panel(
            "Jobs by state",
            "Those that are not over.",
            "short",
            (Query(series("phoenix_jobs", department=OWN), "{{state}}"),),
            stacked=True,
            stepped=True,
            width=8,
        ),
        Panel(
            "Jobs over",
            "Jobs that ended, by how, in each interval of the graph; retried: attempts that failed and were not the last.",
            "short",
            (
                Query(total(increase("phoenix_job_outcomes_total", department=OWN), "outcome"), "{{outcome}}"),
                Query(increase("phoenix_job_retries_total", department=OWN), "retried"),
            ),
            stacked=True,
            width=8,
        ),
        Panel(
            "Preemptions",
            "Attempts that had to make room, by cause, in each interval of the graph.",
            "short",
            (Query(increase("phoenix_preemptions_total", department=OWN), "{{cause}}"),),
            stacked=True,
        ),
        Panel(
            "Why attempts ended",
            "The ten reasons for which most attempts of jobs and instances were closed, and what became of them.",
            "short",
            (
                Query(
                    f"topk(10, {total(increase('phoenix_attempts_closed_total', department=OWN), 'why', 'disposal')} > 0)",
                    "{{why}}: {{disposal}}",
                ),
            ),
        ),
    ),
)

_WORK: Final = Row(
    "Work",
    (
        Panel(
            "Cores: had, allocated, busy",
            "Of the hosts that it holds: all cores, those that attempts have, those that are really busy.",
            "short",
            (
                Query(series("phoenix_cores_usable", department=OWN), "on its hosts"),
                Query(series("phoenix_cores_allocated", department=OWN), "allocated"),
                Query(series("phoenix_cores_busy", department=OWN), "busy"),
            ),
            width=8,
        ),
        Panel(
            "Memory: had, allocated, in use",
            "The same of memory.",
            "bytes",
            (
                Query(series("phoenix_memory_usable_bytes", department=OWN), "on its hosts"),
                Query(series("phoenix_memory_allocated_bytes", department=OWN), "allocated"),
                Query(series("phoenix_memory_busy_bytes", department=OWN), "in use"),
            ),
            width=8,
        ),
        Panel(
            "Goodput and badput",
            "Cores that worked for something, and for nothing by cause: core-seconds in each second.",
            "short",
            (
                Query(rate("phoenix_goodput_core_seconds_total", department=OWN), "good"),
                Query(rate("phoenix_badput_core_seconds_total", department=OWN), "{{cause}}"),
                Query(rate("phoenix_lost_core_seconds_total", department=OWN), "lost at once"),
            ),
            width=8,
            colours={"good": "green"},
        ),
    ),
)

_WEB: Final = Row(
    "Web",
    (
        Panel(
            "Instances",
            "wanted: by the scaling rule; claimed: by load balancers; held: with a place on a host; serving: in service, "
            "draining ones included.",
            "short",
            (
                Query(series("phoenix_web_instances_wanted", department=OWN), "wanted"),
                Query(series("phoenix_web_instances_claimed", department=OWN), "claimed"),
                Query(series("phoenix_web_instances_held", department=OWN), "held"),
                Query(series("phoenix_web_instances_serving", department=OWN), "serving"),
                Query(series("phoenix_web_instances_draining", department=OWN), "draining"),
            ),
            stepped=True,
        ),
        Panel(
            "Load",
            "How busy the instances are, as last observed; 100 %: all are.",
            "percentunit",
            (Query(series("phoenix_web_utilisation_ratio", department=OWN), "busy"),),
            width=6,
        ),
        Panel(
            "Requests",
            "Requests a second that came in, where the load balancer says so.",
            "reqps",
            (Query(series("phoenix_web_requests_per_second", department=OWN), "requests"),),
            width=6,
        ),
        Panel(
            "Shortfall and open claim",
            "Instances that were missing on average, and hosts that it lacks now.",
            "short",
            (
                Query(rate("phoenix_web_shortfall_instance_seconds_total", department=OWN), "instances"),
                Query(series("phoenix_claim_hosts", department=OWN), "hosts"),
            ),
            width=6,
        ),
        Panel(
            "From claim to hosts",
            f"How long it waited until it held what it demanded; claims met in the last {RARE}.",
            "s",
            quantiles("phoenix_claim_seconds", RARE, department=OWN),
            width=6,
        ),
        Panel(
            "Answers with 5xx",
            "Of the requests that instances answered, those with 5xx or broken off: of the release that all are to run, and of "
            "others.",
            "percentunit",
            (
                Query(
                    f"max by (release) ({rate('phoenix_web_errors_total', department=OWN)}"
                    f" / ({rate('phoenix_web_answers_total', department=OWN)} > 0))",
                    "{{release}}",
                ),
            ),
            width=6,
        ),
        Panel(
            "Age of signals",
            "Since the end of what the last signal measured, by name. Above signal_timeout_s the number of instances is held.",
            "s",
            (Query(series("phoenix_signal_age_seconds", department=OWN), "{{signal}}"),),
            width=6,
        ),
        Panel(
            "Signals dropped",
            "By reason; a wrong clock shows as late or future (docs/reference/signals.md).",
            "ops",
            (Query(total(rate("phoenix_signals_dropped_total", department=OWN), "reason"), "{{reason}}"),),
            width=6,
        ),
    ),
)

DEPARTMENT: Final = Dashboard(
    "phoenix-department",
    "Phoenix: department",
    "One department: its hosts, its jobs and why they wait, its work, its web service.",
    (_GLANCE, _HOSTS, _QUEUE, _WORK, _WEB),
    (CLOUDS, Variable("department", "Department", f"label_values(phoenix_hosts_quota{{{CLOUD}}}, department)")),
)
