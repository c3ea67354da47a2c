"""Releases of web departments, folded: which there are, and how far each is.  `release_views` shows them.

Theory of operation
  `release.requested` has the content of a release, `release.changed` how far it is; this fold keeps both for as many releases
  as custody keeps contents of.  Release 0, from the configuration, is never requested: it is there from the beginning.

      requested → rolling → complete → replaced (by another that is complete)
                     ╰──▶ rolled_back, stopped; replaced (by another that rolls)

Rules
  1. `wanted` is the newest one requested; where that was given up, the one gone back to, which rolls until it is complete.
  2. Void facts never come here; a closed department's releases are forgotten.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from schemas import facts as f
from schemas.reasons import Reason
from services.domain.custody.meta import Meta
from services.domain.custody.state import RELEASES_KEPT

Stage = Literal["requested", "rolling", "complete", "replaced", "rolled_back", "stopped"]
STAGES: Final[tuple[Stage, ...]] = ("requested", "rolling", "complete", "stopped")  # what a wanted release can be


class Record(msgspec.Struct, kw_only=True):
    """`at`: requested, UTC seconds; `since`: it is as far as it is."""

    release: int
    state: Stage
    since: float
    at: float | None = None
    user: str = ""
    image: str = ""
    reason: Reason | None = None


class Releases(msgspec.Struct, kw_only=True):
    """Of one department, oldest first."""

    wanted: int = 0
    records: list[Record] = []


def note(known: dict[str, Releases], fact: f.Fact, meta: Meta) -> None:
    """Fold one valid fact."""
    if isinstance(fact, f.DepartmentClosed):
        known.pop(fact.dept, None)
    elif isinstance(fact, f.ReleaseRequested):
        found = known.setdefault(fact.dept, fresh())
        record = Record(release=fact.release, state="requested", since=meta.at, at=meta.at, user=fact.user)
        record.image = fact.content.image
        found.records.append(record)
        found.wanted = fact.release
        del found.records[: -RELEASES_KEPT - 1]
    elif isinstance(fact, f.ReleaseChanged):
        _changed(known.setdefault(fact.dept, fresh()), fact, meta.at)


def fresh() -> Releases:
    return Releases(records=[Record(release=0, state="complete", since=0.0)])


def _changed(found: Releases, fact: f.ReleaseChanged, at: float) -> None:
    if fact.state == "rolled_back" and found.wanted == fact.release:
        found.wanted = fact.back_to
    for record in found.records:
        if record.release == fact.release:
            record.state, record.since, record.reason = fact.state, at, fact.reason
        elif fact.state == "rolled_back" and record.release == fact.back_to:
            record.state, record.since, record.reason = "rolling", at, fact.reason
        elif _gives_way(record, fact):
            record.state, record.since, record.reason = "replaced", at, None


def _gives_way(record: Record, fact: f.ReleaseChanged) -> bool:
    """What was complete is so until another one is; what rolls, or has stopped, until another one rolls."""
    if fact.state == "rolling":
        return record.state in ("rolling", "stopped") or (record.state == "requested" and record.release < fact.release)
    return fact.state == "complete" and record.state == "complete"


def current(found: Releases) -> Record | None:
    """The wanted one; None if it is too old to be remembered."""
    return next((record for record in reversed(found.records) if record.release == found.wanted), None)
