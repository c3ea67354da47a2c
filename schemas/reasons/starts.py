"""Why a unit was placed where it is, or moved there."""

from __future__ import annotations

from typing import TypeAlias

from schemas.causes import Cause
from schemas.reasons.base import AnyReason
from schemas.times import TimeText
from schemas.units import count
from schemas.words import general, iso, known, names, span, with_details


class FirstFit(AnyReason, frozen=True, kw_only=True, tag="first_fit"):
    """It was the first job of the queue that fitted.  `passed_over`: the job before it that did not fit and waits; empty:
    none."""

    COLUMN = "first fit"
    SENTENCE = "it was the first job of the queue that fitted"

    passed_over: str = ""


class HeadOfQueue(AnyReason, frozen=True, kw_only=True, tag="head_of_queue"):
    """It was at the head of the queue."""

    COLUMN = "head of queue"
    SENTENCE = "it was at the head of the queue"


class Backfill(AnyReason, frozen=True, kw_only=True, tag="backfill"):
    """It delays no job for which room is kept.  `head`: the job for which room is kept; `gap_s`: seconds until that job
    starts; `spare`: hosts that stay free beside that job; `reserved`: number of jobs for which room is kept."""

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
    """Of the jobs that fitted it had the shortest time limit.  `limit_s`: its time limit, in seconds."""

    COLUMN = "shortest first"
    SENTENCE = "of the jobs that fitted it had the shortest time limit"

    limit_s: float | None = None

    def sentence(self) -> str:
        return self.SENTENCE if self.limit_s is None else f"{self.SENTENCE}, {span(self.limit_s)}"


class ShareTurn(AnyReason, frozen=True, kw_only=True, tag="share_turn"):
    """It was its service's turn, within the service's share."""

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
    """It is short, and runs above its service's share: no job within its service's share could start."""

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
    """It runs on what production leaves.  `service`: the service whose turn it was; empty: none."""

    COLUMN = "best effort"
    SENTENCE = "it runs on what production leaves"

    service: str = ""

    def sentence(self) -> str:
        return f"{self.SENTENCE}, in the turn of service {self.service}" if self.service else self.SENTENCE


class ByPolicy(AnyReason, frozen=True, kw_only=True, tag="by_policy"):
    """The reason of a plug-in.  `policy`: name of the plug-in; `details`: parameters of the reason, by name."""

    COLUMN = "by policy"
    SENTENCE = "the department's policy says so"

    policy: str = ""
    details: dict[str, str | int | float | list[str]] = {}

    def sentence(self) -> str:
        return with_details(self.SENTENCE, {**({"policy": self.policy} if self.policy else {}), **self.details})


class Resumes(AnyReason, frozen=True, kw_only=True, tag="resumes"):
    """A best-effort job that was suspended resumes.  `from_hosts`: the hosts where it ran before, if it resumes elsewhere."""

    COLUMN = "resumes"
    SENTENCE = "it had made way for production, and there is room again"

    from_hosts: list[str] = []


class Migrates(AnyReason, frozen=True, kw_only=True, tag="migrates"):
    """Its host had to be returned, and another one had room for it."""

    COLUMN = "migrates"
    SENTENCE = "its host had to be returned, and another one had room for it"


class Balanced(AnyReason, frozen=True, kw_only=True, tag="balanced"):
    """It moved while it ran, because its host was crowded or was to be emptied.  `host`: of the end of its attempt, the host
    that it left; `to`: of the end of its attempt, the host to which it moved; `used_pct`: part of its cores that the host
    used, in percent; `cost_s`: how long the move takes, in seconds; `from_hosts`: of the next attempt, the hosts that it
    left."""

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

    ends_at: TimeText | None = None
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
