"""Why something is as it is, how it came to be so, and when jobs start."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from schemas.answers.base import Answer, Reason, Time
from schemas.start_estimate import Sure


class Start(Answer, frozen=True, kw_only=True):
    """When a unit starts, as its scheduler foresees it.  `start_at`: null if it cannot be said; `hosts`: where, as far as that
    is known; `because`: what it hangs on; `sentence`: the same in words, where one job was asked for."""

    start_at: Time | None
    hosts: tuple[str, ...]
    sure: Sure  # how sure that is
    because: Reason
    sentence: str | UnsetType = UNSET


class Starts(Answer, frozen=True, kw_only=True):
    """By unit: of the first ones of each queue, or of the one that was asked for."""

    starts: dict[str, Start]  # by unit


class Move(Answer, frozen=True, kw_only=True):
    """A decision of the past on the host or department.  `reason`: of a service, or the words of a person."""

    at: Time  # when it was
    position: int  # place in the journal
    kind: str  # kind of fact
    department: str | None
    reason: Reason | str | None
    sentence: str  # the same in words


class Explanation(Answer, frozen=True, kw_only=True):
    """Why a job, an instance, a host or a department is in its state.  `sentences`, and at the same places `remedies`: what
    would change it, empty if nothing would; `reasons`: the same as data, where there are some.

    Of a job `job`, `unit` and, if it waits, `start`; of web also `instances`, `serving`; of a host and of a batch department
    what it is (`what`), its figures, and its last `moves`."""

    sentences: tuple[str, ...]  # reasons in words
    remedies: tuple[str, ...]  # what would change each; empty: nothing
    reasons: tuple[Reason, ...] | UnsetType = UNSET
    what: Literal["host", "department"] | UnsetType = UNSET  # host or department
    name: str | UnsetType = UNSET  # name of the host or department
    job: str | UnsetType = UNSET
    unit: str | UnsetType = UNSET
    start: Start | UnsetType = UNSET  # when it starts, if it waits
    instances: int | UnsetType = UNSET
    serving: int | UnsetType = UNSET  # web instances that serve
    state: str | UnsetType = UNSET  # state of the host
    department: str | UnsetType | None = UNSET
    since: Time | UnsetType = UNSET  # since when it is so
    kind: Literal["batch", "web"] | UnsetType = UNSET  # batch or web
    hosts_held: int | UnsetType = UNSET  # hosts that it holds
    hosts_quota: int | UnsetType = UNSET  # hosts that it may keep
    hosts_demanded: int | UnsetType = UNSET  # hosts that it wants
    moves: tuple[Move, ...] | UnsetType = UNSET  # its last decisions, oldest first


class StoryCause(Answer, frozen=True, kw_only=True):
    """A fact that led to a step: the nearest first."""

    at: Time  # when it was
    position: int  # place in the journal
    kind: str  # kind of fact
    sentence: str  # the same in words


class StoryStep(Answer, frozen=True, kw_only=True):
    """A fact of the journal, at `position` and `index`.  `reason`: as the fact has it, a reason or a word; `refs`: other jobs,
    hosts and departments that it names; `cause`, `cause_index`: the fact that led to it; `because`: that and what led to it,
    as far as these are no steps themselves."""

    at: Time  # when it was
    position: int  # place in the journal
    index: int  # place in its envelope
    kind: str  # kind of fact
    sentence: str  # the same in words
    reason: Reason | str | None
    refs: tuple[str, ...]
    user: str | None
    cause: int | None
    cause_index: int | None
    because: tuple[StoryCause, ...]


class Story(Answer, frozen=True, kw_only=True):
    """How it came to be so, oldest step first.  `more`: there were others before."""

    entity: str  # what was asked for
    kind: Literal["job", "instance", "department", "host"]  # what it is
    department: str | None
    more: bool
    steps: tuple[StoryStep, ...]  # facts, oldest first
