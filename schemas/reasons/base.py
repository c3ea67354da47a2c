"""What every reason is: a struct with its words.

    WaitsForHosts(nodes=2, cores=4, free=1, held=3)  on the wire  {"code": "waits_for_hosts", "nodes": 2, …}

Rules
  1. A reason is frozen, and its `code` is its tag.  Numbers and ids are its fields, no prose; what is not known is None, or
     empty, and is not written.
  2. Its words stand in its class: a few for a column (`COLUMN`), a sentence (`SENTENCE`) and what would unblock it (`REMEDY`,
     empty if nothing would), without numbers; where these make a better sentence, `column`, `sentence` and `remedy`
     are its own.  They never raise: a number that is not known reads as `?`.
  3. Reasons explain.  No decision and no account reads one: what a decision needs is a field of a fact.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from schemas.causes import Basis, Cause
from schemas.words import with_details


class AnyReason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="code"):
    """What every reason is.  `code`: which reason it is."""

    COLUMN: ClassVar[str]
    SENTENCE: ClassVar[str]
    REMEDY: ClassVar[str] = ""
    CAUSE: ClassVar[Cause] = Cause.OTHER  # of an attempt that was closed for it, as the fact has it
    BASIS: ClassVar[Basis] = Basis.LOAD  # of a demand, as the fact has it

    def column(self) -> str:
        """A few words."""
        return self.COLUMN

    def sentence(self) -> str:
        """In full, with its numbers.  It begins small and ends without a full stop."""
        return with_details(self.SENTENCE, fields(self))

    def remedy(self) -> str:
        """What would unblock it, or an empty string."""
        return self.REMEDY

    @property
    def ended_by(self) -> Cause:
        return self.CAUSE

    @property
    def code(self) -> str:
        return str(self.__struct_config__.tag)


def tag(kind: type[AnyReason]) -> str:
    """The code of reasons of this kind."""
    return str(kind.__struct_config__.tag)


def tags(*kinds: type[AnyReason]) -> tuple[str, ...]:
    return tuple(map(tag, kinds))


def fields(reason: AnyReason) -> dict[str, Any]:
    """What the reason says beside its code, as it is written."""
    told: dict[str, Any] = msgspec.to_builtins(reason)
    del told["code"]
    return told
