"""Why a unit was placed where it is, or moved there."""

from __future__ import annotations

from typing import TypeAlias

from schemas.causes import Cause
from schemas.reasons.base import AnyReason


class FirstFit(AnyReason, frozen=True, kw_only=True, tag="first_fit"):
    """The first of the queue that fitted; `passed_over`: who was passed, and waits."""

    COLUMN = "first fit"
    SENTENCE = "it was the first job of the queue that fitted"

    passed_over: str = ""


class HeadOfQueue(AnyReason, frozen=True, kw_only=True, tag="head_of_queue"):
    COLUMN = "head of queue"
    SENTENCE = "it was at the head of the queue"


class Backfill(AnyReason, frozen=True, kw_only=True, tag="backfill"):
    """It delays nobody for whom room is kept: job `head`, which starts in `gap_s`, or beside which `spare` hosts stay free; or
    `reserved` jobs."""

    COLUMN = "backfill"
    SENTENCE = "it fitted into a gap without delaying an earlier job"

    head: str = ""
    gap_s: float | None = None
    spare: int | None = None
    reserved: int | None = None


class ShortestFirst(AnyReason, frozen=True, kw_only=True, tag="shortest_first"):
    COLUMN = "shortest first"
    SENTENCE = "of the jobs that fitted it had the shortest time limit"

    limit_s: float | None = None


class ShareTurn(AnyReason, frozen=True, kw_only=True, tag="share_turn"):
    """Its service's turn, within its share."""

    COLUMN = "its turn"
    SENTENCE = "it was its service's turn, and its service stays within its share"

    service: str = ""
    used_pct: float | None = None
    share_pct: float | None = None


class Borrows(AnyReason, frozen=True, kw_only=True, tag="borrows"):
    """Short, above its service's share: nobody within one could start."""

    COLUMN = "borrows"
    SENTENCE = "it is short, and no job within its service's share could start"

    service: str = ""
    used_pct: float | None = None
    share_pct: float | None = None


class BestEffort(AnyReason, frozen=True, kw_only=True, tag="best_effort"):
    COLUMN = "best effort"
    SENTENCE = "it runs on what production leaves"

    service: str = ""


class ByPolicy(AnyReason, frozen=True, kw_only=True, tag="by_policy"):
    """A plug-in's own reason, for whatever it decides: `policy` is its name, `details` what it says."""

    COLUMN = "by policy"
    SENTENCE = "the department's policy says so"

    policy: str = ""
    details: dict[str, str | int | float | list[str]] = {}


class Resumes(AnyReason, frozen=True, kw_only=True, tag="resumes"):
    """Best-effort that was suspended goes on; `from_hosts`: where it was, if it goes on elsewhere."""

    COLUMN = "resumes"
    SENTENCE = "it had made way for production, and there is room again"

    from_hosts: list[str] = []


class Migrates(AnyReason, frozen=True, kw_only=True, tag="migrates"):
    COLUMN = "migrates"
    SENTENCE = "its host had to be returned, and another one had room for it"


class Balanced(AnyReason, frozen=True, kw_only=True, tag="balanced"):
    """Its host was crowded, or was to be emptied.  Of the closing: from `host` to `to`, what the host used, and what the move
    costs; of the placement: `from_hosts`."""

    COLUMN = "moved"
    SENTENCE = "it goes on where there is more room"
    CAUSE = Cause.MOVED

    host: str = ""
    to: str = ""
    used_pct: float | None = None
    cost_s: float | None = None
    from_hosts: list[str] = []


class LeaseStarts(AnyReason, frozen=True, kw_only=True, tag="lease_starts"):
    """Its time slot has begun."""

    COLUMN = "its time"
    SENTENCE = "its time slot had begun"

    ends_at: float | None = None
    late_s: float | None = None


StartReason: TypeAlias = (
    FirstFit
    | HeadOfQueue
    | Backfill
    | ShortestFirst
    | ShareTurn
    | Borrows
    | BestEffort
    | ByPolicy
    | Resumes
    | Migrates
    | Balanced
    | LeaseStarts
)
