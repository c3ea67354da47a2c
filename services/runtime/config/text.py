"""The configuration as text: the file that `loads` reads back, and what differs between two configurations.

Rules
  1. `dump_toml` writes every setting, defaults included: the file then shows what runs, whatever later versions default to.
  2. `diff` names what a person would name: the department or user, the setting, both values.  Order does not count.
     `tables_diff` does so for what processes read when they start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from schemas.config import CloudConfig
from services.runtime.config.tables import Config

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+\Z")
_ARROW: Final = "→"


def dump_toml(config: Config) -> str:
    """The whole configuration as TOML.  `loads` of it gives an equal `Config`."""
    cloud = config.cloud
    lines = ["# Phoenix Cloud configuration, written by a program: every setting with its value.", ""]
    lines += _table("cloud", {"name": cloud.name})
    lines += _table("policy", msgspec.structs.asdict(cloud.policy))
    lines += _table("limits", msgspec.structs.asdict(cloud.limits))
    lines += _table("hosts", msgspec.structs.asdict(cloud.hosts))
    lines += _table("power", msgspec.structs.asdict(cloud.power))
    for department in cloud.departments:
        lines += _table("department", msgspec.structs.asdict(department), is_list=True)
    for contract in cloud.lending:
        lines += _table("lending", msgspec.structs.asdict(contract), is_list=True)
    for user in cloud.users:
        lines += _table("user", msgspec.structs.asdict(user), is_list=True)
    for key in _tables(config):
        lines += _table(key, msgspec.structs.asdict(getattr(config, key)))
    return "\n".join(lines).rstrip("\n") + "\n"


def _tables(config: Config) -> list[str]:
    """What is not in the journal."""
    return [key for key in config.__struct_fields__ if key != "cloud"]


def _table(name: str, values: Mapping[str, Any], is_list: bool = False) -> list[str]:
    lines = [f"[[{name}]]" if is_list else f"[{name}]"]
    nested: list[str] = []
    for key, value in values.items():
        if isinstance(value, msgspec.Struct):
            value = msgspec.structs.asdict(value)
        if isinstance(value, Mapping):
            nested += _table(f"{name}.{_key(key)}", value) if value else []
        elif value is not None:
            lines.append(f"{_key(key)} = {_value(value)}")
    return [*lines, "", *nested]


def _key(key: str) -> str:
    return key if _BARE.match(key) else _text(key)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | Path):
        return _text(str(value))
    if isinstance(value, Mapping):
        if not value:
            return "{}"
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    return "[" + ", ".join(_value(item) for item in value) + "]"


def diff(a: CloudConfig, b: CloudConfig) -> list[str]:
    """What changes from `a` to `b`, one sentence each; empty if nothing does."""
    lines = [f"cloud: name {_shown(a.name)} {_ARROW} {_shown(b.name)}"] if a.name != b.name else []
    lines += [f"policy: {change}" for change in _changes(a.policy, b.policy)]
    lines += [f"limits: {change}" for change in _changes(a.limits, b.limits)]
    lines += [f"hosts: {change}" for change in _changes(a.hosts, b.hosts)]
    lines += [f"power: {change}" for change in _changes(a.power, b.power)]
    lines += _entries("department", {d.name: d for d in a.departments}, {d.name: d for d in b.departments})
    lines += _entries("contract", _contracts(a), _contracts(b))
    lines += _entries("user", {u.name: u for u in a.users}, {u.name: u for u in b.users})
    return lines


def tables_diff(a: Config, b: Config) -> list[str]:
    """Likewise, of the tables that processes read when they start."""
    return [f"{key}: {change}" for key in _tables(a) for change in _changes(getattr(a, key), getattr(b, key))]


def _contracts(cloud: CloudConfig) -> dict[str, msgspec.Struct]:
    """By what people call them; where a pair has several, they are numbered as in the file."""
    found: dict[str, msgspec.Struct] = {}
    for contract in cloud.lending:
        pair = f"{contract.lender} to {contract.borrower}"
        count = sum(1 for c in cloud.lending if (c.lender, c.borrower) == (contract.lender, contract.borrower))
        before = sum(1 for name in found if name.partition(" (")[0] == pair)
        found[f"{pair} ({before + 1})" if count > 1 else pair] = contract
    return found


def _entries(word: str, a: Mapping[str, msgspec.Struct], b: Mapping[str, msgspec.Struct]) -> Iterator[str]:
    yield from (f"{word} {name}: removed" for name in a if name not in b)
    for name, entry in b.items():
        if name not in a:
            yield f"{word} {name}: added ({_gist(entry)})"
        else:
            yield from (f"{word} {name}: {change}" for change in _changes(a[name], entry))


def _gist(entry: msgspec.Struct) -> str:
    values = msgspec.structs.asdict(entry)
    if "lender" in values:
        return "all that is idle" if values["hosts"] is None else f"{values['hosts']} hosts"
    return str(values["kind"]) if "kind" in values else f"{values['role']} of {values['department']}"


def _changes(a: msgspec.Struct, b: msgspec.Struct, prefix: str = "") -> Iterator[str]:
    for field in a.__struct_fields__:
        old, new = getattr(a, field), getattr(b, field)
        if old == new:
            continue
        if isinstance(old, msgspec.Struct) and isinstance(new, msgspec.Struct):
            yield from _changes(old, new, f"{prefix}{field}.")
        elif _holds_tables(old) or _holds_tables(new):
            for name in [*old, *(name for name in new if name not in old)]:
                yield from _changed_table(old.get(name), new.get(name), f"{prefix}{field}.{name}")
        else:
            yield f"{prefix}{field} {_shown(old)} {_ARROW} {_shown(new)}"


def _holds_tables(value: object) -> bool:
    return isinstance(value, Mapping) and any(isinstance(each, msgspec.Struct) for each in value.values())


def _changed_table(old: msgspec.Struct | None, new: msgspec.Struct | None, name: str) -> Iterator[str]:
    if old is not None and new is not None:
        yield from _changes(old, new, f"{name}.")
    else:
        yield f"{name} {'added' if old is None else 'removed'}"


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, msgspec.Struct):
        return "set"
    return _value(value)
