"""The configuration as a message: what `config.adopted` carries and every core reads (PROTOCOL S7).

The TOML file is read and validated by `services.runtime.config.file`; this module holds only the typed content.  It holds no
secret: credentials live in files of their own.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

from schemas.validation import WORDS

OnReclaim = Literal["kill", "requeue", "suspend", "migrate"]
RequeuePlace = Literal["keep", "end"]
OnTerm = Literal["stop", "complete"]  # what exit 0 is after SIGTERM: the script was stopped, or it has completed, early

# The policies that come with Phoenix Cloud.  More come as plug-ins (docs/howto/plugins.md): so a setting holds any
# `PolicyName`, and `services.runtime.config.policies` says whether there is such a policy.
Order = Literal["fcfs", "first-fit", "easy", "conservative", "shortest-first", "svmsched", "multi-factor", "leases"]
Backfill = Literal["none", "first-fit", "easy", "conservative"]
Victims = Literal[
    "smallest-shortest",
    "smallest-shortest-spared",
    "youngest-first",
    "least-work-lost",
    "minimum-waiting-time",
    "minimum-overhead",
    "combined",
]
LeaseVictims = Literal["minimum-waiting-time", "minimum-overhead", "combined"]
Scaling = Literal["threshold", "target-tracking"]
PolicyName: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[a-z][a-z0-9-]{0,63}$",
        extra={WORDS: "a name of 1 to 64 small letters, digits and '-' only, beginning with a letter,"},
    ),
]
Option: TypeAlias = bool | int | float | str | tuple[bool | int | float | str, ...]
Capability = Literal["suspend", "resume_elsewhere", "live_migration", "cold_migration"]
Role = Literal["user", "manager", "operator"]


class _Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class MultiFactor(_Config, frozen=True, kw_only=True):
    """Order multi-factor: what a priority is made of.  A weight is what a factor of 1 is worth, in points."""

    backfill: Backfill = "easy"  # who starts, by these priorities; none: strictly in order
    weight_age: float = 1000.0
    weight_fair_share: float = 10_000.0
    weight_size: float = 1000.0  # negative: small jobs first
    weight_quality: float = 10_000.0
    weight_user: float = 0.0
    weight_department: float = 0.0
    age_full_s: float = 7 * 86400.0  # a job that has waited so long has factor 1
    size_full_cores: int = 1000  # and one that asks for so many cores
    priority_full: int = 100  # and one with this `priority`
    half_life_s: float = 7 * 86400.0  # half of what was used is forgotten; 0: nothing is
    damping: float = 1.0  # of fair share: higher forgives more
    period_s: float = 300.0  # between two moments at which priorities are worked out
    shares: dict[str, float] = {}  # user -> shares of the department
    share_default: float = 1.0  # of everybody else
    users: dict[str, float] = {}  # user -> factor, from -1 to 1; of everybody else 0


class UserLimits(_Config, frozen=True, kw_only=True):
    """What somebody may have at once; None: no limit (`domain.usage_limits`)."""

    jobs_running_max: int | None = None  # array elements count each
    jobs_submitted_max: int | None = None  # waiting and running; refused at the door
    cores_max: int | None = None  # that running jobs ask for
    hosts_max: int | None = None  # nodes of running jobs, of each job all


class BatchLimits(UserLimits, frozen=True, kw_only=True):
    """Of each user of the department.  `users`: what is said of one there stands instead, what is not said stays."""

    users: dict[str, UserLimits] = {}


class Quality(_Config, frozen=True, kw_only=True):
    """A quality of service, as Slurm's QOS: what a job may ask for by name."""

    priority: int = 0  # added to the job's own; in order multi-factor to what its quality factor counts
    best_effort: bool = False  # its jobs run on what production leaves, and make way for it
    users: tuple[str, ...] = ()  # who may use it; empty: everybody in the department
    each_user: UserLimits = UserLimits()
    together: UserLimits = UserLimits()  # all its jobs, whosoever they are


class Leases(_Config, frozen=True, kw_only=True):
    """Order leases: who makes way for a lease's time slot, and what that costs (InterGrid, eq. 1 and 2)."""

    preempt: bool = True  # best-effort makes way; without, it is treated as all else, and slots may begin late
    victims: LeaseVictims = "combined"
    alpha: float = 0.31  # combined: 0 counts waiting only, 1 overhead only
    suspend_mb_per_s: float = 40.0  # memory to disk, of one VM after the other
    resume_mb_per_s: float = 40.0
    margin_s: float = 10.0  # what is not counted otherwise: a machine's boot and end
    lead_s: float = 300.0  # so long before a slot the department asks for its hosts


class Warm(_Config, frozen=True, kw_only=True):
    """VMs that have finished a job of one node and wait for the next one of the same shape (docs/reference/lifecycle.md)."""

    idle_s: float = 0.0  # … for so long; 0: none do
    share: Literal["user", "department"] = "user"  # whose next job it may be
    vms_max: int = 1000  # waiting at once, in the department


class Balance(_Config, frozen=True, kw_only=True):
    """Which running jobs move to idler hosts (`services.scheduler.core.policies.balance`).  Needs `live_migration`."""

    enabled: bool = False
    high: float = 0.75  # share of its cores that a host uses: above, one of its VMs may go
    low: float = 0.25  # below, it may get one
    mb_per_s: float = 100.0  # memory over the wire: a gigabit
    cost_max_s: float = 120.0  # a VM whose memory takes longer stays
    worth: float = 10.0  # the job has so many times as long to go
    moves_max: int = 3  # of one job
    power_saving: bool = False  # hosts below `low` are emptied, where busier ones have room


class BatchPolicy(_Config, frozen=True, kw_only=True):
    """How a batch department works its queue."""

    order: PolicyName = "first-fit"
    victims: PolicyName = "smallest-shortest-spared"
    on_reclaim: OnReclaim = "requeue"
    on_term: OnTerm = "stop"
    grace_max_s: float | None = None  # SIGTERM to SIGKILL that a job may ask for; None: what it has anyway
    walltime_default_s: float = 3600.0
    walltime_max_s: float = 7 * 86400.0
    memory_per_core_mb: int = (
        256  # of jobs that do not say how much memory they need, for each core that they have on a node
    )
    reservations_max: int = 100  # order conservative: so many that wait have a reservation, those behind none
    requeue_place: RequeuePlace = "keep"  # where a preempted job waits: in its own place, or at the end (the papers)
    requeues_max: int = 100  # a job preempted more often than this is killed: it would never finish
    boot_timeout_s: float = 60.0  # placed, but its guests have not all called
    save_s: float | None = (
        None  # on_reclaim suspend, migrate: saving or moving a VM may take so long; None: `policy.save_s`
    )
    multi_factor: MultiFactor = MultiFactor()
    services: dict[str, float] = {}  # order svmsched: service -> its weight; its share is weight / sum of the weights
    short_s: float = 600.0  # … jobs that may run no longer than this may use what other services leave; 0: nobody may
    w_cpu: float = 1.0  # … usage = w_cpu · share of the cores + w_mem · share of the memory; they sum to 1
    w_mem: float = 0.0
    options: dict[str, Option] = {}  # of orders and victims that are plug-ins
    limits: BatchLimits = BatchLimits()
    quality: dict[str, Quality] = {}
    quality_default: str = ""  # of jobs that name none; empty: none
    min_run_s: float = 0.0  # for so long an attempt runs before a job of this department may end it; 0: not at all
    preemptions_max: int = 0  # a job that made way, or was victim, so often is spared; 0: no bound
    preemptions_per_hour_max: int = 0  # attempts that end for jobs of this department; 0: no bound
    leases: Leases = Leases()
    balance: Balance = Balance()
    warm: Warm = Warm()


class WebPolicy(_Config, frozen=True, kw_only=True):
    """How a web department follows its load."""

    rule: PolicyName = "target-tracking"
    threshold: float = 0.8  # rule threshold, and its window (Phoenix Cloud paper, III-C)
    window_s: float = 20.0
    target: float = 0.8  # rule target-tracking: the utilisation to keep, and how far from it nothing is done
    tolerance: float = 0.1
    up_window_s: float = 0.0  # more must be wanted for so long before there is more; 0: by one observation
    down_window_s: float = 300.0
    up_limits: tuple[str, ...] = ()  # the rule's steps, each such as "4 in 60s" or "50% in 60s" (`domain.scaling`)
    down_limits: tuple[str, ...] = ()
    schedule: tuple[str, ...] = ()  # floors by the clock, each such as "Mon-Fri 08:00-18:00 at least 6"
    schedule_zone: str = "UTC"  # or an offset from it: "UTC+02:00"
    forecast_days: int = 0  # a floor from this time of the last days; 0: none
    forecast_margin: float = 0.1
    forecast_ahead_s: float = 300.0  # and from so much later: what will be needed has booted by then
    turns_per_hour_max: int = 0  # changes of direction in an hour; 0: as many as the load makes
    instances_min: int = 1
    instances_max: int = 1000
    instances_per_host: int = 1
    instance_cores: int = 1
    instance_memory_mb: int = 256
    signal_timeout_s: float = 10.0
    claim_max_user: int = (
        0  # instances that a user may claim by signal; managers and operators: as many as there may be
    )
    balancers: tuple[str, ...] = ()  # users who tell load, beside managers and operators; empty: every user
    boot_timeout_s: float = 60.0
    drain_s: float = 5.0
    command: tuple[str, ...] = ()  # empty: the default web program
    health_path: str = "/healthz"
    port: int = 0  # that the command listens on; 0: any free one, told as $PORT
    environment: dict[str, str] = {}
    secrets: dict[str, str] = {}  # environment variable -> name of a secret (docs/reference/web.md)
    image: str = ""
    template: dict[str, str | dict[str, str]] = {}  # attributes of its VMs, instead of those of [opennebula.template]
    requests_per_instance: float = 0.0  # requests/s that one is to serve, for signals that count requests; 0: not said
    connections_per_instance: int | None = (
        None  # requests that it is given at a time; None: `schemas.releases.connections`
    )
    start_failures_max: int = 5  # failed starts, and not one in service: the release is given up; 0: never
    errors_watch_s: float = 120.0  # a new release's 5xx have a say until so long after it is complete; 0: none
    unreachable_s: float = 10.0  # its health check has failed for so long: it is replaced; 0: never
    max_unavailable: int = 0  # of a rolling update, unless it says otherwise
    max_surge: int = 1
    surge: Literal["claim", "idle"] = "claim"  # its hosts are claimed as others are, or only idle ones are taken
    min_ready_s: float = 5.0  # an instance has served for so long before it counts in a rolling update; 0: at once
    options: dict[str, Option] = {}  # of a rule that is a plug-in


class Department(_Config, frozen=True, kw_only=True):
    name: str
    kind: Literal["batch", "web"]
    weight: float = 1.0  # of what is short or idle, among web departments of one priority, among batch departments
    priority: int = 0  # among web departments: higher first
    guarantee: int = 0  # hosts
    maximum: int | None = None  # hosts; None: the whole cluster
    windows: tuple[
        str, ...
    ] = ()  # others at these hours: "Mon-Fri 08:00-18:00 guarantee 6 maximum 8" (`domain.windows`)
    windows_zone: str = "UTC"  # or an offset from it: "UTC+02:00"
    maximum_cores: int | None = None  # kind batch: cores that running jobs ask for; None: no bound
    store_share: float | None = None  # of the object store; None: an equal part of what the others leave
    batch: BatchPolicy | None = None  # set for kind batch
    web: WebPolicy | None = None  # set for kind web


class Lending(_Config, frozen=True, kw_only=True):
    """What one department lends another, and how it comes back (docs/reference/lending.md).  `*` is every department.  Of those
    that name a pair the first one whose hours it is holds; at other hours the pair lends nothing."""

    lender: str
    borrower: str
    hosts: int | None = None  # of the lender's own that the borrower has at most; None: all
    notice_s: float | None = None  # the borrower is told so long before one is taken; None: `policy.notice_s`
    grace_s: float | None = None  # SIGTERM to SIGKILL of the borrower's jobs; None: `policy.grace_s`
    deadline_s: float | None = None  # an occupied host goes back after so long, if its lender wants it; None: when idle
    credit: float = 0.0  # what a host-second given back before it was due earns the borrower, in host-seconds
    windows: tuple[str, ...] = ()  # hours at which it holds: "daily 20:00-06:00"; none: always
    windows_zone: str = "UTC"


class User(_Config, frozen=True, kw_only=True):
    """Who may act.  The name is unique in the cloud: it is a token of NATS subjects and names the credential."""

    name: str
    department: str  # an operator's department is "operators"
    role: Role = "user"


class Policy(_Config, frozen=True, kw_only=True):
    notice_s: float = 0.3  # between a lowered quota and seizure; never 0 (PROTOCOL, quota.changed)
    grace_s: float = 0.3  # SIGTERM to SIGKILL
    kill_s: float = 5.0  # a graceful terminate that takes longer becomes a hard one (X4 `kill_by`)
    stuck_s: float = 30.0  # a VM that outlives a hard terminate by this makes its host lost
    skew_max_s: float = 0.5  # S6
    save_s: float = 60.0  # what is not saved or has not moved so long after its host was given up is ended hard (X7)


class Limits(_Config, frozen=True, kw_only=True):
    script_max_bytes: int = 1 << 20
    input_max_bytes: int = 64 << 20
    array_max: int = 10_000
    jobs_pending_max: int = 100_000
    output_max_bytes: int = 64 << 20
    checkpoint_files_max: int = 100  # of one checkpoint; it is read back before the next attempt's script starts
    checkpoint_max_bytes: int = 64 << 20  # all files of one checkpoint; 0: jobs keep their state themselves
    checkpoint_interval_s: float = 10.0  # between two of a running attempt: each is a fact in the journal
    store_keep_s: float = 30 * 86400.0  # what ended jobs left in the object store is removed so long after their end …
    store_keep_min_s: float = 3600.0  # … and not before so long, where their department's share is nearly used up
    usage_interval_s: float = 30.0  # how often a running job's guest says what it has used; 0: at its end alone


class Hosts(_Config, frozen=True, kw_only=True):
    """Which hosts of OpenNebula this cloud uses, when it sets one apart, and what one offers (docs/reference/hosts.md)."""

    clusters: tuple[str, ...] = ()  # of OpenNebula, by name; none: all
    use: str = ""  # a constraint (`domain.constraints`): only hosts that satisfy it; empty: all
    quarantine_after: int = 3  # failed starts in a row: one may be the VM's fault, three are the host's
    quarantine_s: float = 60.0  # then one start is tried; if it fails twice as long, and so on
    quarantine_max_s: float = 3600.0
    monitor_late_s: float = 300.0  # without news from it: nothing is started there; 0: never
    monitor_lost_s: float = 900.0  # and after so long it is lost; 0: never
    cpu_overcommit: float = 1.0  # cores offered for each real one, while …
    overcommit_below: float = 0.60  # … less than this share of them is in use (Thiao)
    overcommit_margin: float = 0.10  # once stopped, it begins again so far below
    overcommit_use: str = ""  # a constraint: only there; empty: everywhere


class Power(_Config, frozen=True, kw_only=True):
    """Which hosts are reported as candidates for power saving (`phoenix hosts`).  Nobody here switches one off."""

    idle_s: float = 1800.0  # empty for so long, several times what a host takes to boot; 0: none is reported


class CloudConfig(_Config, frozen=True, kw_only=True):
    """The whole content of `config.adopted`.

    `capabilities`: what the hypervisors of this cloud can do beside starting and ending VMs (`domain.capabilities`).  A
    file cannot set it: it follows from the hypervisor that it names."""

    name: str
    departments: tuple[Department, ...]
    users: tuple[User, ...] = ()
    lending: tuple[Lending, ...] = ()
    policy: Policy = Policy()
    limits: Limits = Limits()
    hosts: Hosts = Hosts()
    power: Power = Power()
    capabilities: tuple[Capability, ...] = ()

    def department(self, name: str) -> Department | None:
        for department in self.departments:  # asked in every decision: a loop takes half the time of a generator
            if department.name == name:
                return department
        return None

    def user(self, name: str) -> User | None:
        return next((u for u in self.users if u.name == name), None)
