"""Reasons as they were written by other versions, read as what they are here.

Rules
  1. Until format 2 (`schemas.envelope`) a reason was a code and a table of parameters: {"code": …, "params": {…}}.  They are
     the fields now.
  2. Some codes and parameters had other names (`_CODES`, `_fields`).
  3. Times in reasons were UTC seconds (`_TIMES`): they become text.
  4. What cannot be read as a reason of this version becomes `Newer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from schemas.reasons import BY_CODE, Newer, Reason
from schemas.times import nearest

_CODES: Final = {"elected": "share_turn", "spared": "protected", "made_way": "preempted"}
_TIMES: Final = {
    "lease_starts": ("ends_at",),
    "lease_starts_at": ("starts_at", "ends_at"),
    "lease_late": ("ends_at",),
    "lease_over": ("starts_at", "ends_at"),
    "lease_keeps_room": ("starts_at",),
    "starting": ("paused_since",),
    "finished": ("ended_at",),
}


def read(told: Mapping[str, Any]) -> Reason:
    """Of JSON or MessagePack, as builtins.  Never raises."""
    code = str(told.get("code", ""))
    code = _CODES.get(code, code)
    said = told.get("params")
    given = dict(said) if isinstance(said, Mapping) else {key: told[key] for key in told if key != "code"}
    known = BY_CODE.get(code)
    if known is None:
        return Newer(named=code, details=given)
    try:
        return msgspec.convert(_fields(code, given), known, strict=False)
    except msgspec.ValidationError:
        return Newer(named=code, details=given)


def _fields(code: str, given: dict[str, Any]) -> dict[str, Any]:
    """Rules 2 and 3."""
    for time in _TIMES.get(code, ()):
        if isinstance(given.get(time), int | float):
            given[time] = nearest(given[time])
    if code == "by_policy" and "details" not in given:
        return {"policy": given.pop("policy", ""), "details": given}
    if code == "web_share" or (code == "web_demand" and "demand" not in given):
        given.setdefault("departments", [name for name in str(given.get("department", "")).split(", ") if name])
    if code in ("preempted", "waits_behind") and "job" not in given:
        given["job"] = given.get("for") or given.get("behind") or ""
    if code in ("share_turn", "borrows", "share_full", "best_effort") and given.get("service") is None:
        given.pop("service", None)
    return given
