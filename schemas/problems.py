"""Problems: the one form of every error, with the fields of RFC 9457 (problem details), as JSON or MessagePack.

    {"type": "urn:phoenix:problem:conflict", "title": "The present state does not allow it", "status": 409,
     "detail": "job 17 has ended", "code": "conflict", "field": "jobs[0]"}

HTTP answers a problem as `application/problem+json` or `application/problem+msgpack`, with the problem's own status; NATS as
the reply.  In a list of results each refused part has one, and `--json` of the command line prints one.

Rules
  1. An answer is a problem if, and only if, it is an object whose `type` begins with `URN`: no other answer has a `type`.
  2. `status` is the status that HTTP has for it, also where no HTTP is spoken.
  3. With status 429 or 503 the same request should be sent again `retry_after_s` later, not sooner: HTTP has it as
     `Retry-After` too.
  4. Readers ignore fields that they do not know; a code that is new to them is worth what its status is worth.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from schemas.requests_base import Message
from schemas.times import TimeText

JSON: Final = "application/problem+json"
MSGPACK: Final = "application/problem+msgpack"
URN: Final = "urn:phoenix:problem:"
RETRY_S: Final = 1.0  # until the same request may be sent again, where nothing better is known
RETRIED: Final = (429, 503)  # rule 3
TOO_LARGE: Final = 413
HEAD: Final = b'{"type":"' + URN.encode()  # how a problem begins that is written here

Code: TypeAlias = Literal[
    "invalid", "unknown", "denied", "conflict", "limit", "gone", "unavailable", "failed", "unanswered"
]


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """`status`: the usual one; `others`: those of special cases, with the case; `means`: what its reader should know."""

    title: str
    status: int
    others: tuple[tuple[int, str], ...] = ()
    means: str


KINDS: Final[dict[Code, Kind]] = {
    "invalid": Kind(
        title="The request is wrong",
        status=422,
        others=(
            (400, "it cannot be read, or a parameter of its query is wrong"),
            (405, "the path does not have this method; `Allow` lists those it has"),
        ),
        means="`field` names the part that is wrong, if it is one part",
    ),
    "unknown": Kind(
        title="There is no such thing",
        status=404,
        means="a job, host, department, path, … that does not exist, or that this caller may not see",
    ),
    "denied": Kind(
        title="The caller may not do this",
        status=403,
        others=(
            (401, "no valid token; `WWW-Authenticate` is set"),
            (421, "the server does not have the name that was asked for"),
        ),
        means="another credential is needed",
    ),
    "conflict": Kind(
        title="The present state does not allow it",
        status=409,
        means="the job has ended, a request id is taken, …; of a lease that collides, `lease` has the alternatives",
    ),
    "limit": Kind(
        title="A limit is reached",
        status=429,
        others=((413, "too large: waiting does not help"), (408, "the body came too slowly")),
        means="429: too many at once, or a quota is used up: try again after `retry_after_s`",
    ),
    "gone": Kind(
        title="It is over",
        status=410,
        means="events before `oldest` are not kept; to a guest: its attempt is over",
    ),
    "unavailable": Kind(
        title="It cannot be done now",
        status=503,
        means="a part of the cloud does not answer: try again after `retry_after_s`",
    ),
    "failed": Kind(
        title="It failed",
        status=500,
        means="a defect, or a plug-in that fails: the log of the process has the details",
    ),
    "unanswered": Kind(
        title="The outcome is unknown",
        status=504,
        means="of the command line alone: a change was sent and no answer came, so it may have happened",
    ),
}


class LeaseOffer(Message, frozen=True, kw_only=True):
    """A lease that would have been granted when this was written: the same but for what is named here.  `nodes`: number of
    hosts; `start_at`: start; `end_at`: end."""

    nodes: int
    start_at: TimeText
    end_at: TimeText


class LeaseRefusal(Message, frozen=True, kw_only=True):
    """Why a lease collides with others, and what would be granted instead.  `at`: from when on it collides;
    `collides_with`: the leases with which it collides; `earliest`: the same size at the first possible time; `smaller`: fewer
    nodes at the wanted time; `latest_end_at`: how far it could be extended."""

    at: TimeText
    collides_with: tuple[str, ...] = ()
    earliest: LeaseOffer | None = None
    smaller: LeaseOffer | None = None
    latest_end_at: TimeText | None = None


class Problem(Message, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request was not granted, in the form of RFC 9457; what does not apply is left out.  `type`: the code as a URN;
    `title`: a fixed text of each code; `status`: the status of HTTP; `detail`: a sentence on this occurrence; `code`: kind of
    the problem; `field`: the part of the request that is wrong; `lease`: of a lease that collides with others, the
    alternatives; `oldest`: the journal position from which on events are kept; `retry_after_s`: seconds before the same request
    should be sent again."""

    type: str
    title: str
    status: int
    detail: str
    code: Code
    field: str | None = None
    lease: LeaseRefusal | None = None
    oldest: int | None = None
    retry_after_s: float | None = None


def problem(
    code: Code,
    detail: str,
    field: str | None = None,
    *,
    status: int | None = None,
    lease: LeaseRefusal | None = None,
    oldest: int | None = None,
    retry_after_s: float | None = None,
) -> Problem:
    """`status`: None for the usual one of `code`; `retry_after_s`: None if nothing better than `RETRY_S` is known."""
    kind = KINDS[code]
    shown = kind.status if status is None else status
    return Problem(
        type=URN + code,
        title=kind.title,
        status=shown,
        detail=detail,
        code=code,
        field=field,
        lease=lease,
        oldest=oldest,
        retry_after_s=(RETRY_S if retry_after_s is None else retry_after_s) if shown in RETRIED else None,
    )


def is_problem(data: bytes) -> bool:
    """Whether JSON that was written by this module's encoder, as every answer of a service, is a problem."""
    return data.startswith(HEAD)


def problem_in(data: bytes) -> Problem | None:
    """The problem of a service's answer in JSON; None if it is none."""
    return _decoder.decode(data) if is_problem(data) else None


_decoder: Final = msgspec.json.Decoder(Problem)
