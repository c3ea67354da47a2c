"""A scheduler and a policy that it does not have, or that fails: it ends with a sentence, and never decides by another one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from schemas import facts as f
from schemas.config import CloudConfig, Department
from services.domain.custody.rules import RULES
from services.domain.exits import Exit
from services.scheduler.core.batch.core import BatchCore
from services.scheduler.core.web.core import WebCore
from services.scheduler.edge import plugins
from services.scheduler.edge.batch import BatchEdge
from services.scheduler.edge.web import WebEdge
from tests.support.plugins import elsewhere, install, order, packages
from tests.support.shells import LOG, Running, World
from tests.support.until import DEADLINE_S, until
from tests.support.world import batch, web


async def adopt(here: World, department: Department) -> int:
    config = CloudConfig(name="c", departments=(department,))
    return await here.write(f.ConfigAdopted(cloud="c", custody_rules=RULES, config=config))


def started(here: World, kind: str = "hpc") -> Running:
    core: Any = (lambda c: WebCore(c, "web")) if kind == "web" else (lambda c: BatchCore(c, "hpc"))
    edge = WebEdge("web") if kind == "web" else BatchEdge("hpc")
    return here.start("s1", writer=f"scheduler.{kind}", core=core, edges=[edge])


def why(logged: pytest.LogCaptureFixture) -> str:
    (line,) = [record.getMessage() for record in logged.records if " code=7 " in record.getMessage()]
    return line


async def test_a_replica_without_the_policy_ends_before_it_leads(here: World, caplog: pytest.LogCaptureFixture) -> None:
    await adopt(here, batch("hpc", order="sleepy"))
    running = started(here)
    assert await running.code() == Exit.POLICY
    assert running.service.epoch == 0  # it has never led
    assert 'the configuration in force names order \\"sleepy\\": no package that is installed here brings it' in why(
        caplog
    )


async def test_one_that_leads_ends_when_such_a_configuration_is_adopted(here: World) -> None:
    await adopt(here, batch("hpc"))
    running = started(here)
    await running.leads()
    await adopt(here, batch("hpc", victims="sleepy"))
    assert await running.code() == Exit.POLICY


async def test_a_policy_of_the_past_keeps_nobody_from_reading_the_journal(here: World) -> None:
    await adopt(here, web("web", rule="sleepy"))
    seen = f.LoadObserved(dept="web", start=1.0, end=2.0, utilisation=0.5, samples=1)
    await here.write(seen, writer="scheduler.web")
    last = await adopt(here, web("web"))
    service = await started(here, "web").leads()
    await service.wait_for(last, DEADLINE_S)
    core = service.core
    assert isinstance(core, WebCore)
    assert core.state.samples == []  # the rule that is in force begins with what it hears itself


async def test_a_policy_that_fails_is_named_and_its_trace_is_in_the_log(
    here: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with packages(tmp_path / "site") as site:
        install(site, "sleepy", order("return situation.nothing_of_that_name"))
        plugins.load_all(LOG)
        await adopt(here, batch("hpc", order="sleepy"))
        running = started(here)
        service = await running.leads()
        text = generate_latest(service.registry).decode()
        assert 'name="sleepy",package="acme-sleepy",version="1.2"' in text
        await here.write(f.HostDescribed(host="h1", one_id=1, cores=4, memory_mb=4096), writer="executor")
        await here.write(f.HostCleared(host="h1"), writer="executor")
        await here.write(f.QuotaChanged(dept="hpc", hosts=1, by=time.time()), f.HostGranted(host="h1", dept="hpc"))
        job: dict[str, Any] = {"dept": "hpc", "user": "ann", "name": "j", "payload": "p", "walltime_s": 60.0}
        await here.write(f.JobSubmitted(job="1", **job), writer="admission")
        assert await running.code() == Exit.POLICY
    line = why(caplog)
    assert 'order \\"sleepy\\" of acme-sleepy 1.2 in plan: AttributeError' in line
    assert "acme_sleepy.py" in line


async def test_an_installed_policy_is_taken_by_a_leader_that_was_there_before(here: World, tmp_path: Path) -> None:
    with packages(tmp_path / "site") as site:
        install(site, "sleepy", order())
        plugins.load_all(LOG)
        await adopt(here, batch("hpc"))
        service = await started(here).leads()
        last = await adopt(here, batch("hpc", order="sleepy"))
        await service.wait_for(last, DEADLINE_S)
        await until(lambda: service.caught_up and service.is_leader, "it leads")
        assert plugins.missing(service.custody, "hpc") == ""


@pytest.mark.parametrize("editable", [False, True])
async def test_a_package_that_comes_while_a_scheduler_runs_is_found_when_it_is_chosen(
    here: World, tmp_path: Path, editable: bool
) -> None:
    with packages(tmp_path / "site") as site:
        plugins.load_all(LOG)
        await adopt(here, batch("hpc"))
        service = await started(here).leads()
        install(site, "late", order())
        if editable:  # as `pip install -e` leaves it: the module elsewhere, and a .pth file that says where
            elsewhere(site, tmp_path / "source", "late")
        last = await adopt(here, batch("hpc", order="late"))
        await service.wait_for(last, DEADLINE_S)
        await until(lambda: service.caught_up and service.is_leader, "it leads")
        assert plugins.missing(service.custody, "hpc") == ""
        assert 'name="late",package="acme-late",version="1.2"' in generate_latest(service.registry).decode()
