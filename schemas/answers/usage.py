"""What was used, by whom, and what is billed for it."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from schemas.answers.base import Answer, Time


class SiteUsage(Answer, frozen=True, kw_only=True):
    """Host-seconds of all hosts, of those that no department held, that were lost, and that were not there yet; core-seconds of
    all."""

    hosts_s: float  # host-seconds of all hosts
    cores_s: float  # core-seconds of all hosts
    free_s: float  # host-seconds that no department held
    lost_s: float  # host-seconds of lost hosts
    absent_s: float  # host-seconds of hosts that were not checked yet


class Work(Answer, frozen=True, kw_only=True):
    """`used_core_s`: held by attempts; of it `best_effort_core_s`; `lost_core_s`: of attempts that were preempted and start
    again, less `recovered_core_s`, which checkpoints saved; `failed_core_s`: of attempts that failed; `mean_wait_s`: from
    submission to start; `ended`: how many units ended how."""

    used_core_s: float
    best_effort_core_s: float  # core-seconds of best-effort jobs
    used_gpu_s: float  # GPU-seconds held by attempts
    lost_core_s: float
    failed_core_s: float
    recovered_core_s: float  # core-seconds that checkpoints saved
    preempted: int  # attempts that ended because their hosts were wanted for something else
    submitted: int  # units submitted
    started: int  # units started
    mean_wait_s: float | None
    ended: dict[str, int]


class DepartmentUsage(Work, frozen=True, kw_only=True):
    """Host-seconds: `own_s` by guarantees and weights, `held_s`, of these `occupied_s` and `idle_s`, `draining_s`, `lent_s`,
    `borrowed_s`, `held_on_notice_s`; `hosts_given_back`, `hosts_seized`: after notice, and at its deadline; `held_core_s`,
    `held_gpu_s`: of the hosts held; `lost_to`: host-seconds of its own that others held, by department."""

    department: str
    kind: Literal["batch", "web"] | None  # batch or web; null: no longer configured
    own_s: float  # host-seconds that were its own, by guarantees and weights
    held_s: float  # host-seconds held
    occupied_s: float  # host-seconds with an attempt
    idle_s: float  # host-seconds without an attempt
    draining_s: float  # host-seconds on their way out
    lent_s: float  # host-seconds of its own that others held
    borrowed_s: float  # host-seconds held beyond its own
    held_on_notice_s: float  # host-seconds held after notice
    hosts_given_back: int
    hosts_seized: int
    held_core_s: float
    held_gpu_s: float
    lost_to: dict[str, float]


class UsageRow(Work, frozen=True, kw_only=True):
    """Of a user, a service or a lease of the department.  `used_pct`: of what its department used; of services with shares also
    `granted_pct`, `usage_pct`, `lent_pct`, `borrowed_pct` (Chakode 2012, eq. 5.1)."""

    department: str
    user: str | UnsetType = UNSET
    service: str | UnsetType = UNSET
    lease: str | UnsetType = UNSET  # number of the lease
    used_pct: float
    granted_pct: float | UnsetType = UNSET  # share granted, in percent
    usage_pct: float | UnsetType = UNSET  # share used by production, in percent
    lent_pct: float | UnsetType = UNSET  # share lent to others, in percent
    borrowed_pct: float | UnsetType = UNSET  # used beyond its share, in percent


class UsageReport(Answer, frozen=True, kw_only=True):
    """Who held and used how much in a period.  `since`, `until`: what is shown, to the edges of hours; `began`: when accounting
    began; `rows`: as `by` asks, the largest first of each department; `rows_left_out`: that are not shown."""

    by: Literal["department", "user", "service", "lease"]
    department: str | None
    since: Time
    until: Time
    began: Time
    site: SiteUsage  # the whole cloud
    departments: tuple[DepartmentUsage, ...]  # departments
    rows: tuple[UsageRow, ...]
    rows_left_out: int


class BillableAttempt(Answer, frozen=True, kw_only=True):
    """An attempt as far as it was open in the day.  `cores`, `gpus`: on all its hosts together."""

    unit: str
    attempt: int
    department: str
    user: str
    service: str
    lease: str  # number of the lease; empty: none
    quality: str
    cores: int
    gpus: int
    hosts: tuple[str, ...]
    from_at: Time  # from when on it was open in the day
    until_at: Time  # until when it was open in the day


class BillableLoss(Answer, frozen=True, kw_only=True):
    """Work that an attempt lost to `claimant`, or, below 0, that was recovered of it."""

    unit: str
    attempt: int
    department: str
    user: str
    service: str
    lease: str  # number of the lease; empty: none
    quality: str
    claimant: str  # who has what was lost
    at: Time  # when it was
    core_s: float  # core-seconds


class BillableHour(Answer, frozen=True, kw_only=True):
    """Host-seconds of an hour that begins at `begin_at`."""

    department: str
    begin_at: Time  # when the hour begins
    held_s: float  # host-seconds held
    lent_s: float  # host-seconds of its own that others held
    borrowed_s: float  # host-seconds held beyond its own


class Billable(Answer, frozen=True, kw_only=True):
    """What a bill of the UTC day `day` is made of.  `until`: as far as it goes; `over`: nothing will be added; `began`: when
    accounting began; `kinds`: of departments."""

    day: Time  # when the UTC day begins
    until: Time
    over: bool
    began: Time
    kinds: dict[str, Literal["batch", "web"]]
    attempts: tuple[BillableAttempt, ...]  # attempts that were open in the day
    losses: tuple[BillableLoss, ...]  # work that was lost, or recovered, on the day
    holding: tuple[BillableHour, ...]  # hosts by department and hour


class PriceTable(Answer, frozen=True, kw_only=True):
    """The cloud's price table.  `file`: its name; `digest`: of what it says; `prices`: as the file has them, of those that the
    caller may have to pay."""

    file: str
    digest: str
    prices: dict[str, Any]


class StoreShare(Answer, frozen=True, kw_only=True):
    """Bytes in the object store, all and by what they are of."""

    department: str
    bytes: int
    share_bytes: int
    submitted: int
    output: int
    files: int
    checkpoints: int


class Store(Answer, frozen=True, kw_only=True):
    """`counted`: false while the store is still being read, and figures are too low."""

    counted: bool
    departments: tuple[StoreShare, ...]
