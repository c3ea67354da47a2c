"""What the executor asks OpenNebula, and what became of it, as plain values: the border between its core and its edge.

Rules
  1. A call about a VM names the VM by the key of custody (``unit/attempt/rank``) or, for one that the journal does not know,
     by ``#<id>``; at most one call about a key is in flight.
  2. Every call that was begun ends with exactly one `Result`.  `UNSURE` means that it may have happened, or may yet.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from schemas.size import NOTHING, Size


class Allocate(msgspec.Struct, frozen=True):
    """A VM on HOLD for one rank of an attempt (X1, first step).  `image`: what it boots; empty: what the template says."""

    unit: str
    attempt: int
    rank: int
    host: str
    size: Size
    key: str
    image: str = ""


class Deploy(msgspec.Struct, frozen=True):
    """Run the journaled VM `vm` on OpenNebula's host `one_id` (X1, second step).  `resumes`: it is saved, and continues
    (X7)."""

    key: str
    vm: int
    host: str
    one_id: int
    resumes: bool = False


class Terminate(msgspec.Struct, frozen=True):
    """End the VM: gracefully, or at once."""

    key: str
    vm: int
    hard: bool


class Save(msgspec.Struct, frozen=True):
    """Save the running VM's memory and give its host up (X7)."""

    key: str
    vm: int


class Migrate(msgspec.Struct, frozen=True):
    """Let the running VM continue, without a pause, on OpenNebula's host `one_id` (X7)."""

    key: str
    vm: int
    host: str
    one_id: int


class Look(msgspec.Struct, frozen=True):
    """Which VMs are on this one host (X5).  A read: it changes nothing."""

    host: str
    one_id: int


Call: TypeAlias = Allocate | Deploy | Terminate | Save | Migrate | Look


class Outcome(StrEnum):
    """`OK`: done.  `REFUSED`: it has surely not happened, and will not.  `LATER`: the same, but it is refused of every VM,
    until a person changes that.  `GONE`: there is no such object.  `DENIED`: the login is wrong, for every call.  `UNSURE`:
    no answer in time; it may have happened."""

    OK = "ok"
    REFUSED = "refused"
    LATER = "later"
    GONE = "gone"
    DENIED = "denied"
    UNSURE = "unsure"


class Result(msgspec.Struct, frozen=True):
    """`vm`: the id that an allocation gave.  `found`: what a look saw.  `why`: OpenNebula's words, for the log and the fact.
    `failure`: the name of what went wrong (`call_errors.Failure`), or empty."""

    call: Call
    outcome: Outcome
    vm: int = -1
    found: HostSight | None = None
    why: str = ""
    failure: str = ""


class Phase(StrEnum):
    """What a VM's STATE and LCM_STATE mean for us; and, for one that moves, where it runs."""

    HELD = "held"  # HOLD or PENDING: it has never run, or does not any more
    MOVING = "moving"  # on its way: transfer, boot, shutdown, clean-up
    RUNNING = "running"
    ELSEWHERE = "elsewhere"  # it runs, on another host than the one that it moves to
    UNKNOWN = "unknown"  # its host does not say
    SAVED = "saved"  # stopped: its memory is on disk, and it is on no host
    OFF = "off"  # powered off, suspended, undeployed: it does not run, and could be resumed by hand
    FAILED = "failed"  # a step failed; it does not continue by itself
    OVER = "over"  # DONE, or not there any more: it can never run again


class Sight(msgspec.Struct, frozen=True):
    """One VM in an answer of OpenNebula.  `tag`: PHOENIX_ID, where asked for.  `one_host`: OpenNebula's id of the host of its
    newest history record, or -1.  `why`: of one that failed, OpenNebula's words for it.  `hidden`: it is there, and our user
    may not see more of it: its owner is another one now."""

    vm: int
    phase: Phase
    tag: str = ""
    one_host: int = -1
    why: str = ""
    hidden: bool = False


class HostSight(msgspec.Struct, frozen=True):
    """One host in an answer of OpenNebula.  `usable`: it is monitored and enabled.  `bad`: why its VMs cannot be relied on
    (error, offline), or empty.  `apart`: why nothing new is started there (disabled).  None of them: it is on its way.
    `size`: what is there, as far as it may be used; `max_cpu`: what OpenNebula lets VMs ask for, in percent of a core;
    `asked`: what the VMs there have asked for, by dimension, as OpenNebula counts it (`Dimension.grain`); `others`: the part of
    it that is other users', as we count it.
    `services.executor.core.host_health` judges it."""

    name: str
    one_id: int
    usable: bool
    bad: str
    size: Size
    cluster: str
    labels: dict[str, str]
    vms: tuple[int, ...]
    apart: str = ""
    max_cpu: int = 0
    asked: tuple[int, ...] = NOTHING
    others: Size = NOTHING


class Sample(msgspec.Struct, frozen=True):
    """The newest sample of a host's monitoring.  `at`: OpenNebula's seconds; `used_cpu`: percent of a core."""

    at: int
    used_cpu: int
    used_memory_kb: int = 0


_PLAIN = {1: Phase.HELD, 2: Phase.HELD, 4: Phase.SAVED, 5: Phase.OFF, 6: Phase.OVER, 8: Phase.OFF, 9: Phase.OFF}
_FAILED = (*range(36, 43), 44, *range(46, 51), 61)  # the LCM states named …_FAILURE
_ACTIVE = {3: Phase.RUNNING, 16: Phase.UNKNOWN, **dict.fromkeys(_FAILED, Phase.FAILED)}
_VM_ACTIVE = 3


def phase_of(state: int, lcm: int) -> Phase:
    """The phase of a VM by OpenNebula's STATE and LCM_STATE; 11 is CLONING_FAILURE, 7 the historical FAILED."""
    if state == _VM_ACTIVE:
        return _ACTIVE.get(lcm, Phase.MOVING)
    return Phase.FAILED if state in (7, 11) else _PLAIN.get(state, Phase.MOVING)


class HostsSeen(msgspec.Struct, frozen=True):
    """A whole host pool.  `ticket`: what `ExecutorCore.ticket` gave before the poll was begun, here and below.  `samples`: by
    OpenNebula's id of the host; those that are not among them are as they were."""

    ticket: int
    hosts: list[HostSight]
    samples: dict[int, Sample] = {}


class VmsSeen(msgspec.Struct, frozen=True):
    """The VMs that were asked for by id, DONE ones included; one that is not among them is not there any more."""

    ticket: int
    asked: list[int]
    vms: list[Sight]


class PoolSeen(msgspec.Struct, frozen=True):
    """Every VM that is not DONE.  `strange`: tags of those that `ExecutorCore.strangers` named, read after the poll; the
    journal was folded to its end as read after that (X6)."""

    ticket: int
    vms: list[Sight]
    strange: list[Sight]


class HostTold(msgspec.Struct, frozen=True):
    """A hint that the host with OpenNebula's id `one_id` has changed: it is worth a look, no more."""

    one_id: int


class Broken(msgspec.Struct, frozen=True):
    """The connections to OpenNebula broke, or cannot be made: what answers next may have an older copy of its database."""


Observation: TypeAlias = Result | HostsSeen | VmsSeen | PoolSeen | HostTold | Broken
