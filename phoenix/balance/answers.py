"""What instances have answered since the last signal: differences of counters (docs/reference/signals.md).

Rule: a counter that is smaller than it was has restarted, and has no difference until the next look; nor has one that is seen
for the first time, but where it is known to have begun at 0 (`from_zero`).  Pure.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

from schemas.signals import SESSIONS_MAX


class Counts(NamedTuple):
    """Of an instance `unit`, by the counters that `key` names."""

    key: Hashable
    unit: str
    answered: int
    errors: int


class Growth:
    """Remembers the counters of the last look."""

    def __init__(self, from_zero: bool) -> None:
        self._from_zero = from_zero
        self._before: dict[Hashable, Counts] = {}

    def since(self, counts: Iterable[Counts]) -> Mapping[str, tuple[int, int]]:
        """(answered, errors) of the instances that have answered something, as many as a signal may name."""
        before, self._before = self._before, {one.key: one for one in counts}
        found: dict[str, tuple[int, int]] = {}
        for one in self._before.values():
            old = before.get(one.key)
            if old is None and self._from_zero:
                old = one._replace(answered=0, errors=0)
            if old is None or one.answered <= old.answered or one.errors < old.errors:
                continue
            answered, errors = found.get(one.unit, (0, 0))
            new = one.answered - old.answered
            if len(found) < SESSIONS_MAX or one.unit in found:
                found[one.unit] = (answered + new, errors + min(one.errors - old.errors, new))
        return found
