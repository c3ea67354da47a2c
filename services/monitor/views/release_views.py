"""Pictures of a web department's releases: which there are, how far each is, how many instances run it (`releases`)."""

from __future__ import annotations

from typing import Any

from services.domain.custody.custody import Custody
from services.monitor.core.monitor import MonitorCore
from services.monitor.core.releases import Record, Releases, current, fresh
from services.monitor.views.times import iso, plain


def shown(known: Releases | None, core: MonitorCore, dept: str, instances: int | None) -> dict[str, Any]:
    """``{"department", "wanted", "state", "instances_wanted", "releases": [newest first]}``."""
    found, custody = known or fresh(), core.custody
    counts = _counts(core, dept)
    config = custody.state.config.department(dept) if custody.state.config else None
    image = config.web.image if config is not None and config.web is not None else ""
    rows = [_row(record, image, counts, custody, dept) for record in reversed(found.records)]
    wanted = current(found)
    state = wanted.state if wanted else None
    return {"department": dept, "wanted": found.wanted, "state": state, "instances_wanted": instances, "releases": rows}


def summary(known: Releases | None, core: MonitorCore, dept: str) -> dict[str, Any]:
    """For the row of a department: the wanted release, how far it is, and on how many of the instances."""
    found = known or fresh()
    wanted, counts = current(found), _counts(core, dept)
    return {
        "release": found.wanted,
        "state": wanted.state if wanted else None,
        "instances": counts.get(found.wanted, (0, 0))[0],
        "others": sum(live for number, (live, _) in counts.items() if number != found.wanted),
        "reason": plain(wanted.reason) if wanted else None,
    }


def _counts(core: MonitorCore, dept: str) -> dict[int, tuple[int, int]]:
    """release -> live instances, and those of them that serve."""
    found: dict[int, tuple[int, int]] = {}
    for name in core.custody.index.open.get(dept, ()):
        unit = core.custody.state.units[name]
        if unit.live:
            live, serving = found.get(unit.release, (0, 0))
            found[unit.release] = live + 1, serving + core.levels.serves(unit)
    return found


def _row(record: Record, image: str, counts: dict[int, tuple[int, int]], custody: Custody, dept: str) -> dict[str, Any]:
    live, serving = counts.get(record.release, (0, 0))
    asked = custody.state.releases.get(dept, {}).get(record.release)
    return {
        "release": record.release,
        "state": record.state,
        "since": iso(record.since) if record.since else None,
        "requested_at": iso(record.at),
        "user": record.user,
        "image": record.image if record.release else image,
        "content": plain(asked.content) if asked is not None else None,
        "max_unavailable": asked.max_unavailable if asked is not None else None,
        "max_surge": asked.max_surge if asked is not None else None,
        "min_ready_s": asked.min_ready_s if asked is not None else None,
        "instances": live,
        "instances_serving": serving,
        "reason": plain(record.reason),
    }
