"""Meaning of the settings for hosts (`[hosts]`): which are used, when one is set apart, what it offers; see `config.checks`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from schemas.config import CloudConfig
from services.domain.constraints import problem
from services.runtime.config.form import Path_, Problem, shown

CLUSTERS_MAX: Final = 1000
_PATH: Final[Path_] = ("hosts",)


def check(cloud: CloudConfig) -> Iterator[Problem]:
    hosts = cloud.hosts
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


def _problem(key: str, value: object, right: str) -> Problem:
    return Problem(path=(*_PATH, key), found=shown(value), right=right)
