"""One decision, one message: the envelope, its codec, and what a reader makes of what it does not know.

Rules
  1. All facts of one decision travel in one envelope (DESIGN §2): atomic in storage, validity is per fact.
  2. Unknown fields are ignored.  An unknown kind is kept as `UnknownFact`; whether that stops the reader is its `custody`
     flag (PROTOCOL S8).
  3. Formats (`v`) below 2 are upgraded as they are read (`schemas.upgrade`), and so is a reason that is not known.
  4. Bytes that are no envelope of the subject's writer raise `Garbage`: void for every reader, counted (S10).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias, final

import msgspec

from schemas import upgrade
from schemas.facts import BY_KIND, Fact, written_by

VERSION: Final = upgrade.FORMAT
FACTS_MAX: Final = 2000  # with the largest common fact about 400 bytes: below 1 MiB, NATS' default max_payload
BYTES_MAX: Final = 900_000


class Garbage(Exception):
    """Not an envelope of this subject's writer.  The message says why."""


@final
class UnknownFact(msgspec.Struct, frozen=True, kw_only=True):
    """A fact of a kind that this version does not know."""

    kind: str
    custody: bool = True  # absent: assume that custody reads it; stopping is safe, guessing is not


AnyFact = Fact | UnknownFact


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """All facts of one decision.  `v`: version of this form; `id`: unique id of the message; `writer`: the service that
    decided; of a scheduler with its department, such as `scheduler.hpc`; `at`: time of the decision, UTC seconds (S6);
    `cause`: journal position or request id that led to it; `facts`: the facts, in order."""

    v: Annotated[int, msgspec.Meta(ge=VERSION)] = VERSION
    id: str
    writer: str
    epoch: int
    at: float
    cause: str = ""
    facts: tuple[Fact, ...]


class Mixed(msgspec.Struct, frozen=True, kw_only=True):
    """An envelope as read that holds kinds of facts that this version does not know."""

    v: int
    id: str
    writer: str
    epoch: int
    at: float
    cause: str
    facts: tuple[AnyFact, ...]


Received: TypeAlias = Envelope | Mixed


class _Loose(msgspec.Struct, frozen=True, kw_only=True):
    v: int
    id: str
    writer: str
    epoch: int
    at: float
    cause: str = ""
    facts: tuple[msgspec.Raw, ...]


class _Kind(msgspec.Struct, frozen=True):
    kind: str
    custody: bool = True


_encoder = msgspec.msgpack.Encoder()
_strict = msgspec.msgpack.Decoder(Envelope)
_loose = msgspec.msgpack.Decoder(_Loose)
_kind = msgspec.msgpack.Decoder(_Kind)
_fact = msgspec.msgpack.Decoder(Fact)


def encode(envelope: Envelope) -> bytes:
    return _encoder.encode(envelope)


def fact_size(fact: Fact) -> int:
    """Bytes of one fact on the wire."""
    return len(_encoder.encode(fact))


def decode(data: bytes, writer: str) -> Received:
    """Read a message of `phoenix.journal.<writer>`.  Raises `Garbage`."""
    envelope: Received
    try:
        envelope = _strict.decode(data)
    except (msgspec.DecodeError, RecursionError):
        envelope = _decode_loosely(data)
    _refuse_foreign(envelope, writer)
    return envelope


def _decode_loosely(data: bytes) -> Received:
    try:
        told = _loose.decode(data)
        facts = tuple(_decode_fact(raw, told.v) for raw in told.facts)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Garbage(f"not an envelope: {error}") from error
    head: dict[str, Any] = {
        "v": told.v,
        "id": told.id,
        "writer": told.writer,
        "epoch": told.epoch,
        "at": told.at,
        "cause": told.cause,
    }
    known = tuple(fact for fact in facts if not isinstance(fact, UnknownFact))
    return Envelope(**head, facts=known) if len(known) == len(facts) else Mixed(**head, facts=facts)


def _decode_fact(raw: msgspec.Raw, envelope_format: int) -> AnyFact:
    head = _kind.decode(raw)
    if head.kind not in BY_KIND:
        return UnknownFact(kind=head.kind, custody=head.custody)
    if head.kind in upgrade.EXPLAINED:
        return upgrade.fact(msgspec.msgpack.decode(raw), envelope_format)
    fact: Fact = _fact.decode(raw)
    return fact


def _refuse_foreign(envelope: Received, writer: str) -> None:
    if envelope.v < 1:
        raise Garbage(f"envelope version {envelope.v} is not positive")
    if envelope.writer != writer:
        raise Garbage(f"envelope of {envelope.writer!r} on the subject of {writer!r}")
    if not -1e12 < envelope.at < 1e12:  # also catches NaN
        raise Garbage(f"envelope time {envelope.at!r} is not a time")
    its_own = written_by(writer)
    for fact in envelope.facts:
        if type(fact) not in its_own and type(fact) is not UnknownFact:
            raise Garbage(f"{writer!r} may not write {type(fact).__name__}")
