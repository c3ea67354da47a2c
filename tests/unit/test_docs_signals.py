"""docs/reference/signals.md says what the types and the numbers in the code say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas import signals
from schemas.signal_drops import Drop
from services.monitor.views import levels
from services.runtime import signal_line
from services.scheduler.core.web import signals as web_signals
from services.scheduler.edge import web as edge_web
from services.scheduler.meter import meter
from services.scheduler.meter import signal_filter as meter_gate

TEXT = (Path(__file__).parents[2] / "docs" / "reference" / "signals.md").read_text()
COMMON = ("v", "at", "source")
LARGE = 100_000.0


def number(value: float) -> str:
    return f"{value:.0e}".replace("e+0", "e").replace("e+", "e") if value > LARGE else f"{value:g}"


def schema(name: str) -> dict[str, Any]:
    found = msgspec.json.schema(signals.SIGNALS[name])
    properties: dict[str, Any] = found["$defs"][signals.SIGNALS[name].__name__]["properties"]
    return properties


def bounds(described: dict[str, Any]) -> str:
    """As the table has them."""
    if "anyOf" in described:
        described = next(one for one in described["anyOf"] if one["type"] != "null")
    if described.get("format") == "date-time":
        return "an RFC 3339 time with an offset"
    if described["type"] == "string":
        return f"at most {described['maxLength']} characters, none hidden"
    if described["type"] == "array":
        return bounds(described["prefixItems"][0])
    if described["type"] == "object":
        return f"at most {described['maxProperties']} instances, {bounds(described['additionalProperties'])} each"
    if "maximum" not in described:
        return f"at least {described['minimum']}"
    return f"{number(described['minimum'])} to {number(described['maximum'])}"


def table(head: str) -> dict[str, tuple[str, str]]:
    """Field -> (bounds, without it) of the table after a line."""
    part = TEXT[TEXT.index(f"\n{head}\n") :].split("\n\n")[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines()[2:]]
    return {row[0].strip("`"): (row[2], row[3]) for row in rows}


@pytest.mark.parametrize("name", signals.SIGNALS)
def test_every_field_is_listed_with_its_bounds(name: str) -> None:
    listed = table("All five have") | table(f"`{name}`")
    fields = schema(name)
    assert list(fields) == sorted(listed, key=list(fields).index)
    for field, described in fields.items():
        assert listed[field][0] == bounds(described), field
        assert (listed[field][1] == "needed") == ("default" not in described), field
        if described.get("default"):
            assert listed[field][1] == number(described["default"]), field


def test_the_examples_are_signals() -> None:
    lines = re.findall(r"^(\{.*\})$", TEXT, flags=re.M)
    assert len(lines) == len(signals.SIGNALS)
    for line, name in zip(lines, signals.SIGNALS, strict=True):
        signals.decode(name, line.encode())


def test_every_reason_is_listed() -> None:
    listed = TEXT[TEXT.index("| what comes | reason |") :].split("\n\n")[0]
    found = re.findall(r"`(\w+)`", "".join(line.split("|")[2] for line in listed.splitlines()[2:]))
    assert found == [drop.value for drop in Drop]


@pytest.mark.parametrize(
    "words",
    [
        f"at most {signals.BYTES_MAX:,} bytes, `sessions` and `answers` at most {signals.SESSIONS_BYTES_MAX:,}",
        f"more than {signals.LATE_S:g} s ago",
        f"more than {signals.AHEAD_S:g} s ahead",
        f"more than {signal_line.KEPT_MAX} within {signal_line.EVERY_S:g} s",
        f"beyond {meter_gate.SOURCES_MAX} of one signal",
        f"exceeds {meter_gate.BYTES_PER_S >> 20} MiB a second of one signal",
        f"more than {meter_gate.SESSIONS_MAX:,} instances",
        f"silent for {meter_gate.SILENT_S:g} s",
        f"until the source's next; {meter.HELD_S:g} s, or twice its `interval_s`",
        f"in its first {meter.HELD_S:g} s",
        f"`interval_s` of {edge_web.WHOLE_S:g} or more",
    ],
)
def test_numbers_are_those_of_the_code(words: str) -> None:
    assert words in TEXT.replace("\n", " ")


def test_numbers_in_words_are_those_of_the_code() -> None:
    assert (meter_gate.TELL_AFTER, "five dropped ones" in TEXT) == (5, True)
    assert (web_signals.LOAD_LOST_S, "After an hour without load" in TEXT) == (3600.0, True)
    assert (edge_web.FACT_EVERY_S, "at most one a second of a department" in TEXT) == (1.0, True)


def test_the_monitor_takes_of_a_department_what_its_scheduler_takes() -> None:
    assert levels.SOURCES_MAX == meter_gate.SOURCES_MAX
    assert levels.SESSIONS_MAX == meter_gate.SESSIONS_MAX
    assert levels.BYTES_PER_S == meter_gate.BYTES_PER_S
    assert signal_line.KEPT_MAX == meter_gate.SOURCES_MAX
