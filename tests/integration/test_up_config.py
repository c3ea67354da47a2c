"""The configuration in force: what the person wrote is kept, what was left out becomes this cloud's own and stays so."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from phoenix.haproxy import settings as agent_settings
from phoenix.local import stack, stack_config, stack_haproxy, stack_settings
from phoenix.local.port_claims import KEPT, RESERVED, is_roots
from phoenix.local.stack_layout import Layout, layout
from phoenix.local.stack_ports import Ports
from phoenix.local.supervisor import StartError, Supervisor
from phoenix.local.supervisor_child import LISTEN
from schemas.config import CloudConfig, User, WebPolicy
from schemas.dimensions import EMBEDDED
from services.runtime.config.file import ConfigError, load
from services.runtime.config.tables import Config
from tests.support.tools import tool

SITE = """
[cloud]
name = "site"
[policy]
notice_s = 1.5
[[department]]
name = "hpc"
kind = "batch"
[[department]]
name = "shop"
kind = "web"
[[user]]
name = "till"
department = "shop"
role = "manager"
[[user]]
name = "cpu-balancer"
department = "shop"
role = "manager"
[http]
listen = "127.0.0.1:12345"
url = "http://cloud.example:80"
"""


@pytest.fixture
def place(tmp_path: Path) -> Layout:
    found = layout(tmp_path / "data")
    found.make()
    return found


def effective(place: Layout, chosen: Path | None = None) -> tuple[Config, Ports]:
    ports = Ports(place.ports)
    config = stack_config.effective(place, ports, chosen)
    ports.save()
    stack_config.write(config, place)
    ports.release()
    return config, ports


@pytest.fixture
def site(tmp_path: Path) -> Path:
    file = tmp_path / "site.toml"
    file.write_text(SITE)
    return file


def test_the_default_has_both_kinds_of_departments_and_an_operator(place: Layout) -> None:
    config, _ = effective(place)
    assert {d.kind for d in config.cloud.departments} == {"batch", "web"}
    assert any(user.role == "operator" for user in config.cloud.users)
    assert load(place.config) == config


def test_addresses_that_were_written_are_kept_and_the_others_are_our_own(place: Layout, site: Path) -> None:
    config, _ = effective(place, site)
    assert (config.http.listen, config.http.url) == ("127.0.0.1:12345", "http://cloud.example:80")
    roots = os.geteuid() == 0 and is_roots(RESERVED[-1])
    assert config.nats.port in (RESERVED if roots else KEPT)
    assert config.metrics.ports["monitor"] in KEPT
    ports = [config.nats.port, *config.metrics.ports.values(), int(config.monitor.listen.rpartition(":")[2])]
    assert len(set(ports)) == len(ports)
    assert config.monitor.url == f"http://{config.monitor.listen}"
    assert set(config.metrics.ports) == set(config.processes())


def test_a_later_start_has_the_same_addresses_and_settings(place: Layout, site: Path) -> None:
    first, _ = effective(place, site)
    assert effective(place)[0] == first
    assert first.cloud.policy.notice_s == 1.5


def test_a_port_that_somebody_took_is_chosen_anew(place: Layout) -> None:
    first, _ = effective(place)
    with socket.create_server(("127.0.0.1", first.nats.port)):
        second, ports = effective(place)
    assert second.nats.port != first.nats.port
    assert second.monitor.listen == first.monitor.listen
    assert ports.is_ours(second.nats.port)


def test_a_port_that_another_cloud_has_chosen_is_not_chosen_though_nothing_listens_yet(tmp_path: Path) -> None:
    first, second = Ports(tmp_path / "first.json"), Ports(tmp_path / "second.json")
    port = first.of("nats")
    first.save()
    (tmp_path / "second.json").write_bytes((tmp_path / "first.json").read_bytes())
    same = Ports(tmp_path / "second.json")
    assert same.of("nats") != port
    first.release()
    again = Ports(tmp_path / "first.json")
    assert again.of("nats") == port
    for ports in (second, same, again):
        ports.release()


async def test_ports_of_a_start_that_failed_do_not_count_as_the_persons(
    place: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(stack, "write_files", fail)
    with pytest.raises(StartError, match="no space left"):
        await Supervisor(place, lambda _text: None).start(None)
    port = load(place.config).nats.port
    assert Ports(place.ports).is_ours(port)
    with socket.create_server(("127.0.0.1", port)):
        assert effective(place)[0].nats.port != port


async def test_a_copy_of_the_configuration_in_force_keeps_the_embedded_opennebula(
    place: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("far enough")

    running, _ = effective(place)
    file = tmp_path / "site.toml"
    copied = place.config.read_text().replace('log_format = "text"', 'log_format = "json"')
    file.write_text(copied.replace('hypervisor = "process"', 'hypervisor = "dummy"'))
    monkeypatch.setattr(stack, "write_files", fail)
    with pytest.raises(StartError, match="far enough"):
        await Supervisor(place, lambda _text: None).start(file)
    kept, found = stack_settings.load(place.settings), load(place.config)
    assert (kept.external, kept.hypervisor, found.opennebula.hypervisor) == (False, "dummy", "dummy")
    assert (found.opennebula.auth_file, found.runtime.log_format) == (place.auth_file, "json")
    assert found.opennebula.endpoint == running.opennebula.endpoint
    file.write_text(copied.replace(running.opennebula.endpoint, "http://one.example:2633/RPC2"))
    with pytest.raises(StartError, match="far enough"):
        await Supervisor(place, lambda _text: None).start(file)
    assert stack_settings.load(place.settings).external


def test_what_an_applied_configuration_leaves_to_the_next_start_is_named(place: Layout, site: Path) -> None:
    running, _ = effective(place, site)

    def later(text: str) -> list[str]:
        site.write_text(text)
        return stack_config.at_next_start(site, place, running, external=False)

    assert later(SITE) == later(place.config.read_text()) == []
    assert later(SITE.replace("notice_s = 1.5", "notice_s = 3.0")) == []  # that is applied
    tables = (
        '\n[runtime]\nlog_format = "json"\n[runtime.log_levels]\nexecutor = "debug"\n[journal]\nkeep_messages = 9\n'
    )
    assert later(SITE.replace("127.0.0.1:12345", "127.0.0.1:12346") + tables) == [
        'http: listen "127.0.0.1:12345" → "127.0.0.1:12346"',
        'runtime: log_levels {} → { executor = "debug" }',
        'runtime: log_format "text" → "json"',
        "journal: keep_messages 1000000 → 9",
    ]
    one = '\n[opennebula]\nendpoint = "http://one.example:2633/RPC2"\n'
    assert f'opennebula: endpoint "{running.opennebula.endpoint}" → "http://one.example:2633/RPC2"' in later(SITE + one)


def test_an_applied_configuration_keeps_the_addresses_in_use(place: Layout, site: Path) -> None:
    running, ports = effective(place)
    wanted = stack_config.with_metrics(stack_config.applied(SITE, "site.toml", site.parent, running), ports)
    assert [d.name for d in wanted.cloud.departments] == ["hpc", "shop"]
    assert (wanted.http, wanted.nats) == (running.http, running.nats)
    assert wanted.metrics.ports["admission"] == running.metrics.ports["admission"]


def test_a_wrong_file_names_every_problem(place: Layout, site: Path) -> None:
    site.write_text(SITE.replace('kind = "web"', 'kind = "wed"').replace("notice_s", "notise_s"))
    with pytest.raises(ConfigError) as caught:
        effective(place, site)
    assert "site.toml" in str(caught.value)
    assert "kind" in str(caught.value)
    assert "notice_s" in str(caught.value)


def test_the_balancer_is_the_departments_own_program(place: Layout, site: Path) -> None:
    config, ports = effective(place, site)
    user = stack.balancer_user(config.cloud, "shop")
    assert user is not None
    assert user.name == "cpu-balancer"
    shop = config.cloud.department("shop")
    assert shop is not None
    assert len(stack.balancers(config, place, stack_settings.Settings(), ports, shop)) == 1
    assert (place.run / "balancer.shop.json").stat().st_mode & 0o077 == 0
    assert stack.balancer_user(config.cloud, "hpc") is None
    named = msgspec.structs.replace(shop, web=WebPolicy(balancers=("zoe",)))
    zoe, wes = User(name="zoe", department="shop"), User(name="wes", department="shop", role="manager")
    own = CloudConfig(name="c", departments=(named,), users=(User(name="a-balancer", department="shop"), wes))
    assert stack.balancer_user(own, "shop") == wes  # the one by that name would not count
    assert stack.balancer_user(msgspec.structs.replace(own, users=(*own.users, zoe)), "shop") == zoe
    assert stack.balancers(config, place, stack_settings.Settings(hypervisor="dummy"), ports, shop) == []
    assert stack.balancers(config, place, stack_settings.Settings(opennebula="external"), ports, shop) == []
    assert stack.balancers(config, place, stack_settings.Settings(balancer="none"), ports, shop) == []


async def test_a_balancer_that_accepts_and_says_nothing_is_not_well(place: Layout, site: Path) -> None:
    config, ports = effective(place, site)
    shop = config.cloud.department("shop")
    assert shop is not None
    [embedded] = stack.balancers(config, place, stack_settings.Settings(), ports, shop)
    with socket.create_server(("127.0.0.1", ports.of(embedded.name))):  # as of a process that hangs
        assert not await embedded.probe()


def test_haproxy_stands_where_the_embedded_balancer_would_with_an_agent_beside_it(place: Layout, site: Path) -> None:
    config, ports = effective(place, site)
    shop = config.cloud.department("shop")
    assert shop is not None
    [embedded] = stack.balancers(config, place, stack_settings.Settings(), ports, shop)
    binary, settings = tool("haproxy"), stack_settings.Settings(balancer="haproxy")
    config = stack.with_agents(config, settings, ports)
    front, agent = stack.balancers(config, place, settings, ports, shop)
    assert (front.name, front.url) == (embedded.name, embedded.url)
    assert front.argv[0] == str(binary)
    with socket.create_server(front.listen[0]) as listener:
        checked = subprocess.run(
            [*front.argv, "-c"],
            env=os.environ | {LISTEN: f"fd@{listener.fileno()}"},
            pass_fds=[listener.fileno()],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
    assert checked.returncode == 0, checked.stderr
    told = agent_settings.load(Path(agent.argv[agent.argv.index("--config") + 1]))
    assert (told.user, Path(told.socket)) == ("cpu-balancer", place.run / "balancer.shop.sock")
    assert all(path.stat().st_mode & 0o077 == 0 for path in place.run.iterdir())


@pytest.mark.parametrize(
    "change", [{"health_path": "/up"}, {"instances_max": 5}, {"connections_per_instance": 4}, {"instance_cores": 2}]
)
def test_nothing_that_a_department_may_change_at_run_time_is_fixed_at_the_start_of_its_haproxy(
    place: Layout, site: Path, change: dict[str, Any]
) -> None:
    config, ports = effective(place, site)
    shop = config.cloud.department("shop")
    assert shop is not None
    assert shop.web is not None
    tool("haproxy")
    settings = stack_settings.Settings(balancer="haproxy", hosts=20, size=EMBEDDED._replace(cores=8))
    config = stack.with_agents(config, settings, ports)
    texts = []
    for department in (shop, msgspec.structs.replace(shop, web=msgspec.structs.replace(shop.web, **change))):  # type: ignore[arg-type]
        stack.balancers(config, place, settings, ports, department)
        texts.append((place.run / "balancer.shop.cfg").read_text())
    assert texts[0] == texts[1]
    assert "server-template phoenix 1-320 " in texts[0]  # 160 instances of one core, and as many that take their places


async def test_without_haproxy_up_says_how_to_get_it_and_does_not_keep_the_wish(
    place: Layout, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_haproxy, "program", lambda _name: None)
    with pytest.raises(StartError, match=r"there is no haproxy: as root, apt-get install haproxy.*--balancer embedded"):
        await Supervisor(place, lambda _text: None).start(site, balancer="haproxy")
    assert stack_settings.load(place.settings).balancer == "embedded"


def test_settings_are_kept_and_a_damaged_file_is_none(place: Layout) -> None:
    settings = stack_settings.changed(stack_settings.load(place.settings), hosts=7, cores=None, gpus=2)
    assert (settings.hosts, settings.size) == (7, EMBEDDED._replace(gpus=2))
    stack_settings.save(place.settings, settings)
    assert stack_settings.load(place.settings) == settings
    place.settings.write_text("{")
    assert stack_settings.load(place.settings) == stack_settings.Settings()
