"""When people's HTTP tokens end: the first of each user's that has not yet.

One that has ended is not shown: its holder is refused with that reason, and an end in the past would never stop to be one.
Neither is one that was issued for less than `LASTING_S`: it is meant to end, and needs no warning.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from services.runtime.callers.identity import Identities
from services.runtime.families import Label, Names, Table
from services.runtime.tokens import TokenError

LASTING_S: Final = 14 * 86400.0  # twice as long as before its end the alert is given: PhoenixTokenExpires

TABLE: Final = Table("monitor: tokens")
ENDS: Final = TABLE.gauge(
    "phoenix_token_expiry_timestamp_seconds",
    "When the first HTTP token of a user ends, of those that were issued for two weeks or longer and have not ended",
    Label("user", Names.USERS),
)


class TokenEnds(Collector):
    """Registers with a Prometheus registry."""

    def __init__(self, identities: Identities) -> None:
        self.identities = identities

    def collect(self) -> Iterator[Metric]:
        with contextlib.suppress(
            OSError, TokenError
        ):  # a damaged file is the doors' to tell; what was known still ends
            self.identities.reload_if_changed()
        ends = ENDS.family()
        for user, at in sorted(self.identities.ends(LASTING_S).items()):
            ends.add_metric([user], at)
        yield ends
