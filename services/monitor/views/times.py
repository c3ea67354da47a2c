"""How values leave the read model: times in UTC, structs as plain data; and which time it is there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from services.domain.custody.custody import Custody
from services.runtime.clock import Clock, system_clock


def iso(at: float | None) -> str | None:
    """UTC seconds as 2026-01-31T12:00:00.123Z, rounded as the history does."""
    if at is None:
        return None
    return datetime.fromtimestamp(round(at, 3), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def plain(value: Any) -> Any:
    """Structs as plain dicts, for orjson."""
    return msgspec.to_builtins(value)


def not_before(custody: Custody, clock: Clock = system_clock) -> Clock:
    """The clock, but never before the last fact, which is of its writer's clock: so nothing is of the future."""
    return lambda: max(clock(), custody.state.at)
