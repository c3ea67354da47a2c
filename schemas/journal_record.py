"""What happened, for those who play it again: the lines of the monitor's record of the journal (`phoenix whatif`).

    {"record": 2, "cloud": …, "since": …, "until": …, "to": <position>}        first line (`Head`)
    {"position": …, "at": …, "writer": …, "facts": [{"kind": …, …}, …]}         one for each envelope, in order (`Line`)
    {"end": <position of the last line>, "envelopes": …}                        last line (`Tail`)

Rules
  1. Without its last line a record is cut short.
  2. An empty line says that its writer is at work.
"""

from __future__ import annotations

from typing import Final

import msgspec

from schemas.facts import Fact

FORMAT: Final = 2  # reasons are flat (`schemas.upgrade`)


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """`record`: the form of the lines (`FORMAT`)."""

    record: int
    cloud: str
    since: float
    until: float
    to: int


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One envelope."""

    position: int
    at: float
    writer: str
    facts: tuple[Fact, ...]


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """`envelopes`: how many lines there were."""

    end: int
    envelopes: int
