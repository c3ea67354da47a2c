"""Hosts, departments, instances, and what is lent."""

from __future__ import annotations

from typing import Literal, TypeAlias

from schemas.answers.base import Answer, Reason, Time
from schemas.answers.jobs import UnitRow
from schemas.releases import Release

HostState: TypeAlias = Literal["absent", "free", "held", "draining", "lost"]
Kind: TypeAlias = Literal["batch", "web"]


class Host(Answer, frozen=True, kw_only=True):
    """A host.  `state`, `since`: what it is, since when; `department`: that holds it; `owner`: whose it is by guarantees and
    weights; `lent`: it is with another department; `due_at`: when that has to give it back.

    `cordoned`: why nothing more is placed there; `drain`: what runs there moves or ends; `drain_until`: then the rest is ended;
    `quarantine`, `quarantine_until`: why it is set apart, and until when; `probation`: why it was, until lately; `lost`: what
    OpenNebula says of it; `vms`: open VMs; `vms_waiting`: idle ones kept for later jobs; `idle_since`: nothing has run there
    since then; `power_saving`: it could be switched off."""

    host: str
    state: HostState
    department: str | None
    cores: int  # cores that it has
    memory_mb: int  # memory that it has, MiB
    gpus: int  # GPUs that it has
    cores_used: int  # cores in use
    memory_used_mb: int  # memory in use, MiB
    gpus_used: int  # GPUs in use
    units: tuple[str, ...]  # units that run there
    vms: int
    since: Time | None
    owner: str | None
    lent: bool
    due_at: Time | None
    cordoned: str | None
    drain: bool
    drain_until: Time | None
    quarantine: str | None
    quarantine_until: Time | None
    probation: str | None
    lost: str | None
    cluster: str  # OpenNebula's cluster
    labels: dict[str, str]  # its attributes in OpenNebula
    vms_waiting: int
    idle_since: Time | None
    power_saving: bool


class HostRows(Answer, frozen=True, kw_only=True):
    """In order of their names."""

    hosts: tuple[Host, ...]


class KeptByGuarantees(Answer, frozen=True, kw_only=True):
    """What guarantees of batch keep from a web department: `hosts` of the `usable` ones, by those of `departments`."""

    hosts: int
    usable: int  # hosts that can be held
    departments: tuple[str, ...]  # batch departments with guarantees


class ShareOfOther(Answer, frozen=True, kw_only=True):
    """Another web department may keep `hosts`, by `rule`."""

    department: str
    hosts: int
    rule: Literal["priority", "guarantee", "weight"]  # by which rule
    weight: float  # the other department's weight


class WithheldByContract(Answer, frozen=True, kw_only=True):
    """`lender` lends at most `most` hosts, and has `hosts` more that the department could use; `closed`: since it is not one of
    their contract's hours."""

    lender: str  # department that lends
    hosts: int
    most: int  # hosts that it lends at most
    closed: bool


class Saver(Answer, frozen=True, kw_only=True):
    """A job that has until `by` to save its work, on a host that the department waits for."""

    job: str
    host: str
    by: Time | None


class ScaleSetting(Answer, frozen=True, kw_only=True):
    """What a person has set of a web department: an `exact` number of instances or a `minimum`; `until`: then it no longer
    counts."""

    user: str
    minimum: int | None
    exact: int | None  # instances, exactly; null: not set
    until: Time | None


class ReleaseSummary(Answer, frozen=True, kw_only=True):
    """The wanted release: `state`, how far it is; `instances` that run it; `others`: that run another one."""

    release: int
    state: str | None  # how far it is
    instances: int
    others: int
    reason: Reason | None


class Trouble(Answer, frozen=True, kw_only=True):
    """Why a web department serves worse than it should."""

    reason: Reason
    sentence: str  # the same in words


class DepartmentRow(Answer, frozen=True, kw_only=True):
    """`guarantee`, `maximum`, `weight`, `priority`: by the configuration; `hosts_quota`: that it may keep; `hosts_demanded`:
    that it wants; `kept_by_guarantees`, `shares_of_others`, `withheld_by_contracts`, `waits_for_savers`: what keeps hosts from
    it; `jobs`: how many of those that have not ended are in which state.

    Of web: `instances_*`: how many are wanted, run, serve, are not ready; `not_ready_since`, `not_ready_answer`: since when,
    and what one of them answers; `short_since`: fewer than wanted serve since then; `utilisation`, `requests_per_s`,
    `errors_ratio`, `claim`: by the last signal, of `signal_at`; `signal_missing_since`: there has been none since then;
    `troubles`: reasons why it serves worse than it should, each with its sentence; `scale`: what a person has set."""

    department: str
    kind: Kind | None  # batch or web; null: no longer configured
    weight: float | None
    priority: int | None
    guarantee: int
    maximum: int | None
    hosts_held: int  # hosts that it holds
    hosts_quota: int
    hosts_demanded: int
    kept_by_guarantees: KeptByGuarantees | None
    shares_of_others: tuple[ShareOfOther, ...]
    withheld_by_contracts: tuple[WithheldByContract, ...]
    waits_for_savers: tuple[Saver, ...]
    jobs: dict[str, int]
    instances_wanted: int | None  # instances that it is to have; null: not web
    instances_running: int  # instances that run
    instances_serving: int  # instances that serve
    instances_not_ready: int  # instances that run and are not ready
    not_ready_since: Time | None
    not_ready_answer: str | None
    short_since: Time | None
    utilisation: float | None
    requests_per_s: float | None
    errors_ratio: float | None
    claim: int | None
    signal_at: Time | None  # when the last signal arrived; null: none
    signal_missing_since: Time | None
    troubles: tuple[Trouble, ...]
    scale: ScaleSetting | None
    release: ReleaseSummary | None


class DepartmentState(DepartmentRow, frozen=True, kw_only=True):
    """A department, with its instances.  `instances`: its web instances, as the queue has rows."""

    instances: tuple[UnitRow, ...]


class Departments(Answer, frozen=True, kw_only=True):
    """In the configuration's order."""

    departments: tuple[DepartmentRow, ...]  # departments


class InstanceRow(Answer, frozen=True, kw_only=True):
    """An instance of a web department.  `state`, `since`: what it is, since when; `answer`: what its health check answered, if
    it is not ready; `drains_until`: then it is stopped at the latest; `cpu`: utilisation of its cores, 0 to 1; `why`: why it
    ended."""

    instance: str  # name of the instance
    department: str
    state: Literal["booting", "in-service", "not-ready", "draining", "stopped", "failed"]
    release: int
    attempt: int
    host: str | None
    address: str | None  # address at which it listens; null: it has none yet
    cores: int  # cores that it has
    placed_at: Time | None  # when its hosts were chosen
    since: Time | None
    answer: str | None
    drains_until: Time | None
    sessions: int | None  # open sessions, by its load balancer; null: not reported
    cpu: float | None
    memory_mb: float | None  # memory in use, MiB; null: not reported
    why: Reason | None


class InstanceRows(Answer, frozen=True, kw_only=True):
    """By department and number."""

    instances: tuple[InstanceRow, ...]


class ReleaseRow(Answer, frozen=True, kw_only=True):
    """A release of a web department.  `state`, `since`: how far it is, since when; `user`: who asked for it; `content`: what
    its instances run; null: what the image brings; `max_unavailable`, `max_surge`, `min_ready_s`: how it is rolled out;
    `instances`, `instances_serving`: that run it, and serve."""

    release: int
    state: str
    since: Time | None
    requested_at: Time | None  # when it was asked for
    user: str
    image: str  # what its VMs boot
    content: Release | None
    max_unavailable: int | None
    max_surge: int | None
    min_ready_s: float | None
    instances: int
    instances_serving: int
    reason: Reason | None


class Releases(Answer, frozen=True, kw_only=True):
    """Newest first.  `wanted`: the release that instances are to run; `state`: how far it is."""

    department: str
    wanted: int
    state: str | None
    instances_wanted: int | None  # instances that it is to have; null: not web
    releases: tuple[ReleaseRow, ...]  # releases, newest first


class Terms(Answer, frozen=True, kw_only=True):
    """A department's terms of the moment.  `window`: of its own that is open; `until`: then the terms are others; `own`,
    `held`, `lent`, `borrowed`: hosts; `earned_host_s`: credit, in host-seconds; `bonus`: hosts that this is worth."""

    department: str
    guarantee: int  # hosts that are guaranteed to it
    maximum: int | None
    window: str | None
    until: Time | None
    own: int
    held: int
    lent: int
    borrowed: int
    grace_s: float
    earned_host_s: float
    bonus: float


class Contract(Answer, frozen=True, kw_only=True):
    """What one department lends another.  `holds`: it is one of its hours; `hosts`: that the lender lends at most; `lent`: now,
    `over`: of these more than the contract allows now; `notice_s`, `grace_s`, `deadline_s`: for the borrower's jobs;
    `credit`: how much lending earns."""

    lender: str  # department that lends
    borrower: str  # department that borrows
    holds: bool
    hosts: int | None
    lent: int
    over: int
    notice_s: float
    grace_s: float
    deadline_s: float | None
    credit: float
    windows: tuple[str, ...]  # hours at which it holds; empty: always
    windows_zone: str  # UTC, or the offset of the hours from it


class Loan(Answer, frozen=True, kw_only=True):
    """`hosts` of the lender's own are with the borrower.  `over`: of these more than the contract allows now."""

    lender: str  # department that lends
    borrower: str  # department that borrows
    hosts: int
    over: int


class LendingState(Answer, frozen=True, kw_only=True):
    """As of `at`; `changes_at`: when an hour begins or ends next."""

    at: Time  # when it was
    changes_at: Time | None
    departments: tuple[Terms, ...]  # departments
    contracts: tuple[Contract, ...]  # contracts, in the order of the configuration
    loans: tuple[Loan, ...]  # what is lent now


class Leader(Answer, frozen=True, kw_only=True):
    """The process that writes for a service.  `epoch`: counts leaders; `since`: when it began; `stopped`: it ended in order,
    and none has taken over yet."""

    epoch: int
    instance: str  # name of the process
    since: Time
    stopped: bool


class Overview(Answer, frozen=True, kw_only=True):
    """Hosts and departments as of `position` in the journal.  `owners`: hosts by holder; `counts`: how many jobs ended how, and
    other events; `voids`: facts that did not count, by reason; `leaders`: who writes for which service."""

    position: int  # as of which place in the journal
    at: Time | None  # when it was
    owners: dict[str, int]
    hosts: tuple[Host, ...]
    departments: tuple[DepartmentRow, ...]  # departments
    counts: dict[str, int]
    voids: dict[str, int]
    leaders: dict[str, Leader]


class Claim(Answer, frozen=True, kw_only=True):
    """A web department's claim: `hosts` short when it opened at `at`; `met_at`: when it held what it demanded."""

    department: str
    hosts: int
    at: Time  # when it was
    met_at: Time | None


class OwnersAt(Answer, frozen=True, kw_only=True):
    """Hosts by holder from `at` on."""

    at: Time  # when it was
    owners: dict[str, int]  # hosts by holder


class Summary(Answer, frozen=True, kw_only=True):
    """What became of jobs and claims.  `counts`: how many jobs ended how, and other events; `mean_turnaround_s`: of completed
    jobs; `claim_median_s`, `claim_max_s`: from claim to grant."""

    counts: dict[str, int]
    mean_turnaround_s: float | None
    claims: tuple[Claim, ...]  # claims since the asked time
    claims_open: tuple[Claim, ...]  # claims that are not met yet
    claim_median_s: float | None
    claim_max_s: float | None
    timeline: tuple[OwnersAt, ...]  # who held hosts
