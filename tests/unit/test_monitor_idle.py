"""Empty hosts: since when, and which could be switched off, as people and Prometheus are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from phoenix.cli import hosts as command
from schemas import facts as f
from schemas.config import Balance, Power
from services.domain.custody.rules import RULES
from services.monitor.core.monitor import MonitorCore
from services.monitor.metrics.collect import ReadModel
from services.monitor.views.views import Views
from services.runtime.config import file as runtime_config
from services.runtime.config.file import ConfigError
from tests.support.balancing import moves, observe, up
from tests.support.scheduling import cluster
from tests.support.world import World


def watched(hosts: int = 2, *, idle_s: float = 600.0, **policy: Any) -> tuple[World, Views]:
    world = cluster(hosts, cores=8, **policy)
    config = world.custody.state.config
    assert config is not None
    adopted = msgspec.structs.replace(config, power=Power(idle_s=idle_s), capabilities=("live_migration",))
    world.write("provisioner", f.ConfigAdopted(cloud="c1", custody_rules=RULES, config=adopted))
    seat = world.seat("monitor", MonitorCore)
    return world, Views(seat.core)


def row(world: World, views: Views, host: str) -> dict[str, Any]:
    return next(each for each in views.hosts(world.now)["hosts"] if each["host"] == host)


def candidates(world: World, views: Views) -> list[str]:
    return [each["host"] for each in views.hosts(world.now)["hosts"] if each["power_saving"]]


def test_a_host_that_was_empty_for_long_enough_is_a_candidate() -> None:
    world, views = watched()
    job = up(world, cores=2)
    world.now += 599.0
    assert candidates(world, views) == []
    world.now += 1.0
    assert candidates(world, views) == ["h2"]
    world.report(job)
    world.now += 600.0
    assert candidates(world, views) == ["h2"]  # its VM is still there
    world.end_vm(job)
    world.now += 600.0
    assert candidates(world, views) == ["h1", "h2"]
    assert row(world, views, "h1")["idle_since"] > row(world, views, "h2")["idle_since"]


def test_what_is_placed_there_ends_it_at_once() -> None:
    world, views = watched(1)
    world.now += 600.0
    assert candidates(world, views) == ["h1"]
    up(world, cores=2)
    assert candidates(world, views) == []
    assert row(world, views, "h1")["idle_since"] is None


def test_a_host_that_drains_or_is_lost_is_not_empty_and_a_cleared_one_begins_anew() -> None:
    world, views = watched()
    world.now += 600.0
    world.write("scheduler.hpc", f.HostReleased(host="h1"))
    world.lose("h2")
    assert candidates(world, views) == []
    world.write("executor", f.HostCleared(host="h1"))
    assert row(world, views, "h1")["idle_since"] is not None
    world.now += 600.0
    assert candidates(world, views) == ["h1"]


def test_what_is_left_of_a_gang_whose_other_host_is_lost_is_empty() -> None:
    world, views = watched(2)
    world.submit(nodes=2, cores=8)
    world.settle()
    world.lose("h1")
    assert row(world, views, "h2")["idle_since"] is not None


def test_a_grant_changes_nothing_and_quarantine_hides_it() -> None:
    world, views = watched()
    world.hosts(1, cores=8, first=3)
    since = row(world, views, "h3")["idle_since"]
    world.now += 300.0
    world.grant("hpc", "h3")
    assert row(world, views, "h3")["idle_since"] == since
    world.now += 300.0
    assert "h3" in candidates(world, views)
    world.write("executor", f.HostQuarantined(host="h3", reason="starts failed", until=world.now + 60.0))
    world.cordon("h2")
    assert candidates(world, views) == ["h1", "h2"]


def test_a_host_that_was_left_for_power_saving_is_empty_once_its_vm_runs_elsewhere() -> None:
    world, views = watched(2, balance=Balance(enabled=True, power_saving=True))
    job = up(world, cores=2)
    world.cordon("h1")
    up(world, cores=2)
    world.write("admission", f.HostUncordoned(host="h1", reason="", user="root"))
    observe(world, "h1", 0.1)
    observe(world, "h2", 0.4)
    world.settle()
    assert moves(world) == [(job, "h1", "h2")]
    assert row(world, views, "h1")["idle_since"] is None
    vm = world.custody.state.vms[f"{job}/1/0"].vm
    world.write("executor", f.VmAllocated(unit=job, attempt=2, rank=0, vm=vm, host="h2"))
    assert world.voids == []
    world.now += 600.0
    assert candidates(world, views) == ["h1"]


def test_nought_reports_none() -> None:
    world, views = watched(idle_s=0.0)
    world.now += 1e6
    assert candidates(world, views) == []


def test_people_and_prometheus_are_told() -> None:
    world, views = watched()
    world.now += 600.0
    text = command.render(views.hosts(world.now)["hosts"])
    assert text.count("could be switched off: empty since ") == 2
    registry = CollectorRegistry()
    registry.register(ReadModel(views.core, views, lambda: world.now))
    assert registry.get_sample_value("phoenix_hosts_power_saving_candidates") == 2.0


@pytest.mark.parametrize("value", ["-1", "nan", "1e9"])
def test_a_time_that_makes_no_sense_is_refused(value: str) -> None:
    text = f'[cloud]\nname = "demo"\n[power]\nidle_s = {value}\n'
    with pytest.raises(ConfigError, match=r"power\.idle_s"):
        runtime_config.loads(text, "site.toml", Path())
