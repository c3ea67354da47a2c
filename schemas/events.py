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
from schemas.times import Time


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A fact, as it is published.  `v`: version of this form; `id`: `<position>.<index>`: an event that is delivered twice
    has the same id; `position`: number of the envelope in the journal; `index`: number of the fact in its envelope; `at`:
    time of the decision; `kind`: which fact it is, as `noun.verb`; `department`: the department that it
    concerns, or `site`; `writer`: the service that wrote the fact; `fact`: the fact; its fields depend on the kind."""

    v: int = 1
    id: str
    position: int
    index: int
    at: Time
    kind: str
    department: str
    writer: str = ""
    fact: Fact


def decode(payload: bytes) -> Event:
    """Raises `msgspec.DecodeError`, among others for a kind that this version does not know."""
    return msgspec.json.decode(payload, type=Event)
