"""Signals: measurements at a high rate, not journaled.  The process that measures publishes them; losing one loses nothing.

    phoenix.signal.<department>.<user>.<name>       JSON or MessagePack, by content type or by the first byte

Rules
  1. A signal is a level at a moment, never a change: a lost or repeated one does no harm.
  2. What does not fit is refused with the field named (`schemas.requests.Malformed`), and counted by who reads it.
  3. The web scheduler's edge condenses them into `load.observed` facts; no core reads a signal.
  4. `at` is the end of what was measured, by the publisher's clock (`schemas.times`).  What is older than LATE_S when it
     arrives, or more than AHEAD_S ahead, tells of another time or comes from a wrong clock, and is dropped.  Without `at` the
     arrival counts.

docs/reference/signals.md is the contract for who publishes them.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from schemas.config import WebPolicy
from schemas.control_characters import HIDDEN, WHAT
from schemas.facts import UnitId
from schemas.requests import is_json
from schemas.times import AskedTime, exact, received, wrong_time
from schemas.validation import UNREADABLE, WORDS, Malformed, misfit, unreadable

UTILISATION_MAX: Final = 100  # it may use one core, and uses all of a large host; more is a broken meter
INSTANCES_MAX: Final = 1_000_000
INTERVAL_MIN_S: Final = 0.001  # who measures for less has measured nothing
INTERVAL_MAX_S: Final = 3600.0
SOURCE_MAX: Final = 128  # characters
TARGET_MIN: Final = 0.001  # requests/s of an instance: less than one in a quarter of an hour is no target
RATE_MAX: Final = 1e7  # requests/s: more than any one site serves; the sum of 64 sources still fits the fact
QUEUE_MAX: Final = 10_000_000  # requests that wait, or sessions or answers of one instance
MILLISECONDS_MAX: Final = 1e9  # eleven days
SESSIONS_MAX: Final = 10_000  # instances of one signal
LATE_S: Final = 5.0  # a quarter of the usual window: older news would tell of another load
AHEAD_S: Final = 1.0  # twice the clock difference at which services stop (S6)
BYTES_MAX: Final = 4096  # a signal is about 100 bytes …
SESSIONS_BYTES_MAX: Final = 640 << 10  # … but for these two: 10,000 instances of the longest names

Source: TypeAlias = Annotated[
    str,
    Meta(
        max_length=SOURCE_MAX,
        pattern=rf"^[^{HIDDEN}]*$(?!\n)",  # people read it
        extra={WORDS: f"text of at most {SOURCE_MAX} characters without {WHAT}"},
    ),
]

Answered: TypeAlias = Annotated[int, Meta(ge=0, le=QUEUE_MAX)]


class CpuSignal(msgspec.Struct, frozen=True, kw_only=True):
    """How busy a web department's instances were.  Sources that give `instances` share the department: they are averaged by
    it.  One that does not describes the whole department.  The highest value counts.

    `utilisation`: mean over the instances that served, 1: all their cores were busy; above 1 if the meter counts demand that
    waits; `instances`: how many served; `interval_s`: how long was measured, in seconds."""

    v: Annotated[int, Meta(ge=1)] = 1
    utilisation: Annotated[float, Meta(ge=0, le=UTILISATION_MAX)]
    instances: Annotated[int, Meta(ge=0, le=INSTANCES_MAX)] | None = None
    at: AskedTime | None = None
    interval_s: Annotated[float, Meta(ge=INTERVAL_MIN_S, le=INTERVAL_MAX_S)] = 1.0
    source: Source = ""


class RequestsSignal(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that came to a load balancer.  Rates of several sources add up: each sees its own part.  Nothing is decided by
    `queue`, `response_ms`, `errors` and `refused`.

    `rate`: requests per second that came in over the interval, whether they were answered or not; `target`: requests per
    second that one instance is to serve; null: the department's `requests_per_instance`; each source's counts for its own
    rate; `queue`: requests that wait now; `response_ms`: mean time to answer, in milliseconds; `errors`: requests per second
    that failed; `refused`: requests per second that the balancer turned away (503), since no instance had room; `interval_s`:
    how long was measured, in seconds."""

    v: Annotated[int, Meta(ge=1)] = 1
    rate: Annotated[float, Meta(ge=0, le=RATE_MAX)]
    target: Annotated[float, Meta(ge=TARGET_MIN, le=RATE_MAX)] | None = None
    queue: Annotated[int, Meta(ge=0, le=QUEUE_MAX)] | None = None
    response_ms: Annotated[float, Meta(ge=0, le=MILLISECONDS_MAX)] | None = None
    errors: Annotated[float, Meta(ge=0, le=RATE_MAX)] | None = None
    refused: Annotated[float, Meta(ge=0, le=RATE_MAX)] | None = None
    at: AskedTime | None = None
    interval_s: Annotated[float, Meta(ge=INTERVAL_MIN_S, le=INTERVAL_MAX_S)] = 1.0
    source: Source = ""


class ClaimSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A ready claim: a number of instances, whatever the load.  A level: it is repeated as long as it holds, and ends
    `signal_timeout_s` after the last one, or with a lower one.  The highest claim of all sources counts, beside what the load
    needs.  The department limits how many a user may claim (`claim_max_user`).  `instances`: instances wanted in all."""

    v: Annotated[int, Meta(ge=1)] = 1
    instances: Annotated[int, Meta(ge=0, le=INSTANCES_MAX)]
    at: AskedTime | None = None
    source: Source = ""


class SessionsSignal(msgspec.Struct, frozen=True, kw_only=True):
    """Open sessions by instance; those of several sources add up.  `sessions`: instance -> open sessions there, as this
    source sees them."""

    v: Annotated[int, Meta(ge=1)] = 1
    sessions: Annotated[dict[UnitId, Annotated[int, Meta(ge=0, le=QUEUE_MAX)]], Meta(max_length=SESSIONS_MAX)]
    at: AskedTime | None = None
    source: Source = ""


class AnswersSignal(msgspec.Struct, frozen=True, kw_only=True):
    """What instances have answered since the source's last signal.  Errors, part of the answers, are answers 5xx, and
    requests to which the instance had begun to work when it broke the connection or was silent for too long.  Requests that
    the balancer refuses by itself do not count.  Counts of several sources add up.  `instances`: instance -> number of
    answers, and of errors among them."""

    v: Annotated[int, Meta(ge=1)] = 1
    instances: Annotated[dict[UnitId, tuple[Answered, Answered]], Meta(max_length=SESSIONS_MAX)]
    at: AskedTime | None = None
    source: Source = ""


def claim_max(policy: WebPolicy, role: str) -> int:
    """Instances that a user of this role may claim.  To claim is to scale: users may as far as the configuration says."""
    return policy.claim_max_user if role == "user" else policy.instances_max


def may_tell(policy: WebPolicy, user: str, role: str) -> bool:
    """Whether the word of this user of the department counts: on the load, and on which instances are ready."""
    return not policy.balancers or role != "user" or user in policy.balancers


def balancers_of(department: str, policy: WebPolicy) -> str:
    """Whose it counts instead."""
    return f"balancers of {department}: {', '.join(policy.balancers)}"


AnySignal: TypeAlias = CpuSignal | RequestsSignal | ClaimSignal | SessionsSignal | AnswersSignal
SIGNALS: Final[dict[str, type[msgspec.Struct]]] = {
    "cpu": CpuSignal,
    "requests": RequestsSignal,
    "claim": ClaimSignal,
    "sessions": SessionsSignal,
    "answers": AnswersSignal,
}

NAME: Final[dict[type[msgspec.Struct], str]] = {cls: name for name, cls in SIGNALS.items()}

_json: Final = {name: msgspec.json.Decoder(cls) for name, cls in SIGNALS.items()}
_msgpack: Final = {name: msgspec.msgpack.Decoder(cls) for name, cls in SIGNALS.items()}


def bytes_max(name: str) -> int:
    return SESSIONS_BYTES_MAX if name in ("sessions", "answers") else BYTES_MAX


def encode(signal: AnySignal) -> bytes:
    """JSON, with its time in UTC and to the millisecond, as all times are written."""
    if signal.at is not None:
        signal = msgspec.structs.replace(signal, at=exact(received(signal.at)))
    return msgspec.json.encode(signal)


def decode(name: str, payload: bytes, content_type: str = "") -> Any:
    """The signal `name` ("cpu").  Raises `Malformed`; KeyError for a name that is no signal."""
    decoder = (_json if is_json(payload, content_type) else _msgpack)[name]
    if len(payload) > bytes_max(name):
        raise Malformed(f"a signal of {len(payload)} bytes; at most {bytes_max(name)} are read")
    try:
        signal = decoder.decode(payload)
    except msgspec.ValidationError as error:
        told = misfit(error, SIGNALS[name])
        raise Malformed(told.message, told.field and told.field.partition("[")[0]) from None
    except UNREADABLE as error:
        form = "JSON" if decoder is _json[name] else "MessagePack"
        raise unreadable(error, payload, form) from None
    if wrong := wrong_time(signal, "at"):
        raise Malformed(wrong[1], wrong[0])
    return signal
