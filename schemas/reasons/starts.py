"""Why a unit was placed where it is, or moved there."""

from __future__ import annotations

from typing import TypeAlias

from schemas.causes import Cause
from schemas.reasons.base import AnyReason
from schemas.units import count
from schemas.words import general, iso, known, names, span, with_details


class FirstFit(AnyReason, frozen=True, kw_only=True, tag="first_fit"):
    """The first of the queue that fitted; `passed_over`: who was passed, and waits."""

    COLUMN = "first fit"
    SENTENCE = "it was the first job of the queue that fitted"

    passed_over: str = ""


class HeadOfQueue(AnyReason, frozen=True, kw_only=True, tag="head_of_queue"):
    COLUMN = "head of queue"
    SENTENCE = "it was at the head of the queue"


class Backfill(AnyReason, frozen=True, kw_only=True, tag="backfill"):
    """It delays no job for which room is kept: job `head`, which starts in `gap_s`, or beside which `spare` hosts stay free; or
    `reserved` jobs."""

    COLUMN = "backfill"
    SENTENCE = "it fitted into a gap without delaying an earlier job"

    head: str = ""
    gap_s: float | None = None
    spare: int | None = None
    reserved: int | None = None

    def sentence(self) -> str:
        if self.gap_s is not None:
            return f"it fitted into a gap of {span(self.gap_s)} without delaying job {known(self.head)}"
        if self.head:
            return f"it fitted beside the room that is kept for job {self.head}"
        if self.reserved is None:
            return super().sentence()
        return f"it fitted in without delaying the {count(self.reserved, 'job')} before it for which room is kept"


class ShortestFirst(AnyReason, frozen=True, kw_only=True, tag="shortest_first"):
    COLUMN = "shortest first"
    SENTENCE = "of the jobs that fitted it had the shortest time limit"

    limit_s: float | None = None

    def sentence(self) -> str:
        return self.SENTENCE if self.limit_s is None else f"{self.SENTENCE}, {span(self.limit_s)}"


class ShareTurn(AnyReason, frozen=True, kw_only=True, tag="share_turn"):
    """Its service's turn, within its share."""

    COLUMN = "its turn"
    SENTENCE = "it was its service's turn, and its service stays within its share"

    service: str = ""
    used_pct: float | None = None
    share_pct: float | None = None

    def sentence(self) -> str:
        if self.share_pct is None:
            return super().sentence()
        has = f"has {general(self.used_pct)} % with it and may have {self.share_pct:g} %"
        return f"it was the turn of service {known(self.service)}, which {has}"


class Borrows(AnyReason, frozen=True, kw_only=True, tag="borrows"):
    """Short, above its service's share: no job within one could start."""

    COLUMN = "borrows"
    SENTENCE = "it is short, and no job within its service's share could start"

    service: str = ""
    used_pct: float | None = None
    share_pct: float | None = None

    def sentence(self) -> str:
        if self.share_pct is None:
            return super().sentence()
        has = f"has {general(self.used_pct)} % with it, above its share of {self.share_pct:g} %"
        return f"it is short, and no job within its share could start: service {known(self.service)} {has}"


class BestEffort(AnyReason, frozen=True, kw_only=True, tag="best_effort"):
    COLUMN = "best effort"
    SENTENCE = "it runs on what production leaves"

    service: str = ""

    def sentence(self) -> str:
        return f"{self.SENTENCE}, in the turn of service {self.service}" if self.service else self.SENTENCE


class ByPolicy(AnyReason, frozen=True, kw_only=True, tag="by_policy"):
    """A plug-in's own reason, for whatever it decides: `policy` is its name, `details` what it says."""

    COLUMN = "by policy"
    SENTENCE = "the department's policy says so"

    policy: str = ""
    details: dict[str, str | int | float | list[str]] = {}

    def sentence(self) -> str:
        return with_details(self.SENTENCE, {**({"policy": self.policy} if self.policy else {}), **self.details})


class Resumes(AnyReason, frozen=True, kw_only=True, tag="resumes"):
    """Best-effort that was suspended resumes; `from_hosts`: where it was, if it resumes elsewhere."""

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
    SENTENCE = "it continues where there is more room"
    CAUSE = Cause.MOVED

    host: str = ""
    to: str = ""
    used_pct: float | None = None
    cost_s: float | None = None
    from_hosts: list[str] = []

    def sentence(self) -> str:
        """Why it is moved, or why it is where it is now."""
        if self.used_pct is not None:
            used = f"{known(self.host)} really used {self.used_pct:g} % of its cores"
            return f"{used}, so the job moved to {known(self.to)} while it ran"
        return f"it moved there from {names(self.from_hosts)} while it ran" if self.from_hosts else super().sentence()


class LeaseStarts(AnyReason, frozen=True, kw_only=True, tag="lease_starts"):
    """Its time slot has begun."""

    COLUMN = "its time"
    SENTENCE = "its time slot had begun"

    ends_at: float | None = None
    late_s: float | None = None

    def sentence(self) -> str:
        if self.ends_at is None:
            return super().sentence()
        late = f", {self.late_s:g} s late" if self.late_s and self.late_s >= 1 else ""
        return f"its time had begun{late}; it lasts until {iso(self.ends_at)}"


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
