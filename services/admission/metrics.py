"""What admission exports beside its shell."""

from __future__ import annotations

from typing import Final, get_args

from schemas.requests import REQUESTS
from services.runtime.families import Label, Table
from services.runtime.refusal import RefusalCode

TABLE: Final = Table("admission")
GRANTED: Final = TABLE.counter(
    "phoenix_requests_granted_total", "Requests that were granted, by kind", Label.of("kind", REQUESTS)
)
REFUSED: Final = TABLE.counter(
    "phoenix_requests_refused_total", "Requests that were refused, by code", Label.of("code", get_args(RefusalCode))
)
MEASURES: Final = TABLE.counter(
    "phoenix_admission_measures_total",
    "Measures of guests, by what became of them",
    Label.of("outcome", ("taken", "too_often", "too_many", "implausible", "lost")),
)
