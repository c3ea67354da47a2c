"""Instances that fail: how many in a row, and how long a replacement waits after them.

Rules
  1. A failure is an instance whose program or VM ended, that did not come up, or that was not ready for too long, unless it
     was draining.  Failures in a row make a replacement wait longer and longer (`backoff_s`), until one has served for
     STABLE_S.
  2. VMs that were on one host together and end within TOGETHER_S without a guest's report are one failure, to the release too:
     their hypervisor has started again, say, and N instances on one host prove no more than one does.
  3. While starts are paused in the whole cloud, an instance that does not come up is no failure of its own.
"""

from __future__ import annotations

from typing import Final

from schemas import facts as f
from schemas.causes import Cause
from services.domain.custody.state import Broken, Unit
from services.scheduler.core.web.release import STABLE_S, Seen
from services.scheduler.core.web.state import State

TOGETHER_S: Final = 5.0  # OpenNebula is asked once a second or two, and tells of all VMs then
BACKOFF_FIRST_S: Final = 0.5
BACKOFF_MAX_S: Final = 30.0  # a program that is repaired is back within half a minute


def broke(state: State, unit: Unit, now: float) -> None:
    """Rule 2: whether another one ended so on its host, just before and when it was there too."""
    if unit.broken is not Broken.VM_ENDED or unit.id in state.ended or unit.placed_at is None:
        return
    state.taken = {name: at for name, at in state.taken.items() if now <= at + TOGETHER_S}
    first = state.taken.get(unit.hosts[0])
    if first is not None and unit.placed_at < first:
        state.together[unit.id] = None
    else:
        state.taken[unit.hosts[0]] = now


def counts(state: State, unit: Unit) -> bool:
    """Rules 2 and 3: of an instance that is closed, whether its end counts as a failure."""
    return unit.id not in state.together and (unit.began_at is not None or not state.paused)


def failed(state: State, seen: Seen, closed: f.AttemptClosed, now: float, active: int, *, counts: bool) -> None:
    """Rule 1.  The successor of one that was not ready is there already, if there was room for it: `active` ones are left."""
    state.failed, state.failed_why = seen.unit, closed.why
    if counts:
        state.failures = 1 if seen.has_served(STABLE_S, now) else state.failures + 1
        state.retry_at = now + backoff_s(state.failures)
    if closed.cause is Cause.NOT_READY:
        state.replaced_at = now
    if closed.cause is not Cause.NOT_READY or active < (state.target or 0):
        state.to_replace += 1


def begin_anew(state: State) -> None:
    """Another release has not failed yet: its instances do not wait."""
    state.failures, state.to_replace, state.retry_at = 0, 0, 0.0


def backoff_s(failures: int) -> float:
    """How long a replacement waits after this many failures in a row, in seconds."""
    if failures <= 1:
        return 0.0
    return min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(failures - 2, 16))
