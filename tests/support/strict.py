"""Schemas that allow nothing that they do not name."""

from __future__ import annotations

from typing import Any


def strict(schema: Any) -> Any:
    """The same, which allows nothing that it does not name."""
    if isinstance(schema, dict):
        made = {key: strict(value) for key, value in schema.items()}
        if schema.get("type") == "object" and "properties" in schema:
            made.setdefault("additionalProperties", False)
        return made
    return [strict(one) for one in schema] if isinstance(schema, list) else schema
