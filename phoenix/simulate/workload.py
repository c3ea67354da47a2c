"""What a simulated cloud is given, and what comes out of it: the types that inputs, engine, metrics and reports share.

All times are seconds since the beginning of the experiment (time 0 of every input); hosts are counted, memory is in MiB.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from schemas.config import CloudConfig, OnReclaim
from schemas.ranges import between
from schemas.size import FIELDS, Size

UNLIMITED_S: Final = 1e9  # a walltime that nothing reaches
End = Literal["completed", "killed", "timeout", "cancelled", "failed", "stopped", "refused", "unfinished"]
LeaseKind = Literal["advance", "best-effort"]
Unit = Literal["instances", "requests", "utilisation"]


# ----------------------------------------------------------------------------------------------------------------- inputs


class LogJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a log or a generator tells it, before it is laid out on hosts."""

    number: int  # unique in its log
    submit_s: float
    run_s: float
    processors: int
    requested_s: float | None = None  # the limit that its user asked for; None: unknown
    memory_mb: int | None = None  # per processor; None: unknown
    user: str = ""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A level for each interval: `values[i]` holds from `starts[i]` to `starts[i + 1]`, the last one for as long as the one
    before it.  Requests are a count per interval; utilisation is 0 to 1 of the `instances` it was measured on."""

    unit: Unit
    starts: tuple[float, ...]
    values: tuple[float, ...]
    instances: tuple[float, ...] = ()  # for utilisation: on how many each was measured

    @property
    def end_s(self) -> float:
        """When the last interval ends."""
        if len(self.starts) < 2:
            return self.starts[0] if self.starts else 0.0
        return 2 * self.starts[-1] - self.starts[-2]

    def ends(self) -> tuple[float, ...]:
        """The end of each interval."""
        return (*self.starts[1:], self.end_s)


# --------------------------------------------------------------------------------------------------------------- scenario


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A job laid out on hosts: what is submitted, and how long it would run undisturbed."""

    number: int  # > 0, rising within a scenario
    submit_s: float
    run_s: float
    nodes: int
    cores: int = 1  # on each node
    memory_mb: int = 1  # on each node
    gpus: int = 0  # on each node
    exclusive: bool = False
    walltime_s: float = UNLIMITED_S
    user: str = "user"
    priority: int = 0
    on_reclaim: OnReclaim | None = None
    service: str = ""
    best_effort: bool = False
    short: bool = False
    quality: str = ""
    checkpoint_s: float = 0.0  # after so much work it saves what it has done; 0: never
    checkpoint_cost_s: float = 0.0  # for so long each time
    lease: LeaseKind | None = None
    start_s: float = 0.0  # of a lease with a time slot: when that begins; it ends `walltime_s` later


class WebInput(msgspec.Struct, frozen=True, kw_only=True):
    """What drives a web department: `demand` (instances that are asked for, from each time on) or `load` (busy instances, from
    which the department's own rule decides)."""

    demand: tuple[tuple[float, int], ...] = ()
    load: tuple[tuple[float, float], ...] = ()  # (from, work in instances that it keeps busy)
    end_s: float = 0.0  # what is given ends then; 0: with its last change

    @property
    def until_s(self) -> float:
        """For how long anything is known."""
        return max([self.end_s, *(at for at, _ in self.demand[-1:]), *(at for at, _ in self.load[-1:])])


def _within_a_day(description: str) -> msgspec.Meta:
    return between(0, 86_400, description)


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """How long what the executor and OpenNebula do takes, in seconds."""

    boot_s: Annotated[float, _within_a_day("from placement until all guests have called")] = 0.0
    end_s: Annotated[float, _within_a_day("from a closed attempt or a released host until the host is clear")] = 0.0
    drain_s: Annotated[float, _within_a_day("from a web instance's last new session until its last one has ended")] = (
        0.0
    )
    suspend_s: Annotated[float, _within_a_day("more than `end_s` if memory has to be written")] = 0.0
    resume_s: Annotated[float, _within_a_day("instead of boot_s")] = 0.0
    suspend_mb_per_s: Annotated[float, _within_a_day("memory written, one VM of a job after the other; 0: at once")] = (
        0.0
    )
    resume_mb_per_s: Annotated[float, _within_a_day("memory read; 0: at once")] = 0.0


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One run.  The same scenario gives the same outcome on any machine."""

    label: str
    config: CloudConfig
    hosts: int
    host_cores: int = 1
    host_memory_mb: int = 1 << 20
    host_gpus: int = 0
    jobs: dict[str, tuple[Work, ...]] = {}  # by department
    web: dict[str, WebInput] = {}
    window_s: float | None = None  # what has not ended by then is unfinished; None: until everything has ended
    latencies: Latencies = Latencies()
    signal_s: float = 20.0  # one load.observed covers so much

    @property
    def host(self) -> Size:
        """What each host has."""
        return Size._make(getattr(self, f"host_{field}") for field in FIELDS)


# ---------------------------------------------------------------------------------------------------------------- outcome


class JobRecord(msgspec.Struct, kw_only=True):
    """The life of one job."""

    number: int
    department: str
    user: str
    submit_s: float
    run_s: float
    nodes: int
    cores: int
    start_s: float | None = None  # of the first attempt
    last_start_s: float | None = None
    end_s: float | None = None
    end: End = "unfinished"
    preempted: int = 0  # attempts that ended because hosts were needed
    lost_node_s: float = 0.0  # node-seconds that ran and have to be run again, or never count
    ran_node_s: float = 0.0  # node-seconds that ran in all, up to the end of the window
    checkpoints: int = 0  # that became whole
    checkpoint_node_s: float = 0.0  # node-seconds of `ran_node_s` that saved what was not lost


class WebRecord(msgspec.Struct, kw_only=True):
    """A web department's levels: (from, wanted, in service); one row for each change."""

    department: str
    levels: list[tuple[float, int, int]] = []
    load: list[tuple[float, float]] = []  # busy instances, if the load decided


class Outcome(msgspec.Struct, kw_only=True):
    """What a run leaves behind."""

    label: str
    hosts: int
    window_s: float  # as asked, else when the last thing happened
    host_cores: int
    jobs: list[JobRecord] = []  # in the order of submission
    web: list[WebRecord] = []
    held: list[tuple[float, str, int]] = []  # (from, department, hosts); one row for each change
    running: list[
        tuple[float, str, int]
    ] = []  # (from, batch department, nodes of attempts that run); likewise, if recorded
    refused: int = 0  # jobs that no host could hold
    facts: int = 0
    envelopes: int = 0
    void: int = 0
    suspending_s: float = 0.0  # that suspending jobs took, summed over all; each counts for itself
    resuming_s: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0
