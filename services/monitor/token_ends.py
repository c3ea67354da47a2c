"""When people's HTTP tokens end: the first of each user's that has not yet.

One that has ended is not shown: who holds it is refused and told why, and an end in the past would never stop to be one.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from services.runtime.identity import Identities


class TokenEnds(Collector):
    """Registers with a Prometheus registry."""

    def __init__(self, identities: Identities) -> None:
        self.identities = identities

    def collect(self) -> Iterator[Metric]:
        self.identities.reload_if_changed()
        ends = GaugeMetricFamily(
            "phoenix_token_expiry_timestamp_seconds",
            "When the first HTTP token of a user ends, of those that were issued with an end",
            labels=["user"],
        )
        for user, at in sorted(self.identities.ends().items()):
            ends.add_metric([user], at)
        yield ends
