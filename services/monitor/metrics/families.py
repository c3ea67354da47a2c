"""What the monitor exports beside its shell: hosts, claims, queues, jobs, work, web; all of it folded from the journal.

Counters are those of the whole journal: a restart, or a rebuilt monitor, does not set them back.  A department that is
configured no more takes its series with it.
"""

from __future__ import annotations

from typing import Final

from schemas import reasons as because
from schemas.dimensions import DIMENSIONS
from schemas.facts import Disposal
from services.domain.custody.meta import Void
from services.monitor.core import counters, goodput, releases
from services.monitor.core.service_levels import BOUNDS_S
from services.runtime.families import DEPARTMENT, OWNER, Label, Names, Table

HOST_STATES: Final = ("absent", "free", "held", "draining", "lost")
OTHER: Final = "other"  # a reason of another version
APART: Final = ("disabled", "monitored late", "not of this cloud", "used by others", "starts failed", OTHER)
OPEN_STATES: Final = ("pending", "held", "suspended", "starting", "running", "completing")
FOR_HOSTS: Final = (
    because.tags(  # why a unit waits, by its scheduler's word; queue: that has not told yet, or is silent
        because.Queue,
        because.WaitsForHosts,
        because.WaitsBehind,
        because.NoHostsHeld,
        because.TooLargeNow,
        because.Protected,
        because.LeaseKeepsRoom,
        because.LeaseLate,
        because.StartFailed,
    )
)
FOR_ELSE: Final = because.tags(  # no host would help: deploy/prometheus/rules/batch.yml leaves these out
    because.Held,
    because.Dependency,
    because.DependencyFailed,
    because.ArrayThrottle,
    because.UserLimit,
    because.QualityLimit,
    because.DepartmentLimit,
    because.ShareFull,
    because.LeaseStartsAt,
    because.LeaseOver,
)
TROUBLES: Final = because.tags(  # what needs attention in a web department (`scheduler.lookahead.why_web`, rule 5)
    because.NotReady,
    because.SignalMissing,
    because.RequestsQueued,
    because.RequestsRefused,
    because.RequestsFail,
    because.Rolling,
    because.ReleaseFailed,
    because.ReleaseErrors,
    because.SignalsDropped,
)
WAITS: Final = (*FOR_HOSTS, *FOR_ELSE, OTHER)

TABLE: Final = Table("monitor")

# ------------------------------------------------------------------------------------------------------------------ hosts
HOSTS: Final = TABLE.gauge(
    "phoenix_hosts", "Hosts by state, and by the department that holds them", Label.of("state", HOST_STATES), OWNER
)
HOSTS_QUOTA: Final = TABLE.gauge("phoenix_hosts_quota", "Quota of a department: hosts that it may keep", DEPARTMENT)
HOSTS_DEMANDED: Final = TABLE.gauge(
    "phoenix_hosts_demanded", "Demand of a department: hosts that it needs in all", DEPARTMENT
)
HOSTS_OWN: Final = TABLE.gauge(
    "phoenix_hosts_own",
    "Hosts that are a department's by guarantee and weight; fewer held: the rest is lent",
    DEPARTMENT,
)
HOSTS_IDLE: Final = TABLE.gauge(
    "phoenix_hosts_idle",
    "Hosts that a department holds without an attempt on them, and that are not set apart",
    DEPARTMENT,
)
HOSTS_APART: Final = TABLE.gauge(
    "phoenix_hosts_quarantined", "Hosts in quarantine, by reason", Label.of("reason", APART)
)
HOSTS_CORDONED: Final = TABLE.gauge("phoenix_hosts_cordoned", "Hosts that a person has set apart")
HOSTS_SAVING: Final = TABLE.gauge(
    "phoenix_hosts_power_saving_candidates", "Hosts that have been empty for so long that they could be switched off"
)
HOST_MOVES: Final = TABLE.counter(
    "phoenix_host_moves_total",
    "Hosts granted to another department than their last holder, by both; from none: the first time",
    Label("from", Names.OWNERS),
    Label("to", Names.DEPARTMENTS),
)
HOSTS_FLAPPING: Final = TABLE.gauge(
    "phoenix_hosts_flapping",
    f"Hosts whose holder has changed {counters.FLAPS} times or more in the last {counters.FLAP_WINDOW_S / 60:g} minutes",
)

# ----------------------------------------------------------------------------------------------------- claims and reclaims
CLAIMS_OPEN: Final = TABLE.gauge(
    "phoenix_claims_open", "1 while a web department demands more hosts than it holds", DEPARTMENT
)
CLAIM_HOSTS: Final = TABLE.gauge("phoenix_claim_hosts", "Hosts that a web department lacks now", DEPARTMENT)
CLAIM_OPEN_S: Final = TABLE.gauge(
    "phoenix_claim_open_seconds",
    "For so long the open claim of a web department has lasted; 0: none is open",
    DEPARTMENT,
)
CLAIM_S: Final = TABLE.histogram(
    "phoenix_claim_seconds",
    "From a web department's claim until it held what it demanded; counted when it does",
    BOUNDS_S,
    DEPARTMENT,
)
RECLAIM_HOSTS: Final = TABLE.gauge(
    "phoenix_reclaim_hosts", "Hosts that a department has to return and that are not clear yet", DEPARTMENT
)
RECLAIM_OPEN_S: Final = TABLE.gauge(
    "phoenix_reclaim_open_seconds", "Time since the oldest of them was demanded back; 0: there is none", DEPARTMENT
)
RECLAIM_S: Final = TABLE.histogram(
    "phoenix_reclaim_seconds",
    "From asking a department for a host until that host was clear; counted when it is",
    BOUNDS_S,
    DEPARTMENT,
)
TAKEN_BACK: Final = TABLE.counter(
    "phoenix_hosts_taken_back_total",
    "Hosts that a department gave back on notice, or that were seized because it did not",
    DEPARTMENT,
    Label.of("how", ("noticed", "seized")),
)

# ---------------------------------------------------------------------------------------------------------- queue and jobs
JOBS: Final = TABLE.gauge(
    "phoenix_jobs",
    "Jobs and elements of arrays that are not over, by state",
    DEPARTMENT,
    Label.of("state", OPEN_STATES),
)
QUEUE_JOBS: Final = TABLE.gauge(
    "phoenix_queue_jobs",
    "Those that wait, by the first reason of `phoenix why`; queue: their scheduler has not reported yet, or is silent",
    DEPARTMENT,
    Label.of("reason", WAITS),
)
QUEUE_OLDEST: Final = TABLE.gauge(
    "phoenix_queue_oldest_seconds",
    "How long the one that waits longest has waited, since it was submitted or its last attempt ended",
    DEPARTMENT,
    Label.of("reason", WAITS),
)
QUEUE_WAIT: Final = TABLE.histogram(
    "phoenix_queue_wait_seconds",
    "From submission, of a lease from its time slot on, to the first attempt; counted when that is placed",
    counters.WAIT_S,
    DEPARTMENT,
)
JOB_OUTCOMES: Final = TABLE.counter(
    "phoenix_job_outcomes_total",
    "Jobs and elements of arrays that are over, by how",
    DEPARTMENT,
    Label.of("outcome", counters.OUTCOMES),
)
JOB_RETRIES: Final = TABLE.counter(
    "phoenix_job_retries_total", "Attempts that failed by themselves and were not the job's last", DEPARTMENT
)
ATTEMPTS_CLOSED: Final = TABLE.counter(
    "phoenix_attempts_closed_total",
    "Attempts of jobs and instances that their scheduler closed, by reason and by outcome for the job or instance",
    DEPARTMENT,
    Label("why", Names.REASONS),
    Label.of("disposal", Disposal),
)
PREEMPTIONS: Final = TABLE.counter(
    "phoenix_preemptions_total",
    "Attempts of jobs reclaimed or preempted, also those continued elsewhere, by the reason of the notice or by preempted",
    DEPARTMENT,
    Label.of("cause", counters.CAUSES),
)

# ------------------------------------------------------------------------------------------------------------------- work
USABLE: Final = tuple(
    TABLE.gauge(each.metric.format("usable"), f"{each.title} of hosts that are held, or free", OWNER)
    for each in DIMENSIONS
)
ALLOCATED: Final = tuple(
    TABLE.gauge(
        each.metric.format("allocated"),
        f"{each.title} that live attempts have; all of a host that one has alone",
        DEPARTMENT,
    )
    for each in DIMENSIONS
)
WAITING: Final = tuple(
    TABLE.gauge(
        each.metric.format("waiting"),
        f"{each.title} that jobs ask for which wait for hosts: not those that are held, or that no host would help",
        DEPARTMENT,
    )
    for each in DIMENSIONS
)
HELD_HOST_S: Final = TABLE.counter("phoenix_held_host_seconds_total", "Host-seconds held", DEPARTMENT)
LENT_HOST_S: Final = TABLE.counter(
    "phoenix_lent_host_seconds_total", "Host-seconds of its own that a department did not hold", DEPARTMENT
)
BORROWED_HOST_S: Final = TABLE.counter("phoenix_borrowed_host_seconds_total", "Host-seconds beyond its own", DEPARTMENT)
USED_CORE_S: Final = TABLE.counter(
    "phoenix_used_core_seconds_total", "Core-seconds of attempts, from their placement to their end", DEPARTMENT
)
GOODPUT: Final = TABLE.counter(
    "phoenix_goodput_core_seconds_total",
    "Core-seconds used that counted: of jobs that completed, and of instances that served. Used = good + bad + open",
    DEPARTMENT,
)
BADPUT: Final = TABLE.counter(
    "phoenix_badput_core_seconds_total",
    "Core-seconds used for nothing, by cause, starts included; counted when they can no longer turn out useful",
    DEPARTMENT,
    Label.of("cause", goodput.CAUSES),
)
OPENPUT: Final = TABLE.gauge(
    "phoenix_open_core_seconds", "Core-seconds used that are not yet known to be useful or wasted", DEPARTMENT
)
LOST_CORE_S: Final = TABLE.counter(
    "phoenix_lost_core_seconds_total",
    "Core-seconds of work thrown away by preemption or because a host or VM failed, starts not included; counted at once, "
    "also where a late report then saves it",
    DEPARTMENT,
)
JOB_CPU_S: Final = TABLE.counter(
    "phoenix_job_cpu_seconds_total",
    "CPU-seconds that jobs have really used, as guests reported at the end of an attempt, successful or not",
    DEPARTMENT,
)

# -------------------------------------------------------------------------------------------------------------------- web
WEB_WANTED: Final = TABLE.gauge(
    "phoenix_web_instances_wanted", "Target of a web department: instances that should be in service", DEPARTMENT
)
WEB_HELD: Final = TABLE.gauge(
    "phoenix_web_instances_held", "Instances that have a place on a host: starting, serving or draining", DEPARTMENT
)
WEB_RUNNING: Final = TABLE.gauge("phoenix_web_instances_running", "Instances that serve or drain", DEPARTMENT)
WEB_DRAINING: Final = TABLE.gauge("phoenix_web_instances_draining", "Instances that get no new sessions", DEPARTMENT)
WEB_SERVING: Final = TABLE.gauge(
    "phoenix_web_instances_serving",
    "Instances that serve: in service, not draining, and ready according to every observer",
    DEPARTMENT,
)
WEB_NOT_READY: Final = TABLE.gauge(
    "phoenix_web_instances_not_ready", "Instances in service whose health check fails", DEPARTMENT
)
WEB_CLAIMED: Final = TABLE.gauge("phoenix_web_instances_claimed", "Instances that load balancers claim", DEPARTMENT)
WEB_SHORT: Final = TABLE.counter(
    "phoenix_web_shortfall_instance_seconds_total",
    "Instance-seconds for which fewer instances served than were wanted",
    DEPARTMENT,
)
WEB_SHORT_FOR: Final = TABLE.gauge(
    "phoenix_web_shortfall_seconds",
    "For how long fewer instances have served than are wanted; 0: as many do",
    DEPARTMENT,
)
WEB_UTILISATION: Final = TABLE.gauge(
    "phoenix_web_utilisation_ratio", "How busy the instances were when last observed; 1: all", DEPARTMENT
)
WEB_RATE: Final = TABLE.gauge("phoenix_web_requests_per_second", "Requests a second when last observed", DEPARTMENT)
WEB_SILENT: Final = TABLE.gauge(
    "phoenix_web_signal_missing",
    "1 while the number of instances is held because no signal reports the load",
    DEPARTMENT,
)
WEB_TROUBLES: Final = TABLE.gauge(
    "phoenix_web_troubles",
    "1 while that needs attention: what `phoenix status` shows of a web department",
    DEPARTMENT,
    Label.of("code", TROUBLES),
)
WEB_RELEASE: Final = TABLE.gauge(
    "phoenix_web_release", "Release that instances are to run; 0: the configuration's", DEPARTMENT
)
WEB_RELEASE_STATE: Final = TABLE.gauge(
    "phoenix_web_release_state", "1 for how far that release is", DEPARTMENT, Label.of("state", releases.STAGES)
)

# ----------------------------------------------------------------------------------------------------------------- custody
VOIDS: Final = TABLE.counter(
    "phoenix_custody_void_facts_total", "Facts that were void, by reason", Label.of("reason", Void)
)
