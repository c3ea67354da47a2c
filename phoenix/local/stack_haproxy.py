"""HAProxy as the balancer of an embedded cloud (`phoenix up --balancer haproxy`): for each web department the real program in
the foreground, and the agent `phoenix-haproxy` beside it.

    balancer.<department>     HAProxy: requests       DATA/run/balancer.<department>.cfg   its configuration
    agent.<department>        the agent               DATA/run/agent.<department>.toml     its configuration

Rules
  1. HAProxy listens where the embedded balancer would: the department's address does not reveal which of them it has.
  2. Both are rewritten at each start.  HAProxy is never reloaded here: one that ends is started with empty slots, which the
     agent fills at once; so no older process serves beside it (`old_process_s` is 0).
  3. The listening socket is the supervisor's: while HAProxy restarts no client is refused, and requests wait, first for it
     and then for the agent.  So a connection proves nothing; it is well when it answers on its stats socket.
  4. HAProxy's paths are relative to its directory: its socket's path is limited to some 90 bytes, a data directory's is not.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Final

import orjson

from phoenix.haproxy.configuration import (
    SLOTS_DEFAULT,
    SLOTS_MAX,
    SLOTS_PREFIX,
    STATE_EMPTY,
    Front,
    render,
    wait_lua,
)
from phoenix.haproxy.runtime_api import GoneError, RuntimeApi
from phoenix.local import supervisor_probe as probe
from phoenix.local.programs import PartMissingError, program
from phoenix.local.stack_layout import Layout, write_private
from phoenix.local.stack_ports import Ports
from phoenix.local.stack_settings import Settings
from phoenix.local.supervisor_child import LISTEN, Spec
from schemas.config import Department, User
from services.runtime.broker import credentials
from services.runtime.config.tables import Config

LOOPBACK: Final = "127.0.0.1"
SIGNAL_INTERVAL_S: Final = 0.25  # four samples to each of the scheduler's observations, as the embedded balancer gives
LOOK_INTERVAL_S: Final = 0.25
STOP_S: Final = 3.0
MISSING: Final = (
    "there is no haproxy: as root, apt-get install haproxy; or, in a checkout, make setup (deploy/tools.sh); "
    "or use the embedded balancer: phoenix up --balancer embedded"
)


def haproxy() -> Path:
    """The program.  Raises `PartMissingError`."""
    found = program("haproxy")
    if found is None:
        raise PartMissingError(MISSING)
    return found


def slots(settings: Settings) -> int:
    """Twice the instances of one core that the hosts can hold, whatever the department says now: slots are fixed at HAProxy's
    start, and its instances_max is not.  Twice: a rolling update and those that drain need slots too."""
    return min(SLOTS_MAX, max(SLOTS_DEFAULT, 2 * settings.hosts * settings.size.cores))


def pair(
    config: Config, layout: Layout, settings: Settings, ports: Ports, department: Department, user: User
) -> list[Spec]:
    """HAProxy and its agent, who speaks as `user`.  Raises `PartMissingError`."""
    return [_balancer(layout, settings, ports, department), _agent(config, layout, department, user)]


def _socket(department: Department) -> str:
    return f"balancer.{department.name}.sock"


def _health_map(department: Department) -> str:
    return f"balancer.{department.name}.map"


def _balancer(layout: Layout, settings: Settings, ports: Ports, department: Department) -> Spec:
    name = f"balancer.{department.name}"
    port = ports.of(name)
    front = _front(settings, department)
    for file, text in (
        (_configuration(layout, department), render(front)),
        (layout.run / front.lua_file, wait_lua()),
        (layout.run / front.state_file, STATE_EMPTY),
        (layout.run / front.health_map, ""),
    ):
        write_private(file, text.encode())
    return Spec(
        name=name,
        argv=(str(haproxy()), "-db", "-C", str(layout.run), "-f", f"{name}.cfg"),
        probe=_answers(RuntimeApi(layout.run / front.socket, front.backend, SLOTS_PREFIX, str(front.health_map))),
        death_signal=signal.SIGTERM,
        stop_s=STOP_S,
        url=f"http://{LOOPBACK}:{port}",
        listen=((LOOPBACK, port),),
        doors=((LOOPBACK, port),),
    )


def _configuration(layout: Layout, department: Department) -> Path:
    return layout.run / f"balancer.{department.name}.cfg"


def _front(settings: Settings, department: Department) -> Front:
    name = f"balancer.{department.name}"
    return Front(
        department=department.name,
        listen=f'"${{{LISTEN}}}"',
        socket=Path(_socket(department)),
        state_file=Path(f"{name}.state"),
        lua_file=Path(f"{name}.lua"),
        health_map=Path(_health_map(department)),
        slots=slots(settings),
    )


def _answers(api: RuntimeApi) -> probe.Probe:
    """Rule 3."""

    async def ask() -> bool:
        try:
            return "Pid:" in await api.ask("show info")
        except GoneError:
            return False

    return ask


def _agent(config: Config, layout: Layout, department: Department, user: User) -> Spec:
    name = f"agent.{department.name}"
    host, port = config.metrics.listen, config.metrics.ports[name]
    content = {
        "department": department.name,
        "user": user.name,
        "nats_url": config.nats.url,
        "nkey": str(credentials.seed_file(config, user.name)),
        "socket": _socket(department),
        "health_map": _health_map(department),
        "signal_interval_s": SIGNAL_INTERVAL_S,
        "look_interval_s": LOOK_INTERVAL_S,
        "old_process_s": 0.0,
        "metrics": f"{host}:{port}",
    }
    file = layout.run / f"{name}.toml"
    # A string or number of JSON is one of TOML.
    write_private(file, "".join(f"{key} = {orjson.dumps(value).decode()}\n" for key, value in content.items()).encode())
    return Spec(
        name=name,
        argv=(sys.executable, "-m", "phoenix.haproxy", "--config", str(file), *config.runtime.log_words(name)),
        probe=probe.http(host, port, "/healthz"),
        stop_s=STOP_S,
        url=f"http://{host}:{port}/metrics",
        listen=((host, port),),
        beats=True,
    )
