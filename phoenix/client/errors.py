"""Errors of the client library: each is a `PhoenixError`, and its type says what to do about it.

    PhoenixError
    ├── Refused          the cloud has answered, and has not done it
    │   ├── Invalid      the request is wrong; `field` names the part
    │   ├── Unknown      there is no such job, host, department, …, or this caller may not see it
    │   ├── Denied       the token is missing or over, or its owner may not do this
    │   ├── Conflict     the present state does not allow it: the job is over, a lease collides, the request id is taken
    │   ├── OverLimit    a limit is reached; `retry_after_s`: in how many seconds it may be free
    │   └── Gone         events behind the given position are not kept any more; `oldest`: from where on nothing is missing
    ├── Unavailable      nothing listens there, or the cloud cannot do it now
    ├── Untrusted        what listens there cannot show that it is this cloud: its certificate is not good for that
    ├── TimedOut         the time of the call is over
    └── Unreadable       what came back is no answer of this interface

Rules
  1. This module is the only place that reads a problem (`schemas.problems`, RFC 9457): `refusal` one that is the answer,
     `of_part` that of one result among several.  A code that is new, or missing, is worth what the status is worth; an answer
     that is no problem is one of a proxy on the way.
  2. No error holds a token.
  3. `unanswered`: a change was sent and no answer came, so that it may have happened.  `request` is its id: the same call with
     that id is done at most once and returns the outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

NOT_KNOWN: Final = "the outcome is unknown"
TEXT_MAX: Final = 200  # characters of an answer that is no error object


class PhoenixError(Exception):
    """What went wrong (`message`) and, if that is known, what would be right (`hint`)."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.unanswered = False
        self.request = ""


class Refused(PhoenixError):
    """`status`: of HTTP, also of one result among several; `code`: the error's kind on the wire; `answer`: the problem."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = 0
        self.code = ""
        self.field: str | None = None
        self.answer: dict[str, Any] = {}
        self.others: dict[str, Refused] = {}  # of a change to several jobs: all that were refused, by name


class Invalid(Refused):
    """The request is wrong: `field` names the part of it, None if it is wrong as a whole."""


class Unknown(Refused):
    """There is no such thing (any more), or this caller may not see it."""


class Denied(Refused):
    """The token is missing, unknown or over (`status` 401), or its owner may not do this (403)."""


class Conflict(Refused):
    """The present state does not allow it.  `lease`: of a lease that collides, with which others and what would be granted."""

    @property
    def lease(self) -> dict[str, Any] | None:
        found = self.answer.get("lease")
        return found if isinstance(found, dict) else None


class OverLimit(Refused):
    """`retry_after_s`: seconds until the same may be granted; None: waiting does not help (the request is too large)."""

    retry_after_s: float | None = None


class Gone(Refused):
    """`oldest`: the journal position from which on no event is missing; what a program keeps a copy of is to be read again."""

    @property
    def oldest(self) -> int:
        found = self.answer.get("oldest")
        return found if isinstance(found, int) else 0


class Unavailable(PhoenixError):
    """No cloud answers there, or it cannot do it now (HTTP status 5xx: `status`).  `retry_after_s`: if it says when."""

    status: int = 0
    retry_after_s: float | None = None
    answer: Mapping[str, Any] = {}


class Untrusted(PhoenixError):
    """What listens there cannot show that it is this cloud: its certificate is of no authority that is trusted, of another
    name, or over.  Nothing was sent, the token neither; trying again does not help."""


class TimedOut(PhoenixError):
    """The time of the call, or of the wait, is over."""


class Unreadable(PhoenixError):
    """What came back is no answer of this interface."""


_BY_CODE: Final[dict[str, type[Refused] | type[Unavailable]]] = {
    "invalid": Invalid,
    "unknown": Unknown,
    "denied": Denied,
    "conflict": Conflict,
    "limit": OverLimit,
    "gone": Gone,
    "unavailable": Unavailable,
}
_BY_STATUS: Final[dict[int, type[Refused]]] = {
    400: Invalid,
    401: Denied,
    403: Denied,
    404: Unknown,
    405: Invalid,
    409: Conflict,
    410: Gone,
    413: OverLimit,
    422: Invalid,
    429: OverLimit,
}


def refusal(status: int, headers: Mapping[str, str], answer: object) -> Refused | Unavailable:
    """The error of an answer with a status from 300 on.  `headers`: with names in lower case; `answer`: the decoded JSON, or
    the text of what is none."""
    problem = answer if isinstance(answer, dict) and isinstance(answer.get("detail"), str) else {}
    made = _made(problem, status, answer if isinstance(answer, str) else "")
    if isinstance(made, OverLimit | Unavailable) and status != 413:
        made.retry_after_s = _seconds(problem.get("retry_after_s", headers.get("retry-after")))
    return made


def of_part(problem: object) -> Refused:
    """The error of one result among several, as for each job of a cancel."""
    found = problem if isinstance(problem, dict) else {}
    made = _made(found, int(found.get("status", 0)), "")
    return made if isinstance(made, Refused) else Refused(made.message)


def _made(problem: dict[str, Any], status: int, text: str) -> Refused | Unavailable:
    code = str(problem.get("code") or "")
    cls = _BY_CODE.get(code) or (Unavailable if status >= 500 else _BY_STATUS.get(status, Refused))
    words = str(problem.get("detail") or "") or text[:TEXT_MAX].strip()
    made = cls(words or f"the cloud answered with HTTP status {status}")
    made.status, made.answer = status, problem
    if isinstance(made, Refused):
        field = problem.get("field")
        made.code, made.field = code, field if isinstance(field, str) and field else None
    return made


def _seconds(after: Any) -> float | None:
    """Of `Retry-After`; a date is not read: no server of ours sends one."""
    try:
        found = float(after)
    except (TypeError, ValueError):
        return None
    return found if 0 <= found < float("inf") else None
