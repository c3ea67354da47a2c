"""What a reader learns of output and files that the cloud has removed (`retention`): by which rule, and kept until when.

Rules
  1. Nothing is remembered of a job: what ended before `store_keep_s` has nothing left, and of each department it is noted, in
     the store itself, up to which end jobs have lost theirs for lack of space.  The note goes by age, when it has no more use.
  2. The same answer is given for a job that wrote nothing: the two can no longer be told apart.
"""

from __future__ import annotations

from typing import Final

import msgspec

from schemas.config import Limits
from schemas.units import iso, span
from services.admission.storage.payloads import STORE_ERRORS, unavailable
from services.runtime.broker.objects import Damaged, Objects

KIND: Final = "removed"  # how the notes' names begin


class Removed:
    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._until: dict[str, float] = {}  # department -> the last end (UTC seconds); 0: none

    def begin(self) -> None:
        """A door opens: another one may have been here meanwhile."""
        self._until.clear()

    async def note(self, department: str, ended_at: float) -> None:
        """For want of room what a job left that ended then."""
        if department and ended_at > await self._of(department):
            await self._objects.put(_name(department), msgspec.msgpack.encode(ended_at))
            self._until[department] = ended_at

    async def told(self, department: str, ended_at: float, limits: Limits, now: float) -> str:
        """Why nothing is there of a job that has ended; empty if nothing was removed."""
        due = ended_at + limits.store_keep_s
        if due <= now:
            return f"removed {span(limits.store_keep_s)} after the job's end, at {iso(due)} (store_keep_s), if there was any"
        try:
            early = department and ended_at <= await self._of(department)
        except (*STORE_ERRORS, Damaged) as error:
            raise unavailable() from error
        if not early:
            return ""
        kept = f"until {iso(ended_at + limits.store_keep_min_s)} at least (store_keep_min_s)"
        return f"removed, if there was any: {department} had nearly used its share of the store; it was kept {kept}"

    async def _of(self, department: str) -> float:
        if department not in self._until:
            data = await self._objects.get(_name(department))
            self._until[department] = 0.0 if data is None else msgspec.msgpack.decode(data, type=float)
        return self._until[department]


def _name(department: str) -> str:
    """As an index: it is taken however full the share is (`quotas`, rule 3)."""
    return f"{KIND}/{department}/index"
