"""What an ended attempt counts for: a preemption, a fault, or neither.

Rules
  1. Preempted and lost attempts never count against the job's retry budget (PROTOCOL, Jobs).
  2. What is requeued too often is killed: it would never finish.  Preemptions and lost hosts are counted together, up to
     `requeues_max`; suspensions and moves are not, since they lose nothing, unless saving fails.  VMs that end without a
     report are counted up to `FAULTS_MAX`, or a script that crashes its machine would be started for ever.  An attempt that
     ended before it began is not counted at all: it waits, and may be held (`launches`).
"""

from __future__ import annotations

from typing import Final

from schemas.causes import TAKEN, Cause

FAULTS_MAX: Final = 10  # each has run for a while; what has crashed its VM ten times will the eleventh
PREEMPTING: Final = (*TAKEN, Cause.HOST_LOST, Cause.NOT_SAVED)
# It may have been the host: another one is tried if there is one.
UNRELIABLE: Final = (Cause.VM_ENDED, Cause.BOOT_TIMEOUT, Cause.START_TIMEOUT)


def is_fault(cause: Cause) -> bool:
    """True if a requeue for it of an attempt that had begun counts as a fault, not as a preemption."""
    return cause not in PREEMPTING
