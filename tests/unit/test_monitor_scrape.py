"""What the monitor tells Prometheus of: every process of the configuration in force, where it can be scraped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from msgspec.structs import replace

from phoenix.local import stack, stack_ports
from phoenix.local.stack_settings import Settings
from schemas.config import BatchPolicy, CloudConfig, Department, WebPolicy
from schemas.facts import ConfigAdopted
from services.domain.custody.custody import Custody
from services.domain.custody.fold import fold_fact
from services.domain.custody.rules import RULES
from services.monitor.http.access import faults
from services.monitor.metrics.scrape import Ports, Scrape
from services.runtime.config.file import ConfigError, load, loads
from services.runtime.config.tables import Config, Metrics
from services.runtime.config.text import dump_toml

FILE = """
[cloud]
name = "c"
[[department]]
name = "hpc"
kind = "batch"
[metrics.ports]
admission = 1
provisioner = 2
executor = 3
monitor = 4
"scheduler.hpc" = 5
"""


class House:
    def __init__(self, directory: Path) -> None:
        self.file = directory / "phoenix.toml"
        self.file.write_text(FILE)
        self.config = load(self.file)
        self.custody = Custody()
        self.position = 0
        self.scrape = Scrape(self.custody, Ports(self.config, self.file))
        app = web.Application(middlewares=[faults])
        app.add_routes(self.scrape.routes())
        self.client = TestClient(TestServer(app))

    def adopt(self, cloud: CloudConfig) -> None:
        self.position += 1
        fact = ConfigAdopted(cloud="x", custody_rules=RULES, config=cloud)
        assert fold_fact(self.custody, fact, self.position, 0, "provisioner", float(self.position)) is None

    async def targets(self, query: str = "", **headers: str) -> list[dict[str, Any]]:
        answer = await self.client.get(f"/metrics/targets{query}", headers=headers)
        assert answer.status == 200
        assert answer.content_type == "application/json"  # http_sd takes no other
        found: list[dict[str, Any]] = orjson.loads(await answer.read())
        return found

    async def processes(self) -> list[str]:
        return [group["labels"]["process"] for group in await self.targets()]


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    house = House(tmp_path)
    house.adopt(house.config.cloud)
    await house.client.start_server()
    yield house
    await house.client.close()


async def test_every_process_is_scraped_at_the_address_at_which_the_monitor_was_asked(house: House) -> None:
    found = await house.targets(Host="monitor.example:7481")
    assert [group["labels"]["process"] for group in found] == list(house.config.processes())
    assert found[-1] == {
        "targets": ["monitor.example:7481"],
        "labels": {
            "__metrics_path__": "/metrics/scheduler.hpc",
            "cloud": "c",
            "process": "scheduler.hpc",
            "service": "scheduler",
        },
    }


async def test_on_the_same_machine_each_process_by_itself(house: House) -> None:
    found = await house.targets("?direct=1")
    assert [group["targets"] for group in found] == [[f"127.0.0.1:{port}"] for port in range(1, 6)]
    assert {group["labels"]["__metrics_path__"] for group in found} == {"/metrics"}


@pytest.mark.parametrize(("listen", "host"), [("0.0.0.0", "127.0.0.1"), ("10.0.0.5", "10.0.0.5")])
def test_a_listener_is_reached_where_it_listens(listen: str, host: str) -> None:
    config = loads(FILE)
    assert Ports(replace(config, metrics=replace(config.metrics, listen=listen))).host == host


async def test_a_new_departments_scheduler_appears_by_itself_and_a_removed_ones_goes(house: House) -> None:
    was = house.config
    lab = Department(name="lab", kind="batch", batch=BatchPolicy())
    grown = replace(was.cloud, departments=(*was.cloud.departments, lab))
    house.adopt(grown)
    assert "scheduler.lab" not in await house.processes()  # nobody has said yet where it listens
    ports = {**was.metrics.ports, "scheduler.lab": 6}
    house.file.write_text(dump_toml(replace(was, cloud=grown, metrics=Metrics(ports=ports))))
    assert "scheduler.lab" in await house.processes()
    house.adopt(replace(grown, departments=(lab,)))
    assert "scheduler.hpc" not in await house.processes()


async def test_the_agent_beside_haproxy_of_a_web_department_is_listed_where_the_file_has_its_port(house: House) -> None:
    was = house.config
    web_departments = (Department(name="shop", kind="web", web=WebPolicy()), Department(name="wiki", kind="web"))
    grown = replace(was.cloud, departments=(*was.cloud.departments, *web_departments))
    ports = {**was.metrics.ports, "scheduler.shop": 6, "scheduler.wiki": 7, "agent.shop": 9131}
    house.file.write_text(dump_toml(replace(was, cloud=grown, metrics=Metrics(ports=ports))))
    house.adopt(grown)
    assert (await house.targets("?direct=1"))[-1] == {
        "targets": ["127.0.0.1:9131"],
        "labels": {
            "__metrics_path__": "/metrics",
            "cloud": "c",
            "process": "agent.shop",
            "service": "agent",
            "department": "shop",
        },
    }
    assert "agent.wiki" not in await house.processes()
    house.adopt(was.cloud)
    assert "agent.shop" not in await house.processes()


def test_the_port_of_an_agent_of_no_web_department_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"agent\.hpc"):
        loads(FILE + '"agent.hpc" = 9131\n')


def test_a_cloud_with_haproxy_writes_the_ports_of_its_agents_into_its_file(tmp_path: Path) -> None:
    department = '[[department]]\nname = "web"\nkind = "web"\n[department.web]\n'
    people = '[[user]]\nname = "wendy"\ndepartment = "web"\n'
    config, ports = loads(FILE + department + people), stack_ports.Ports(tmp_path / "ports.json")
    found = [
        stack.with_agents(config, Settings(balancer=kind), ports).metrics.ports for kind in ("haproxy", "embedded")
    ]
    assert [ports.get("agent.web") for ports in found] == [ports.of("agent.web"), None]


async def test_a_file_that_cannot_be_read_changes_nothing(house: House) -> None:
    before = await house.targets()
    house.file.write_text("[[department]\n")
    assert await house.targets() == before
    house.file.unlink()
    assert await house.targets() == before


async def test_an_address_that_is_none_is_refused(house: House) -> None:
    answer = await house.client.get("/metrics/targets", headers={"Host": 'a"b c'})
    assert answer.status == 400


async def test_what_a_process_says_is_passed_on(house: House) -> None:
    async def told(_request: web.Request) -> web.Response:
        return web.Response(text="phoenix_leader 1.0\n")

    process = web.Application()
    process.router.add_get("/metrics", told)
    server = TestServer(process)
    await server.start_server()
    try:
        house.scrape.ports = Ports(Config(cloud=house.config.cloud, metrics=Metrics(ports={"executor": server.port})))
        answer = await house.client.get("/metrics/executor")
        assert (answer.status, await answer.text()) == (200, "phoenix_leader 1.0\n")
    finally:
        await server.close()
