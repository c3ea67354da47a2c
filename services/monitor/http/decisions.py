"""The decisions that the page shows, in sentences: a selection of the events, the newest kept.

Theory of operation
  Facts become events as they are folded (`events`); sentences are made of them on request, once for all readers.  What
  was folded without a reader is taken from the events in memory.

Rules
  1. Shown is what a person or service decided or asked for, and how it ended (`TOLD`).  Not shown: measurements (load.observed,
     host.observed, checkpoint.reported), the steps by which the executor carries a decision out (vm.allocated, vm.started,
     vm.ended, vm.parked, host.cleared, attempt.began), what is so at every start (host.described), and the orderly end of a
     leader (leader.stopped: the next start implies it).
  2. `KEPT` are kept, for clients that come back after a lost connection; behind `lost` all are there.
"""

from __future__ import annotations

from collections import deque
from itertools import takewhile
from typing import Any, Final, NamedTuple

import orjson

from services.domain.text import facts as sentences
from services.monitor.events import Entry, Publisher, kept_json

KEPT: Final = 2_000  # about 600 kB; at 100 decisions a second a connection may be gone for 20 s
SHOWN: Final = 100  # of a picture
TOLD: Final = frozenset(
    (
        "array.cancelled",
        "array.held",
        "array.resumed",
        "attempt.closed",
        "attempt.reported",
        "config.adopted",
        "demand.changed",
        "department.closed",
        "host.cordoned",
        "host.granted",
        "host.lost",
        "host.quarantined",
        "host.released",
        "host.removed",
        "host.seized",
        "host.uncordoned",
        "instance.draining",
        "instance.reported",
        "job.cancelled",
        "job.held",
        "job.resumed",
        "job.submitted",
        "leader.started",
        "lease.extended",
        "quota.changed",
        "release.changed",
        "release.requested",
        "scale.requested",
        "starts.paused",
        "starts.resumed",
        "unit.placed",
        "vm.failed",
        "vm.refused",
    )
)
_REFS: Final = ("job", "unit", "host", "user")


class Decision(NamedTuple):
    position: int
    department: str
    body: bytes


class Decisions:
    def __init__(self, publisher: Publisher, most: int = KEPT) -> None:
        self.publisher, self.most = publisher, most
        self.kept: deque[Decision] = deque(maxlen=most)
        self.lost = -1  # the newest position of which some may be missing here; below 0: nothing was read yet
        self._seen = (0, 0)

    def refresh(self, position: int) -> None:
        """Tell what has come since the last time.  `position`: what is folded."""
        ring = self.publisher.ring
        fresh = list(takewhile(lambda e: (e.position, e.index) > self._seen, reversed(ring)))
        if len(fresh) == len(ring) and (self.lost < 0 or len(ring) == ring.maxlen):  # what was before is not there
            self.lost = max(self.lost, ring[0].position - 1 if ring else position)
        wanted = [entry for entry in reversed(fresh) if entry.kind in TOLD]
        if len(wanted) > self.most:
            self.lost = wanted[-self.most - 1].position
        for entry in wanted[-self.most :]:
            if len(self.kept) == self.most:
                self.lost = max(self.lost, self.kept[0].position)
            self.kept.append(told(entry))
        if fresh:
            self._seen = (fresh[0].position, fresh[0].index)

    def newest(self, scope: str | None, behind: int | None) -> list[bytes]:
        """For a picture: the last `SHOWN` that `scope` may see, and all behind position `behind`."""
        mine = [one for one in self.kept if scope in (None, one.department)]
        missed = 0 if behind is None else sum(1 for one in mine if one.position > behind)
        return [one.body for one in mine[-max(SHOWN, missed) :]]

    def after(self, position: int) -> list[Decision]:
        found = list(takewhile(lambda one: one.position > position, reversed(self.kept)))
        return found[::-1]


def told(entry: Entry) -> Decision:
    event = orjson.loads(entry.data)
    fact: dict[str, Any] = event["fact"]
    refs = {name: fact[name] for name in _REFS if isinstance(fact.get(name), str)}
    sentence = sentences.told(entry.kind, fact, entry.department)
    head = {"id": entry.id, "at": event["at"], "kind": entry.kind, "department": entry.department}
    return Decision(entry.position, entry.department, kept_json({**head, "sentence": sentence, **refs}))
