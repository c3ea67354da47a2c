"""What a dashboard is made of, and its JSON as Grafana reads it (schema version 39: Grafana 10.4 and later).

Theory of operation
  A dashboard is rows of panels, a panel is a question with its queries.  What is the same everywhere stands here once: the data
  source and the cloud are variables, panels flow from left to right, ids are counted, legends are tables with last and most.

Rules
  1. Each query is of one cloud (`series`).  Counters are read as rates over `RATE`, which follows the zoom; what is rare
     (claims, moves, preemptions) over `RARE`, or as an increase.
  2. A panel has a title, a description that says how to read it, and a unit; a query has a legend.
  3. The same definition gives the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

SCHEMA: Final = 39
COLUMNS: Final = 24  # Grafana's
RATE: Final = "$__rate_interval"
RARE: Final = "15m"  # long enough to hold some claims of a busy hour
CLOUD: Final = 'cloud="$cloud"'
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
TAG: Final = "phoenix"

Unit = Literal["short", "none", "s", "bytes", "percentunit", "reqps", "ops"]
Kind = Literal["timeseries", "stat"]


def series(name: str, **labels: str) -> str:
    """A selector in the cloud that is shown.  Values: `x` is equal, `~x` matches, `!x` is not equal, `!~x` does not match."""
    parts = [CLOUD]
    for label, value in labels.items():
        plain = value.lstrip("~!")
        operator = {"": "=", "~": "=~", "!": "!=", "!~": "!~"}[value.removesuffix(plain)]
        parts.append(f'{label}{operator}"{plain}"')
    return f"{name}{{{','.join(parts)}}}"


def rate(name: str, over: str = RATE, **labels: str) -> str:
    return f"rate({series(name, **labels)}[{over}])"


def increase(name: str, over: str = RATE, **labels: str) -> str:
    return f"increase({series(name, **labels)}[{over}])"


def total(of: str, *by: str) -> str:
    return f"sum by ({', '.join(by)}) ({of})" if by else f"sum({of})"


@dataclass(frozen=True)
class Query:
    expr: str
    legend: str


def quantiles(name: str, over: str = RATE, **labels: str) -> tuple[Query, ...]:
    """Of a histogram: the middle, and what one of twenty and one of a hundred exceed."""
    found = total(rate(f"{name}_bucket", over, **labels), "le")
    return tuple(Query(f"histogram_quantile({q}, {found})", told) for q, told in _QUANTILES)


_QUANTILES: Final = ((0.5, "half"), (0.95, "95 %"), (0.99, "99 %"))


def most_by(label: str, name: str) -> Query:
    """What one of twenty exceeds of a histogram, a line for each value of `label`."""
    return Query(f"histogram_quantile(0.95, {total(rate(f'{name}_bucket'), label, 'le')})", f"{{{{{label}}}}}")


@dataclass(frozen=True)
class Panel:
    """`colours`: of series by name; `bad`: from this value on a stat is orange, from `worse` on red."""

    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    stacked: bool = False
    stepped: bool = False
    width: int = 12
    height: int = 8
    colours: dict[str, str] = field(default_factory=dict)
    bad: float | None = None
    worse: float | None = None
    most: float | None = None


def glance(
    title: str,
    description: str,
    expr: str,
    unit: Unit = "short",
    *,
    bad: float | None = None,
    worse: float | None = None,
) -> Panel:
    """A number that says how things are now."""
    query = Query(expr, "now")
    return Panel(title, description, unit, (query,), kind="stat", width=4, height=4, bad=bad, worse=worse)


@dataclass(frozen=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Variable:
    """Values of a label, from a metric that has it."""

    name: str
    label: str
    definition: str


CLOUDS: Final = Variable("cloud", "Cloud", "label_values(phoenix_hosts_quota, cloud)")


@dataclass(frozen=True)
class Dashboard:
    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    variables: tuple[Variable, ...] = (CLOUDS,)
    window: str = "now-3h"

    def json(self) -> dict[str, Any]:
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": [TAG],
            "schemaVersion": SCHEMA,
            "version": 1,
            "editable": True,
            "graphTooltip": 1,
            "fiscalYearStartMonth": 0,
            "timezone": "browser",
            "refresh": "30s",
            "time": {"from": self.window, "to": "now"},
            "timepicker": {},
            "templating": {"list": [_DATASOURCE, *map(_variable, self.variables)]},
            "annotations": {"list": [_ALERTS]},
            "links": [_LINKS],
            "panels": _placed(self.rows),
        }


_DATASOURCE: Final = {
    "name": "datasource",
    "label": "Prometheus",
    "type": "datasource",
    "query": "prometheus",
    "regex": "",
    "hide": 0,
    "includeAll": False,
    "multi": False,
    "options": [],
    "current": {},
    "refresh": 1,
    "skipUrlSync": False,
}
_ALERTS: Final = {
    "name": "Alerts",
    "datasource": SOURCE,
    "enable": True,
    "hide": False,
    "iconColor": "red",
    "expr": f'ALERTS{{alertstate="firing",{CLOUD}}}',
    "titleFormat": "{{alertname}}",
    "textFormat": "{{severity}} {{department}}",
    "step": "30s",
}
_LINKS: Final = {
    "title": "Phoenix Cloud",
    "type": "dashboards",
    "tags": [TAG],
    "icon": "external link",
    "tooltip": "",
    "url": "",
    "asDropdown": False,
    "includeVars": True,
    "keepTime": True,
    "targetBlank": False,
}


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "label": variable.label,
        "type": "query",
        "datasource": SOURCE,
        "definition": variable.definition,
        "query": {"query": variable.definition, "refId": f"variable-{variable.name}"},
        "regex": "",
        "sort": 1,
        "refresh": 2,
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "options": [],
        "current": {},
        "skipUrlSync": False,
    }


def _placed(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    """Rows one below the other; in each, panels from left to right, and on below what is there."""
    found: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        found.append({"id": len(found) + 1, "type": "row", "title": row.title, "collapsed": False, "panels": []})
        found[-1]["gridPos"] = {"h": 1, "w": COLUMNS, "x": 0, "y": y}
        y += 1
        x = height = 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y, height = 0, y + height, 0
            place = {"h": panel.height, "w": panel.width, "x": x, "y": y}
            found.append({"id": len(found) + 1, **_panel(panel), "gridPos": place})
            x, height = x + panel.width, max(height, panel.height)
        y += height
    return found


def _panel(panel: Panel) -> dict[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": _field(panel), "overrides": [_coloured(n, c) for n, c in panel.colours.items()]},
        "options": _LINES if panel.kind == "timeseries" else _NUMBER,
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "editorMode": "code",
                "range": True,
            }
            for index, query in enumerate(panel.queries)
        ],
    }


_LINES: Final = {
    "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True, "calcs": ["lastNotNull", "max"]},
    "tooltip": {"mode": "multi", "sort": "desc"},
}
_NUMBER: Final = {
    "reduceOptions": {"values": False, "calcs": ["lastNotNull"], "fields": ""},
    "orientation": "auto",
    "textMode": "auto",
    "colorMode": "value",
    "graphMode": "area",
    "justifyMode": "auto",
}


def _field(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    steps += [{"color": c, "value": v} for c, v in (("orange", panel.bad), ("red", panel.worse)) if v is not None]
    found: dict[str, Any] = {
        "unit": panel.unit,
        "min": 0,
        "color": {"mode": "palette-classic" if panel.kind == "timeseries" else "thresholds"},
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.most is not None:
        found["max"] = panel.most
    if panel.kind == "timeseries":
        found["custom"] = {
            "drawStyle": "line",
            "lineInterpolation": "stepAfter" if panel.stepped else "linear",
            "lineWidth": 1,
            "fillOpacity": 60 if panel.stacked else 0,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
        }
    return found


def _coloured(name: str, colour: str) -> dict[str, Any]:
    return {
        "matcher": {"id": "byName", "options": name},
        "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
    }
