"""What ended an attempt, as decisions and accounts need it; the reason (`schemas.reasons`) is for people."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Cause(StrEnum):
    """What ended an attempt."""

    OTHER = "other"  # itself, its time, a person, or the load
    RECLAIMED = "reclaimed"  # its host had to be given back
    PREEMPTED = "preempted"  # best-effort: another job, or a lease, needed its room
    SEIZED = "host_taken"  # its host was
    DRAINED = "host_drained"  # a person drained its host
    HOST_LOST = "host_lost"
    VM_ENDED = "vm_ended"  # without a report
    NOT_SAVED = "not_saved"  # what it had saved was lost
    BOOT_TIMEOUT = "boot_timeout"  # its guests did not call in time
    START_TIMEOUT = "start_timeout"  # not even all its VMs had started: says nothing against it
    NOT_READY = "not_ready"  # an instance's health check failed for too long
    PROGRAM_ENDED = "program_ended"  # an instance's program ended by itself
    MOVED = "moved"  # it continues elsewhere, for balance


TAKEN: Final = (Cause.RECLAIMED, Cause.PREEMPTED, Cause.SEIZED, Cause.DRAINED)  # its hosts were wanted otherwise
FAILED: Final = (Cause.HOST_LOST, Cause.VM_ENDED, Cause.BOOT_TIMEOUT, Cause.START_TIMEOUT, Cause.NOT_SAVED)


class Basis(StrEnum):
    """What the number of instances of a web department follows."""

    LOAD = "load"  # or the queue
    PERSON = "person"  # a person's word
    SILENCE = "silence"  # no load is reported: the number is held
    HOSTS = "hosts"  # nothing new: the hosts alone are others
