"""Messages that nobody who means well would send, made from what the schemas allow: almost right, wrong in one place, or noise.

Rules
  1. `Fuzz(seed)` says the same again and again; whoever finds something names the seed.
  2. A third of what is made is what the schema allows, with odd values; a third has a field of another kind, too many, or too
     few; a third is what is left after bytes were flipped, cut, repeated or put in.
  3. Odd are values at bounds, of great depth or length, and texts that a shell, a path, a template, a terminal or a database
     would take for something else.
  4. Half of all messages are tame, but for what is done to them afterwards: within the schema's bounds, and with plain texts.
     So much of what is sent is understood, and some of it granted.
"""

from __future__ import annotations

import enum
import json
import math
import random
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect

TEXTS: Final = (
    "", "0", "-1", "1_1", "web.1", "hpc", "ann", "true", "job", "\x00", "\x1b[2J", "\u202etxt", "\ufeff",
    "é" * 40, "\U0001f4a9", "../../../etc/passwd", "/", "a/b", "a?b", "a#b", "%00", "%s%n", "$(id)", "`id`",
    "${PATH}", "'; DROP TABLE jobs; --", "<x/>", "]]>", "{{7*7}}", "a b", "a\nb", "\r\nX: y", "nan", "1e999",
    "x" * 300, "9" * 400, "_INBOX.x", "phoenix.journal.executor",
)  # fmt: skip
PLAIN: Final = ("1", "2", "7", "3_1", "web.1", "web", "hpc", "cpu", "#!/bin/sh\ntrue\n", "a", "1-3", "host001")
NUMBERS: Final = (0, 1, -1, 2, 255, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1)
FLOATS: Final = (0.0, -0.0, 0.5, -1.0, 1e-300, 1e300, 1e18, math.inf, -math.inf, math.nan)
TIMES: Final = (
    "1970-01-01T00:00:00Z", "2026-05-28T20:26:40.000Z", "2026-05-28T22:26:40.5+02:00", "2026-05-28T20:26:40", "now", "",
    "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999-12:00", "2026-02-30T00:00:00Z",
)  # fmt: skip
NEEDED: Final = ("script",)  # of a job, though its schema lets it out
DEPTH_MAX: Final = 4
DEEP: Final = 20_000
LONG: Final = 200_000
_shape_of: Final = cache(inspect.type_info)  # takes longer than all the rest


class Fuzz:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._tame = False  # rule 4, of the message that is being made

    def message(self, kind: type, *, json_only: bool = False) -> bytes:
        """Bytes that are meant to be of this kind, in JSON or MessagePack."""
        rng = self.rng
        self._tame = rng.random() < 0.5
        value = self.value(_shape_of(kind))
        self._tame = False
        how = rng.randrange(3)
        if how == 1:
            value = self.bent(value)
        data = self.encoded(value, json_only or rng.random() < 0.5)
        return self.broken(data) if how == 2 else data

    def encoded(self, value: Any, as_json: bool) -> bytes:
        """What one of the formats cannot say is said in the other."""
        if as_json:
            return json.dumps(value, default=str).encode("utf-8", "surrogatepass")
        try:
            return msgspec.msgpack.encode(value)
        except (OverflowError, UnicodeEncodeError):
            return self.encoded(value, True)

    # ------------------------------------------------------------------------------------------------------------- values

    def value(self, kind: inspect.Type, depth: int = 0) -> Any:
        """Of the kind, by its shape alone: bounds are not kept."""
        rng = self.rng
        match kind:
            case inspect.StructType():
                share = 0.1 if self._tame else 0.4
                given = [f for f in kind.fields if f.required or f.encode_name in NEEDED or rng.random() < share]
                found = {f.encode_name: self.value(f.type, depth + 1) for f in given}
                return found if kind.tag is None or kind.tag_field is None else {kind.tag_field: kind.tag, **found}
            case inspect.UnionType():
                return self.value(rng.choice(kind.types), depth)
            case inspect.LiteralType():
                return rng.choice(kind.values)
            case inspect.EnumType():
                return rng.choice([e.value for e in kind.cls if isinstance(e, enum.Enum)])
            case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.CollectionType():
                return [self.value(kind.item_type, depth + 1) for _ in range(self._count(depth))]
            case inspect.TupleType():
                return [self.value(each, depth + 1) for each in kind.item_types]
            case inspect.DictType():
                keys = [self.value(kind.key_type, depth + 1) for _ in range(self._count(depth))]
                return {str(key): self.value(kind.value_type, depth + 1) for key in keys}
            case inspect.IntType():
                if self._tame:
                    return self._within(kind) + rng.choice((0, 0, 1, 1, 2, 9))
                return rng.choice(NUMBERS) if rng.random() < 0.5 else rng.randrange(20)
            case inspect.FloatType():
                if self._tame:
                    return self._within(kind) + rng.choice((0.0, 0.1, 0.5, 1.0, 60.0))
                return rng.choice(FLOATS) if rng.random() < 0.5 else rng.random() * 100
            case inspect.DateTimeType():
                return rng.choice(TIMES)
            case inspect.BoolType():
                return rng.random() < 0.5
            case inspect.NoneType():
                return None
            case inspect.BytesType():
                return rng.randbytes(rng.choice((0, 1, 1000)))
        return self.text()

    def text(self) -> str:
        return self.rng.choice(PLAIN if self._tame or self.rng.random() < 0.5 else TEXTS)

    def _within(self, kind: inspect.IntType | inspect.FloatType) -> int:
        """The least that is sensible."""
        return math.floor(kind.gt) + 1 if kind.gt is not None else max(0, math.ceil(kind.ge or 0))

    def _count(self, depth: int) -> int:
        return 0 if depth > DEPTH_MAX else 1 if self._tame else self.rng.choice((0, 1, 1, 2, 3, 30))

    def bent(self, value: Any) -> Any:
        """In one place of it, or all of it, something else."""
        rng = self.rng
        if isinstance(value, dict) and value and rng.random() < 0.8:
            name = rng.choice(list(value))
            found = dict(value)
            change: Callable[[], Any] = rng.choice((
                lambda: found.pop(name),
                lambda: found.update({rng.choice(TEXTS): self.any()}),
                lambda: found.update({name: self.any()}),
                lambda: found.update({name: self.bent(found[name])}),
            ))  # fmt: skip
            change()
            return found
        if isinstance(value, list) and value and rng.random() < 0.5:
            return [*value[:-1], self.bent(value[-1])]
        return self.any()

    def any(self) -> Any:
        rng = self.rng
        return rng.choice((
            None, True, rng.choice(NUMBERS), rng.choice(FLOATS), rng.choice(TEXTS), [], {}, [[]] * 3, {"a": {"b": 1}},
            b"\xff\x00",
        ))  # fmt: skip

    def broken(self, data: bytes) -> bytes:
        rng, found = self.rng, bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 8))):
            at = rng.randrange(len(found) + 1)
            match rng.randrange(6):
                case 0:
                    del found[at:]
                case 1:
                    found[at:at] = rng.randbytes(rng.randrange(1, 9))
                case 2 if at < len(found):
                    found[at] ^= 1 << rng.randrange(8)
                case 3:
                    found[at:at] = found[: rng.randrange(64)]
                case 4:
                    del found[at : at + rng.randrange(1, 9)]
        if rng.random() < 0.002:
            opening = rng.choice((b"[", b'{"a":', b"\x91", b"\x81\xa1a"))
            return opening * DEEP + bytes(found)
        if rng.random() < 0.001:
            return bytes(found) * (LONG // max(1, len(found)) + 1)
        return bytes(found)

    def noise(self) -> bytes:
        return self.rng.randbytes(self.rng.choice((0, 1, 7, 100, 2000)))

    def kind(self, known: Mapping[str, type], name: str = "") -> tuple[str, bytes]:
        """A name of a message, most times one that there is, and a body."""
        name = name or self.rng.choice(list(known))
        body = self.message(known[name]) if self.rng.random() < 0.95 else self.noise()
        return (name if self.rng.random() < 0.97 else self.rng.choice(TEXTS)), body
