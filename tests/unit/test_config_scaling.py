"""Bounds of a web department in the configuration file: read, written back, and refused with what would be right."""

from __future__ import annotations

import pytest

from services.runtime.config.file import ConfigError, loads
from services.runtime.config.text import dump_toml

FILE = """
[cloud]
name = "demo"

[[department]]
name = "web"
kind = "web"
maximum = 10

[department.web]
instances_max = 30
instances_per_host = 4
{}
"""
GOOD = """
up_limits = ["4 in 60s", "100% in 60s"]
down_limits = ["10% in 300s"]
schedule = ["Mon-Fri 08:00-18:00 at least 6", "Sat,Sun 22:00-02:00 at least 3"]
schedule_zone = "UTC+02:00"
forecast_days = 3
forecast_margin = 0.2
forecast_ahead_s = 120
turns_per_hour_max = 6
"""


def test_bounds_come_back_as_they_were_written() -> None:
    config = loads(FILE.format(GOOD))
    web = config.cloud.departments[0].web
    assert web is not None
    assert (web.up_limits, web.schedule_zone, web.turns_per_hour_max) == (("4 in 60s", "100% in 60s"), "UTC+02:00", 6)
    assert loads(dump_toml(config)) == config


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ('up_limits = ["4"]', 'up_limits (of "web"): "4": should be such as "4 in 60s"'),
        ('down_limits = ["4 in 9999s"]', "should have a period of 1 to 1800 seconds"),
        ('up_limits = "4 in 60s"', "should be a list"),
        ('schedule = ["Mon-Fri at least 6"]', 'should be such as "Mon-Fri 08:00-18:00 at least 6"'),
        ('schedule = ["Mon 08:00-09:00 at least 31"]', "should ask for at most instances_max (30)"),
        ('schedule = ["Mon 08:00-09:00 at least 6", "Tue 08:00-08:00 at least 1"]', "the whole day is 00:00-24:00"),
        ('schedule_zone = "Europe/Berlin"', 'should be "UTC" or an offset such as "UTC+02:00"'),
        ("forecast_days = 8", "should be at least 0 and at most 7"),
        ("turns_per_hour_max = 1", "should be 0 (no budget) or at least 2"),
        ("turns_per_hour_max = 101", "should be at least 0 and at most 100"),
    ],
)
def test_what_cannot_be_is_told_with_its_line_and_what_would_be_right(line: str, right: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loads(FILE.format(line), "phoenix.toml")
    assert "phoenix.toml:13: department.web." in str(caught.value)
    assert right in str(caught.value)


def test_a_floor_fits_the_departments_hosts() -> None:
    text = FILE.format('instances_min = 1\nschedule = ["daily 08:00-09:00 at least 29"]').replace("= 10", "= 7")
    with pytest.raises(ConfigError, match="maximum of 7 hosts; this needs 8"):
        loads(text)


def test_more_entries_than_a_person_can_oversee_are_refused() -> None:
    entries = ", ".join(['"Mon 08:00-09:00 at least 1"'] * 101)
    with pytest.raises(ConfigError, match="101 entries: should be at most 100"):
        loads(FILE.format(f"schedule = [{entries}]"))
