"""What types alone cannot say of a request, in JSON Schema: which characters a text may have, and which fields go together.

Rules
  1. The tables repeat the checks of `schemas.requests` and `schemas.requests_web`, which refuse with a sentence: a program that
     reads the documents knows before it asks.  The tests that make requests from the documents find where the two differ.
  2. What needs the configuration or the present state is in no schema, nor is what no schema can say: which of two times is
     later, how long several texts are together.
  3. What fields have to do with each other is in `x-all-of`: of `allOf`, generators of clients make types that do not fit.
  4. null means that the field is not given.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from schemas import requests as r
from schemas.control_characters import HIDDEN
from schemas.releases import HEALTH_PATH, IMAGE

Schema: TypeAlias = dict[str, Any]
# Of a field: each entry of a list; an object's keys or values.
Part: TypeAlias = Literal["itself", "items", "names", "values"]
_HIDDEN: Final = HIDDEN.replace(r"\ud800-\udfff", "")  # halves of pairs are no text of JSON
ALL_OF: Final = "x-all-of"
SHOWN: Final = f"^[^{_HIDDEN}]*$"  # people read it
PATH: Final = r"^[^\x00-\x1f\x7f]*$"
RELATIVE: Final = r"^(?!/)(?!(?:.*/)?\.\.(?:/|$))[^\x00-\x1f\x7f]*$"
NO_NUL: Final = r"^[^\x00]*$"
VARIABLE: Final = r"^[^=\x00]*$"
_RUNS: Final[list[tuple[str, Part, str]]] = [
    ("name", "itself", SHOWN),
    ("request", "itself", SHOWN),
    ("directory", "itself", PATH),
    ("stdout", "itself", PATH),
    ("stderr", "itself", PATH),
    ("argv", "items", NO_NUL),
    ("environment", "names", VARIABLE),
    ("environment", "values", NO_NUL),
    ("keep", "items", RELATIVE),
]
# Request, or a part of one -> field, what of it, and its pattern
TEXTS: Final[dict[type, list[tuple[str, Part, str]]]] = {
    r.JobSubmit: [*_RUNS, ("service", "itself", SHOWN), ("quality", "itself", SHOWN), ("stdin", "itself", PATH)],
    r.InputFile: [("name", "itself", RELATIVE)],
    r.LeaseCreate: _RUNS,
    r.ScaleSet: [("request", "itself", SHOWN)],
    r.ReleaseDeploy: [
        ("request", "itself", SHOWN),
        ("image", "itself", f"^[^{IMAGE}{_HIDDEN}]*$"),
        ("health_path", "itself", f"^{HEALTH_PATH}$"),
        ("command", "items", NO_NUL),
        ("environment", "values", NO_NUL),
    ],
    r.HostNamed: [("reason", "itself", SHOWN)],
    r.HostDrain: [("reason", "itself", SHOWN)],
    r.InstanceReport: [("why", "itself", SHOWN)],
}


def _given(name: str, **more: Any) -> Schema:
    """The field is there and not null."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}, **more}}}


def _not_both(one: str, other: str) -> Schema:
    return {"not": {"allOf": [_given(one), _given(other)]}}


def _kind(*kinds: str) -> Schema:
    return {"required": ["kind"], "properties": {"kind": {"enum": list(kinds)}}}


_RUNS_SOMETHING: Final[Schema] = {
    "anyOf": [_given("script", type="string", minLength=1), _given("argv", type="array", items={}, minItems=1)]
}
# Request -> what has to hold besides
BETWEEN: Final[dict[type, list[Schema]]] = {
    r.JobSubmit: [
        _RUNS_SOMETHING,
        _not_both("memory_mb", "memory_per_core_mb"),
        _not_both("gpus", "gpus_per_node"),
        _not_both("gpus", "gpus_per_task"),
        _not_both("gpus_per_node", "gpus_per_task"),
    ],
    r.LeaseCreate: [
        {"if": _kind("advance"), "then": _given("start_at")},
        {"if": _kind("deadline"), "then": _given("deadline_at"), "else": {"not": _given("deadline_at")}},
        {"if": _kind("immediate", "best-effort"), "then": {"not": _given("start_at")}},
    ],
    r.LeaseExtend: [{"oneOf": [_given("by_s"), _given("until_at")]}],
    r.ScaleSet: [{"oneOf": [_given("minimum"), _given("exact"), _given("auto", const=True)]}],
    r.ReleaseDeploy: [
        {"not": {"required": ["configured", "undo"], "properties": {"configured": {"const": True}, "undo": {"const": True}}}}
    ],
}  # fmt: skip


def narrowed(cls: type, schema: Schema) -> Schema:
    """`schema` of `cls` with what the tables have of it."""
    fields = schema.get("properties", {})
    for name, part, pattern in TEXTS.get(cls, ()):
        fields[name] = _with_pattern(fields[name], part, pattern)
    between = BETWEEN.get(cls)
    return {**schema, ALL_OF: between} if between else schema


def _with_pattern(field: Schema, part: Part, pattern: str) -> Schema:
    if "anyOf" in field:
        return {**field, "anyOf": [_with_pattern(one, part, pattern) for one in field["anyOf"]]}
    match part, field.get("type"):
        case "itself", "string":
            return {**field, "pattern": pattern}
        case "items", "array":
            return {**field, "items": _with_pattern(field["items"], "itself", pattern)}
        case "names", "object":
            return {
                **field,
                "propertyNames": _with_pattern({"type": "string", **field.get("propertyNames", {})}, "itself", pattern),
            }
        case "values", "object":
            return {**field, "additionalProperties": _with_pattern(field["additionalProperties"], "itself", pattern)}
    return field
