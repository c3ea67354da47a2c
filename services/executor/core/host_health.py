"""The health of a host that OpenNebula shows: may something be started there, may it be relied on, and what does it offer.

Theory of operation
  A raw `HostSight` is the content of one answer.  `HostHealth.of` returns it judged: `bad` (its VMs cannot be relied on: the
  host is lost), `apart` (nothing new is started there, what runs continues), `usable`, and the size that it offers *us*.
  What is remembered between sights is small, belongs to this leader alone and is never journaled.

Rules
  1. Disabled: apart.  OpenNebula leaves the VMs of a disabled host alone (BEHAVIOUR.md), and so do we: its jobs run to their
     ends, and the host is not granted before it is enabled.  It is no `host.lost`, which would end them; no `host.cordoned`,
     which people request through admission; and no description without capacity, since what runs there takes room.
  2. Late: no new sample of its monitoring for `monitor_late_s`: apart; for `monitor_lost_s`: bad.  The age of a sample is
     measured by our own clock from when it was seen first, so that no difference of clocks makes a host late, and grows by at
     most `STEP_S` from one look to the next, so that a clock that is set, or an OpenNebula that was away, makes none late.  A
     host that was never sampled is not late (OpenNebula itself reports whether it is in error).  One that is late in the
     journal stays so until a new leader has seen a newer sample than the one that it found.
  3. Outside the clusters, or the constraint `use`, of the configuration: not one of ours.  Known already: apart while held.
  4. What others use: HOST_SHARE counts what all VMs on the host asked for, and VMS names them.  Both are of one moment; minus
     our own (whose size the ledger knows) that is the others' exactly, whatever comes and goes of ours, and also where
     OpenNebula does not show our user whose they are (`hidden_vms`).  A VM that is neither known as ours nor as another's (one
     that has just ended, say) leaves the number as it was.
  5. Cores are those that are there, as far as OpenNebula lets them be used (RESERVED_CPU): MAX_CPU above TOTAL_CPU counts only
     by overcommit (`overcommit`), which never offers more than MAX_CPU: `deploy` is enforced, and would be refused.  Memory
     is MAX_MEM, never more.
  6. A host that others have filled up is apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from schemas.config import Hosts
from schemas.dimensions import DIMENSIONS
from schemas.size import NOTHING, Size
from services.domain.constraints import satisfies
from services.executor.core.calls import HostSight, Sample
from services.executor.core.ledger import Room
from services.executor.core.overcommit import NONE, Overcommit, cores_offered

DISABLED: Final = "disabled"
LATE: Final = "monitored late"
EXCLUDED: Final = "not of this cloud"
FULL: Final = "used by others"
STANDING: Final = (
    DISABLED,
    LATE,
    EXCLUDED,
    FULL,
)  # reasons that last until OpenNebula or the configuration says otherwise
STEP_S: Final = 60.0  # hosts are looked at each few seconds; no pool takes so long
_NOBODY: Final = tuple(NOTHING)
_GRAINS: Final = tuple(dimension.grain for dimension in DIMENSIONS)
RoomOf: TypeAlias = Callable[[int], Room | None]  # of a VM: what of ours it takes (nothing: another's); None: not known


class Known(msgspec.Struct):
    """`others`: what VMs of others asked for, as `HostSight.asked`; None: not known yet.  `sampled_at`: OpenNebula's time
    of the newest sample; `silent_s`: how long there has been none since; `looked_at`: our time of the last look."""

    others: tuple[int, ...] | None = None
    offered: int = 0
    sampled_at: int = 0
    silent_s: float = 0.0
    looked_at: float = float("inf")
    used_cpu: int | None = None
    used_memory_kb: int = 0
    heard: bool = False  # a sample newer than the first one that this leader found


class HostHealth:
    """Of the hosts that this leader sees."""

    def __init__(self) -> None:
        self.known: dict[str, Known] = {}

    def sampled(self, name: str, sample: Sample, now: float) -> None:
        """The newest sample of a host's monitoring."""
        known = self.known.setdefault(name, Known())
        if sample.at != known.sampled_at:
            known.heard = known.sampled_at != 0
            known.sampled_at, known.silent_s, known.looked_at = sample.at, 0.0, now
        known.used_cpu, known.used_memory_kb = sample.used_cpu, sample.used_memory_kb

    def forget(self, name: str) -> None:
        self.known.pop(name, None)

    def of(
        self,
        sight: HostSight,
        rules: Hosts,
        now: float,
        room: RoomOf,
        before: Size | None,
        was_late: bool = False,
        others_before: Size = NOTHING,
    ) -> HostSight:
        """The sight, judged.  `before`: what custody says it offers, if it knows the host; `was_late`: that
        custody says it is late; `others_before`: what custody says others take of it."""
        known = self.known.setdefault(sight.name, Known())
        known.others = self._others(sight, room, known.others)
        known.silent_s += min(STEP_S, max(0.0, now - known.looked_at))
        known.looked_at = now
        size = self._offer(sight, rules, known, before)
        apart = self._apart(sight, rules, known, was_late)
        lost = bool(rules.monitor_lost_s and known.sampled_at) and known.silent_s >= rules.monitor_lost_s
        if not apart and not offers(size) and known.others not in (None, _NOBODY):
            apart = FULL
        return msgspec.structs.replace(
            sight,
            size=size,
            others=others_before if known.others is None else _in_ours(known.others),
            apart=apart,
            bad=sight.bad or (LATE if lost else ""),
            usable=sight.usable and not apart and not lost,
        )

    @staticmethod
    def _apart(sight: HostSight, rules: Hosts, known: Known, was_late: bool) -> str:
        """Rules 1 to 3: the strongest reason."""
        if not is_ours(sight, rules):
            return EXCLUDED
        if sight.apart:
            return sight.apart
        if not (rules.monitor_late_s and known.sampled_at):
            return ""
        late = known.silent_s >= rules.monitor_late_s or (was_late and not known.heard)
        return LATE if late else ""

    @staticmethod
    def _others(sight: HostSight, room: RoomOf, before: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """Rule 4."""
        ours = NOTHING
        for vm in sight.vms:
            taken = room(vm)
            if taken is None:
                return before
            ours = ours.plus(taken.size)
        return tuple(
            max(0, asked - mine * grain) for asked, mine, grain in zip(sight.asked, ours, _GRAINS, strict=True)
        )

    @staticmethod
    def _offer(sight: HostSight, rules: Hosts, known: Known, before: Size | None) -> Size:
        """Rules 4 and 5.  As long as others' use is not known: what was said before, or nothing."""
        if known.others is None:
            return before or NOTHING
        cores = sight.size.cores
        if sight.max_cpu > cores * 100 and known.used_cpu is not None and cores > 0:
            rule = _rule(rules) if _overcommits(sight, rules) else NONE
            known.offered = cores_offered(cores, known.used_cpu / (100 * cores), known.offered, rule)
            cores = min(known.offered, sight.max_cpu // 100)
        return sight.size._replace(cores=cores).minus(_in_ours(known.others)).most(NOTHING)


def _in_ours(asked: tuple[int, ...]) -> Size:
    """OpenNebula's units in ours, rounded up."""
    return Size._make(-(-number // grain) for number, grain in zip(asked, _GRAINS, strict=True))


def offers(size: Size) -> bool:
    """False of a host on which nothing can be started: everything needs cores and memory."""
    return size.cores > 0 and size.memory_mb > 0


def _rule(rules: Hosts) -> Overcommit:
    return Overcommit(ratio=rules.cpu_overcommit, below=rules.overcommit_below, margin=rules.overcommit_margin)


def _overcommits(sight: HostSight, rules: Hosts) -> bool:
    return satisfies(sight.name, sight.cluster, sight.labels, rules.overcommit_use)


def is_ours(sight: HostSight, rules: Hosts) -> bool:
    """Rule 3."""
    if rules.clusters and sight.cluster not in rules.clusters:
        return False
    return satisfies(sight.name, sight.cluster, sight.labels, rules.use)
