"""How values leave the read model: times in UTC, structs as plain data; and which time it is there."""

from __future__ import annotations

from typing import Any

import msgspec

from schemas.units import exact
from services.domain.custody.custody import Custody
from services.runtime.clock import Clock, system_clock


def iso(at: float | None) -> str | None:
    """UTC seconds as answers have them, rounded as the history does."""
    return None if at is None else exact(at)


def plain(value: Any) -> Any:
    """Structs as plain dicts, for orjson."""
    return msgspec.to_builtins(value)


def not_before(custody: Custody, clock: Clock = system_clock) -> Clock:
    """The clock, but never before the last fact, which is of its writer's clock: so nothing is of the future."""
    return lambda: max(clock(), custody.state.at)
