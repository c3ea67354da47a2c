"""Answers as types: what programs mostly use of each, by name and type; `answer` has all of it, as the cloud sent it.

Rules
  1. A field that this version does not know is in `answer` alone; one that the cloud leaves out has its default.  States, kinds
     and reasons are text: a newer cloud may have more of them.
  2. Times are `datetime` in UTC (`times`), durations seconds, memory MiB.
  3. `read` is the only way from JSON to these types.
  4. They are not those of `schemas.answers`, which say what this version sends: each value of a state, each field that is
     always there.  A reader bears others (rule 1): by those types the library would refuse a newer or an older cloud.  Their
     import would also take half as long again as all of the library's.  Tests compare the fields of both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, TypeVar

import msgspec

from phoenix.client.errors import Unreadable
from phoenix.client.states import FINAL, GOOD
from phoenix.client.times import Time

Json: TypeAlias = dict[str, Any]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`answer`: the JSON object as it was received."""

    answer: Json = {}

    def __repr__(self) -> str:
        """Without `answer`, which says the same again."""
        fields = ((name, getattr(self, name)) for name in self.__struct_fields__ if name != "answer")
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields)})"


class Submitted(Answer, frozen=True, kw_only=True):
    """A job that was accepted: `job` is its number, also as `str()` of this.  `units`: how many elements it has, 1 of a single
    job; `request`: the id that it was submitted with; `claim_waits_s`: of a job with a grace of its own, how long a department
    that claims its host may wait for it."""

    job: str
    units: int = 1
    request: str = ""
    claim_waits_s: float | None = None

    def __str__(self) -> str:
        return self.job

    def elements(self, first: int = 1) -> list[str]:
        """The names of its elements, if its indices count from `first`; of a single job its own."""
        return [f"{self.job}_{index}" for index in range(first, first + self.units)] if self.units > 1 else [self.job]


class Job(Answer, frozen=True, kw_only=True):
    """A job, an element of an array, or an array as a whole.  `unit`: its name; `job`: the number that it shares with its
    array.  Of an array `counts` has its elements by state, and `units` each of them.  `reason`: why it is as it is, with a
    ``code``; `attempts`: each start, oldest first.  `wait_s`, `elapsed_s`, `cpu_seconds`, `max_rss_mb`: None where unknown."""

    job: str
    unit: str = ""
    department: str = ""
    user: str = ""
    name: str = ""
    state: str
    nodes: int = 0
    cores: int = 0
    memory_mb: int = 0
    gpus: int = 0
    priority: int = 0
    submitted_at: Time | None = None
    started_at: Time | None = None
    ended_at: Time | None = None
    walltime_s: float | None = None
    attempt: int = 0
    hosts: tuple[str, ...] = ()
    exit_code: int | None = None
    reason: Json | None = None
    attempts: tuple[Json, ...] = ()
    counts: dict[str, int] = {}
    wait_s: float | None = None
    elapsed_s: float | None = None
    cpu_seconds: float | None = None
    max_rss_mb: float | None = None

    @property
    def units(self) -> tuple[Job, ...]:
        return tuple(read_all(Job, self.answer.get("units") or ()))

    @property
    def is_final(self) -> bool:
        """True if it stays as it is."""
        return self.state in FINAL

    @property
    def succeeded(self) -> bool:
        """True if it is final and has completed; of an array: every element has."""
        return self.state in GOOD


class Queue(Answer, frozen=True, kw_only=True):
    """`jobs` in the order of submission; `total`: how many there are, if not all are in the answer."""

    total: int = 0

    @property
    def jobs(self) -> tuple[Job, ...]:
        return tuple(read_all(Job, self.answer.get("jobs") or ()))


class Host(Answer, frozen=True, kw_only=True):
    """`state`: free, held, draining, lost, absent; `department`: that holds it; `owner`: whose it is by guarantees and weights;
    `cordoned`: why nothing more is placed there; `units`: what runs there."""

    host: str
    state: str
    department: str | None = None
    owner: str | None = None
    lent: bool = False
    cores: int = 0
    memory_mb: int = 0
    gpus: int = 0
    cores_used: int = 0
    memory_used_mb: int = 0
    gpus_used: int = 0
    units: tuple[str, ...] = ()
    since: Time | None = None
    cordoned: str | None = None


class Department(Answer, frozen=True, kw_only=True):
    """`kind`: batch or web; `jobs`: how many that have not ended are in which state; `hosts_quota`: that it may keep.  Of a
    web department also how many instances are wanted, run and serve, and its last signal."""

    department: str
    kind: str | None = None
    guarantee: int = 0
    maximum: int | None = None
    hosts_held: int = 0
    hosts_quota: int = 0
    hosts_demanded: int = 0
    jobs: dict[str, int] = {}
    instances_wanted: int | None = None
    instances_running: int = 0
    instances_serving: int = 0
    utilisation: float | None = None
    requests_per_s: float | None = None
    claim: int | None = None
    release: Json | None = None


class Instance(Answer, frozen=True, kw_only=True):
    """`state`: booting, in-service, not-ready, draining, stopped, failed; `address`: HOST:PORT once it listens."""

    instance: str
    department: str
    state: str
    release: int = 0
    attempt: int = 0
    host: str | None = None
    address: str | None = None
    cores: int = 0
    placed_at: Time | None = None
    since: Time | None = None
    sessions: int | None = None
    cpu: float | None = None
    memory_mb: float | None = None


class Release(Answer, frozen=True, kw_only=True):
    """`state`: requested, rolling, complete, replaced, rolled_back, stopped; `instances`: that run it."""

    release: int
    state: str
    since: Time | None = None
    requested_at: Time | None = None
    user: str = ""
    image: str = ""
    instances: int = 0
    instances_serving: int = 0
    reason: Json | None = None


class Deployed(Answer, frozen=True, kw_only=True):
    """`release`: its number in the department; `warning`: what its rollout takes from batch as things are."""

    release: int
    warning: str = ""
    request: str = ""


class Lease(Answer, frozen=True, kw_only=True):
    """`kind`: advance, deadline, immediate, best-effort (then without times); `state`: as `phoenix lease list` has it."""

    lease: str
    name: str = ""
    department: str = ""
    user: str = ""
    kind: str = ""
    state: str = ""
    nodes: int = 0
    cores: int = 0
    memory_mb: int = 0
    duration_s: float = 0.0
    start_at: Time | None = None
    end_at: Time | None = None
    began_at: Time | None = None
    ended_at: Time | None = None
    hosts: tuple[str, ...] = ()
    reason: Json | None = None


class LeaseGranted(Answer, frozen=True, kw_only=True):
    """A lease that was accepted or extended; `warning`: what could still keep it waiting."""

    lease: str
    kind: str = ""
    nodes: int = 0
    start_at: Time | None = None
    end_at: Time | None = None
    warning: str = ""
    request: str = ""

    def __str__(self) -> str:
        return self.lease


class Start(Answer, frozen=True, kw_only=True):
    """When a job is expected to start; `start_at` None: that cannot be said.  `sure`: how certain it is."""

    start_at: Time | None = None
    hosts: tuple[str, ...] = ()
    sure: str = ""
    sentence: str = ""


class Prediction(Answer, frozen=True, kw_only=True):
    """Of a job that was not submitted.  `now`: it would start at once; `start`: of an array its first element."""

    department: str
    now: bool
    units: int = 1
    nodes: int = 0
    cores: int = 0
    memory_mb: int = 0
    walltime_s: float = 0.0

    @property
    def start(self) -> Start:
        return read(Start, self.answer.get("forecast"))


class Explanation(Answer, frozen=True, kw_only=True):
    """`sentences`, heaviest first, and at the same places `remedies`: what would change it, empty if nothing would; `reasons`:
    the same as data, where there are some."""

    sentences: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    reasons: tuple[Json, ...] = ()

    @property
    def start(self) -> Start | None:
        """Of a job that waits: when it is expected to start."""
        found = self.answer.get("start")
        return read(Start, found) if isinstance(found, dict) else None


class Step(Answer, frozen=True, kw_only=True):
    """Of a story: what happened, and `because`: what led to it, nearest first."""

    at: Time
    position: int
    index: int = 0
    kind: str = ""
    sentence: str = ""
    user: str | None = None
    because: tuple[Json, ...] = ()


class Story(Answer, frozen=True, kw_only=True):
    """`more`: there are earlier steps."""

    entity: str
    kind: str = ""
    department: str | None = None
    more: bool = False

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(read_all(Step, self.answer.get("steps") or ()))


class File(Answer, frozen=True, kw_only=True):
    """A file that the cloud keeps of a job.  `size`: bytes."""

    name: str
    size: int = 0


class Event(Answer, frozen=True, kw_only=True):
    """Something that has happened (docs/reference/events.md).  `id` is its place in the journal: `events(after=event.id)`
    continues behind it.  `fact`: the fact's own fields."""

    id: str
    position: int
    index: int = 0
    at: Time
    kind: str
    department: str = ""
    writer: str = ""
    fact: Json = {}


Found = TypeVar("Found", bound=Answer)


def read(cls: type[Found], answer: object, **more: object) -> Found:
    """`answer` as `cls`; `more`: fields that the cloud does not send.  Raises `Unreadable`."""
    try:
        return msgspec.convert({**object_of(answer), **more, "answer": answer}, cls)
    except (msgspec.ValidationError, OverflowError) as error:
        raise Unreadable(f"the answer is no {cls.__name__}: {error}") from error


def object_of(answer: object) -> Json:
    """Raises `Unreadable` if it is none."""
    if not isinstance(answer, dict):
        raise Unreadable(f"the answer is no object: {str(answer)[:40]!r}")
    return answer


def read_all(cls: type[Found], answers: object) -> Iterable[Found]:
    """Each of a list.  Raises `Unreadable`."""
    if not isinstance(answers, list | tuple):
        raise Unreadable(f"the answer is no list: {str(answers)[:40]!r}")
    return [read(cls, each) for each in answers]
