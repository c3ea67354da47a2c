"""Queries over NATS: what the monitor and the schedulers answer, with which parameters.

    phoenix.query.<service>.<department>.<name>          JSON, which may be empty where every parameter has a default

Rules
  1. A query changes nothing.  Its department is a token of the subject: it says what may be seen; `operators` see everything.
  2. Parameters that do not fit are refused with the field named; unknown ones are ignored, since services of different versions
     ask each other.
  3. A refusal is a problem (`schemas.problems`), as that of a request.
  4. `QUERIES` is the table that documents them.  A new query is a row there.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from schemas.answers import hosts, jobs, usage
from schemas.reasons import Reason
from schemas.start_estimate import Foreseen, JobsAsked, JobsForeseen
from schemas.times import AskedTime, TimeText, wrong_time
from schemas.validation import UNREADABLE, Malformed, misfit, unreadable

Service: TypeAlias = Literal["monitor", "scheduler"]
UsageBy: TypeAlias = Literal["department", "user", "service", "lease"]
T = TypeVar("T", bound=msgspec.Struct)


class AllOfIt(msgspec.Struct, frozen=True, kw_only=True):
    """A query without parameters."""


class QueueAsked(msgspec.Struct, frozen=True, kw_only=True):
    """The first jobs of a queue.  `limit`: rows at most; null: as many as one answer holds."""

    limit: Annotated[int, Meta(ge=0)] | None = None


class JobAsked(msgspec.Struct, frozen=True, kw_only=True):
    """One job."""

    job: str


class WhyAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job waits, or why a web department has its instances.  `job`: of a batch department, the job or array element that
    is meant; a web department needs none."""

    job: str = ""


class StartAsked(msgspec.Struct, frozen=True, kw_only=True):
    """When jobs start.  `jobs`: these jobs or array elements; null: the first ones of the queue."""

    jobs: tuple[str, ...] | None = None


class UsageAsked(msgspec.Struct, frozen=True, kw_only=True):
    """What was used in a period.  `by`: what a row of the answer stands for; `since`: start of the period; null:
    when the cloud began; `until`: end of the period; null: now; `department`: for operators, only this
    department; others get their own."""

    by: UsageBy = "department"
    since: AskedTime | None = None
    until: AskedTime | None = None
    department: str | None = None


class JobExplained(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job waits, or how it is.  `job`: the job of the query; `unit`: the unit that the reasons are about: of an array,
    one of its elements; `reasons`: the reasons, the most important one first."""

    job: str
    unit: str
    reasons: list[Reason]


class InstancesExplained(msgspec.Struct, frozen=True, kw_only=True):
    """Why a web department has its instances.  `instances`: instances that it is to have; `serving`: instances that serve;
    `reasons`: the reasons, the most important one first."""

    instances: int
    serving: int
    reasons: list[Reason]


class TroublesTold(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator should look at in a web department.  `troubles`: the reasons, the most important one first."""

    troubles: list[Reason]


class QueuePlace(msgspec.Struct, frozen=True, kw_only=True):
    """A unit in a queue.  `place`: its place, from 1; `priority`: the job's own and that of its quality of service, or its
    points where the order counts them; higher goes first; `cores`: cores on each host; `memory_mb`: memory on each host, in
    MiB; `gpus`: GPUs on each host."""

    place: int
    unit: str
    priority: int
    nodes: int
    cores: int
    memory_mb: int
    gpus: int
    exclusive: bool
    constraint: str


class JobQueue(msgspec.Struct, frozen=True, kw_only=True):
    """The queue of a batch department.  `pending`: units in it; `queue`: the first of them, in order."""

    pending: int
    queue: tuple[QueuePlace, ...]


class StartsForeseen(msgspec.Struct, frozen=True, kw_only=True):
    """When jobs start.  `at`: the time for which this was computed; `starts`: unit -> when it starts."""

    at: TimeText
    starts: dict[str, Foreseen]


class QueueExplained(msgspec.Struct, kw_only=True):
    """Why each unit of a queue waits.  `reasons`: unit -> its first reason, of the first ones of the queue; `rest`: code of a
    reason -> units that wait for it, of all others."""

    reasons: dict[str, Reason] = {}
    rest: dict[str, list[str]] = {}


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table.  `asked`: its parameters; `answered`: the structs that its answer may be; empty: an object that
    `text` describes; `internal`: services send it to each other."""

    service: Service
    name: str
    text: str
    asked: type[msgspec.Struct] = AllOfIt
    answered: tuple[type[msgspec.Struct], ...] = ()
    internal: bool = False


QUERIES: Final = (
    Query(
        service="monitor",
        name="queue",
        text="The units of jobs that have not ended, in order of submission.",
        asked=QueueAsked,
        answered=(jobs.QueueRows,),
    ),
    Query(
        service="monitor",
        name="job",
        text="A job, an element of an array, or an array.",
        asked=JobAsked,
        answered=(jobs.Job,),
    ),
    Query(
        service="monitor",
        name="hosts",
        text="All hosts: their state, holder, size and use.",
        answered=(hosts.HostRows,),
    ),
    Query(
        service="monitor",
        name="departments",
        text="All departments: what they hold, may keep and want.",
        answered=(hosts.Departments,),
    ),
    Query(
        service="monitor",
        name="department",
        text="The department of the subject; not for operators.",
        answered=(hosts.DepartmentRow,),
    ),
    Query(
        service="monitor",
        name="releases",
        text="The releases of the web department of the subject; not for operators.",
        answered=(hosts.Releases,),
    ),
    Query(
        service="monitor",
        name="overview",
        text="All hosts and departments, with counts of what has happened, and the leaders.",
        answered=(hosts.Overview,),
    ),
    Query(
        service="monitor",
        name="usage",
        text="What departments, users, services or leases used in a period.",
        asked=UsageAsked,
        answered=(usage.UsageReport,),
    ),
    Query(
        service="scheduler",
        name="why",
        text="Why a job of a batch department waits, or why a web department has its instances.",
        asked=WhyAsked,
        answered=(JobExplained, InstancesExplained),
    ),
    Query(
        service="scheduler",
        name="queue",
        text="The queue of a batch department, in its order; of a web department the answer to `why`.",
        asked=QueueAsked,
        answered=(JobQueue, InstancesExplained),
    ),
    Query(
        service="scheduler",
        name="start",
        text="When jobs of a batch department start, as far as that can be foreseen.",
        asked=StartAsked,
        answered=(StartsForeseen,),
    ),
    Query(
        service="scheduler",
        name="reasons",
        text="Why each unit in the queue of a batch department waits; for the monitor.",
        answered=(QueueExplained,),
        internal=True,
    ),
    Query(
        service="scheduler",
        name="troubles",
        text="What an operator should look at in a web department; for the monitor.",
        answered=(TroublesTold,),
        internal=True,
    ),
    Query(
        service="scheduler",
        name="whatif",
        text="When jobs that have not been submitted would start; for admission.",
        asked=JobsAsked,
        answered=(JobsForeseen,),
        internal=True,
    ),
)
NAMES: Final[dict[Service, tuple[str, ...]]] = {
    "monitor": tuple(query.name for query in QUERIES if query.service == "monitor"),
    "scheduler": tuple(query.name for query in QUERIES if query.service == "scheduler"),
}


def decode(payload: bytes, asked: type[T]) -> T:
    """The parameters of a query.  Raises `Malformed`."""
    try:
        found = msgspec.json.decode(payload or b"{}", type=asked)
    except msgspec.ValidationError as error:
        raise misfit(error, asked) from None
    except UNREADABLE as error:
        raise unreadable(error, payload, "JSON") from None
    if isinstance(found, UsageAsked) and (wrong := wrong_time(found, "since", "until")):
        raise Malformed(wrong[1], wrong[0])
    return found
