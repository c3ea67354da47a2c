"""Requests and replies of the door: what people and programs may ask, and what they are answered.

    phoenix.request.<department>.<user>.<noun>.<verb>    the same structs over NATS and HTTP, as JSON or MessagePack

Rules
  1. A payload never names its sender or a role: the subject or the token does, and the server makes it true.
  2. An unknown field of a request is refused by its name: what it asks for would be left out in silence.  Readers of replies
     ignore unknown fields.
  3. What does not fit is refused with the field named (`Malformed`).  Bounds that need the configuration (script and input
     sizes, array length, walltime) are admission's; the bounds here are what any cloud could mean.
  4. Fields are only ever added, with a default.
  5. Bytes in JSON are base64.
  6. Times are RFC 3339 with an offset, durations seconds (`schemas.times`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from schemas.config import CloudConfig, OnReclaim, OnTerm
from schemas.control_characters import WHAT, has_hidden
from schemas.dimensions import asking
from schemas.ids import JOB_NAME_MAX
from schemas.problems import LeaseOffer as LeaseOffer
from schemas.problems import LeaseRefusal as LeaseRefusal
from schemas.problems import Problem as Problem
from schemas.requests_base import GRACE_MAX_S as GRACE_MAX_S
from schemas.requests_base import INSTANCES_MAX as INSTANCES_MAX
from schemas.requests_base import REQUEST_ID_MAX as REQUEST_ID_MAX
from schemas.requests_base import WALLTIME_MAX_S as WALLTIME_MAX_S
from schemas.requests_base import Message as Message
from schemas.requests_base import Request, RequestId
from schemas.requests_web import Deployed as Deployed
from schemas.requests_web import ReleaseDeploy as ReleaseDeploy
from schemas.requests_web import ScaleSet as ScaleSet
from schemas.requests_web import problem_of_deploy, problem_of_scale
from schemas.requests_whatif import Foretold as Foretold
from schemas.size import size_of
from schemas.times import EXAMPLE, AskedTime, TimeText, is_possible, received, received_if, wrong_time
from schemas.validation import UNREADABLE, misfit, unreadable
from schemas.validation import Malformed as Malformed

# Sane maxima.  Each is far above what a cluster of OpenNebula's size means, and keeps arithmetic and messages bounded.
TASKS_MAX: Final = 1_000_000
NODES_MAX: Final = 10_000
CPUS_MAX: Final = 4096  # of one task; the largest machines on sale have about 1,000 threads
MEMORY_MAX_MB: Final = 1 << 26  # 64 TiB on one node
GPUS_MAX: Final = 100_000  # of one job; a host has 16 at most
PRIORITY_MAX: Final = 1_000_000
PRIORITY_DEFAULT: Final = 0
RETRIES_MAX: Final = 1000
ARGUMENT_MAX: Final = 128 << 10  # Linux: MAX_ARG_STRLEN
ARGUMENTS_MAX: Final = 4096
VARIABLES_MAX: Final = 4096
EXEC_MAX_BYTES: Final = 1 << 20  # arguments and environment together: half of Linux's usual 2 MiB, ours come on top
PATH_MAX: Final = 4095  # Linux: PATH_MAX without its NUL
SPEC_MAX: Final = 16 << 10  # characters of an array or dependency specification
INPUTS_MAX: Final = 1000
KEEP_MAX: Final = 100
JOBS_MAX: Final = 1000  # named in one cancel, hold or release
REASON_MAX: Final = 500
WHY_MAX: Final = 200  # as in `facts.InstanceReported`
SERVICE_MAX: Final = 64
CONSTRAINT_MAX: Final = 256  # services.domain.constraints.CHARS_MAX

Text = Annotated[str, Meta(max_length=REASON_MAX)]
Argument = Annotated[str, Meta(max_length=ARGUMENT_MAX)]
FilePath = Annotated[str, Meta(min_length=1, max_length=PATH_MAX)]
JobId = Annotated[str, Meta(min_length=1, max_length=64)]
HostName = Annotated[str, Meta(min_length=1, max_length=128)]
LeaseKind = Literal["advance", "deadline", "immediate", "best-effort"]
Duration = Annotated[float, Meta(gt=0, le=WALLTIME_MAX_S)]


# ---------------------------------------------------------------------------------------------------------------- replies


class Done(Message, frozen=True, kw_only=True):
    """The request was granted, and there is nothing else to say.  `ok`: true."""

    ok: Literal[True] = True


class Submitted(Message, frozen=True, kw_only=True):
    """The job is in the journal.  `job`: its number; `units`: 1, or the number of array elements; `claim_waits_s`: of a job
    with a grace time of its own, how long a department that claims one of its hosts may have to wait, in seconds."""

    job: str
    units: int = 1
    claim_waits_s: float | UnsetType = UNSET


class JobResult(Message, frozen=True, kw_only=True, omit_defaults=True):
    """The result for one job of the request.  `job`: the job or array element; `error`: why it was not changed; left out: it
    was."""

    job: str
    error: Problem | None = None


class JobResults(Message, frozen=True, kw_only=True):
    """One result for each job of the request.  `results`: in the order of the request."""

    results: tuple[JobResult, ...]


class Instance(Message, frozen=True, kw_only=True):
    """An instance of a web department.  `address`: where it listens, `host:port`; null: it has not begun; `state`:
    `starting`: it boots; `running`: it is in service; `draining`: no new session goes there, and without an address only its
    VM is left; `cores`: cores of the instance; `release`: the release that it runs; `drains_until`: when it is stopped at the
    latest; `health_path`: path of its health check; `connections`: requests that it is given at a time;
    `problem`: why it cannot boot, such as a missing secret; empty: no problem is known."""

    unit: str
    attempt: int
    address: str | None
    state: Literal["starting", "running", "draining"]
    host: str
    cores: int
    release: int = 0
    drains_until: TimeText | None = None
    health_path: str = ""
    connections: int = 0
    problem: str = ""


class Instances(Message, frozen=True, kw_only=True):
    """The instances of a web department, and the settings of the department that its load balancer needs.  `instances`: the
    instances, also those that start or drain; `drain_s`: time that an instance has to finish its requests, in seconds;
    `unreachable_s`: an instance whose health check has failed for this long is replaced, in seconds; 0: never; `health_path`:
    path of the health check."""

    instances: tuple[Instance, ...]
    drain_s: float = 0.0
    unreachable_s: float = 0.0
    health_path: str = ""


class LeaseGranted(Message, frozen=True, kw_only=True):
    """A lease that was accepted or extended.  `lease`: number of the lease's job; `kind`: kind of the lease; `nodes`: number
    of hosts; `start_at`: start; null for `best-effort`; `end_at`: end; null for `best-effort`;
    `warning`: what could still keep it waiting; empty: nothing."""

    lease: str
    kind: LeaseKind
    nodes: int
    start_at: TimeText | None = None
    end_at: TimeText | None = None
    warning: str = ""


class ConfigApplied(Message, frozen=True, kw_only=True):
    """The configuration is adopted, or, of a dry run, could be.  `position`: position of the fact in the journal; of a dry
    run, the last position that was considered; `late_leases`: a line for each accepted lease that the configuration does not
    keep, or of a dry run would not keep."""

    position: int
    late_leases: tuple[str, ...] = ()


# --------------------------------------------------------------------------------------------------------------- requests


class InputFile(Request, frozen=True, kw_only=True):
    """A file that is there before the script starts.  `name`: relative path in the job's directory; `data`: content, in JSON
    as base64."""

    name: FilePath
    data: bytes


class StoredSignal(Message, frozen=True, kw_only=True):
    """A signal that is sent to the job before its time limit ends it, and instead of SIGTERM when it is stopped for another
    reason, as the object store has it: its readers ignore fields of a newer version.  `number`: number of the signal;
    `before_s`: how long before the time limit, in seconds; `script`: it is sent to the script alone, else to the processes
    that the script has started (as in Slurm)."""

    number: Annotated[int, Meta(ge=1, le=64)]
    before_s: Annotated[float, Meta(ge=0, le=65535)] = 60.0
    script: bool = False


class JobSignal(StoredSignal, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signal that is sent to the job before its time limit ends it, and instead of SIGTERM when it is stopped for another
    reason."""


class JobSubmit(Request, frozen=True, kw_only=True):
    """A job or an array of jobs.  It needs `script`, `argv`, or both.  Cores on each node are ceil(tasks / nodes) ·
    cpus_per_task.

    `name`: name of the job, for people; `script`: the script, as text; null: `argv` is the command; `argv`: command with its
    arguments; with a script, the script's arguments; `environment`: environment variables by name; `tasks`: number of tasks
    in all; `nodes`: number of hosts; null: one if it all fits the largest host, else the fewest that are enough;
    `cpus_per_task`: cores for each task.

    `memory_mb`: memory on each node, in MiB; 0: all of the smallest host that has the cores; null: by `memory_per_core_mb`;
    `memory_per_core_mb`: memory for each core of a node, in MiB; null: as the department says; `gpus`: GPUs in all, as many
    on each node; `gpus_per_node`: GPUs on each node, instead of `gpus`; `gpus_per_task`: GPUs for each task that a node has,
    instead of both; `exclusive`: its hosts run nothing else.

    `walltime_s`: time limit of an attempt, in seconds; null: the department's default; `priority`: the job's own priority;
    above 0 for managers and operators only; `retries`: attempts that may fail with an exit code before the job has failed;
    `on_reclaim`: what happens to the job when its host is taken; null: the department's; `on_term`: whether exit 0 after
    SIGTERM means that the script was stopped or has completed; null: the department's; `grace_s`: time from SIGTERM to
    SIGKILL, in seconds; null: the department's; `signal`: a signal before the time limit, and instead of SIGTERM; null: none.

    `array`: indices of an array's elements, such as `1-100:2%5`: at most 5 run at once; null: no array; `after`: jobs that it
    waits for, such as `afterok:17`; null: none; `held`: it does not start until it is released; `service`: the department's
    service that the job belongs to; empty: none; `best_effort`: it runs on what production leaves, and makes way for it;
    `short`: it counts as short whatever its time limit; `quality`: quality of service; empty: the department's default;
    `constraint`: labels that its hosts must have; empty: any host.

    `directory`: working directory; null: one of its own; `stdout`: file in which clients save its standard output; `%j` is
    its number; null: the client chooses; `stderr`: file in which clients save its standard error; null: the client chooses;
    `stdin`: file for its standard input; null: empty; `inputs`: files that are there before the script starts; `keep`:
    patterns of files that are stored when the script has ended."""

    request: RequestId = ""
    name: Annotated[str, Meta(min_length=1, max_length=JOB_NAME_MAX)] = "job"
    script: str | None = None
    argv: Annotated[tuple[Argument, ...], Meta(max_length=ARGUMENTS_MAX)] = ()
    environment: Annotated[
        dict[Annotated[str, Meta(min_length=1, max_length=4096)], Argument],
        Meta(max_length=VARIABLES_MAX),
    ] = msgspec.field(default_factory=dict)
    tasks: Annotated[int, Meta(ge=1, le=TASKS_MAX)] = 1
    nodes: Annotated[int, Meta(ge=1, le=NODES_MAX)] | None = None
    cpus_per_task: Annotated[int, Meta(ge=1, le=CPUS_MAX)] = 1
    memory_mb: Annotated[int, Meta(ge=0, le=MEMORY_MAX_MB)] | None = None
    memory_per_core_mb: Annotated[int, Meta(ge=1, le=MEMORY_MAX_MB)] | None = None
    gpus: Annotated[int, Meta(ge=0, le=GPUS_MAX)] | None = None
    gpus_per_node: Annotated[int, Meta(ge=0, le=GPUS_MAX)] | None = None
    gpus_per_task: Annotated[int, Meta(ge=0, le=GPUS_MAX)] | None = None
    exclusive: bool = False
    walltime_s: Annotated[float, Meta(gt=0, le=WALLTIME_MAX_S)] | None = None
    priority: Annotated[int, Meta(ge=-PRIORITY_MAX, le=PRIORITY_MAX)] = PRIORITY_DEFAULT
    retries: Annotated[int, Meta(ge=0, le=RETRIES_MAX)] = 0
    on_reclaim: OnReclaim | None = None
    on_term: OnTerm | None = None
    grace_s: Annotated[float, Meta(ge=0, le=GRACE_MAX_S)] | None = None
    array: Annotated[str, Meta(max_length=SPEC_MAX)] | None = None
    after: Annotated[str, Meta(max_length=SPEC_MAX)] | None = None
    held: bool = False
    service: Annotated[str, Meta(max_length=SERVICE_MAX)] = ""
    best_effort: bool = False
    short: bool = False
    quality: Annotated[str, Meta(max_length=SERVICE_MAX)] = ""
    constraint: Annotated[str, Meta(max_length=CONSTRAINT_MAX)] = ""
    directory: FilePath | None = None
    stdout: FilePath | None = None
    stderr: FilePath | None = None
    stdin: FilePath | None = None
    inputs: Annotated[tuple[InputFile, ...], Meta(max_length=INPUTS_MAX)] = ()
    keep: Annotated[tuple[FilePath, ...], Meta(max_length=KEEP_MAX)] = ()
    signal: JobSignal | None = None


class JobsNamed(Request, frozen=True, kw_only=True):
    """Jobs to change.  `jobs`: jobs (`17`: with all its elements) or array elements (`17_3`)."""

    jobs: Annotated[tuple[JobId, ...], Meta(min_length=1, max_length=JOBS_MAX)]


class LeaseCreate(Request, frozen=True, kw_only=True):
    """Machines for a time.  Without `script` and `argv` they are held until the end; with them the lease also ends when they
    do.

    `name`: name of the lease, for people; `kind`: `advance`: from `start_at` on; `deadline`: at the earliest possible time,
    over by `deadline_at`; `immediate`: now, or refused; `best-effort`: when there is room, and it makes way for the others;
    `duration_s`: how long it lasts, in seconds; `start_at`: of `advance`, the start; of `deadline`, the earliest start;
    null: now; `deadline_at`: of `deadline`, when it has to be over; `nodes`: number of different hosts;
    `cores`: cores on each host; `memory_mb`: memory on each host, in MiB; null: as the department says; `gpus`: GPUs on each
    host; `exclusive`: its hosts run nothing else.

    `script`: a script that runs on the first host; null: none; `argv`: command with its arguments, or the script's arguments;
    `environment`: environment variables by name; `directory`: working directory; null: one of its own; `stdout`: file in
    which clients save its standard output; null: the client chooses; `stderr`: file in which clients save its standard error;
    null: the client chooses; `inputs`: files that are there before the script starts; `keep`: patterns of files that are
    stored when the script has ended."""

    request: RequestId = ""
    name: Annotated[str, Meta(min_length=1, max_length=JOB_NAME_MAX)] = "lease"
    kind: LeaseKind
    duration_s: Duration
    start_at: AskedTime | None = None
    deadline_at: AskedTime | None = None
    nodes: Annotated[int, Meta(ge=1, le=NODES_MAX)] = 1
    cores: Annotated[int, Meta(ge=1, le=CPUS_MAX)] = 1
    memory_mb: Annotated[int, Meta(ge=0, le=MEMORY_MAX_MB)] | None = None
    gpus: Annotated[int, Meta(ge=0, le=GPUS_MAX)] = 0
    exclusive: bool = False
    script: str | None = None
    argv: Annotated[tuple[Argument, ...], Meta(max_length=ARGUMENTS_MAX)] = ()
    environment: Annotated[
        dict[Annotated[str, Meta(min_length=1, max_length=4096)], Argument],
        Meta(max_length=VARIABLES_MAX),
    ] = msgspec.field(default_factory=dict)
    directory: FilePath | None = None
    stdout: FilePath | None = None
    stderr: FilePath | None = None
    inputs: Annotated[tuple[InputFile, ...], Meta(max_length=INPUTS_MAX)] = ()
    keep: Annotated[tuple[FilePath, ...], Meta(max_length=KEEP_MAX)] = ()

    @property
    def start_s(self) -> float | None:
        """`start_at` in UTC seconds."""
        return received_if(self.start_at)

    @property
    def deadline_s(self) -> float | None:
        """`deadline_at` in UTC seconds."""
        return received_if(self.deadline_at)

    def job(self, holder: str) -> JobSubmit:
        """The job that a lease is; `holder` is the script of one that brings none."""
        return JobSubmit(
            request=self.request,
            name=self.name,
            script=self.script if self.script or self.argv else holder,
            argv=self.argv,
            environment=self.environment,
            tasks=self.nodes,
            nodes=self.nodes,
            **asking(size_of(self)),
            exclusive=self.exclusive,
            walltime_s=self.duration_s,
            directory=self.directory,
            stdout=self.stdout,
            stderr=self.stderr,
            inputs=self.inputs,
            keep=self.keep,
        )


class LeaseExtend(Request, frozen=True, kw_only=True):
    """A longer lease: give `by_s` or `until_at`.  `lease`: number of the lease's job; `by_s`: how much longer, in seconds;
    repeating it without `request` extends the lease again; `until_at`: its new end; repeating it changes
    nothing."""

    lease: JobId
    by_s: Duration | None = None
    until_at: AskedTime | None = None
    request: RequestId = ""

    @property
    def until_s(self) -> float | None:
        """`until_at` in UTC seconds."""
        return received_if(self.until_at)


class LeaseNamed(Request, frozen=True, kw_only=True):
    """A lease to end.  `lease`: number of the lease's job."""

    lease: JobId


class HostNamed(Request, frozen=True, kw_only=True):
    """A host to cordon or to return to use.  `reason`: why, for people."""

    host: HostName
    reason: Text = ""


class HostDrain(HostNamed, frozen=True, kw_only=True):
    """A host to empty.  `deadline_s`: what still runs there after this many seconds is ended; null: nothing is ended."""

    deadline_s: Annotated[float, Meta(ge=0, le=WALLTIME_MAX_S)] | None = None


class InstanceList(Request, frozen=True, kw_only=True):
    """A request for the instances of the web department in the subject or path."""


class InstanceReport(Request, frozen=True, kw_only=True):
    """A load balancer reports on an instance of its department.  Repeating it changes nothing.  `state`: `drained`: no
    session is open there any more; `unready`: its health check fails; `ready`: the check passes again; `why`: of `unready`,
    the last answer of the health check."""

    unit: Annotated[str, Meta(min_length=1, max_length=64)]
    attempt: Annotated[int, Meta(ge=1, le=1 << 31)]
    state: Literal["drained", "unready", "ready"]
    why: Annotated[str, Meta(max_length=WHY_MAX)] = ""


class ConfigApply(Request, frozen=True, kw_only=True):
    """A new configuration; for operators only, and the provisioner answers.  `accept_late_leases`: adopt it although it does
    not keep accepted leases; else it is then refused with `conflict`; `dry_run`: adopt nothing, and answer which leases it
    would not keep."""

    config: CloudConfig
    accept_late_leases: bool = False
    dry_run: bool = False


# "noun.verb" -> (request, reply)
REQUESTS: Final[dict[str, tuple[type[Message], type[Message]]]] = {
    "job.submit": (JobSubmit, Submitted),
    "job.whatif": (JobSubmit, Foretold),
    "job.cancel": (JobsNamed, JobResults),
    "job.hold": (JobsNamed, JobResults),
    "job.release": (JobsNamed, JobResults),
    "lease.create": (LeaseCreate, LeaseGranted),
    "lease.extend": (LeaseExtend, LeaseGranted),
    "lease.cancel": (LeaseNamed, Done),
    "scale.set": (ScaleSet, Done),
    "release.deploy": (ReleaseDeploy, Deployed),
    "host.cordon": (HostNamed, Done),
    "host.drain": (HostDrain, Done),
    "host.uncordon": (HostNamed, Done),
    "instance.list": (InstanceList, Instances),
    "instance.report": (InstanceReport, Done),
    "config.apply": (ConfigApply, ConfigApplied),
}


# ---------------------------------------------------------------------------------------------------------------- the wire


_SENDER: Final = "the token or the subject says it"
_HINTS: Final = {  # what would be right instead of a field that a request does not have
    "department": f"{_SENDER}; over HTTP an operator names one in the address",
    "user": _SENDER,
    "role": _SENDER,
}
_OF_JOBS: Final = _HINTS | {
    "cores": "did you mean cpus_per_task?",
    "cpus": "did you mean cpus_per_task?",
    "memory": "did you mean memory_mb?",
    "time": "did you mean walltime_s?",
    "command": "did you mean argv?",
    "dependency": "did you mean after?",
}
_json: Final = {kind: msgspec.json.Decoder(pair[0]) for kind, pair in REQUESTS.items()}
_msgpack: Final = {kind: msgspec.msgpack.Decoder(pair[0]) for kind, pair in REQUESTS.items()}


def is_json(payload: bytes, content_type: str = "") -> bool:
    """True if a payload is to be read, and answered, as JSON.  MessagePack says so by its content type or by beginning with a
    map; whatever else there is was written by a person, who gets an answer that can be read."""
    if content_type:
        return "msgpack" not in content_type
    return not payload or not (0x80 <= payload[0] <= 0x8F or payload[0] in (0xDE, 0xDF))


def decode(kind: str, payload: bytes, as_json: bool = True) -> Any:
    """The request struct of `kind` ("job.submit", …).  Raises `Malformed`; KeyError for an unknown kind."""
    decoder = (_json if as_json else _msgpack)[kind]
    try:
        request = decoder.decode(payload or b"{}" if as_json else payload or b"\x80")
    except msgspec.ValidationError as error:
        asked = REQUESTS[kind][0]
        raise misfit(error, asked, _OF_JOBS if asked is JobSubmit else _HINTS) from None
    except UNREADABLE as error:
        raise unreadable(error, payload, "JSON" if as_json else "MessagePack") from None
    problem = _problem(request)
    if problem is not None:
        raise Malformed(problem[1], problem[0])
    return request


def encode(message: msgspec.Struct, as_json: bool = True) -> bytes:
    return msgspec.json.encode(message) if as_json else msgspec.msgpack.encode(message)


# ------------------------------------------------------------------------------------------- what types alone cannot say

_control: Final = re.compile(r"[\x00-\x1f\x7f]")


def _problem(request: object) -> tuple[str, str] | None:
    """(field, what would be right) of the first thing that no cloud could take, or None."""
    if isinstance(request, JobSubmit):
        return _problem_of_submit(request)
    if isinstance(request, LeaseCreate):
        return _problem_of_lease(request) or _problem_of_submit(request.job("held"))
    if isinstance(request, LeaseExtend):
        return _problem_of_extend(request)
    if isinstance(request, ScaleSet):
        return problem_of_scale(request)
    if isinstance(request, ReleaseDeploy):
        return problem_of_deploy(request)
    if isinstance(request, HostNamed) and has_hidden(request.reason):
        return "reason", f"reason must not hold {WHAT}"
    if isinstance(request, InstanceReport) and has_hidden(request.why):
        return "why", f"why must not hold {WHAT}"
    return None


def _problem_of_submit(request: JobSubmit) -> tuple[str, str] | None:
    if not request.script and not request.argv:
        return "argv" if request.script is None else "script", "a job needs a script or argv (a command)"
    for field in ("name", "request", "service", "quality"):
        if has_hidden(getattr(request, field)):
            return field, f"{field} must not hold {WHAT}"
    for field in ("directory", "stdout", "stderr", "stdin"):
        if _control.search(getattr(request, field) or ""):
            return field, f"{field} must not hold control characters"
    if request.memory_mb is not None and request.memory_per_core_mb is not None:
        return "memory_per_core_mb", "give memory_mb (a node) or memory_per_core_mb, not both"
    ways = [field for field in ("gpus", "gpus_per_node", "gpus_per_task") if getattr(request, field) is not None]
    if len(ways) > 1:
        return ways[-1], "give one of gpus (in all), gpus_per_node and gpus_per_task"
    for index, file in enumerate(request.inputs):
        if not is_relative(file.name):
            return f"inputs[{index}].name", "an input's name is a relative path without '..' and control characters"
    if len({file.name for file in request.inputs}) != len(request.inputs):
        return "inputs", "two inputs have the same name"
    for index, pattern in enumerate(request.keep):
        if not is_relative(pattern):
            return f"keep[{index}]", "a pattern to keep is a relative path without '..' and control characters"
    return problem_of_exec(request.argv, request.environment)


def problem_of_exec(argv: Iterable[str], environment: Mapping[str, str]) -> tuple[str, str] | None:
    """What keeps a program from being executed with these: field and sentence."""
    size = 0
    for argument in argv:
        if "\0" in argument:
            return "argv", "an argument must not hold a NUL character"
        size += _bytes(argument)
    for name, value in environment.items():
        if "=" in name or "\0" in name or "\0" in value:
            return "environment", "an environment name must not hold '=' or NUL, nor a value NUL"
        size += _bytes(name) + _bytes(value)
    if size > EXEC_MAX_BYTES:
        return "environment", f"argv and environment together are {size} bytes; at most {EXEC_MAX_BYTES} are possible"
    return None


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _problem_of_lease(request: LeaseCreate) -> tuple[str, str] | None:
    if wrong := wrong_time(request, "start_at", "deadline_at"):
        return wrong
    for field, kinds in (("start_at", ("advance", "deadline")), ("deadline_at", ("deadline",))):
        given = getattr(request, field) is not None
        if given and request.kind not in kinds:
            return field, f"{field}: a lease of kind {request.kind} has none"
        if not given and request.kind == kinds[0]:
            return field, f"{field} is missing: a lease of kind {request.kind} needs it"
        if given and (problem := _problem_of_time(request, field)):
            return problem
    if request.start_s is not None and request.deadline_s is not None:
        window_s = request.deadline_s - request.start_s
        if window_s < request.duration_s:
            return (
                "deadline_at",
                f"deadline_at: {window_s:g} s after start_at; the lease lasts {request.duration_s:g} s",
            )
    return None


def _problem_of_extend(request: LeaseExtend) -> tuple[str, str] | None:
    if (request.by_s is None) == (request.until_at is None):
        return "until_at", "give by_s or until_at, one of them"
    if wrong := wrong_time(request, "until_at"):
        return wrong
    return None if request.until_at is None else _problem_of_time(request, "until_at")


def _problem_of_time(request: Request, field: str) -> tuple[str, str] | None:
    if is_possible(received(getattr(request, field))):
        return None
    return field, f"{field}: a time from 1970 to 9999 (UTC) is wanted, such as {EXAMPLE}"


def is_relative(name: str) -> bool:
    """True if `name` is a relative path that stays below where it starts."""
    parts = name.split("/")
    return bool(name) and not name.startswith("/") and ".." not in parts and not _control.search(name)
