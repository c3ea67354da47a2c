"""Reasons as sentences: the only place where a `schemas.reasons.Reason` becomes prose.

`short` fits a column of the queue, `sentence` tells it in full, `remedy` says what would unblock it.  A reason of a newer
version is told by its code and parameters: never hidden, never an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from schemas.control_characters import shown
from services.domain.text import told_foreseen, told_grace, told_health, told_moves, told_web
from services.domain.text.params import Params as Told
from services.domain.text.told import TELL, UNBLOCK

if TYPE_CHECKING:  # the types take as long to load as all else that `phoenix queue` needs
    from schemas.reasons import AnyReason

Params = Mapping[str, Any]


_GLUE: Final = {
    "passed_over": "passed over job",
    "nodes": "nodes",
    "cores": "cores on each",
    "memory_mb": "MiB on each",
    "gpus": "GPUs on each",
}


def as_reason(told: object) -> AnyReason:
    """A reason, its JSON in whatever version's form, or a bare code."""
    from schemas.reasons import AnyReason
    from schemas.reasons.reading import read

    if isinstance(told, AnyReason):
        return told
    return read(told if isinstance(told, Mapping) else {"code": told})


def _fields(reason: AnyReason) -> dict[str, Any]:
    from schemas.reasons import fields

    return fields(reason)


def short(told: object) -> str:
    """For a column: a few words."""
    reason = as_reason(told)
    code, params = reason.code, _fields(reason)
    if code == "newer":
        return str(params["named"]).replace("_", " ")
    if code == "vm_ended" and "began" in params:
        return "start failed"
    if code == "starting" and "paused_since" in params:
        return "starts paused"
    if code == "held" and "failed" in params:
        return "starts failed, held"
    if code == "user_limit" and "quality" in params:
        return f"user limit in {params['quality']}"
    subject = params.get("job") or params.get("jobs")
    return f"{reason.COLUMN} {_plain(subject)}" if subject and code in ("waits_behind", "dependency") else reason.COLUMN


def sentence(told: object) -> str:
    """In full, with its numbers; and by whose word, where that does not go without saying."""
    reason = as_reason(told)
    params = _fields(reason)
    by = params.pop("load_by", None)
    said = _sentence(reason, params)
    return shown(f"{said} (by the word of {_plain(by)})" if by else said)


def _sentence(reason: AnyReason, params: Params) -> str:
    tables = (TELL, told_web.TELL, told_health.TELL, told_moves.TELL, told_foreseen.TELL, told_grace.TELL)
    for table in tables:
        told = table[reason.code](Told(params)) if reason.code in table else None
        if told is not None:
            return told
    words = reason.SENTENCE
    if reason.code == "newer":
        words, params = params["named"].replace("_", " "), params.get("details", {})
    if reason.code == "by_policy":
        params = {name: value for name, value in params.items() if name != "details"} | params.get("details", {})
    details = ", ".join(f"{_GLUE.get(key, key.replace('_', ' '))} {_plain(value)}" for key, value in params.items())
    return f"{words} ({details})" if details else words


def remedy(told: object) -> str:
    """What would unblock it, or an empty string."""
    reason = as_reason(told)
    special = UNBLOCK.get(reason.code)
    found = special(Told(_fields(reason))) if special else None
    return reason.REMEDY if found is None else found


def capital(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _plain(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)
