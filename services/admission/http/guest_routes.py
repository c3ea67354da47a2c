"""The guests' routes as data, for OpenAPI (docs/reference/guests.md has their meaning; `guests` serves them).

Rules
  1. One route a call of the contract; a test compares them with what admission really serves.
  2. A body or an answer is a struct, or bytes, or text.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from schemas.measures import GuestUsage, JobUsage
from schemas.reads import Parameter
from services.admission.guests.boot import Boot
from services.admission.guests.boots import BOOT_CHARS_MAX, FailedBody
from services.admission.guests.checkpoint import CheckpointBody
from services.admission.guests.guests import AFTER_MAX, OFFSET_MAX, POLL_MAX_S, Acknowledged, BeganBody, ReportBody
from services.admission.guests.health import EndedBody
from services.admission.guests.launch import Command, EventsBody, LaunchBody, LaunchEvent, SignalBody
from services.admission.guests.next_job import Following

BASE: Final = "/v1/guest/{unit}/{attempt}/{rank}/"
Content: TypeAlias = type[msgspec.Struct] | Literal["bytes", "text"] | None


class Commands(msgspec.Struct, frozen=True, kw_only=True):
    """Commands of `phoenix launch` for one rank.  `commands`: in the order of their numbers."""

    commands: tuple[Command, ...]


class Events(msgspec.Struct, frozen=True, kw_only=True):
    """Output and exit codes of the tasks of a launch.  `events`: in the order of their numbers."""

    events: tuple[LaunchEvent, ...]


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was stored for the next checkpoint.  `name`: its relative path; `size`: its size in bytes; `sha256`:
    SHA-256 of its content, in hex."""

    name: str
    size: int
    sha256: str


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that is in the journal.  `status`: `acknowledged`; `files`: number of its files; `bytes`: their size
    together."""

    status: Literal["acknowledged"]
    files: int
    bytes: int


class GuestRoute(msgspec.Struct, frozen=True, kw_only=True):
    """`job`: the job's own token opens it too; `none_yet`: it may be 204."""

    method: str
    path: str
    text: str
    body: Content = None
    answer: Content = None
    status: int = 200
    query: tuple[Parameter, ...] = ()
    job: bool = False
    none_yet: bool = False


_WAIT: Final = Parameter(name="wait_s", type="number", text="wait up to so long", most=int(POLL_MAX_S))
_AFTER: Final = Parameter(
    name="after", type="integer", text="only entries after this number, default 0", most=AFTER_MAX
)
_BOOT: Final = Parameter(
    name="boot",
    text="identity of this boot of the VM; another one than the attempt has begun with is 410",
    characters_max=BOOT_CHARS_MAX,
)
_OFFSET: Final = Parameter(name="offset", type="integer", text="the first byte's place in the stream", most=OFFSET_MAX)


def _route(
    method: str,
    path: str,
    text: str,
    body: Content = None,
    answer: Content = None,
    query: tuple[Parameter, ...] = (),
    status: int = 0,
    job: bool = False,
    none_yet: bool = False,
) -> GuestRoute:
    return GuestRoute(
        method=method,
        path=BASE + path,
        text=text,
        body=body,
        answer=answer,
        status=status or (200 if answer is not None else 204),
        query=query,
        job=job,
        none_yet=none_yet,
    )


ROUTES: Final = (
    _route("GET", "boot", "What this VM has to run.", answer=Boot, query=(_BOOT,)),
    _route("GET", "plain/boot", "The same as lines NAME=VALUE, for a shell.", answer="text", query=(_BOOT,)),
    _route("GET", "plain/script", "The script, byte for byte.", answer="bytes"),
    _route("GET", "inputs/{name}", "An input file.", answer="bytes"),
    _route("POST", "began", "Ready; waits for the other ranks. 503: call again.", BeganBody),
    _route("PUT", "output/{stream}", "Bytes of stdout or stderr; repeating is harmless.", "bytes", query=(_OFFSET,)),
    _route("PUT", "files/{name}", "Store a file of the job.", "bytes"),
    _route("POST", "failed", "This guest cannot do its attempt's work; its VM is to end.", FailedBody),
    _route("POST", "report", "The script's exit; with stay: the VM waits for another job.", ReportBody, Acknowledged),
    _route("POST", "usage", "How busy an instance's cores were, and its health; about once a second.", GuestUsage),
    _route("POST", "used", "A job's usage since its VM began; sent at intervals, and once at the end.", JobUsage),
    _route("POST", "ended", "How an instance's program has ended by itself.", EndedBody),
    _route(
        "POST",
        "next",
        "The next job of this VM; 204: none yet, try again.",
        answer=Following,
        query=(_WAIT,),
        none_yet=True,
    ),
    _route("PUT", "checkpoint/files/{name}", "A file for the next checkpoint.", "bytes", Sent, job=True),
    _route("GET", "checkpoint/files/{name}", "A file of the last checkpoint.", answer="bytes", job=True),
    _route("POST", "checkpoint", "A checkpoint: the job's work up to now is safe.", CheckpointBody, Saved, job=True),
    _route("GET", "commands", "Commands of phoenix launch for this rank.", answer=Commands, query=(_AFTER, _WAIT)),
    _route("GET", "plain/commands", "The same as lines NAME=VALUE, for a shell.", answer="text", query=(_AFTER, _WAIT)),
    _route("POST", "launch", "Start tasks on all ranks.", LaunchBody, status=202, job=True),
    _route("POST", "launch/{launch}/events", "Output and exit codes of this rank's tasks.", EventsBody),
    _route("GET", "launch/{launch}/events", "The same, of all ranks.", answer=Events, query=(_AFTER, _WAIT), job=True),
    _route("POST", "launch/{launch}/signal", "A signal for all its tasks.", SignalBody, job=True),
)
