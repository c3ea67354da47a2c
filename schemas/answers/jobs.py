"""Jobs: the queue, one job with its attempts, the history, leases."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import UNSET, UnsetType

from schemas.answers.base import Answer, Reason, Time
from schemas.config import OnReclaim, OnTerm
from schemas.facts import Disposal

State: TypeAlias = Literal[
    "pending",
    "held",
    "suspended",
    "starting",
    "running",
    "completing",
    "completed",
    "ended_early",
    "failed",
    "cancelled",
    "timeout",
    "killed",
]
LeaseKind: TypeAlias = Literal["advance", "deadline", "immediate", "best-effort"]


class LeaseTimes(Answer, frozen=True, kw_only=True):
    """When a lease was promised; best-effort ones have no times.  `deadline_at`: by when a deadline lease has to be over."""

    kind: LeaseKind  # kind of lease
    start_at: Time | None  # when it begins; null: no time
    end_at: Time | None  # when it ends; null: no time
    deadline_at: Time | None


class Unit(Answer, frozen=True, kw_only=True):
    """A unit: a job, or one element of an array.  `cores`, `memory_mb` and `gpus` are of each node."""

    job: str
    unit: str
    department: str
    user: str
    name: str  # name that its user gave it
    state: State  # what it is in
    nodes: int
    cores: int  # cores of each node
    memory_mb: int  # memory of each node, MiB
    gpus: int  # GPUs of each node
    submitted_at: Time | None  # when it was submitted
    started_at: Time | None  # when its open or last attempt began
    ended_at: Time | None  # when it ended
    walltime_s: float | None
    attempt: int  # number of the open or last attempt, 0 before the first
    hosts: tuple[str, ...]
    exit_code: int | None  # exit code of its script; null: none, or not ended


class UnitRow(Unit, frozen=True, kw_only=True):
    """A unit in the queue.  `ran_before_s`: for how long it ran in this life before its open or last attempt, seconds;
    `reason`: why it is in this state."""

    priority: int
    ran_before_s: float
    reason: Reason
    lease: LeaseTimes | UnsetType = UNSET  # times of the lease, if it is one


class QueueRows(Answer, frozen=True, kw_only=True):
    """Units in order of submission.  `total`: of how many these are the first."""

    jobs: tuple[UnitRow, ...]  # units or jobs
    total: int


class QueueLines(Answer, frozen=True, kw_only=True):
    """The same, short (`form=lines`).  A line of `lines` has: unit, name, department, user, state, nodes, cores, since when it
    runs (null: it does not), hosts or reason, and of a lease its kind."""

    lines: tuple[tuple[Any, ...], ...]  # one line for each unit
    total: int  # of how many these are the first


class Checkpoint(Answer, frozen=True, kw_only=True):
    """What an attempt reported as safe.  `files`: that the next attempt gets; `percent`: of the whole job, by its own word;
    `progress`: its own words."""

    at: Time  # when it was
    files: int
    percent: float | None
    progress: str


class Attempt(Answer, frozen=True, kw_only=True):
    """An attempt to run a unit.  `reason`: why it was placed; `why`: why it was closed; `exit`, `signal`: how its script ended;
    `seconds`: how long that ran; `note`: what the guest or the executor says of the end; `terminated`: its guest had been
    ordered to end it; `cpu_seconds`, `max_rss_mb`: what it has used; `so_far`: these may still grow; `ranks_heard`,
    `heard_at`: how many of its guests have reported that, and when last."""

    attempt: int
    hosts: tuple[str, ...]
    placed_at: Time  # when its hosts were chosen
    began_at: Time | None  # when its guests reported that it runs
    ended_at: Time | None  # when it ended
    reason: Reason | UnsetType | None = UNSET
    disposal: Disposal | None  # what became of it when it was closed; null: it ended by itself
    why: Reason | None
    exit: int | None
    signal: int | None
    seconds: float | None
    note: str | None
    terminated: bool | UnsetType = UNSET
    checkpoint: Checkpoint | UnsetType | None = UNSET  # its last checkpoint; null: none
    cpu_seconds: float | None
    max_rss_mb: float | None
    so_far: bool | UnsetType = UNSET
    ranks_heard: int | UnsetType | None = UNSET
    heard_at: Time | UnsetType | None = UNSET


class Element(Unit, frozen=True, kw_only=True):
    """An element of an array: a row of the queue, or, of an array that the history alone remembers, one of the history."""

    reason: Reason | None
    priority: int | UnsetType = UNSET
    ran_before_s: float | UnsetType = UNSET  # how long it ran in this life before that attempt, in seconds
    lease: LeaseTimes | UnsetType = UNSET  # times of the lease, if it is one
    service: str | UnsetType = UNSET
    quality: str | UnsetType = UNSET
    lease_kind: LeaseKind | UnsetType | None = UNSET  # kind of lease; null: it is none
    best_effort: bool | UnsetType = UNSET  # whether it runs only on what production leaves
    wait_s: float | UnsetType = UNSET  # from submission to first placement, in seconds
    elapsed_s: float | UnsetType = UNSET  # all attempts together, in seconds
    cpu_seconds: float | UnsetType | None = UNSET
    max_rss_mb: float | UnsetType | None = UNSET


class Job(Answer, frozen=True, kw_only=True):
    """A job, an element of an array, or an array with its elements.  `counts`: how many of them are in which state.

    One that the history alone remembers has fewer fields.  `state`: of an array also `ended`, with elements that ended in
    different ways.  `elapsed_s`: all attempts together; `preempted`: how many attempts ended because their hosts were wanted
    for something else; `cpu_seconds`, `max_rss_mb`: what all attempts have used; `so_far`: these may still grow; `array`: it
    has elements; `on_reclaim`, `on_term`, `grace_s`: as the job asked; null: as its department does."""

    job: str
    unit: str
    department: str
    user: str
    name: str  # name that its user gave it
    state: State | Literal["ended"]
    submitted_at: Time | None  # when it was submitted
    ended_at: Time | None  # when it ended
    exit_code: int | UnsetType | None = UNSET  # exit code of its script; null: none, or not ended
    attempts: tuple[Attempt, ...]  # its attempts, oldest first; empty for an array
    units: tuple[Element, ...]  # elements of an array
    counts: dict[str, int] | UnsetType = UNSET
    nodes: int | UnsetType = UNSET
    cores: int | UnsetType = UNSET  # cores of each node
    memory_mb: int | UnsetType = UNSET  # memory of each node, MiB
    gpus: int | UnsetType = UNSET  # GPUs of each node
    priority: int | UnsetType = UNSET
    started_at: Time | UnsetType | None = UNSET  # when its open or last attempt began
    ran_before_s: float | UnsetType = UNSET  # how long it ran in this life before that attempt, in seconds
    walltime_s: float | UnsetType | None = UNSET
    attempt: int | UnsetType = UNSET
    hosts: tuple[str, ...] | UnsetType = UNSET
    reason: Reason | UnsetType | None = UNSET
    lease: LeaseTimes | UnsetType = UNSET  # times of the lease, if it is one
    lease_kind: LeaseKind | UnsetType | None = UNSET  # kind of lease; null: it is none
    cpu_seconds: float | UnsetType | None = UNSET
    max_rss_mb: float | UnsetType | None = UNSET
    so_far: bool | UnsetType = UNSET
    wait_s: float | UnsetType = UNSET  # from submission to first placement, in seconds
    elapsed_s: float | UnsetType = UNSET
    preempted: int | UnsetType = UNSET
    tasks: int | UnsetType = UNSET
    on_reclaim: OnReclaim | UnsetType | None = UNSET
    on_term: OnTerm | UnsetType | None = UNSET
    array: bool | UnsetType = UNSET
    service: str | UnsetType = UNSET
    best_effort: bool | UnsetType = UNSET  # whether it runs only on what production leaves
    quality: str | UnsetType = UNSET
    constraint: str | UnsetType = UNSET
    grace_s: float | UnsetType = UNSET


class HistoryRow(Unit, frozen=True, kw_only=True):
    """A unit, also one that ended long ago.  `wait_s`: from its submission to its first placement; `elapsed_s`: all attempts
    together; `attempt`: how many there were; `reason`: why its last attempt was closed, if a service or a person decided
    that."""

    service: str
    quality: str
    lease_kind: LeaseKind | None  # kind of lease; null: it is none
    best_effort: bool  # whether it runs only on what production leaves
    wait_s: float
    elapsed_s: float
    cpu_seconds: float | None
    max_rss_mb: float | None
    reason: Reason | None


class History(Answer, frozen=True, kw_only=True):
    """One page.  `next`: value of `after` for the next page; null: this is the last."""

    jobs: tuple[HistoryRow, ...]  # units or jobs
    next: str | None


class LeaseRow(Answer, frozen=True, kw_only=True):
    """A lease, and what became of it.  `ending`: of one that has ended: how its unit ended, or `missed`; `core_s_reserved`,
    `core_s_used`: core-seconds that were promised, and that its attempts held; `gpu_s_reserved`, `gpu_s_used`: GPU-seconds
    likewise; `reason`: why it is in this state."""

    lease: str  # number of the lease
    name: str  # name that its user gave it
    department: str
    user: str
    kind: LeaseKind  # kind of lease
    start_at: Time | None  # when it begins; null: no time
    end_at: Time | None  # when it ends; null: no time
    deadline_at: Time | None  # when it has to be over; null: no deadline
    state: Literal["reserved", "waiting", "running", "suspended", "ended"]  # what it is in
    duration_s: float  # how long it lasts, in seconds
    nodes: int
    cores: int  # cores of each node
    memory_mb: int  # memory of each node, MiB
    gpus: int  # GPUs of each node
    hosts: tuple[str, ...]
    submitted_at: Time | None  # when it was submitted
    began_at: Time | None  # when its guests reported that it runs
    ended_at: Time | None  # when it ended
    ending: str | None
    preempted: int  # attempts that ended because their hosts were wanted for something else
    core_s_reserved: float
    core_s_used: float
    gpu_s_reserved: float
    gpu_s_used: float
    reason: Reason


class LeaseRows(Answer, frozen=True, kw_only=True):
    """In order of acceptance."""

    leases: tuple[LeaseRow, ...]  # leases
