"""What admission exports beside its shell."""

from __future__ import annotations

from typing import Final, get_args

from schemas.requests import REQUESTS
from services.domain.refusal import RefusalCode
from services.runtime.families import OWNER, Label, Table

TABLE: Final = Table("admission")
GRANTED: Final = TABLE.counter(
    "phoenix_requests_granted_total", "Requests that were granted, by kind", Label.of("kind", REQUESTS)
)
REFUSED: Final = TABLE.counter(
    "phoenix_requests_refused_total", "Requests that were refused, by code", Label.of("code", get_args(RefusalCode))
)
MEASURES: Final = TABLE.counter(
    "phoenix_admission_measures_total",
    "Measures sent by guests, by outcome",
    Label.of("outcome", ("taken", "too_often", "too_many", "implausible", "lost")),
)
STORE_BYTES: Final = TABLE.gauge(
    "phoenix_store_bytes", "Bytes of a department in the object store; empty: of before there were shares", OWNER
)
STORE_SHARE: Final = TABLE.gauge("phoenix_store_share_bytes", "Bytes that a department may have there", OWNER)
STORE_REFUSED: Final = TABLE.counter(
    "phoenix_store_refused_total", "Objects refused because the department's share or the store was full", OWNER
)
STORE_REMOVED: Final = TABLE.counter(
    "phoenix_store_removed_bytes_total",
    "Bytes removed from the object store; ended: nothing needs them any more, age: kept for as long as the configuration says, "
    "size: before that, to make room",
    OWNER,
    Label.of("why", ("ended", "age", "size")),
)
