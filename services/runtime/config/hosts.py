"""Meaning of the settings for hosts (`[hosts]`, `[power]`): which are used, when one is set apart, what it offers, when one is
reported as empty; see `config.checks`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from schemas.config import CloudConfig
from services.domain.constraints import problem
from services.runtime.config.form import Path_, Problem, shown

DAY_S: Final = 86_400.0
IDLE_MAX_S: Final = 365 * DAY_S
RATIO_MAX: Final = 16.0  # beyond, a host is all switching: the thesis stops at 17 whole-node jobs on 8 cores
CLUSTERS_MAX: Final = 1000
_BOUNDS: Final[dict[str, tuple[float, float]]] = {
    "quarantine_after": (1, 1000),
    "quarantine_s": (1, DAY_S),
    "quarantine_max_s": (1, 7 * DAY_S),
    "monitor_late_s": (0, DAY_S),
    "monitor_lost_s": (0, 7 * DAY_S),
    "cpu_overcommit": (1, RATIO_MAX),
    "overcommit_below": (0, 1),
    "overcommit_margin": (0, 1),
}
_PATH: Final[Path_] = ("hosts",)


def check(cloud: CloudConfig) -> Iterator[Problem]:
    hosts = cloud.hosts
    for key, (low, high) in _BOUNDS.items():
        value = getattr(hosts, key)
        if math.isnan(value) or not low <= value <= high:
            yield _problem(key, value, f"should be at least {low:g} and at most {high:g}")
    if hosts.quarantine_max_s < hosts.quarantine_s:
        yield _problem(
            "quarantine_max_s", hosts.quarantine_max_s, f"should be at least quarantine_s ({hosts.quarantine_s:g})"
        )
    if hosts.monitor_lost_s and hosts.monitor_lost_s <= hosts.monitor_late_s:
        right = f"should be 0 (never), or more than monitor_late_s ({hosts.monitor_late_s:g}): a late host is set apart first"
        yield _problem("monitor_lost_s", hosts.monitor_lost_s, right)
    if hosts.overcommit_margin > hosts.overcommit_below:
        right = f"should be at most overcommit_below ({hosts.overcommit_below:g}), or it never begins again"
        yield _problem("overcommit_margin", hosts.overcommit_margin, right)
    for key in ("use", "overcommit_use"):
        wrong = problem(getattr(hosts, key))
        if wrong:
            yield _problem(key, getattr(hosts, key), wrong)
    if len(hosts.clusters) > CLUSTERS_MAX or not all(hosts.clusters):
        yield _problem(
            "clusters", list(hosts.clusters), f"should be names of at most {CLUSTERS_MAX} clusters, none empty"
        )

    idle_s = cloud.power.idle_s
    if math.isnan(idle_s) or not 0 <= idle_s <= IDLE_MAX_S:
        right = f"should be 0 (never), or at most {IDLE_MAX_S:g}"
        yield Problem(path=("power", "idle_s"), found=shown(idle_s), right=right)


def _problem(key: str, value: object, right: str) -> Problem:
    return Problem(path=(*_PATH, key), found=shown(value), right=right)
