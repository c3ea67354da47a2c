"""What a core gets beside a fact."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Void(StrEnum):
    """Why a fact changes nothing: the precondition that failed at its place in the journal."""

    HOST_UNKNOWN = "host_unknown"
    HOST_NOT_FREE = "host_not_free"
    HOST_NOT_HELD = "host_not_held"  # not held by that department
    HOST_CORDONED = "host_cordoned"  # nothing new is placed there
    HOST_NOT_CLEARABLE = "host_not_clearable"
    HOST_NOT_REMOVABLE = "host_not_removable"
    WITHIN_QUOTA = "within_quota"
    UNIT_UNKNOWN = "unit_unknown"
    UNIT_FINAL = "unit_final"
    UNIT_NOT_PENDING = "unit_not_pending"
    UNIT_HELD = "unit_held"
    UNIT_CANCELLED = "unit_cancelled"
    ATTEMPT_NOT_NEXT = "attempt_not_next"
    ATTEMPT_NOT_OPEN = "attempt_not_open"
    ATTEMPT_NOT_LIVE = "attempt_not_live"
    ATTEMPT_NOT_LATEST = "attempt_not_latest"
    ATTEMPT_STOPPED = "attempt_stopped"  # its script ended with 0 after its guest had told it to end
    NO_ROOM = "no_room"
    WRONG_SHAPE = "wrong_shape"  # as many hosts as the unit has nodes, none twice; no elements, or too many
    NOT_ITS_DEPARTMENT = "not_its_department"
    DEPARTMENT_NAMED = "department_named"  # by the configuration in force: it is not closed
    JOB_KNOWN = "job_known"
    VM_KNOWN = "vm_known"
    VM_NOT_OPEN = "vm_not_open"
    VM_BUSY = "vm_busy"  # it is another attempt's, and not for this one
    RELEASE_NOT_NEWER = "release_not_newer"
    VM_NOT_IDLE = "vm_not_idle"  # its job has not completed, or it waits already


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """`position`: stream sequence; `index`: place in the envelope; `at`: the fold's time, UTC seconds; `writer`:
    "admission", "scheduler.hpc", …; `void`: why the fact changes nothing, or None; `broken`: units whose open attempt this
    fact broke; `unsaved`: pending units whose saved work this fact has shown to be lost; `cause`: what led to the envelope."""

    position: int
    index: int
    writer: str
    at: float
    cause: str = ""
    void: Void | None = None
    broken: tuple[str, ...] = ()
    unsaved: tuple[str, ...] = ()
