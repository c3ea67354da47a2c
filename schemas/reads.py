"""Reads: what can be asked of the monitor over HTTP, with which parameters, and how it answers; and its sessions.

The monitor serves them, admission passes them on, OpenAPI documents them; a parameter that is not listed here is refused by
name.  `tests/unit/test_reads.py` compares the table with what the monitor routes.

Rules
  1. Pages go forward: `limit` rows behind `after`, which is the `next` of the page before.
  2. Times are RFC 3339, durations seconds.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from schemas import ids
from schemas.answers import audit, explained, hosts, jobs, page, usage
from schemas.events import Event

Type: TypeAlias = Literal["string", "integer", "number", "boolean", "time"]


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """Of the query.  `choices`: if it is one of these; `pattern`: of a text; `least`, `most`: of a number; `characters_max`:
    of a text; `several`: more than one, with commas or repeated; `required`: there is no default."""

    name: str
    type: Type = "string"
    text: str
    choices: tuple[str, ...] = ()
    pattern: str | None = None
    least: int = 0
    most: int | None = None
    characters_max: int | None = None
    several: bool = False
    required: bool = False

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        made: dict[str, Any] = {"type": "string" if self.type == "time" else self.type}
        if self.type == "time":
            made["format"] = "date-time"
        if self.type in ("integer", "number"):
            made["minimum"] = self.least
        given = {"enum": list(self.choices) or None, "pattern": self.pattern, "maximum": self.most}
        given["maxLength"] = self.characters_max
        made |= {name: value for name, value in given.items() if value is not None}
        return {"type": "array", "items": made} if self.several else made


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """`answer`: of type `content`, of lines each of them, or one of several; None: as `text` says.  `refuses`: statuses,
    besides those that every read may have; `token`: needs one."""

    path: str
    method: str = "GET"
    text: str
    body: type[msgspec.Struct] | None = None
    answer: type[msgspec.Struct] | tuple[type[msgspec.Struct], ...] | None = None
    query: tuple[Parameter, ...] = ()
    content: str = "application/json"
    refuses: tuple[int, ...] = ()
    token: bool = True


JSON_LINES: Final = "application/x-ndjson"
EVENT_STREAM: Final = "text/event-stream"
STATES: Final[tuple[str, ...]] = get_args(jobs.State)

_NAMED: Final = f"^{ids.DEPARTMENT.pattern.removesuffix(ids.END)}$"
FILTER_MAX: Final = 200  # characters of a filter: longer than every name
POSITION_MAX: Final = 10**15  # farther than any position, and exact as a float
_DEPARTMENT: Final = Parameter(
    name="department",
    text="only of this department; operators see all, others their own, which is the default",
    pattern=_NAMED,
)
_KIND: Final = Parameter(
    name="kind", text="what is meant, if names are used twice", choices=("job", "department", "host")
)


def _limit(most: int, default: int | None = None) -> Parameter:
    return Parameter(name="limit", type="integer", text=f"rows at most; default: {default or most}", most=most)


def _state() -> Parameter:
    return Parameter(name="state", text="only in these states", choices=STATES, several=True)


_PERIOD: Final = (
    Parameter(name="since", type="time", text="from then on"),
    Parameter(name="until", type="time", text="before then"),
)
_HISTORY: Final = (
    _DEPARTMENT,
    Parameter(name="user", text="only of this user", characters_max=FILTER_MAX),
    _state(),
    Parameter(name="name", text="only jobs of this name, with the wildcards * and ?", characters_max=FILTER_MAX),
    Parameter(name="host", text="only what had an attempt on this host", characters_max=FILTER_MAX),
    *_PERIOD,
    Parameter(name="sort", text="by what", choices=("submitted", "started", "ended", "wait", "elapsed", "cores")),
    Parameter(name="order", text="default: descending", choices=("ascending", "descending")),
    Parameter(name="after", text="the page behind this one: its `next`"),
    _limit(10_000, 100),
)

READS: Final = (
    Read(
        path="/v1/queue",
        text="Units of jobs that have not ended, in order of submission.",
        answer=(jobs.QueueRows, jobs.QueueLines),
        query=(
            _DEPARTMENT,
            _state(),
            Parameter(name="user", text="only of this user"),
            Parameter(name="form", text="lines: a short form", choices=("lines",)),
            _limit(100_000),
        ),
    ),
    Read(
        path="/v1/jobs", text="Jobs, also those that ended long ago, page by page.", answer=jobs.History, query=_HISTORY
    ),
    Read(path="/v1/jobs/{job}", text="A job, an element of an array, or an array.", answer=jobs.Job, refuses=(404,)),
    Read(
        path="/v1/leases",
        text="Leases in order of acceptance.",
        answer=jobs.LeaseRows,
        query=(_DEPARTMENT, Parameter(name="all", type="boolean", text="also those that have ended")),
    ),
    Read(path="/v1/leases/{lease}", text="A lease.", answer=jobs.LeaseRow, refuses=(404,)),
    Read(path="/v1/hosts", text="All hosts.", answer=hosts.HostRows),
    Read(path="/v1/departments", text="All departments.", answer=hosts.Departments),
    Read(
        path="/v1/departments/{department}",
        text="A department, with its instances.",
        answer=hosts.DepartmentState,
        refuses=(404,),
    ),
    Read(
        path="/v1/departments/{department}/releases",
        text="Releases of a web department, newest first.",
        answer=hosts.Releases,
        refuses=(404,),
    ),
    Read(
        path="/v1/instances",
        text="Instances of web departments.",
        answer=hosts.InstanceRows,
        query=(_DEPARTMENT, Parameter(name="all", type="boolean", text="also the last ones that have ended")),
    ),
    Read(
        path="/v1/events",
        text="Events as JSON lines: with `after` the oldest behind that position, without it the newest.  A page ends with a "
        "whole envelope, so it may have a few more.  An empty line says that the connection lives.  410: some behind `after` "
        "are no longer kept.",
        answer=Event,
        content=JSON_LINES,
        query=(
            _DEPARTMENT,
            Parameter(name="after", type="integer", text="behind this position of the journal", most=POSITION_MAX),
            Parameter(name="omit", text="without events of these kinds", several=True),
            Parameter(
                name="follow",
                type="boolean",
                text="continue with those that come; without `after` from now on, and without `limit`",
            ),
            _limit(10_000),
        ),
        refuses=(410,),
    ),
    Read(path="/v1/overview", text="Hosts, departments and counters.", answer=hosts.Overview),
    Read(
        path="/v1/summary",
        text="What became of jobs and claims.",
        answer=hosts.Summary,
        query=(Parameter(name="since", type="time", text="claims and holders from then on"),),
    ),
    Read(path="/v1/lending", text="What departments have agreed on, and what is lent now.", answer=hosts.LendingState),
    Read(
        path="/v1/usage",
        text="Who held and used how much.",
        answer=usage.UsageReport,
        query=(
            _DEPARTMENT,
            Parameter(
                name="by", text="rows of what; default: department", choices=("department", "user", "service", "lease")
            ),
            *_PERIOD,
        ),
    ),
    Read(
        path="/v1/billable",
        text="What a bill of one UTC day is made of, without prices.",
        answer=usage.Billable,
        query=(
            _DEPARTMENT,
            Parameter(name="day", type="time", text="when the UTC day begins", required=True),
        ),
        refuses=(404,),
    ),
    Read(
        path="/v1/prices",
        text="The cloud's price table, as far as it concerns the caller.",
        answer=usage.PriceTable,
        query=(_DEPARTMENT,),
        refuses=(404, 409),
    ),
    Read(
        path="/v1/audit",
        text="Who asked for what, and what came of it: with `after` or `since` page by page, else the newest.",
        answer=audit.AuditPage,
        query=(
            Parameter(name="department", text="of the caller; managers see their own department", pattern=_NAMED),
            Parameter(name="outcome", text="default: both", choices=("granted", "refused")),
            Parameter(name="user", text="only of this user"),
            Parameter(name="kind", text="only of this kind, or, with a dot at its end, of kinds that begin so"),
            Parameter(name="since", type="time", text="from then on"),
            Parameter(name="after", type="integer", text="the page behind this one: its `next`", most=POSITION_MAX),
            _limit(1000),
        ),
        refuses=(404,),
    ),
    Read(
        path="/v1/why/{name}",
        text="Why a job, an instance, a host or a department is in its state.",
        answer=explained.Explanation,
        query=(_KIND,),
        refuses=(404,),
    ),
    Read(
        path="/v1/starts",
        text="When the first jobs of each queue start.",
        answer=explained.Starts,
        query=(_DEPARTMENT,),
    ),
    Read(path="/v1/starts/{job}", text="When a job starts.", answer=explained.Starts, refuses=(404,)),
    Read(
        path="/v1/story/{entity}",
        text="How a job, an instance, a host or a department came to be as it is.",
        answer=explained.Story,
        query=(_KIND, Parameter(name="since", type="time", text="steps from then on"), _limit(500, 100)),
        refuses=(404,),
    ),
    Read(
        path="/v1/record",
        text="The journal, for `phoenix whatif`: a head, a line for each envelope, a tail (schemas/journal_record.py). It is "
        "the journal's own form: times of head, lines and facts are UTC seconds; those of reasons are RFC 3339.",
        content=JSON_LINES,
        query=_PERIOD,
    ),
    Read(path="/v1/picture", text="What the page shows.", answer=page.Picture, query=(_DEPARTMENT,)),
    Read(
        path="/v1/timeline",
        text="Hosts by holder and load of web departments over time.",
        answer=page.Timeline,
        query=(
            Parameter(name="since", type="time", text="default: an hour ago"),
            Parameter(name="points", type="integer", text="at most; default: 2016", least=1, most=2016),
        ),
    ),
    Read(
        path="/v1/stream",
        text="The page's picture, and what changes in it, as server-sent events: picture, hosts, departments, queue, "
        "decisions, alerts, point, beat.",
        content=EVENT_STREAM,
        query=(
            _DEPARTMENT,
            Parameter(
                name="after",
                type="integer",
                text="with every decision behind this position",
                most=POSITION_MAX,
            ),
        ),
    ),
    Read(path="/v1/session", text="Who the caller is.", answer=page.Session),
    Read(
        path="/v1/session",
        method="POST",
        text="Open a session of the page, by a token or a code; its cookie is good for reads.",
        body=page.Login,
        answer=page.Session,
        token=False,
    ),
    Read(
        path="/v1/session",
        method="DELETE",
        text="End the session of the cookie.",
        answer=page.SessionEnded,
        token=False,
    ),
    Read(path="/v1/session/code", method="POST", text="A code that opens one session.", answer=page.SessionCode),
)
BY_PATH: Final[dict[str, Read]] = {read.path: read for read in READS if read.method == "GET"}
