"""The public HTTP routes as data: what admission serves, and what OpenAPI documents.

A route with `kind` is a request of `schemas.requests`; the others answer bytes or something of their own.
"""

from __future__ import annotations

from typing import Final

import msgspec

from schemas.ids import DEPARTMENT, END
from schemas.reads import Parameter
from services.admission.http.output_access import RANKS_MAX
from services.admission.storage.output import STREAMS


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """Of an answer.  `always`: no answer of this kind lacks it."""

    name: str
    type: str = "string"
    text: str
    always: bool = True


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """`handler`: name of the door's method; `answers`: content type of the answer; `token`: needs one; `bodies`: what is sent,
    if that is none of the requests: one of these; `headers`: of the answer."""

    method: str
    path: str
    handler: str
    text: str
    kind: str = ""
    bodies: tuple[str, ...] = ()
    query: tuple[Parameter, ...] = ()
    answers: str = "application/json"
    status: int = 200
    token: bool = True
    headers: tuple[Header, ...] = ()


OFFSET_MAX: Final = 1 << 39
WAIT_MAX_S: Final = 3600  # what may be asked for; it is waited for less
_DEPARTMENT: Final = f"^{DEPARTMENT.pattern.removesuffix(END)}$"
_STREAM: Final = Parameter(name="stream", text="default: stdout", choices=STREAMS)
_ATTEMPT: Final = Parameter(
    name="attempt",
    text='"latest" (default) or a number',
    pattern="^(?:latest|0{0,8}[1-9][0-9]{0,8})$",
    characters_max=9,
)
_OFFSET: Final = Parameter(name="offset", type="integer", text="byte to start from, default 0", most=OFFSET_MAX)
_WAIT: Final = Parameter(name="wait_s", type="number", text="wait up to so long for more, at most 25", most=WAIT_MAX_S)
_BYTES: Final = "application/octet-stream"
_PLACE: Final = (
    Header(name="Phoenix-Offset", type="integer", text="the next byte"),
    Header(name="Phoenix-End", type="boolean", text="whether nothing will come after it"),
    Header(name="Phoenix-Attempt", type="integer", text="the attempt; 0: none yet"),
    Header(name="Phoenix-Began", type="integer", text="the attempt that began this output"),
    Header(name="Phoenix-Removed", text="why nothing is there of a job that ended long ago", always=False),
)

ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/jobs",
        handler="submit",
        kind="job.submit",
        text="Submit a job or an array of jobs.",
        query=(
            Parameter(name="department", text="the job's department; default: the caller's own", pattern=_DEPARTMENT),
        ),
    ),
    Route(
        method="POST",
        path="/v1/whatif",
        handler="submit",
        kind="job.whatif",
        text="When and where a job would start, without submitting it.",
        query=(
            Parameter(name="department", text="the job's department; default: the caller's own", pattern=_DEPARTMENT),
        ),
    ),
    Route(method="POST", path="/v1/jobs/{job}/cancel", handler="change_job", kind="job.cancel", text="Cancel a job."),
    Route(
        method="POST",
        path="/v1/jobs/{job}/hold",
        handler="change_job",
        kind="job.hold",
        text="Hold a job: it does not start.",
    ),
    Route(method="POST", path="/v1/jobs/{job}/release", handler="change_job", kind="job.release", text="Lift a hold."),
    Route(
        method="POST",
        path="/v1/leases",
        handler="submit",
        kind="lease.create",
        text="Lease machines for a time: accepted or refused at once; a refusal names what would be granted instead.",
        query=(
            Parameter(name="department", text="the lease's department; default: the caller's own", pattern=_DEPARTMENT),
        ),
    ),
    Route(
        method="POST",
        path="/v1/leases/{lease}/extend",
        handler="change_lease",
        kind="lease.extend",
        text="Let a lease last longer.",
    ),
    Route(
        method="POST",
        path="/v1/leases/{lease}/cancel",
        handler="change_lease",
        kind="lease.cancel",
        text="End a lease.",
    ),
    Route(
        method="POST",
        path="/v1/departments/{department}/scale",
        handler="change_department",
        kind="scale.set",
        text="Set a web department's instances.",
    ),
    Route(
        method="POST",
        path="/v1/departments/{department}/releases",
        handler="change_department",
        kind="release.deploy",
        text="Deploy a release: a web department's instances are replaced by ones that run it.",
    ),
    Route(
        method="POST",
        path="/v1/hosts/{host}/cordon",
        handler="change_host",
        kind="host.cordon",
        text="Place nothing more on a host.  Running work stays; when it has ended, the host is released, not granted.",
    ),
    Route(
        method="POST",
        path="/v1/hosts/{host}/drain",
        handler="change_host",
        kind="host.drain",
        text="Take a host out of use: as cordon, and instances are replaced elsewhere first; at the deadline, if any, "
        "remaining work is ended.",
    ),
    Route(
        method="POST",
        path="/v1/hosts/{host}/uncordon",
        handler="change_host",
        kind="host.uncordon",
        text="Return a host to use.",
    ),
    Route(
        method="GET",
        path="/v1/departments/{department}/instances",
        handler="instances",
        kind="instance.list",
        text="Where a web department's instances listen.",
    ),
    Route(
        method="POST",
        path="/v1/departments/{department}/instances/{unit}/report",
        handler="report_instance",
        kind="instance.report",
        text="A load balancer's report: an instance has drained, cannot be reached, or is reachable again.",
    ),
    Route(
        method="POST",
        path="/v1/signals/{department}/{name}",
        handler="signal",
        text="Hand a signal on to the department's scheduler: cpu, requests, claim or sessions (docs/reference/signals.md).",
        bodies=("CpuSignal", "RequestsSignal", "ClaimSignal", "SessionsSignal"),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{job}/output",
        handler="output",
        text="A job's output from an offset on; headers Phoenix-Offset (the next one), Phoenix-End, Phoenix-Attempt, "
        "Phoenix-Began (the attempt that began this output: one that was suspended and resumed continues it); "
        "Phoenix-Removed says why nothing is there of a job that ended long ago.",
        query=(
            _STREAM,
            Parameter(name="rank", type="integer", text="default 0", most=RANKS_MAX - 1),
            _ATTEMPT,
            _OFFSET,
            _WAIT,
        ),
        answers=_BYTES,
        headers=_PLACE,
    ),
    Route(
        method="GET",
        path="/v1/instances/{unit}/output",
        handler="output",
        text="The end of what an instance of a web department wrote, as a job's output; also after the instance has ended.",
        query=(
            _STREAM,
            _ATTEMPT,
            Parameter(
                name="offset",
                type="integer",
                text="first byte to return, default 0: the oldest that is kept",
                most=OFFSET_MAX,
            ),
            _WAIT,
        ),
        answers=_BYTES,
        headers=_PLACE,
    ),
    Route(
        method="GET",
        path="/v1/jobs/{job}/files",
        handler="files",
        text="The files stored for a job: name and size.",
        query=(_ATTEMPT,),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{job}/files/{name}",
        handler="file",
        text="One stored file.",
        query=(_ATTEMPT,),
        answers=_BYTES,
    ),
    Route(
        method="GET",
        path="/v1/store",
        handler="store",
        text="Usage and quota of departments in the object store: the caller's own; operators see all.",
    ),
    Route(method="GET", path="/openapi.json", handler="openapi", text="This document.", token=False),
    Route(
        method="GET", path="/healthz", handler="healthz", text="204 while this process leads.", status=204, token=False
    ),
)
