"""VMs on hosts that OpenNebula does not show to our user: other users' VMs, where no rule lets our user see them.

Theory of operation
  A host lists the ids of all VMs on it, of all users; the pool of VMs has only those that the user may see.  An id that is
  listed and in no pool is either another user's, or that of a VM that the two answers saw at different times: one that has just
  begun, or just ended.  The order of looks tells them apart.  Ours are never hidden: a user sees what it owns.

Rules
  1. Hidden is a VM that a host listed before an audit was begun, that the audit lacks, and that a host lists in a look begun
     after the audit has come: it was there all the time.
  2. One that a pool shows is hidden no more: its tag says whose it is (X6).
  3. An audit is wanted as soon as two looks in a row have shown an id that is unknown here: one alone may be a VM of ours whose
     end was folded between the look and its answer.
  4. Forgotten is what no host lists any more.  Nothing here is journaled: a new leader finds out again.
"""

from __future__ import annotations

from collections.abc import Container, Iterable


class HiddenVms:
    """By OpenNebula's id.  Ticks are the ledger's; `hidden` has those of which rule 1 is true."""

    def __init__(self) -> None:
        self.hidden: dict[int, None] = {}
        self.seen_at: dict[int, int] = {}  # -> tick at which a host was seen to list it
        self.missed_at: dict[int, int] = {}  # … and an audit begun after that has lacked it -> tick at which that came

    def listed(self, vms: Iterable[int], ticket: int, tick: int) -> bool:
        """A host lists these, which are unknown here; the look was begun at `ticket` and has come at `tick`.  True if an audit
        is wanted."""
        wanted = False
        for vm in vms:
            if vm in self.hidden:
                continue
            if vm in self.missed_at:
                if ticket > self.missed_at[vm]:
                    del self.missed_at[vm]
                    self.hidden[vm] = None
            elif vm in self.seen_at:
                wanted = True
            else:
                self.seen_at[vm] = tick
        return wanted

    def audited(self, there: Container[int], ticket: int, tick: int) -> list[int]:
        """A pool of all VMs, begun at `ticket`, has come at `tick`; returns those that it lacks, whose hosts are to be looked
        at once more."""
        if not (self.hidden or self.seen_at or self.missed_at):
            return []
        for known in (self.hidden, self.missed_at):
            for vm in [vm for vm in known if vm in there]:
                del known[vm]
        lacking = [vm for vm, listed_at in self.seen_at.items() if listed_at < ticket]
        for vm in lacking:
            del self.seen_at[vm]
        lacking = [vm for vm in lacking if vm not in there]
        self.missed_at.update(dict.fromkeys(lacking, tick))
        return lacking

    def forget(self, there: Iterable[int]) -> None:
        """`there`: the ids that all hosts together list."""
        if self.hidden or self.seen_at or self.missed_at:
            left = dict.fromkeys(there)
            self.hidden = {vm: None for vm in self.hidden if vm in left}
            self.seen_at = {vm: tick for vm, tick in self.seen_at.items() if vm in left}
            self.missed_at = {vm: tick for vm, tick in self.missed_at.items() if vm in left}
