"""What facts are made of: names, numbers and times with their bounds, and the two kinds of fact (`schemas.facts`, rule 2)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, TypeAlias

import msgspec

from schemas.validation import WORDS

# Checked when a message is decoded: what does not fit is garbage, void for every reader (S10), and cannot break the fold.
_END: Final = r"$(?!\n)"  # `$` alone would let a trailing newline pass
JobId: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=rf"^[1-9][0-9]{{0,17}}{_END}", extra={WORDS: "a job's number, as 17,"})
]
UnitId: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^([1-9][0-9]{{0,17}}(_(0|[1-9][0-9]{{0,8}}))?|[a-z][a-z0-9-]{{0,31}}\.[1-9][0-9]{{0,17}}){_END}",
        extra={WORDS: "a job's number, an element's or an instance's name, as 17, 17_3 or web.5,"},
    ),
]
DepartmentName: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^[a-z][a-z0-9-]{{0,31}}{_END}",
        extra={WORDS: "a name of 1 to 32 small letters, digits and '-' only, beginning with a letter,"},
    ),
]
_RANGE: Final = r"[0-9]{1,9}(-[0-9]{1,9}(:[1-9][0-9]{0,8})?)?"
Elements: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=rf"^{_RANGE}(,{_RANGE})*{_END}",
        extra={WORDS: "indices and ranges of them, as 1-100:2,107,"},
    ),
]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
AttemptNumber: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1 << 31)]
Rank: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=65_535)]  # a VM each: no cluster runs more for one job
Index: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=999_999_999)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]  # no NaN, no infinity


class Disposal(StrEnum):
    """What becomes of a unit whose attempt is closed."""

    KILL = "kill"  # final: killed
    REQUEUE = "requeue"  # pending again, from the start
    SUSPEND = "suspend"  # pending, to be resumed
    MIGRATE = "migrate"  # pending, to be resumed elsewhere at once
    TIMEOUT = "timeout"  # final: over its walltime
    CANCELLED = "cancelled"  # final
    FAILED = "failed"  # final
    STOPPED = "stopped"  # final: an instance that is not needed any more


class AnyKind(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What every fact is.  `kind`: which fact it is, as `noun.verb`."""


class CustodyFact(AnyKind, frozen=True, kw_only=True):
    """A fact by which it is decided whose a host or a VM is.  `custody`: true: a reader that does not know this kind of fact
    must stop."""

    custody: bool = True


class PlainFact(AnyKind, frozen=True, kw_only=True):
    """Any other fact.  `custody`: false: a reader that does not know this kind of fact may ignore it."""

    custody: bool = False
