"""The table of reads is what the monitor serves, and its parameters are what handlers ask for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from aiohttp.test_utils import make_mocked_request

from schemas.reads import READS, Read
from services.monitor.http.parameters import several_of

ROOT = Path(__file__).parents[2]
SOURCES = {path: path.read_text() for path in (ROOT / "services/monitor").rglob("*.py")}
ROUTE = re.compile(r'web\.(get|post|delete)\("(/v1/[^"]*)"')
ASKED = re.compile(
    r'(?:request\.query\.get\(|(?:time_of|integer_of|choice_of|several_of|is_set|_text|_time)\(request, |query\.get\()"(\w+)"'
)


def test_the_table_has_every_route_of_the_monitor_and_no_other() -> None:
    served = [(method.upper(), path) for text in SOURCES.values() for method, path in ROUTE.findall(text)]
    assert sorted(served) == sorted((read.method, read.path) for read in READS)


def test_every_parameter_that_a_handler_asks_for_is_in_the_table_and_the_other_way_round() -> None:
    asked = {name for text in SOURCES.values() for name in ASKED.findall(text)} - {"direct"}  # of /metrics
    listed = {parameter.name for read in READS for parameter in read.query}
    assert asked == listed


@pytest.mark.parametrize("read", READS, ids=lambda read: f"{read.method} {read.path}")
def test_a_parameter_is_named_once_and_said_in_words(read: Read) -> None:
    names = [parameter.name for parameter in read.query]
    assert len(set(names)) == len(names)
    assert all(parameter.text for parameter in read.query)
    assert read.text.endswith(".") or read.text.endswith(")")


@pytest.mark.parametrize("query", ["state=held,failed", "state=held&state=failed", "state=held,&state=&state=failed"])
def test_a_list_has_commas_or_is_repeated(query: str) -> None:
    """Generated clients repeat the parameter, whatever `explode` says; the first alone would be answered in silence."""
    assert several_of(make_mocked_request("GET", f"/v1/queue?{query}"), "state") == ("held", "failed")
    assert several_of(make_mocked_request("GET", "/v1/queue"), "state") == ()
