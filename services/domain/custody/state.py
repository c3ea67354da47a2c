"""What the custody fold remembers: the records, and the indexes that are derived from them.

The records are plain data in one `State`, so that a snapshot is its encoding and two equal histories give equal bytes.
Indexes are rebuilt from the records when a snapshot is loaded; no decision may depend on their order.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal

import msgspec

from schemas import facts as f
from schemas.config import CloudConfig, OnTerm
from schemas.size import NOTHING, Size

RELEASES_KEPT: Final = 20  # of a department, for those who ask what there was; and those that run
ENDED_EARLY: Final = "ended_early"  # how a unit has ended that completed because its guest had told it to end
FINALS_MAX: Final = 10_000  # final units that are remembered (dependencies, `show`); older ones live in the history
HostState = Literal["absent", "free", "held", "draining", "lost"]
UnitState = Literal["pending", "open", "final"]


class Broken(StrEnum):
    """Why an open attempt is broken, for ever."""

    HOST_RELEASED = "host_released"
    HOST_SEIZED = "host_seized"
    HOST_LOST = "host_lost"
    VM_ENDED = "vm_ended"
    NOT_SAVED = "not_saved"  # a part of what it was to resume with is lost


class Host(msgspec.Struct, kw_only=True):
    name: str
    one_id: int = -1
    size: Size = NOTHING
    labels: dict[str, str] = {}
    cluster: str = ""
    others: Size = NOTHING  # what VMs of other users take of it, which is not in `size`: for explanations alone
    state: HostState = "absent"
    dept: str | None = None  # the holder; while draining or lost: the last one
    since: float = 0.0  # when the state or the holder last changed
    cordoned: str | None = None  # the reason, while cordoned
    drain: bool = False  # … and it is to become empty: instances are replaced elsewhere
    drain_until: float | None = None  # … and what still runs there then is ended
    quarantine_until: float = 0.0
    quarantine: str | None = None
    lost: str | None = None  # the reason, while lost
    used: Size = NOTHING  # by live attempts
    exclusive: bool = False  # a live attempt has the whole host
    units: dict[str, None] = {}  # live attempts here
    vms: dict[str, None] = {}  # keys of open VMs here

    @property
    def free(self) -> Size:
        """What live attempts leave; less than nothing where a host offers less than when they were placed."""
        return self.size.minus(self.used)

    def drain_due(self, now: float) -> bool:
        """True if it is drained and the deadline has passed."""
        return self.drain_until is not None and self.drain_until <= now


class Unit(msgspec.Struct, kw_only=True):
    """A job without array, an array element, or an instance."""

    id: str
    dept: str
    nodes: int = 1
    state: UnitState = "pending"
    final: str | None = None  # completed failed killed timeout cancelled stopped
    held: bool = False
    cancelled: bool = False
    attempt: int = 0  # the latest
    hosts: tuple[str, ...] = ()  # of the open attempt
    size: Size = NOTHING  # of the open attempt, on each host
    exclusive: bool = False
    broken: Broken | None = None
    placed_at: float | None = None
    began_at: float | None = None
    addresses: tuple[str | None, ...] = ()
    failures: int = 0
    retries: int = 0
    suspended: bool = False  # pending: its VMs are being saved, or are, or move
    resumes: bool = False  # open: it resumes with them
    life: int = 0  # the attempt with which its present life began; suspended and resumed ones are one life
    exit: int | None = None
    ended_at: float | None = None
    allocated: dict[int, int] = {}  # attempt -> bit mask of ranks that ever had a VM
    release: int = 0  # of an instance: what it runs
    drains_until: float | None = None  # of an instance: no new session goes there; it stops then at the latest
    vms_open: int = 0
    on_term: OnTerm | None = None  # None: the department's
    grace_s: float | None = None  # SIGTERM to SIGKILL, by its own wish; None: the department's (`domain.grace`)
    boots: tuple[str | None, ...] = ()  # by rank, the boot of its VM in which its present life has begun
    early: bool = False  # completed, by a script that its guest had told to end

    @property
    def live(self) -> bool:
        return self.state == "open" and self.broken is None

    @property
    def end(self) -> str | None:
        """How it has ended, for people: `final`, or that it ended early."""
        return ENDED_EARLY if self.early else self.final


class Vm(msgspec.Struct, kw_only=True):
    """An open VM: journaled, and not yet ended.  `known_as`: the key under which its guest knows itself, other than its own
    after a resume; `was`: … before it took its present job over; `parked_at`: since when its guest waits for another job."""

    unit: str
    attempt: int
    rank: int
    vm: int
    host: str
    allocated_at: float
    started_at: float | None = None
    known_as: str = ""
    was: str = ""
    parked_at: float | None = None


class Saved(msgspec.Struct, kw_only=True):
    """A VM that is suspended: on no host, and to be resumed as rank `rank` of a later attempt of its unit."""

    unit: str
    attempt: int
    rank: int
    known_as: str


class Quota(msgspec.Struct, kw_only=True):
    """`hosts` is what the department may keep; each lowering keeps its own deadline: (hosts, by)."""

    hosts: int = 0
    lowerings: list[tuple[int, float]] = []

    def change(self, hosts: int, by: float) -> None:
        if hosts < self.hosts:
            self.lowerings.append((hosts, by))
        elif hosts > self.hosts:  # raising drops what it satisfies and softens the rest; nothing is postponed
            self.lowerings = [(max(level, hosts), due) for level, due in self.lowerings]
        self.hosts = hosts
        self.lowerings = essential(self.lowerings)

    def keep(self, held: int) -> None:
        """Forget the lowerings that `held` hosts satisfy."""
        if self.lowerings:
            self.lowerings = [(level, due) for level, due in self.lowerings if held > level]

    def overdue(self, held: int, now: float) -> int:
        """Hosts that may be seized at `now`."""
        due = [level for level, by in self.lowerings if by <= now]
        return max(0, held - min(due)) if due else 0

    def next_due(self) -> float:
        return min((by for _, by in self.lowerings), default=float("inf"))


def essential(lowerings: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Drop each lowering that an earlier-due one implies (same or fewer hosts, due no later)."""
    kept: list[tuple[int, float]] = []
    for level, due in sorted(lowerings, key=lambda x: (x[1], x[0])):
        if not kept or level < kept[-1][0]:
            kept.append((level, due))
    return kept


class Leader(msgspec.Struct, kw_only=True):
    epoch: int
    instance: str
    since: float
    stopped: bool = False


class State(msgspec.Struct, kw_only=True):
    """Everything that `Custody.dump` writes."""

    rules: int = 0  # of the last config.adopted; 0: none yet
    cloud: str = ""
    config: CloudConfig | None = None
    position: int = 0
    index: int = 0  # of the last fact in its envelope
    at: float = 0.0  # the fold's time: running maximum (S6)
    hosts: dict[str, Host] = {}
    units: dict[str, Unit] = {}
    vms: dict[str, Vm] = {}
    saved: dict[int, Saved] = {}  # OpenNebula's id -> what it holds
    quotas: dict[str, Quota] = {}
    demands: dict[str, int] = {}
    leaders: dict[str, Leader] = {}
    finals: dict[str, None] = {}  # final units without open VM, oldest first
    job_last: int = 0  # the highest job number submitted
    instance_last: dict[str, int] = {}  # the highest instance number placed, by department
    release_last: dict[str, int] = {}  # the highest release number, by department
    releases: dict[str, dict[int, f.ReleaseRequested]] = {}  # department -> its last releases, oldest first
    voids: dict[str, int] = {}  # void facts by reason
    closed: dict[str, None] = {}  # departments closed and not configured again


class Index:
    """Derived views of a `State`: which hosts are in which hands, which attempts are open or broken."""

    __slots__ = (
        "apart",
        "broken",
        "by_state",
        "held",
        "known_as",
        "occupied",
        "open",
        "parked",
        "saved",
        "vm_ids",
        "was",
    )

    def __init__(self) -> None:
        self.by_state: dict[str, dict[str, None]] = {s: {} for s in ("absent", "free", "held", "draining", "lost")}
        self.held: dict[str, dict[str, None]] = {}
        self.occupied: dict[str, dict[str, None]] = {}  # department -> its held hosts with a live attempt
        self.apart: dict[str, None] = {}  # hosts that are cordoned, or were ever in quarantine
        self.open: dict[str, dict[str, None]] = {}  # department -> units with an open attempt
        self.broken: dict[str, dict[str, None]] = {}  # department -> those of them that are broken
        self.vm_ids: dict[int, str] = {}  # OpenNebula's id -> key of the open VM
        self.known_as: dict[str, str] = {}  # name that a guest goes by, other than its key -> key of the open VM
        self.was: dict[str, str] = {}  # name that a guest went by before its present job -> key of the open VM
        self.parked: dict[str, dict[str, None]] = {}  # host -> keys of the VMs that wait for a job there
        self.saved: dict[str, dict[int, int]] = {}  # unit -> rank -> OpenNebula's id of its saved VM

    @classmethod
    def of(cls, state: State) -> Index:
        index = cls()
        for host in state.hosts.values():
            index.add_host(host)
        for unit in state.units.values():
            if unit.state == "open":
                index.open.setdefault(unit.dept, {})[unit.id] = None
                if unit.broken:
                    index.broken.setdefault(unit.dept, {})[unit.id] = None
        for key, vm in state.vms.items():
            index.add_vm(key, vm)
        for number, saved in state.saved.items():
            index.saved.setdefault(saved.unit, {})[saved.rank] = number
        return index

    def add_vm(self, key: str, vm: Vm) -> None:
        self.vm_ids[vm.vm] = key
        if vm.known_as not in ("", key):
            self.known_as[vm.known_as] = key
        if vm.was:
            self.was[vm.was] = key
        if vm.parked_at is not None:
            self.parked.setdefault(vm.host, {})[key] = None

    def drop_vm(self, key: str, vm: Vm) -> None:
        if self.vm_ids.get(vm.vm) == key:
            del self.vm_ids[vm.vm]
        for names in (self.known_as, self.was):
            for name in (vm.known_as, vm.was):
                if names.get(name) == key:
                    del names[name]
        waiting = self.parked.get(vm.host)
        if waiting is not None:
            waiting.pop(key, None)
            if not waiting:
                del self.parked[vm.host]

    def add_host(self, host: Host) -> None:
        self.by_state[host.state][host.name] = None
        if host.state == "held" and host.dept is not None:
            self.held.setdefault(host.dept, {})[host.name] = None
            if host.units:
                self.occupied.setdefault(host.dept, {})[host.name] = None
        self.set_apart(host)

    def drop_host(self, host: Host) -> None:
        """Before its state or holder changes, or it is removed."""
        self.by_state[host.state].pop(host.name, None)
        if host.state == "held" and host.dept is not None:
            self.held[host.dept].pop(host.name, None)
        self.apart.pop(host.name, None)

    def set_apart(self, host: Host) -> None:
        """`host` may have been cordoned, uncordoned or put into quarantine."""
        if host.cordoned is not None or host.quarantine_until > 0.0:
            self.apart[host.name] = None
        else:
            self.apart.pop(host.name, None)


def vm_key(unit: str, attempt: int, rank: int) -> str:
    return f"{unit}/{attempt}/{rank}"
