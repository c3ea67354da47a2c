"""What answers of the monitor stand on.

Rules
  1. Times are RFC 3339 in UTC with a Z, to the millisecond; durations are seconds, with the unit in the name.
  2. A field that an answer always has, and that may be unknown, is null then; one that not every answer has may be left out.
  3. Fields are only ever added: a reader ignores those that it does not know.
"""

from __future__ import annotations

import msgspec

from schemas.reasons import Reason as Reason
from schemas.times import Time as Time


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Of a read."""
