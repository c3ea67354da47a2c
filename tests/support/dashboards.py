"""What the dashboards ask, as Grafana would ask it: each query with its variables filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

DASHBOARDS: Final = Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "dashboards"
ALL: Final[dict[str, dict[str, Any]]] = {
    file.stem: json.loads(file.read_text()) for file in sorted(DASHBOARDS.iterdir())
}
# What a cloud that is well, and reached in the clear, need not have: there is nothing to report.  And what is counted by
# reasons: such a counter is born as 1, which is no increase yet.
QUIET: Final = frozenset(
    {
        "phoenix_attempts_closed_total",
        "phoenix_hosts_quarantined",
        "phoenix_certificate_expiry_timestamp_seconds",
        "phoenix_token_expiry_timestamp_seconds",
        "phoenix_signals_dropped_total",
        "phoenix_web_instances_claimed",
        "phoenix_web_answers_total",  # a share of what is asked of it, if anything is
        "phoenix_requests_refused_total",
        "phoenix_opennebula_failures_total",
        "phoenix_custody_void_facts_total",
    }
)
NAME: Final = re.compile(r"\b(?:(?:phoenix|process)_[a-z_]+|up|ALERTS)(?=\{)")


class Asked(NamedTuple):
    """A query of a panel of a dashboard (its uid)."""

    dashboard: str
    panel: str
    query: str
    legend: str

    def expr(self, **variables: str) -> str:
        """Filled in: `$cloud`, `$department`, and the intervals that Grafana works out."""
        return re.sub(r"\$(\w+)", lambda found: {"__rate_interval": "15s", **variables}[found[1]], self.query)

    @property
    def names(self) -> set[str]:
        return set(NAME.findall(self.query))


def asked() -> Iterator[Asked]:
    for uid, dashboard in ALL.items():
        for panel in dashboard["panels"]:
            for query in panel.get("targets", []):
                yield Asked(uid, panel["title"], query["expr"], query["legendFormat"])


def unanswered(
    ask: Callable[[str], Any], left: Iterable[Asked], cloud: str, departments: tuple[str, ...]
) -> list[Asked]:
    """Ask a Prometheus (`ask`: a path of its API, raises for an error); those of `left` that have no series for any department,
    though they should."""
    found = []
    for one in left:
        exprs = dict.fromkeys(one.expr(cloud=cloud, department=name) for name in departments)
        answers = [ask(f"query?query={quote(expr)}")["result"] for expr in exprs]
        if not any(answers) and not one.names & QUIET:
            found.append(one)
    return found
