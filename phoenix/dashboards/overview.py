"""For operators, the whole cloud: who has the hosts, is web served, do claims come in time, what waits, what is lost."""

from __future__ import annotations

from typing import Final

from phoenix.dashboards.form import (
    RARE,
    Dashboard,
    Panel,
    Query,
    Row,
    glance,
    increase,
    quantiles,
    rate,
    series,
    total,
)

_GLANCE: Final = Row(
    "At a glance",
    (
        glance(
            "Hosts in all",
            "Hosts that the cloud has, lost ones included.",
            total(series("phoenix_hosts", state="!absent")),
        ),
        glance(
            "Lost or set apart",
            "Hosts that are lost, and hosts in quarantine. They do nobody's work: phoenix hosts says why.",
            f"sum({series('phoenix_hosts', state='lost')} or {series('phoenix_hosts_quarantined')}) or vector(0)",
            bad=1,
        ),
        glance(
            "Open claims",
            "Web departments that want more hosts than they hold. For moments at a time this is how it works.",
            total(series("phoenix_claims_open")),
            bad=1,
        ),
        glance(
            "Instances short",
            "Instances that web departments want in service and that do not serve yet.",
            f"sum(clamp_min({series('phoenix_web_instances_wanted')} - "
            f"{series('phoenix_web_instances_serving')}, 0)) or vector(0)",
            bad=1,
        ),
        glance(
            "Jobs that wait",
            "Jobs and elements of arrays that wait, for whatever reason.",
            total(series("phoenix_queue_jobs")),
        ),
        glance(
            "Alerts",
            "Alerts of this cloud that fire now. Each has a page in docs/runbooks.",
            f"count({series('ALERTS', alertstate='firing')}) or vector(0)",
            bad=1,
            worse=5,
        ),
    ),
)

_HOSTS: Final = Row(
    "Hosts",
    (
        Panel(
            "Hosts by owner",
            "Who holds the hosts. Together they are all hosts; what is draining is on its way from one owner to the next.",
            "short",
            (
                Query(total(series("phoenix_hosts", state="held"), "department"), "{{department}}"),
                Query(total(series("phoenix_hosts", state="~free|draining|lost"), "state"), "{{state}}"),
            ),
            stacked=True,
            stepped=True,
            width=16,
            height=10,
            colours={"free": "super-light-green", "draining": "light-orange", "lost": "dark-red"},
        ),
        Panel(
            "Hosts that moved",
            "Grants by who had the host before (nobody at first) and who has it now.",
            "short",
            (Query(total(increase("phoenix_host_moves_total"), "from", "to"), "{{from}} → {{to}}"),),
            stacked=True,
            width=8,
            height=10,
        ),
        Panel(
            "Utilisation: allocated and real",
            "Of the cores of hosts that are held or free: what attempts have, and what is really busy by OpenNebula's "
            "monitoring of hosts. Far apart: jobs ask for more than they use, or web instances idle.",
            "percentunit",
            (
                Query(
                    f"{total(series('phoenix_cores_allocated'))} / {total(series('phoenix_cores_usable'))}", "allocated"
                ),
                Query(f"{total(series('phoenix_cores_busy'))} / {total(series('phoenix_cores_usable'))}", "busy"),
            ),
            width=8,
            most=1,
        ),
        Panel(
            "Hosts that do nothing, or too much",
            "idle: held without an attempt on them; flapping: their holder changed again and again; cordoned: a person set "
            "them apart; power: empty for so long that they could be switched off.",
            "short",
            (
                Query(total(series("phoenix_hosts_idle")), "idle"),
                Query(total(series("phoenix_hosts_flapping")), "flapping"),
                Query(total(series("phoenix_hosts_cordoned")), "cordoned"),
                Query(total(series("phoenix_hosts_power_saving_candidates")), "power"),
            ),
            stepped=True,
            width=8,
        ),
        Panel(
            "Quarantine",
            "Hosts in quarantine, by reason (docs/reference/hosts.md).",
            "short",
            (Query(total(series("phoenix_hosts_quarantined"), "reason"), "{{reason}}"),),
            stacked=True,
            stepped=True,
            width=8,
        ),
    ),
)

_CLAIMS: Final = Row(
    "Claims and reclaims",
    (
        Panel(
            "From claim to hosts",
            f"How long web departments waited until they held what they demanded; claims met in the last {RARE}. Boot and "
            "health check of an instance come after it.",
            "s",
            quantiles("phoenix_claim_seconds", RARE),
            width=8,
        ),
        Panel(
            "From asking to clear",
            f"How long it took until a host that a department was asked for was clear; of the last {RARE}. Notice, drain and "
            "OpenNebula's end of the VM are in it.",
            "s",
            quantiles("phoenix_reclaim_seconds", RARE),
            width=8,
        ),
        Panel(
            "Open now",
            "For how long claims have been open, and hosts have been asked for. A line that grows for minutes is a claim that "
            "cannot be met: guarantees, no hosts left, or OpenNebula does not do what it is told.",
            "s",
            (
                Query(series("phoenix_claim_open_seconds"), "claim of {{department}}"),
                Query(series("phoenix_reclaim_open_seconds"), "asked of {{department}}"),
            ),
            width=8,
        ),
    ),
)

_WEB: Final = Row(
    "Web",
    (
        Panel(
            "Instances wanted, held and serving",
            "wanted: by the scaling rule; held: with a place on a host; serving: in service, ready, not draining.",
            "short",
            (
                Query(series("phoenix_web_instances_wanted"), "{{department}} wanted"),
                Query(series("phoenix_web_instances_held"), "{{department}} held"),
                Query(series("phoenix_web_instances_serving"), "{{department}} serving"),
            ),
            stepped=True,
        ),
        Panel(
            "Load",
            "How busy the instances are, as last observed; 100 %: all are.",
            "percentunit",
            (Query(series("phoenix_web_utilisation_ratio"), "{{department}}"),),
        ),
        Panel(
            "Requests",
            "Requests a second that came in, where the load balancer says so.",
            "reqps",
            (Query(series("phoenix_web_requests_per_second"), "{{department}}"),),
        ),
        Panel(
            "Shortfall",
            "Instances that were missing, on average: instance-seconds short in each second.",
            "short",
            (Query(total(rate("phoenix_web_shortfall_instance_seconds_total"), "department"), "{{department}}"),),
        ),
    ),
)

_WORK: Final = Row(
    "Queues and work",
    (
        Panel(
            "What waits, and for what",
            "Jobs and elements of arrays by department and reason; queue: for hosts. phoenix why tells more of each.",
            "short",
            (Query(total(series("phoenix_queue_jobs"), "department", "reason"), "{{department}} {{reason}}"),),
            stacked=True,
            stepped=True,
        ),
        Panel(
            "The one that waits longest",
            "Since it was submitted or its last attempt ended, by department and reason.",
            "s",
            (
                Query(
                    f"max by (department, reason) ({series('phoenix_queue_oldest_seconds')})",
                    "{{department}} {{reason}}",
                ),
            ),
        ),
        Panel(
            "Jobs over",
            "Jobs that ended, by how, in each interval of the graph.",
            "short",
            (Query(total(increase("phoenix_job_outcomes_total"), "outcome"), "{{outcome}}"),),
            stacked=True,
            width=8,
        ),
        Panel(
            "Preemptions",
            "Attempts that had to make room, by cause, in each interval of the graph.",
            "short",
            (Query(total(increase("phoenix_preemptions_total"), "cause"), "{{cause}}"),),
            stacked=True,
            width=8,
        ),
        Panel(
            "Work lost",
            "Cores' worth of work thrown away by preemption or failure: core-seconds lost in each second, by who lost it.",
            "short",
            (Query(total(rate("phoenix_lost_core_seconds_total"), "department"), "{{department}}"),),
            stacked=True,
            width=8,
        ),
        Panel(
            "Goodput and badput",
            "Cores that worked for something, and for nothing by cause: core-seconds in each second. Badput is counted when "
            "nothing can make it good any more, so it comes in steps.",
            "short",
            (
                Query(total(rate("phoenix_goodput_core_seconds_total")), "good"),
                Query(total(rate("phoenix_badput_core_seconds_total"), "cause"), "{{cause}}"),
            ),
            stacked=True,
            width=24,
            colours={"good": "green"},
        ),
    ),
)

OVERVIEW: Final = Dashboard(
    "phoenix-overview",
    "Phoenix: overview",
    "The whole cloud at a glance: hosts by owner, claims, web load, queues, work lost.",
    (_GLANCE, _HOSTS, _CLAIMS, _WEB, _WORK),
)
