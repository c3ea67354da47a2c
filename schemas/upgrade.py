"""Facts as older versions wrote them, with what was added to them since.

Rules
  1. Format 1 of the envelope: reasons were a code and a table of parameters (`reasons.reading`); `quota.changed` named its
     claimants, `unit.placed` whence an attempt was moved, and `attempt.closed` why its unit is held, in the reason alone.
  2. Whatever format: times in a reason that are UTC seconds become text (`reasons.reading`).  Reasons had them so until they
     were RFC 3339 everywhere; a version that wants a number there shows such a reason as that of a newer version.
  3. Whatever format: a reason that this version does not know becomes `Newer`, and the fact is as valid as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import msgspec

from schemas import reasons as because
from schemas.facts import BY_KIND, Fact
from schemas.reasons.reading import read

FORMAT: Final = 2  # the first in which nothing has to be done for rule 1
EXPLAINED: Final = tuple(
    kind for kind, cls in BY_KIND.items() if {"reason", "why"} & {field.name for field in msgspec.structs.fields(cls)}
)


def fact(told: Mapping[str, Any], envelope_format: int) -> Fact:
    """Of a known kind, as builtins.  Raises `msgspec.ValidationError` if it is no such fact."""
    fields = dict(told)
    found: because.Reason | None = None
    for name in ("reason", "why"):
        if isinstance(fields.get(name), Mapping):
            found = read(fields[name])
            fields[name] = msgspec.to_builtins(found)
    add = _ADDED.get(str(fields.get("kind")))
    if envelope_format < FORMAT and add is not None and found is not None:
        fields |= add(fields, found)
    return cast(Fact, msgspec.convert(fields, Fact))


def _quota(fields: Mapping[str, Any], reason: because.Reason) -> dict[str, Any]:
    if fields.get("claimants"):
        return {}
    named = reason.departments if isinstance(reason, because.WebDemand | because.WebShare) else []
    if isinstance(reason, because.WebDemand) and not named:
        named = [reason.department]
    if isinstance(reason, because.Lending):
        named = [reason.lender]
    return {"claimants": [name for name in named if name not in ("", fields["dept"])]}


def _placed(_fields: Mapping[str, Any], reason: because.Reason) -> dict[str, Any]:
    return {"moved_from": reason.from_hosts} if isinstance(reason, because.Balanced) else {}


def _closed(fields: Mapping[str, Any], reason: because.Reason) -> dict[str, Any]:
    if not fields.get("hold"):
        return {}
    said = because.fields(reason)
    told = {name: said[name] for name in ("failed", "vm", "refused", "refused_why") if name in said}
    return {"hold_reason": {"code": "held", **told}}


_ADDED: Final[dict[str, Callable[[Mapping[str, Any], because.Reason], dict[str, Any]]]] = {
    "quota.changed": _quota,
    "unit.placed": _placed,
    "attempt.closed": _closed,
}
