"""The configuration as a message: what `config.adopted` carries and every core reads (PROTOCOL S7).

The TOML file is read and validated by `services.runtime.config.file`; this module holds only the typed content.  It holds no
secret: credentials live in files of their own.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from schemas.ranges import about, between, positive
from schemas.requests_base import INSTANCES_MAX
from schemas.size import FIELDS, Size
from schemas.validation import WORDS

DAY_S: Final = 86_400.0
DECADE_S: Final = 3660 * DAY_S
HOSTS_MAX: Final = 100_000  # ten times the largest cluster of the scale tests; more is a typing error
CORES_MAX: Final = 1_000_000_000  # a thousand times the largest machine

OnReclaim = Literal["kill", "requeue", "suspend", "migrate"]
RequeuePlace = Literal["keep", "end"]
OnTerm = Literal["stop", "complete"]  # what exit 0 is after SIGTERM: the script was stopped, or it has completed, early

# Which policies there are, `services.runtime.config.policies` knows: those that come with Phoenix Cloud
# (`services.scheduler.core.policies.registry`), and plug-ins (docs/howto/plugins.md).  So a setting holds any `PolicyName`.
Backfill = Literal["none", "first-fit", "easy", "conservative"]
LeaseVictims = Literal["minimum-waiting-time", "minimum-overhead", "combined"]
PolicyName: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[a-z][a-z0-9-]{0,63}$",
        extra={WORDS: "a name of 1 to 64 small letters, digits and '-' only, beginning with a letter,"},
    ),
]
Option: TypeAlias = bool | int | float | str | tuple[bool | int | float | str, ...]
Capability = Literal["suspend", "resume_elsewhere", "live_migration", "cold_migration", "keep_devices"]
Role = Literal["user", "manager", "operator"]


class _Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class MultiFactor(_Config, frozen=True, kw_only=True):
    """The priority of jobs under the order `multi-factor`.  A weight is the number of points for a factor of 1.  `shares`:
    shares of the department by user; `users`: factor by user, from -1 to 1; of all others 0."""

    backfill: Annotated[Backfill, about("which order starts jobs by these priorities; none: strictly in order")] = (
        "easy"
    )
    weight_age: Annotated[float, between(0, 1e9, "points for the time waited")] = 1000.0
    weight_fair_share: Annotated[float, between(0, 1e9, "points for having used less than is due")] = 10_000.0
    weight_size: Annotated[float, between(-1e9, 1e9, "points for the cores asked for; negative: small jobs first")] = (
        1000.0
    )
    weight_quality: Annotated[
        float, between(0, 1e9, "points for the job's own priority and that of its quality of service")
    ] = 10_000.0
    weight_user: Annotated[float, between(0, 1e9, "points for the factor of its user in `users`")] = 0.0
    weight_department: Annotated[float, between(0, 1e9, "points for the department's weight")] = 0.0
    age_full_s: Annotated[float, positive(DECADE_S, "a job that has waited this long has age factor 1")] = 7 * 86400.0
    size_full_cores: Annotated[int, between(1, 1e9, "a job that asks for this many cores has size factor 1")] = 1000
    priority_full: Annotated[int, between(1, 1_000_000, "a job with this `priority` has quality factor 1")] = 100
    half_life_s: Annotated[
        float, between(0, DECADE_S, "half of what was used is forgotten in this time; 0: nothing is")
    ] = 7 * 86400.0
    usage_per_core: Annotated[float, between(0, 1e6, "what a core counts in a user's usage while it is held")] = 1.0
    usage_per_gb: Annotated[float, between(0, 1e6, "what a GiB of memory counts there")] = 0.0
    usage_per_gpu: Annotated[float, between(0, 1e6, "what a GPU counts there")] = 0.0
    damping: Annotated[
        float, between(0.001, 1000, "of fair share: higher forgives more", why="beyond, every factor is 0 or 1")
    ] = 1.0
    period_s: Annotated[float, between(1, DAY_S, "between two moments at which priorities are computed")] = 300.0
    shares: dict[str, Annotated[float, between(0, 1e9, "shares of the department by user")]] = {}
    share_default: Annotated[float, between(0, 1e9, "shares of every user whom `shares` does not name")] = 1.0
    users: dict[str, Annotated[float, between(-1, 1, "factor by user; of all others 0")]] = {}


class UserLimits(_Config, frozen=True, kw_only=True):
    """What a user, department or quality of service may have at once; null: no limit."""

    jobs_running_max: Annotated[
        int | None, between(0, CORES_MAX, "jobs running at once; each array element counts")
    ] = None
    jobs_submitted_max: Annotated[
        int | None, between(0, CORES_MAX, "jobs waiting and running; more are refused at submission")
    ] = None
    cores_max: Annotated[int | None, between(0, CORES_MAX, "cores that running jobs ask for")] = None
    gpus_max: Annotated[int | None, between(0, CORES_MAX, "GPUs that running jobs ask for")] = None
    hosts_max: Annotated[int | None, between(0, CORES_MAX, "nodes of running jobs, all nodes of each job")] = None


class BatchLimits(UserLimits, frozen=True, kw_only=True):
    """Limits of each user of the department.  `users`: limits of single users, instead of these; what is not given there
    stays."""

    users: dict[str, UserLimits] = {}


class Quality(_Config, frozen=True, kw_only=True):
    """A quality of service, like a QOS of Slurm: jobs ask for it by name."""

    priority: Annotated[
        int,
        between(
            -1_000_000, 1_000_000, "added to the job's own priority; in order multi-factor, part of the quality factor"
        ),
    ] = 0
    best_effort: Annotated[bool, about("its jobs run on what production leaves, and make way for it")] = False
    users: Annotated[tuple[str, ...], about("users who may use it; empty: all users of the department")] = ()
    each_user: Annotated[UserLimits, about("limits of each user's jobs of this quality")] = UserLimits()
    together: Annotated[UserLimits, about("limits of all its jobs together")] = UserLimits()


class Leases(_Config, frozen=True, kw_only=True):
    """Settings of the order `leases`: which jobs make way for a lease's time slot, and what that costs (InterGrid, eq. 1 and
    2)."""

    preempt: Annotated[bool, about("best-effort jobs make way; without, slots may begin late")] = True
    victims: Annotated[LeaseVictims, about("which best-effort job makes way first")] = "combined"
    alpha: Annotated[float, between(0, 1, "of `combined`: 0 counts waiting only, 1 overhead only")] = 0.31
    suspend_mb_per_s: Annotated[
        float, positive(1e6, "memory to disk, one VM after the other", why="no memory is faster")
    ] = 40.0
    resume_mb_per_s: Annotated[float, positive(1e6, "memory from disk, one VM after the other")] = 40.0
    margin_s: Annotated[float, between(0, 3600, "what is not counted otherwise: boot and end of a VM")] = 10.0
    lead_s: Annotated[float, between(0, 7 * DAY_S, "the department asks for its hosts this long before a slot")] = 300.0


class Warm(_Config, frozen=True, kw_only=True):
    """VMs that have finished a job of one node and wait for the next one of the same shape (docs/reference/guests.md)."""

    idle_s: Annotated[float, between(0, 7 * DAY_S, "how long a finished VM waits for its next job; 0: none does")] = 0.0
    share: Annotated[Literal["user", "department"], about("whose next job may take the VM")] = "user"
    vms_max: Annotated[int, between(1, HOSTS_MAX, "VMs waiting at once, in the department")] = 1000


class Balance(_Config, frozen=True, kw_only=True):
    """Which running jobs move to idler hosts.  Needs the capability `live_migration`."""

    enabled: Annotated[bool, about("whether running jobs are moved")] = False
    high: Annotated[float, positive(1, "share of its cores that a host uses: above it, one of its VMs may go")] = 0.75
    low: Annotated[float, between(0, 1, "below this share, a host may get a VM")] = 0.25
    mb_per_s: Annotated[float, positive(1e6, "memory over the wire: a gigabit")] = 100.0
    cost_max_s: Annotated[float, between(0, DAY_S, "a VM whose memory takes longer to move stays")] = 120.0
    worth: Annotated[
        float, between(0, 1e6, "a job moves only if it has at least this many times the cost left to run")
    ] = 10.0
    moves_max: Annotated[int, between(1, 1000, "moves of one job")] = 3
    power_saving: Annotated[bool, about("hosts below `low` are emptied, where busier ones have room")] = False


class BatchPolicy(_Config, frozen=True, kw_only=True):
    """How a batch department works its queue.  `multi_factor`: settings of the order `multi-factor`; `limits`: what a user
    may have at once; `leases`: settings of the order `leases`; `balance`: which running jobs move to idler hosts; `warm`: VMs
    that wait for a next job."""

    order: Annotated[PolicyName, about("queue order (docs/reference/policies.md)")] = "first-fit"
    victims: Annotated[PolicyName, about("whose jobs make room (docs/reference/policies.md)")] = (
        "smallest-shortest-spared"
    )
    on_reclaim: Annotated[OnReclaim, about("what happens to a job whose host is taken")] = "requeue"
    on_term: Annotated[OnTerm, about("what exit 0 after SIGTERM means")] = "stop"
    grace_max_s: Annotated[
        float | None, about("SIGTERM to SIGKILL that a job may ask for; null: what it has anyway")
    ] = None
    walltime_default_s: Annotated[float, positive(DECADE_S, "time limit of jobs that name none")] = 3600.0
    walltime_max_s: Annotated[float, positive(DECADE_S, "longest time limit of a job")] = 7 * 86400.0
    memory_per_core_mb: Annotated[
        int, between(1, 1 << 30, "memory for each core of jobs that name no memory (Slurm: DefMemPerCPU)")
    ] = 256
    reservations_max: Annotated[
        int,
        between(
            1,
            1000,
            "waiting jobs that have a reservation in order conservative",
            why="1,000 take 0.7 s with 1,000 hosts, and a leader that is silent for 2 s is replaced",
        ),
    ] = 100
    requeue_place: Annotated[
        RequeuePlace, about("where a preempted job waits: in its own place, or at the end (as in the papers)")
    ] = "keep"
    requeues_max: Annotated[
        int, between(0, 1_000_000, "a job preempted more often is killed: it would never finish")
    ] = 100
    boot_timeout_s: Annotated[float, positive(DAY_S, "from placement until all guests have called")] = 60.0
    save_s: Annotated[
        float | None, between(0, DAY_S, "time that saving or moving a VM may take; null: `policy.save_s`")
    ] = None
    multi_factor: MultiFactor = MultiFactor()
    services: Annotated[
        dict[str, Annotated[float, positive(1e6, "weight of a service")]],
        about("of order svmsched: service -> its weight; its share is its weight of the sum of weights"),
    ] = {}
    short_s: Annotated[
        float,
        between(
            0, DECADE_S, "of order svmsched: jobs no longer than this may use what other services leave; 0: none may"
        ),
    ] = 600.0
    w_cpu: Annotated[
        float,
        between(
            0, 1, "of order svmsched: usage = w_cpu · share of cores + w_mem · of memory + w_gpu · of GPUs; together 1"
        ),
    ] = 1.0
    w_mem: Annotated[float, between(0, 1, "weight of memory in a service's usage")] = 0.0
    w_gpu: Annotated[float, between(0, 1, "weight of GPUs in a service's usage")] = 0.0
    options: Annotated[dict[str, Option], about("settings of orders and victims that are plug-ins")] = {}
    limits: BatchLimits = BatchLimits()
    quality: Annotated[dict[str, Quality], about("qualities of service by name")] = {}
    quality_default: Annotated[str, about("quality of service of jobs that name none; empty: none")] = ""
    min_run_s: Annotated[
        float, between(0, DECADE_S, "an attempt runs at least this long before a job of this department may end it")
    ] = 0.0
    preemptions_max: Annotated[int, between(0, 10_000, "a job preempted this often is spared; 0: no bound")] = 0
    preemptions_per_hour_max: Annotated[
        int, between(0, 10_000, "attempts that may end for jobs of this department in an hour; 0: no bound")
    ] = 0
    leases: Leases = Leases()
    balance: Balance = Balance()
    warm: Warm = Warm()


class WebPolicy(_Config, frozen=True, kw_only=True):
    """How a web department follows its load."""

    rule: Annotated[PolicyName, about("scaling rule (docs/reference/web.md)")] = "target-tracking"
    threshold: Annotated[
        float,
        between(
            0,
            1,
            "of rule threshold: utilisation at which an instance is added (Phoenix Cloud paper, III-C)",
            open_low=True,
            open_high=True,
        ),
    ] = 0.8
    window_s: Annotated[float, positive(3600, "of rule threshold: seconds over which utilisation is averaged")] = 20.0
    target: Annotated[
        float, between(0, 1, "of rule target-tracking: the utilisation to keep", open_low=True, open_high=True)
    ] = 0.8
    tolerance: Annotated[
        float,
        between(0, 1, "of rule target-tracking: distance from the target at which nothing is done", open_high=True),
    ] = 0.1
    up_window_s: Annotated[
        float,
        between(0, 3600, "more must be wanted for this long before instances are added; 0: one observation is enough"),
    ] = 0.0
    down_window_s: Annotated[
        float,
        between(
            0,
            3600,
            "fewer must be wanted for this long before instances are removed",
            why="an hour of what was wanted is remembered",
        ),
    ] = 300.0
    up_limits: Annotated[
        tuple[str, ...], about('steps up, each such as "4 in 60s" or "50% in 60s" (`domain.scaling`)')
    ] = ()
    down_limits: Annotated[tuple[str, ...], about("steps down, likewise")] = ()
    schedule: Annotated[
        tuple[str, ...], about('floors by the clock, each such as "Mon-Fri 08:00-18:00 at least 6"')
    ] = ()
    schedule_zone: Annotated[str, about('UTC, or an offset from it: "UTC+02:00"')] = "UTC"
    forecast_days: Annotated[
        int, between(0, 7, "a floor from this time of the last days; 0: none", why="a week is remembered")
    ] = 0
    forecast_margin: Annotated[float, between(0, 10, "share added to the forecast")] = 0.1
    forecast_ahead_s: Annotated[
        float, between(0, 3600, "the forecast looks this far ahead, so that instances have booted by then")
    ] = 300.0
    turns_per_hour_max: Annotated[int, between(0, 100, "changes of direction in an hour; 0: no bound")] = 0
    instances_min: Annotated[int, between(0, 1_000_000, "instances kept without load")] = 1
    instances_max: Annotated[int, between(1, 1_000_000, "instances at most")] = 1000
    instances_per_host: Annotated[int, between(1, 10_000, "instances that share a host")] = 1
    instance_cores: Annotated[int, between(1, 10_000, "cores of an instance")] = 1
    instance_memory_mb: Annotated[int, between(1, 1 << 30, "memory of an instance")] = 256
    instance_gpus: Annotated[int, between(0, 1000, "GPUs of an instance")] = 0
    signal_timeout_s: Annotated[float, positive(3600, "a load signal older than this no longer counts")] = 10.0
    claim_max_user: Annotated[
        int,
        between(
            0, 1_000_000, "instances that a user may claim by signal; managers and operators: up to `instances_max`"
        ),
    ] = 0
    balancers: Annotated[
        tuple[str, ...], about("users who report load, beside managers and operators; empty: every user")
    ] = ()
    boot_timeout_s: Annotated[float, positive(DAY_S, "from placement until the instance has called")] = 60.0
    drain_s: Annotated[float, between(0, DAY_S, "an instance finishes its requests in this time before it stops")] = 5.0
    command: Annotated[tuple[str, ...], about("program of an instance; empty: the default web program")] = ()
    health_path: Annotated[str, about("path of the health check")] = "/healthz"
    port: Annotated[int, between(0, 65_535, "port that the command listens on; 0: any free one, passed as $PORT")] = 0
    environment: Annotated[dict[str, str], about("environment variables of the command")] = {}
    secrets: Annotated[dict[str, str], about("environment variable -> name of a secret (docs/reference/web.md)")] = {}
    image: Annotated[str, about("disk image of its VMs; empty: the template's")] = ""
    template: Annotated[
        dict[str, str | dict[str, str]], about("attributes of its VMs, instead of those of [opennebula.template]")
    ] = {}
    requests_per_instance: Annotated[
        float,
        between(
            0,
            1e7,
            "requests/s that one instance serves, for signals that count requests; 0: unknown",
            why="no signal counts more",
        ),
    ] = 0.0
    connections_per_instance: Annotated[
        int | None,
        between(
            1,
            65_535,
            "requests that an instance is given at once; null: `schemas.releases.connections`",
            why="the ports of an address",
        ),
    ] = None
    start_failures_max: Annotated[
        int, between(0, 1000, "failed starts without one in service after which a release is given up; 0: never")
    ] = 5
    errors_watch_s: Annotated[
        float,
        between(
            0,
            600,
            "5xx answers of a new release count until this long after it is complete; 0: not at all",
            why="this long is remembered second by second",
        ),
    ] = 120.0
    unreachable_s: Annotated[
        float, between(0, DAY_S, "an instance whose health check has failed for this long is replaced; 0: never")
    ] = 10.0
    max_unavailable: Annotated[
        int, between(0, INSTANCES_MAX, "instances of a rolling update that may be missing, unless it says otherwise")
    ] = 0
    max_surge: Annotated[
        int, between(0, INSTANCES_MAX, "instances of a rolling update that may be added, unless it says otherwise")
    ] = 1
    surge: Annotated[
        Literal["claim", "idle"],
        about("whether hosts of a rolling update are claimed as others are, or only idle ones are taken"),
    ] = "claim"
    min_ready_s: Annotated[
        float, between(0, DAY_S, "an instance serves for this long before it counts in a rolling update; 0: at once")
    ] = 5.0
    options: Annotated[dict[str, Option], about("settings of a rule that is a plug-in")] = {}

    @property
    def instance(self) -> Size:
        """What one instance needs."""
        return Size._make(getattr(self, f"instance_{field}") for field in FIELDS)


class Department(_Config, frozen=True, kw_only=True):
    """A department: what it may have of the cluster, and how it works.  `name`: its name, unique in the cloud; `kind`:
    whether it runs jobs or serves requests."""

    name: str
    kind: Literal["batch", "web"]
    # Shares are worked out in floats: twelve of their fifteen digits.
    weight: Annotated[
        float, between(1e-6, 1e6, "share of what is short or idle, among departments of its kind and priority")
    ] = 1.0
    priority: Annotated[int, between(-1_000_000, 1_000_000, "among web departments: higher first")] = 0
    guarantee: Annotated[int, between(0, HOSTS_MAX, "hosts that are kept for it")] = 0
    maximum: Annotated[int | None, between(0, HOSTS_MAX, "hosts at most; null: the whole cluster")] = None
    windows: Annotated[
        tuple[str, ...],
        about('other bounds at these hours: "Mon-Fri 08:00-18:00 guarantee 6 maximum 8" (`domain.windows`)'),
    ] = ()
    windows_zone: Annotated[str, about('UTC, or an offset from it: "UTC+02:00"')] = "UTC"
    maximum_cores: Annotated[
        int | None, between(1, CORES_MAX, "kind batch: cores that running jobs ask for; null: no bound")
    ] = None
    maximum_gpus: Annotated[
        int | None, between(1, CORES_MAX, "kind batch: GPUs that running jobs ask for; null: no bound")
    ] = None
    store_share: Annotated[
        float | None,
        positive(
            1,
            "part of the object store; null: an equal part of what the others leave",
            why="a part of the object store",
        ),
    ] = None
    batch: Annotated[BatchPolicy | None, about("set for kind batch")] = None
    web: Annotated[WebPolicy | None, about("set for kind web")] = None


class Lending(_Config, frozen=True, kw_only=True):
    """What one department lends another, and how it comes back (docs/reference/lending.md).  Of several contracts of a pair
    the first one whose hours it is holds; at other hours the pair lends nothing.  `lender`: the department that owns the
    hosts; `*`: every department; `borrower`: the department that gets them; `*`: every department."""

    lender: str
    borrower: str
    hosts: Annotated[
        int | None, between(0, HOSTS_MAX, "of the lender's own that the borrower has at most; null: all")
    ] = None
    notice_s: Annotated[
        float | None,
        positive(
            DAY_S,
            "notice that the borrower has before one is taken; null: `policy.notice_s`",
            why="no department loses a host without notice",
        ),
    ] = None
    grace_s: Annotated[
        float | None, between(0, 3600, "SIGTERM to SIGKILL of the borrower's jobs; null: `policy.grace_s`")
    ] = None
    deadline_s: Annotated[
        float | None,
        between(0, 366 * DAY_S, "an occupied host that its lender wants goes back after this long; null: when idle"),
    ] = None
    credit: Annotated[
        float, between(0, 100, "host-seconds earned for each host-second given back before it was due")
    ] = 0.0
    windows: Annotated[tuple[str, ...], about('hours at which it holds: "daily 20:00-06:00"; none: always')] = ()
    windows_zone: Annotated[str, about('UTC, or an offset from it: "UTC+02:00"')] = "UTC"


class User(_Config, frozen=True, kw_only=True):
    """A user.  `name`: unique in the cloud: it is a token of NATS subjects and names the credential; `role`: what the user
    may do."""

    name: str
    department: Annotated[str, about('"operators" for an operator')]
    role: Role = "user"


# longer than a driver of OpenNebula tries to shut a VM down by default (SHUTDOWN_TIMEOUT: 180 s)
END_AGAIN_S: Final = 300.0


class Policy(_Config, frozen=True, kw_only=True):
    """Times and tolerances that hold for all departments."""

    notice_s: Annotated[
        float, positive(DAY_S, "between a lowered quota and seizure; never 0 (PROTOCOL, quota.changed)")
    ] = 0.3
    grace_s: Annotated[float, between(0, 3600, "SIGTERM to SIGKILL")] = 0.3
    kill_s: Annotated[
        float, positive(3600, "a graceful terminate that takes longer becomes a hard one (X4 `kill_by`)")
    ] = 5.0
    stuck_s: Annotated[float, positive(DAY_S, "a VM that outlives a hard terminate by this makes its host lost")] = 30.0
    skew_max_s: Annotated[float, positive(60, "clocks of services may differ by this (S6)")] = 0.5
    save_s: Annotated[
        float, between(0, DAY_S, "what is not saved or moved this long after its host was given up is ended hard (X7)")
    ] = 60.0


class Limits(_Config, frozen=True, kw_only=True):
    """Bounds of what jobs may bring and leave."""

    script_max_bytes: Annotated[int, between(1, 64 << 20, "size of a job script")] = 1 << 20
    input_max_bytes: Annotated[int, between(1, 1 << 40, "size of a job's inputs")] = 64 << 20
    array_max: Annotated[int, between(1, 1_000_000, "elements of a job array")] = 10_000
    jobs_pending_max: Annotated[int, between(1, 10_000_000, "waiting jobs of a department")] = 100_000
    output_max_bytes: Annotated[int, between(1, 1 << 40, "size of a job's output")] = 64 << 20
    checkpoint_files_max: Annotated[
        int, between(1, 1000, "files of a checkpoint; all are read back before the next attempt's script starts")
    ] = 100
    checkpoint_max_bytes: Annotated[
        int,
        between(
            0,
            256 << 20,
            "all files of a checkpoint; 0: jobs keep their state themselves",
            why="the object store takes no more in one piece",
        ),
    ] = 64 << 20
    checkpoint_interval_s: Annotated[
        float, between(0, DAY_S, "between two checkpoints of an attempt: each is a fact in the journal")
    ] = 10.0
    store_keep_s: Annotated[
        float,
        between(
            60,
            DECADE_S,
            "objects of ended jobs are removed this long after their end",
            why="what has just ended is still read",
        ),
    ] = 30 * 86400.0
    store_keep_min_s: Annotated[
        float, between(0, DECADE_S, "and not before this, where the share of their department is nearly used up")
    ] = 3600.0
    usage_interval_s: Annotated[
        float, between(0, DAY_S, "how often a running job's guest reports what it has used; 0: at its end alone")
    ] = 30.0


class Hosts(_Config, frozen=True, kw_only=True):
    """Which hosts of OpenNebula this cloud uses, when it sets one apart, and what one offers (docs/reference/hosts.md)."""

    clusters: Annotated[tuple[str, ...], about("clusters of OpenNebula, by name; none: all")] = ()
    use: Annotated[str, about("a constraint (`domain.constraints`): only hosts that satisfy it; empty: all")] = ""
    quarantine_after: Annotated[
        int, between(1, 1000, "failed starts in a row: one may be the VM's fault, three are the host's")
    ] = 3
    quarantine_s: Annotated[
        float, between(1, DAY_S, "then one start is tried; if it fails, twice as long, and so on")
    ] = 60.0
    quarantine_max_s: Annotated[float, between(1, 7 * DAY_S, "longest quarantine")] = 3600.0
    monitor_late_s: Annotated[
        float, between(0, DAY_S, "without news from a host for this long nothing is started there; 0: never")
    ] = 300.0
    monitor_lost_s: Annotated[
        float, between(0, 7 * DAY_S, "without news from a host for this long it is lost; 0: never")
    ] = 900.0
    cpu_overcommit: Annotated[
        float,
        between(
            1,
            16,
            "cores offered for each real one, while less than `overcommit_below` is in use (Thiao)",
            why="beyond, a host is all switching",
        ),
    ] = 1.0
    overcommit_below: Annotated[float, between(0, 1, "share of the cores in use at which overcommit stops")] = 0.60
    overcommit_margin: Annotated[float, between(0, 1, "overcommit begins again this far below")] = 0.10
    overcommit_use: Annotated[str, about("a constraint: overcommit only there; empty: everywhere")] = ""


class Power(_Config, frozen=True, kw_only=True):
    """Which hosts are reported as candidates for power saving (`phoenix hosts`).  None is switched off here."""

    idle_s: Annotated[
        float,
        between(0, 365 * DAY_S, "empty for this long, several times what a host takes to boot; 0: none is reported"),
    ] = 1800.0


class CloudConfig(_Config, frozen=True, kw_only=True):
    """The whole configuration of a cloud, as `config.adopted` has it.  `name`: name of the cloud; `departments`: its
    departments; `users`: its users; `lending`: lending contracts between departments; `policy`: times that hold for all
    departments; `limits`: bounds of jobs and their files; `hosts`: which hosts are used, and when one is set apart; `power`:
    which hosts are reported as candidates for power saving; `capabilities`: what the hypervisor can do beside starting and
    ending VMs; it follows from the hypervisor, and a file cannot set it; `end_again_s`: a hard end of a VM that is under way is
    not ordered again before this (`[opennebula] end_again_s`)."""

    name: str
    departments: tuple[Department, ...]
    users: tuple[User, ...] = ()
    lending: tuple[Lending, ...] = ()
    policy: Policy = Policy()
    limits: Limits = Limits()
    hosts: Hosts = Hosts()
    power: Power = Power()
    capabilities: tuple[Capability, ...] = ()
    end_again_s: Annotated[float, positive(DAY_S, "before a hard end that is under way is ordered again")] = END_AGAIN_S

    def department(self, name: str) -> Department | None:
        for department in self.departments:  # asked in every decision: a loop takes half the time of a generator
            if department.name == name:
                return department
        return None

    def user(self, name: str) -> User | None:
        return next((u for u in self.users if u.name == name), None)
