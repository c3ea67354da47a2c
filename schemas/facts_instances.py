"""Facts of web departments: how instances end without hurting anybody, and what they run (`schemas.facts` has the rules)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from schemas.facts_base import AttemptNumber, Count, CustodyFact, DepartmentName, Seconds, UnitId
from schemas.reasons import Reason
from schemas.releases import MinReady, Release


class InstanceDraining(CustodyFact, frozen=True, kw_only=True, tag="instance.draining"):
    """No new session goes to this instance: it stops when its open ones have ended (`instance.reported`), at `until` at the
    latest.  Its attempt is live until it is closed."""

    unit: UnitId
    attempt: AttemptNumber
    until: Seconds
    reason: Reason


class InstanceReported(CustodyFact, frozen=True, kw_only=True, tag="instance.reported"):
    """A load balancer's word on an instance.  `drained`: it drains, and no session is open there; `unreachable`: its health
    check has failed for the department's `unreachable_s`; `reachable`: it answers again."""

    unit: UnitId
    attempt: AttemptNumber
    state: Literal["drained", "unreachable", "reachable"]
    user: str
    why: Annotated[str, msgspec.Meta(max_length=200)] = ""


class ReleaseRequested(CustodyFact, frozen=True, kw_only=True, tag="release.requested"):
    """A manager's word: instances of `dept` are to run `content`, as release number `release` of the department (they grow).
    At most `max_unavailable` fewer than are wanted serve meanwhile, at most `max_surge` more run; one that has served for less
    than `min_ready_s` does not count as serving (null: the department's)."""

    dept: DepartmentName
    release: Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
    user: str
    content: Release
    max_unavailable: Count = 0
    max_surge: Count = 1
    min_ready_s: MinReady | None = None
    request: str = ""


class ReleaseChanged(CustodyFact, frozen=True, kw_only=True, tag="release.changed"):
    """Level: how far the department's release is.  `rolling`: instances are replaced by ones of it; `complete`: all run it;
    `rolled_back`: it did not come up, and release `back_to` is wanted again; `stopped`: it did not come up, and there is
    none to go back to: nothing more is started until a person says something."""

    dept: DepartmentName
    release: Count
    state: Literal["rolling", "complete", "rolled_back", "stopped"]
    reason: Reason
    back_to: Count = 0
