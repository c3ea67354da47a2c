"""Where OpenNebula and the journal differ, for people: how many cases of each kind, and since when the oldest.

Theory of operation
  Differences come and go: a VM that has ended is one until the journal has it, a moment later.  So what matters is how long
  one lasts; it is compared after each look at a whole pool, and on request.

Rules
  1. *stray*: a VM with our tag that the journal does not know (X6).  *missing*: one that the journal has open, and of which a
     look has shown that it is not there.  *elsewhere*: one that runs on another host than in the journal, and is not moving.
     *host_missing*: a host of the journal that the last pool of hosts did not have.  *hidden*: a VM that the journal has open,
     is there, and belongs to another owner now.  *locked*: one that is to end, and that a person has locked.
  2. What was not looked at yet is no difference.
  3. It decides nothing: `vm_reconciler` and `host_reconciler` act on differences.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from services.domain.custody.state import Vm
from services.executor.core.calls import Phase
from services.executor.core.executor import ExecutorCore
from services.executor.core.observed_vm import ObservedVm

KINDS: Final = ("stray", "missing", "elsewhere", "host_missing", "hidden", "locked")


class Disagreements:
    def __init__(self, core: ExecutorCore) -> None:
        self._core = core
        self._since: dict[tuple[str, str], float] = {}  # kind, VM or host -> when it was seen first

    def look(self, now: float) -> None:
        """`now`: monotonic seconds."""
        self._since = {case: self._since.get(case, now) for case in self._cases()}

    def told(self, now: float) -> dict[str, tuple[int, float]]:
        """Each kind: how many, and for how many seconds the oldest has been there."""
        self.look(now)
        found = {kind: [since for (one, _), since in self._since.items() if one == kind] for kind in KINDS}
        return {kind: (len(times), now - min(times, default=now)) for kind, times in found.items()}

    def _cases(self) -> Iterator[tuple[str, str]]:
        core, hosts = self._core, self._core.custody.state.hosts
        for stray in core.vm_reconciler.strays:
            yield "stray", str(stray)
        for key, observed in core.vm_reconciler.observed_vms.items():
            vm = core.custody.state.vms.get(key)
            if vm is None:
                continue
            if observed.locked:
                yield "locked", key
            if observed.hidden:
                yield "hidden", key
            elif observed.phase is Phase.OVER:
                yield "missing", key
            elif self._is_elsewhere(observed, vm):
                yield "elsewhere", key
        if core.host_reconciler.polled:
            yield from (("host_missing", name) for name in hosts if name not in core.host_reconciler.seen)

    def _is_elsewhere(self, observed: ObservedVm, vm: Vm) -> bool:
        if (
            observed.phase is not Phase.RUNNING
            or observed.one_host < 0
            or observed.key in self._core.ledger.state.leaving
        ):
            return False
        host = self._core.custody.state.hosts.get(vm.host)
        return host is None or host.one_id != observed.one_host
