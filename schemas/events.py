"""Public events: the small, stable contract for departments and other tools.

    phoenix.event.<department>.<noun>.<verb>       JSON, one valid fact each; kept in the stream EVENTS

Rules
  1. An event is a fact that counted: void facts are never published.
  2. `id` is the fact's place in the journal, ``<position>.<index>``: an event that comes twice has the same id.
  3. Events of one journal come in journal order.  New kinds appear over time: a reader ignores those it does not know.
"""

from __future__ import annotations

import msgspec

from schemas.facts import Fact


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """`position`, `index`: place in the journal; `at`: UTC seconds; `kind`: ``noun.verb``; `department`: whom it concerns, or
    ``site``; `writer`: who wrote the fact."""

    v: int = 1
    id: str
    position: int
    index: int
    at: float
    kind: str
    department: str
    writer: str = ""
    fact: Fact


def decode(payload: bytes) -> Event:
    """Raises `msgspec.DecodeError`, among others for a kind that this version does not know."""
    return msgspec.json.decode(payload, type=Event)
