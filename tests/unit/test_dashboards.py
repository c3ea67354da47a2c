"""Grafana's dashboards: valid by the schema of what they use, readable, and made of metrics and labels that exist."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import jsonschema
import pytest

from phoenix import metrics
from services.runtime.families import Counter, Histogram
from tests.support.dashboards import ALL, QUIET, Asked, asked
from tests.unit.frame_source import ROOT

GRAFANA = ROOT / "deploy" / "grafana"
COLUMNS = 24  # Grafana's
SCHEMA = json.loads((GRAFANA / "dashboard.schema.json").read_text())
EVERY = metrics.every()
OF_TARGETS = {
    "cloud",
    "process",
    "service",
    "job",
    "instance",
}  # Prometheus adds them (services/monitor/metrics/scrape.py)
OTHERS = {  # Prometheus' own, and its client's
    "up": set[str](),
    "ALERTS": {"alertname", "alertstate", "severity", "department"},
    "process_cpu_seconds_total": set[str](),
    "process_resident_memory_bytes": set[str](),
}
SELECTOR = re.compile(r"([a-zA-Z_]+)\{([^}]*)\}(\[[^\]]+\])?")
QUERIES = list(asked())


def labels_of(name: str) -> set[str]:
    family = EVERY.get(re.sub(r"_(bucket|sum|count)$", "", name)) or EVERY.get(name)
    if family is None:
        return OTHERS[name] | OF_TARGETS
    return set(family.label_names) | OF_TARGETS | ({"le"} if name.endswith("_bucket") else set())


@pytest.mark.parametrize("uid", ALL)
def test_each_is_valid_by_the_schema(uid: str) -> None:
    checker = jsonschema.Draft202012Validator(SCHEMA)
    assert [f"{e.json_path}: {e.message}" for e in checker.iter_errors(ALL[uid])] == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schemaVersion",), 40),
        (("panels", 1, "type"), "graph"),
        (("panels", 1, "title"), ""),
        (("panels", 1, "gridPos", "w"), 25),
        (("panels", 1, "datasource", "uid"), "phoenix-prometheus"),
        (("panels", 1, "fieldConfig", "defaults", "unit"), "seconds"),
        (("panels", 1, "targets", 0, "expression"), "up"),
        (("panels", 8, "options", "legend", "showLegend"), False),
        (("panels", 8, "fieldConfig", "defaults", "custom", "stacking", "mode"), "stacked"),
        (("templating", "list", 0, "type"), "query"),
    ],
)
def test_the_schema_refuses(path: tuple[str | int, ...], value: object) -> None:
    document = copy.deepcopy(ALL["phoenix-overview"])
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, SCHEMA)


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_ids_are_unique() -> None:
    assert set(ALL) == {"phoenix-overview", "phoenix-department", "phoenix-control"}
    assert len({dashboard["title"] for dashboard in ALL.values()}) == len(ALL)
    for uid, dashboard in ALL.items():
        assert dashboard["uid"] == uid
        found = dashboard["panels"]
        assert len({p["id"] for p in found}) == len(found)
        titles = [p["title"] for p in found]
        assert len(set(titles)) == len(titles)
        for panel in found:
            assert len({t["refId"] for t in panel.get("targets", [])}) == len(panel.get("targets", []))


@pytest.mark.parametrize("uid", ALL)
def test_no_panel_lies_on_another_or_beside_the_page(uid: str) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in ALL[uid]["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]


@pytest.mark.parametrize("uid", ALL)
def test_each_panel_says_how_to_read_it(uid: str) -> None:
    for panel in ALL[uid]["panels"]:
        title = panel["title"]
        assert title[0].isupper()
        assert not title.endswith(".")
        if panel["type"] == "row":
            continue
        assert panel["description"].endswith("."), title
        legends = [query["legendFormat"] for query in panel["targets"]]
        assert all(legends)
        assert len(set(legends)) == len(legends), title
        coloured = {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]}
        assert coloured <= {*legends, "free", "draining", "lost"}, title


@pytest.mark.parametrize("one", QUERIES, ids=lambda one: f"{one.dashboard}: {one.panel}: {one.legend}")
def test_each_query_is_made_of_what_exists(one: Asked) -> None:
    expr = one.query
    found = SELECTOR.findall(expr)
    assert {name for name, _, _ in found} == one.names
    for name, inside, over in found:
        assert 'cloud="$cloud"' in inside
        family = EVERY.get(re.sub(r"_(bucket|sum|count)$", "", name)) or EVERY.get(name)
        assert family is not None or name in OTHERS, f"{name} is no metric: docs/reference/metrics.md lists them"
        counts = isinstance(family, Counter | Histogram) or (name in OTHERS and name.endswith("_total"))
        assert bool(over) == counts, f"{name} is {'a counter' if counts else 'a gauge'}"
        assert isinstance(family, Histogram) == name.endswith("_bucket")
        for label, value in re.findall(r'(\w+)(?:=|=~|!=)"([^"]*)"', inside):
            assert label in labels_of(name), f"{name} has no label {label}"
            _check_value(name, label, value)
    for label in re.findall(r"by \(([^)]*)\)", expr):
        for each in re.split(r",\s*", label):
            assert any(each in labels_of(name) for name in one.names), f"nothing in {expr} has a label {each}"


def _check_value(name: str, label: str, value: str) -> None:
    family = EVERY.get(name)
    declared = next((x.values for x in family.labels if x.name == label), None) if family else None
    if isinstance(declared, tuple):
        assert set(value.split("|")) <= set(declared), f"{name} never has {label}={value}"


@pytest.mark.parametrize("one", QUERIES, ids=lambda one: f"{one.dashboard}: {one.panel}: {one.legend}")
def test_each_legend_names_labels_that_are_left(one: Asked) -> None:
    wanted = set(re.findall(r"\{\{(\w+)\}\}", one.legend))
    grouped = re.findall(r"\bby \(([^)]*)\)", one.query)
    left = set(re.split(r",\s*", grouped[0])) if grouped else set().union(*map(labels_of, one.names))
    if not grouped and re.match(r"(sum|count|max|min)\(", one.query):
        left = set()
    assert wanted <= left
    if grouped:
        assert left - {"le"} <= wanted, "lines that only their colour tells apart"


def test_variables_are_used_and_defined() -> None:
    for uid, dashboard in ALL.items():
        defined = {variable["name"] for variable in dashboard["templating"]["list"]} - {"datasource"}
        used = {v for one in QUERIES if one.dashboard == uid for v in re.findall(r"\$([a-z]+)", one.query)}
        assert used == defined


def test_what_may_be_silent_is_asked_for() -> None:
    assert set().union(*(one.names for one in QUERIES)) >= QUIET


def test_provisioning_names_the_source_that_dashboards_take_and_where_they_are() -> None:
    source = (GRAFANA / "provisioning" / "datasources" / "phoenix.yaml").read_text()
    assert "type: prometheus\n" in source
    assert re.search(r"^    url: http://127\.0\.0\.1:9090$", source, re.MULTILINE)
    provider = (GRAFANA / "provisioning" / "dashboards" / "phoenix.yaml").read_text()
    assert "    type: file\n" in provider
    path = re.search(r"^      path: (\S+)$", provider, re.MULTILINE)
    assert path is not None
    assert path[1] in (ROOT / "docs" / "howto" / "grafana.md").read_text()
