"""How values leave the read model: times in UTC, structs as plain data."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec


def iso(at: float | None) -> str | None:
    """UTC seconds as 2026-01-31T12:00:00.123Z."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def plain(value: Any) -> Any:
    """Structs as plain dicts, for orjson."""
    return msgspec.to_builtins(value)
