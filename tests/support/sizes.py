"""Hosts, units and jobs that a test makes by hand, with their sizes written flat, as facts have them."""

from __future__ import annotations

from typing import Any

import msgspec

from schemas.size import FIELDS, Size


def sized(fields: dict[str, Any]) -> dict[str, Any]:
    """The same fields, with those of each dimension as one `size`."""
    flat = {name: value for name, value in fields.items() if name in FIELDS}
    return {name: value for name, value in fields.items() if name not in FIELDS} | {"size": Size(**flat)}


def resized(one: Any, fields: dict[str, Any]) -> Any:
    """A struct with a `size`, with these fields, those of its size likewise."""
    size = one.size._replace(**{name: value for name, value in fields.items() if name in FIELDS})
    return msgspec.structs.replace(one, size=size, **{k: value for k, value in fields.items() if k not in FIELDS})
