"""Hints from OpenNebula's event stream about our VMs, and how far they may be relied on.  No clock and no I/O: times are given.

Theory of operation
  The stream is a publisher, not a queue, and it is not signed: an event may be lost, late, or forged.  So it is
  only a hint.  It names *which* VM to look at *now*; only a look shows its state.  A *hint* is such a VM with the phase that
  the event announced; it stays until a look shows that phase, or LOOKS_MAX looks did not.

Rules
  1. No event replaces a look: an event has no place in the order of our own calls (it may have been sent before
     a call whose answer overtook it), and a forged DONE would otherwise start a job twice.
  2. A hint about a VM with a call in flight waits for the call's end: a look before it would not count.
  3. The stream is *trusted* while it is connected and events had announced the last PROOF_MIN changes that looks found, by
     GRACE_S after the look at the latest.  One change without an event ends that, and the proof begins again.  Trust only
     makes polls rarer, never less; so forged events can slow the executor down to its fallback, and no further.
  4. Everything has a limit: hints are only of VMs that are ours, TOLD_MAX announcements are kept, the oldest goes first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from services.executor.core.calls import Phase

PROOF_MIN: Final = 3  # one could be chance: an audit that happened to look when an old event arrived
GRACE_S: Final = 1.0  # from a look that found a change to its event: two ways from one server, so milliseconds
LOOKS_MAX: Final = 3  # oned tells of a change just before its database has it
AGAIN_S: Final = 0.02  # before the second look; doubles
TOLD_MAX: Final = 20_000  # changes told and not observed yet: a pool of 5,000 VMs that all start and end, twice
_UNTOLD: Final = (
    Phase.HELD,
    Phase.MOVING,
    Phase.ELSEWHERE,
)  # nothing follows, or it is our own name for what is announced
SETTLED: Final = tuple(phase for phase in Phase if phase not in _UNTOLD)  # of these changes events are asked for


@dataclass(slots=True)
class Hint:
    phase: Phase
    looks: int = 0
    not_before: float = 0.0


class Hearsay:
    """Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self.hints: dict[int, Hint] = {}
        self.connected = False
        self.missed = 0  # changes that no event announced
        self._proven = 0
        self._told: dict[tuple[int, Phase], None] = {}
        self._owed: dict[tuple[int, Phase], float] = {}  # changes seen before their events -> until when

    @property
    def trusted(self) -> bool:
        return self.connected and self._proven >= PROOF_MIN

    def connection(self, connected: bool) -> None:
        """The stream begins or breaks off: its events have to prove themselves again."""
        self.connected = connected
        self._proven = 0
        self._told.clear()
        self._owed.clear()

    @property
    def owed(self) -> bool:
        """Whether changes were seen whose events may still come."""
        return bool(self._owed)

    def told(self, vm: int, phase: Phase) -> None:
        """An event says that our `vm` is in `phase`."""
        self.hints[vm] = Hint(phase)
        if self._owed.pop((vm, phase), None) is not None:
            self._proven += 1
            return
        self._told.pop((vm, phase), None)
        self._told[vm, phase] = None
        if len(self._told) > TOLD_MAX:
            del self._told[next(iter(self._told))]

    def look_at(self, vm: int) -> None:
        """Something else says so: a call about it was refused, and no event will tell."""
        self.hints.setdefault(vm, Hint(Phase.HELD))

    def forget(self, vm: int) -> None:
        """It is no longer one of ours."""
        self.hints.pop(vm, None)

    def due(self, now: float, busy: Callable[[int], bool], limit: int) -> list[int]:
        """Hints to look at now."""
        found = [vm for vm, hint in self.hints.items() if hint.not_before <= now and not busy(vm)]
        return found[:limit]

    def next_due(self, busy: Callable[[int], bool]) -> float | None:
        """When a hint is due; None if none waits for time alone."""
        return min((hint.not_before for vm, hint in self.hints.items() if not busy(vm)), default=None)

    def looked(self, vm: int, phase: Phase, now: float) -> None:
        """A look that counts showed `vm` in `phase`; `changed` was called before, if that was news."""
        self._told.pop((vm, phase), None)
        hint = self.hints.get(vm)
        if hint is None:
            return
        hint.looks += 1
        if hint.phase is phase or hint.looks >= LOOKS_MAX:
            del self.hints[vm]
        else:
            hint.not_before = now + AGAIN_S * 2.0 ** (hint.looks - 1)

    def changed(self, vm: int, phase: Phase, now: float) -> None:
        """A look found that `vm` has changed to `phase`: had an event announced it?"""
        if not self.connected or phase not in SETTLED:
            return
        if (vm, phase) in self._told:
            del self._told[vm, phase]
            self._proven += 1
        else:
            self._owed.setdefault((vm, phase), now + GRACE_S)

    def overdue(self, now: float) -> bool:
        """Whether the event of a change did not come in time: it ends the trust there was.  Asked repeatedly, it is True
        once."""
        late = [what for what, until in self._owed.items() if until <= now]
        for what in late:
            del self._owed[what]
        if late:
            self.missed += len(late)
            self._proven = 0
        return bool(late)
