"""One calendar for a simulated cloud: its time 0 is a Monday, 00:00 UTC, for generated load and for all hours of the week.

Rules
  1. The cores count seconds from the epoch, a Thursday, and a simulation counts from 0.  Zones are moved, not texts or times:
     what was written in the file is shown, and what has no hours of the week stays bit for bit as it was.
"""

from __future__ import annotations

from typing import Final

import msgspec

from schemas.config import CloudConfig, Department
from services.domain.scaling import Unreadable, offset_s

MOVED_S: Final = -3 * 86_400  # three days before Thursday it is Monday


def from_monday(config: CloudConfig) -> CloudConfig:
    """`config` with the zones of its windows and schedules moved, so that second 0 is a Monday's first."""
    replace = msgspec.structs.replace
    lending = tuple(replace(c, windows_zone=_moved(c.windows_zone)) if c.windows else c for c in config.lending)
    return replace(config, departments=tuple(map(_department, config.departments)), lending=lending)


def _department(known: Department) -> Department:
    replace, web = msgspec.structs.replace, known.web
    if known.windows:
        known = replace(known, windows_zone=_moved(known.windows_zone))
    if web is not None and web.schedule:
        known = replace(known, web=replace(web, schedule_zone=_moved(web.schedule_zone)))
    return known


def _moved(zone: str) -> str:
    try:
        minutes = (offset_s(zone) + MOVED_S) // 60
    except Unreadable:  # read as UTC, as the cores do
        minutes = MOVED_S // 60
    hours, rest = divmod(abs(minutes), 60)
    return f"UTC{'-' if minutes < 0 else '+'}{hours:02}:{rest:02}"
