"""The one fold of custody: what each fact of the journal is worth, and what it changes.

Theory of operation
  Every core applies this fold before its own.  A fact whose precondition fails at its place in the journal is *void*: it
  changes nothing, for any reader, for ever (PROTOCOL.md, the two tables).  Preconditions look only at custody's state, so every
  reader of the same journal gives the same verdict.

Rules
  1. Verdict first, effect second.  `TABLE` has a row for each custody fact; what it does not name does not concern custody.
  2. Time is the running maximum of the envelopes' `at` (S6).
  3. A kind or a rules number that this version does not know stops the reader (S8): `Incompatible`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from schemas import facts as f
from schemas.envelope import AnyFact, UnknownFact
from services.domain.custody import effects, preconditions
from services.domain.custody.custody import Custody
from services.domain.custody.meta import Void
from services.domain.custody.rules import Incompatible


class Rule(NamedTuple):
    """`valid` names the precondition that fails, None if there is none; `effect` None: it concerns others alone."""

    valid: Callable[[Custody, Any, str], Void | None] | None
    effect: Callable[[Custody, Any, str], None] | None


TABLE: Final[dict[type, Rule]] = {
    f.HostDescribed: Rule(None, effects.host_described),
    f.HostRemoved: Rule(preconditions.host_removed, effects.host_removed),
    f.HostGranted: Rule(preconditions.host_granted, effects.host_granted),
    f.HostReleased: Rule(preconditions.host_released, effects.host_released),
    f.HostSeized: Rule(preconditions.host_seized, effects.host_seized),
    f.HostLost: Rule(preconditions.host_known, effects.host_lost),
    f.HostCleared: Rule(preconditions.host_cleared, effects.host_cleared),
    f.HostQuarantined: Rule(preconditions.host_known, effects.host_quarantined),
    f.HostCordoned: Rule(preconditions.host_known, effects.host_cordoned),
    f.HostUncordoned: Rule(preconditions.host_known, effects.host_uncordoned),
    f.LeaderStarted: Rule(None, effects.leads),
    f.LeaderStopped: Rule(None, effects.leads),
    f.ConfigAdopted: Rule(None, effects.config_adopted),
    f.DemandChanged: Rule(preconditions.demand_changed, effects.demand_changed),
    f.QuotaChanged: Rule(None, effects.quota_changed),
    f.DepartmentClosed: Rule(preconditions.department_closed, effects.department_closed),
    f.InstanceDraining: Rule(preconditions.instance_draining, effects.instance_draining),
    f.InstanceReported: Rule(preconditions.instance_reported, None),
    f.ReleaseRequested: Rule(preconditions.release_requested, effects.release_requested),
    f.ReleaseChanged: Rule(preconditions.release_changed, None),
    f.JobSubmitted: Rule(preconditions.job_submitted, effects.job_submitted),
    f.JobHeld: Rule(preconditions.job_open, effects.job_held),
    f.JobResumed: Rule(preconditions.job_open, effects.job_resumed),
    f.JobCancelled: Rule(preconditions.job_open, effects.job_cancelled),
    f.ArrayHeld: Rule(preconditions.elements_open, effects.array_held),
    f.ArrayResumed: Rule(preconditions.elements_open, effects.array_held),
    f.ArrayCancelled: Rule(preconditions.elements_open, effects.array_cancelled),
    f.UnitPlaced: Rule(preconditions.unit_placed, effects.unit_placed),
    f.AttemptBegan: Rule(preconditions.attempt_began, effects.attempt_began),
    f.AttemptClosed: Rule(preconditions.attempt_closed, effects.attempt_closed),
    f.AttemptReported: Rule(preconditions.attempt_reported, effects.attempt_reported),
    f.VmAllocated: Rule(preconditions.vm_allocated, effects.vm_allocated),
    f.VmStarted: Rule(preconditions.vm_open, effects.vm_started),
    f.VmParked: Rule(preconditions.vm_parked, effects.vm_parked),
    f.VmFailed: Rule(preconditions.vm_failed, effects.vm_failed),
    f.VmEnded: Rule(preconditions.vm_open, effects.vm_ended),
}


def fold_fact(custody: Custody, fact: AnyFact, position: int, index: int, writer: str, at: float) -> Void | None:
    """Fold one fact; returns why it is void, or None.  `custody.newly_broken` then names the units that it broke."""
    state = custody.state
    state.position, state.index = position, index
    if at > state.at:
        state.at = at
    if custody.newly_broken:
        custody.newly_broken = []
    if custody.newly_unsaved:
        custody.newly_unsaved = []
    if custody.forgotten:
        custody.forgotten = []
    if custody.changed:
        custody.changed = []
    rule = TABLE.get(type(fact))
    if rule is None:
        if isinstance(fact, UnknownFact) and fact.custody:
            raise Incompatible(f"position {position}: custody fact {fact.kind!r} is unknown to this version")
        return None
    valid, effect = rule
    if valid is not None:
        void = valid(custody, fact, writer)
        if void is not None:
            state.voids[void.value] = state.voids.get(void.value, 0) + 1
            return void
    if effect is not None:
        effect(custody, fact, writer)
    return None
