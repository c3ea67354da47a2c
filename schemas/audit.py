"""Records of the audit (stream AUDIT): who asked for what, from where, and what came of it.

phoenix.audit.<department>.granted | refused          `AuditBatch`, as JSON; the department is that of who asked
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

import msgspec

NAMES_MAX: Final = 20  # of one record; `more` counts the rest
TEXT_MAX: Final = 128  # characters of a name, an address, a client
MESSAGE_MAX: Final = 500

Via: TypeAlias = Literal["http", "nats", "page", "shell"]
Outcome: TypeAlias = Literal["granted", "refused"]


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request, where it came from, and its outcome.

    `at`: when it was decided, UTC seconds; `kind`: kind of the request (`job.submit`), or `config.apply`, `session.open`,
    `token.create`, …; of a call that was refused before that was known, method and path; `outcome`: whether it was granted;
    `via`: how it came: over HTTP, NATS, the page, or as a command that sends no request; `user`: who made the request; empty
    if unknown; `department`: department of that user; `role`: role of that user; `names`: the jobs, host or department that
    it is about; `more`: how many further names there are; `peer`: the caller's address; of a command that sends no request,
    user and machine; `client`: name by which the caller's program identifies itself; `position`: position in the journal of
    what was granted; null if nothing had to be written; `code`: of a refusal, its code; `field`: of a refusal, the part of
    the request that is wrong; `message`: of a refusal, why; `left_out`: refusals of this caller before this one that were not
    recorded."""

    at: float
    kind: str
    outcome: Outcome
    via: Via
    user: str = ""
    department: str = ""
    role: str = ""
    names: tuple[str, ...] = ()
    more: int = 0
    peer: str = ""
    client: str = ""
    request: str = ""
    position: int | None = None
    code: str = ""
    field: str | None = None
    message: str = ""
    left_out: int = 0


class AuditBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one message.  `v`: version of this form; `records`: requests and their outcomes, in order."""

    v: int = 1
    records: tuple[AuditRecord, ...] = ()


def cut(names: Iterable[str]) -> tuple[tuple[str, ...], int]:
    """Names as a record has them, and how many more there are."""
    found: Iterator[str] = iter(names)
    kept = tuple(name[:TEXT_MAX] for _, name in zip(range(NAMES_MAX), found, strict=False))
    return kept, sum(1 for _ in found)
