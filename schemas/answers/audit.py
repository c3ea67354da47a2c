"""The audit: who asked for what, and what came of it."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from schemas.answers.base import Answer, Time
from schemas.audit import Outcome, Via


class AuditEntry(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """As `schemas.audit.AuditRecord` has it."""

    at: Time  # when it was
    kind: str  # kind of request
    outcome: Outcome  # granted or refused
    via: Via  # by which way it came
    user: str = ""
    department: str = ""
    role: str = ""  # the caller's role
    names: tuple[str, ...] = ()  # what it is about: jobs, a host, a department
    more: int = 0  # how many more names there were
    peer: str = ""  # address that it came from
    client: str = ""  # what the caller's program calls itself
    request: str = ""
    position: int | None = None  # place in the journal
    code: str = ""  # code of the refusal; empty: granted
    field: str | None = None  # part of the request that was wrong; null: none
    message: str = ""  # the refusal in words
    left_out: int = 0  # refusals of this caller before this one that were not recorded


class AuditPage(Answer, frozen=True, kw_only=True):
    """Oldest first.  `next`: value of `after` for the next page; null: there is none yet, and `end` is where new ones begin."""

    records: tuple[AuditEntry, ...]  # what was asked for, oldest first
    next: int | None
    end: int | UnsetType = UNSET  # value of `after` for what comes later; only on the last page
