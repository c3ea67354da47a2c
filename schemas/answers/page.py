"""What the page shows, and who looks at it."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from schemas.answers.base import Answer, Time
from schemas.answers.hosts import DepartmentRow, Host
from schemas.answers.jobs import UnitRow


class Login(Answer, frozen=True, kw_only=True):
    """A user's token, or a code that a session's owner made: one of them."""

    token: str = ""  # a user's token
    code: str = ""  # a code that a session made


class Session(Answer, frozen=True, kw_only=True):
    """Who the caller is.  `cloud`: its name; `url`: where the page is."""

    user: str
    role: Literal["user", "manager", "operator"]  # the caller's role
    department: str
    cloud: str
    url: str


class SessionEnded(Answer, frozen=True, kw_only=True):
    """The session of the cookie is over."""

    ok: Literal[True] = True


class SessionCode(Answer, frozen=True, kw_only=True):
    """A code that opens one session, within `expires_s` seconds."""

    code: str  # a code that opens one session
    expires_s: float  # how long the code is good, in seconds
    url: str  # address of the page


class Timeline(Answer, frozen=True, kw_only=True):
    """Means over steps of `step_s` seconds, each ending at its time of `at`.  `owners`: hosts by holder; `load`: of web
    departments by measure: `utilisation`, `requests_per_s`, instances `wanted` and `serving`; null: unknown."""

    step_s: float  # length of a step, in seconds
    at: tuple[Time, ...]  # when it was
    owners: dict[str, tuple[float | None, ...]]
    load: dict[str, dict[str, tuple[float | None, ...]]]


class WaitingCount(Answer, frozen=True, kw_only=True):
    """How many wait for one reason, the longest for `oldest_s` seconds, since `since`."""

    count: int  # how many wait
    oldest_s: float  # how long the first of them has waited, in seconds
    since: Time  # since when it is so
    sentence: str  # the same in words


class PictureDepartment(DepartmentRow, frozen=True, kw_only=True):
    """A department, as the page shows it.  `waiting`: by the reason's code, if the caller may see the department's jobs."""

    waiting: dict[str, WaitingCount]


class PictureUnit(UnitRow, frozen=True, kw_only=True):
    """A unit that waits, as the page shows it.  `sentence`: why it waits."""

    sentence: str


class Decision(Answer, frozen=True, kw_only=True):
    """An event in words, with what it names."""

    id: str  # place in the journal: `<position>.<index>`
    at: Time  # when it was
    kind: str  # kind of event
    department: str
    sentence: str  # the same in words
    job: str | UnsetType = UNSET
    unit: str | UnsetType = UNSET
    host: str | UnsetType = UNSET
    user: str | UnsetType = UNSET


class OpenClaim(Answer, frozen=True, kw_only=True):
    """A claim that is not met.  `hosts`: short when it opened; `missing`: now."""

    department: str
    hosts: int
    at: Time  # when it was
    met_at: Time | None  # when it was met; null: not yet
    missing: int


class Alerts(Answer, frozen=True, kw_only=True):
    """What needs attention.  `signal_missing`: departments without signals, since when; `broker_lost`: the monitor has read
    nothing since then."""

    signal_missing: dict[str, Time]
    claims_open: tuple[OpenClaim, ...]  # claims that are not met yet
    broker_lost: Time | UnsetType = UNSET


class Picture(Answer, frozen=True, kw_only=True):
    """Everything that the page shows, as of `position` in the journal.  `owners`: hosts by holder; `queue`: by department the
    first units that wait; `decisions`: oldest first; `missed`: some behind the asked position are not there any more."""

    position: int  # as of which place in the journal
    at: Time  # when it was
    cloud: str  # the cloud's name
    owners: dict[str, int]
    hosts: tuple[Host, ...]
    departments: tuple[PictureDepartment, ...]  # departments
    queue: dict[str, tuple[PictureUnit, ...]]
    decisions: tuple[Decision, ...]
    alerts: Alerts  # what needs attention
    missed: bool | UnsetType = UNSET
