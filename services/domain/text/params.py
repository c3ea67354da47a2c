"""Parameters of a reason, as sentences read them (`told`)."""

from __future__ import annotations

from typing import Any


class Params(dict[str, Any]):
    """Parameters of a reason; those that are missing read as `?`."""

    def __missing__(self, key: str) -> str:
        return "?"

    def number(self, key: str) -> int:
        value = self.get(key, 0)
        return int(value) if isinstance(value, int | float) else 0

    def names(self, key: str) -> str:
        value = self.get(key)
        return ", ".join(map(str, value)) if isinstance(value, list | tuple) else "" if value is None else str(value)
