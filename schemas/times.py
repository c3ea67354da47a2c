"""A time on the wire: RFC 3339, in UTC, to the millisecond (facts of the journal have UTC seconds)."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypeAlias

from msgspec import Meta

Time: TypeAlias = Annotated[datetime, Meta(tz=True)]
