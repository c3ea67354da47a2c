"""The configuration in force: what the person wrote, with the addresses, paths and ports of this cloud filled in.

Rules
  1. `--config FILE` first; else what is in force already (DATA/phoenix.toml); else the default next to this module, with a
     name of its own: it distinguishes metrics and VMs of two clouds.
  2. An address that the person wrote is kept; only defaults are replaced by ports of our own.
  3. An OpenNebula is the site's own exactly if the person's file names its endpoint, and that is not where our embedded one
     listens (`copies_ours`: the file began as a copy of DATA/phoenix.toml): then its whole table is kept.  Of the embedded one
     a file may name the hypervisor (`named_hypervisor`); `--hypervisor` takes precedence.
  4. The result is validated as every configuration is, and written whole: a service reads only DATA/phoenix.toml.
"""

from __future__ import annotations

import re
import secrets
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import zmq
from msgspec.structs import replace

from phoenix.local.opennebula.events import IPC
from phoenix.local.stack_layout import Layout, write_private
from phoenix.local.stack_ports import Ports
from services.domain.capabilities import Hypervisor
from services.runtime.config import file as runtime_config
from services.runtime.config.machines import EMBEDDED, EMBEDDED_HAS
from services.runtime.config.tables import EVENTS_OFF, Config, JournalKept, OpenNebula, Secrets
from services.runtime.config.text import dump_toml, tables_diff

DEFAULT: Final = Path(__file__).with_name("stack_default.toml")
DEFAULT_NAME: Final = "phoenix"
NAME_MAX: Final = 20  # characters of the directory's name: a cloud's has 32 at most
# 16 million: of a hundred clouds with one directory name, two share it once in three thousand times
SUFFIX_BYTES: Final = 3
LOOPBACK: Final = "127.0.0.1"


def effective(
    layout: Layout,
    ports: Ports,
    chosen: Path | None,
    *,
    external: bool = False,
    hypervisor: Hypervisor = EMBEDDED,
) -> Config:
    """Rules 1 and 2; `external`: rule 3 holds; else the embedded one has this `hypervisor`, whatever the file says.  Raises
    ConfigError with every problem of the file."""
    ours = None if external else OpenNebula(hypervisor=hypervisor)
    if chosen is not None:
        wanted = runtime_config.load(chosen, ours)
        if not external and copies_ours(chosen, layout):
            wanted = _without_ports(wanted, ports, external=False)
        return fill(wanted, layout, ports, external=external)
    if layout.config.exists():
        kept = _without_ports(runtime_config.load(layout.config, ours), ports, external=external)
        return fill(kept, layout, ports, external=external)
    default = runtime_config.load(DEFAULT, ours)
    named = replace(default.cloud, name=own_name(layout.data, secrets.token_hex(SUFFIX_BYTES)))
    return fill(replace(default, cloud=named), layout, ports)


def own_name(data: Path, suffix: str) -> str:
    """The name of a cloud without one: the data directory's, as far as it can be one, and a suffix."""
    words = re.sub(r"[^a-z0-9]+", "-", data.name.lower()).strip("-")[:NAME_MAX].rstrip("-")
    return f"{words if words[:1].isalpha() else DEFAULT_NAME}-{suffix}"


def names_opennebula(file: Path) -> bool:
    """Rule 3.  False for a file that cannot be read: its loader says what is wrong."""
    return "endpoint" in _opennebula_of(file)


def copies_ours(file: Path, layout: Layout) -> bool:
    """The file names the endpoint of the configuration in force; rule 3, if that is the embedded one's."""
    endpoint = _opennebula_of(file).get("endpoint")
    return endpoint is not None and endpoint == _opennebula_of(layout.config).get("endpoint")


def named_hypervisor(file: Path, *, external: bool) -> Hypervisor | None:
    """The embedded OpenNebula's hypervisor, if the file names one that it has (rule 3)."""
    named = _opennebula_of(file).get("hypervisor")
    return None if external else next((each for each in EMBEDDED_HAS if each == named), None)


def _opennebula_of(file: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(file.read_text("utf-8")).get("opennebula")
    except (OSError, ValueError):
        return {}
    return table if isinstance(table, dict) else {}


def applied(text: str, name: str, base: Path, running: Config) -> Config:
    """A new configuration for a running cloud: its own departments, users and limits, the addresses that are in use, and what
    the hypervisor that runs can do."""
    wanted = runtime_config.loads(text, name, base, running.opennebula)
    kept = {key: getattr(running, key) for key in ("nats", "http", "monitor", "opennebula", "runtime", "data")}
    return replace(running, cloud=wanted.cloud, **kept)


def at_next_start(file: Path, layout: Layout, running: Config, *, external: bool) -> list[str]:
    """What `up --config FILE` would change that `applied` does not: the tables that processes read when they start.
    `external`: of the cloud that runs.  Raises ConfigError."""
    external = names_opennebula(file) and (external or not copies_ours(file, layout))
    hypervisor = named_hypervisor(file, external=external) or running.opennebula.hypervisor
    ours = None if external else OpenNebula(hypervisor=hypervisor)
    wanted = fill(runtime_config.load(file, ours), layout, _KeptPorts(layout.ports), external=external)
    return tables_diff(running, replace(wanted, metrics=replace(wanted.metrics, ports=running.metrics.ports)))


class _KeptPorts(Ports):
    """Those of the cloud that runs, without a claim; 0: one would be chosen."""

    def of(self, name: str) -> int:
        return self._kept.get(name, 0)


def fill(config: Config, layout: Layout, ports: Ports, *, external: bool = False) -> Config:
    """Ports, addresses and paths of this cloud where the file has defaults; an `external` OpenNebula stays as it is."""

    def address(table: str, field: str, make: Callable[[], str]) -> str:
        default = getattr(type(getattr(config, table))(), field)
        value: str = getattr(getattr(config, table), field)
        return value if value != default else make()

    listen = address("http", "listen", lambda: f"{LOOPBACK}:{ports.of('http')}")
    watch = address("monitor", "listen", lambda: f"{LOOPBACK}:{ports.of('monitor')}")
    nats_url = address("nats", "url", lambda: f"nats://{LOOPBACK}:{ports.of('nats')}")
    one = config.opennebula
    if not external:
        endpoint = address("opennebula", "endpoint", lambda: f"http://{LOOPBACK}:{ports.of('opennebula')}/RPC2")
        events = address("opennebula", "events", lambda: _events(layout))
        one = replace(one, endpoint=endpoint, events=events, auth_file=layout.auth_file)
    return replace(
        config,
        nats=replace(config.nats, url=nats_url, credentials_dir=layout.credentials, store_dir=layout.nats),
        http=replace(config.http, listen=listen, url=_url(config.http.url, config.http.listen, listen)),
        monitor=replace(
            config.monitor,
            listen=watch,
            url=_url(config.monitor.url, config.monitor.listen, watch),
            history_path=layout.data / "history.sqlite",
        ),
        opennebula=one,
        metrics=with_metrics(config, ports).metrics,
        data=replace(config.data, directory=layout.data, guest_key_file=layout.credentials / "guest.key"),
        secrets=replace(config.secrets, directory=secrets_directory(config, layout)),
        journal=replace(config.journal, archive=archive_directory(config, layout)),
    )


def secrets_directory(config: Config, layout: Layout) -> Path:
    """Where the file says, or among the credentials of this cloud."""
    default = config.data.directory / Secrets().directory
    return layout.credentials / "secrets" if config.secrets.directory == default else config.secrets.directory


def archive_directory(config: Config, layout: Layout) -> Path:
    """Where the file says, on another disk perhaps, or among the data of this cloud."""
    default = config.data.directory / JournalKept().archive
    return layout.data / "archive" if config.journal.archive == default else config.journal.archive


def with_metrics(config: Config, ports: Ports) -> Config:
    """Every process of the configuration has a port of its own for its metrics."""
    found = {process: ports.of(f"metrics.{process}") for process in config.processes()}
    return replace(config, metrics=replace(config.metrics, ports=found))


def write(config: Config, layout: Layout) -> None:
    write_private(layout.config, dump_toml(config).encode())


def _url(url: str, was: str, listen: str) -> str:
    """The public address follows the listener unless the person gave one of its own."""
    return f"http://{listen}" if url in ("", f"http://{was}") else url


def _without_ports(config: Config, ports: Ports, *, external: bool) -> Config:
    """What `fill` had filled in counts as not said, so that a port that is taken meanwhile is replaced."""
    plain: Any = type(config)(cloud=config.cloud)

    def said(table: str, *fields: str) -> Any:
        was, default = getattr(config, table), getattr(plain, table)
        own = {field: getattr(default, field) for field in fields if ports.is_ours(_port(getattr(was, field)))}
        return replace(was, **own)

    return replace(
        config,
        nats=said("nats", "url"),
        http=said("http", "listen", "url"),
        monitor=said("monitor", "listen", "url"),
        opennebula=config.opennebula if external else _own_opennebula(said("opennebula", "endpoint")),
        metrics=plain.metrics,
    )


def _events(layout: Layout) -> str:
    """A socket file has a short path, or none."""
    path = str(layout.events)
    return f"{IPC}{path}" if len(path.encode()) < zmq.IPC_PATH_MAX_LEN else EVENTS_OFF


def _own_opennebula(one: Any) -> Any:
    """A socket file of ours: the data directory may have moved."""
    return replace(one, events="") if one.events.startswith(IPC) else one


def _port(address: str) -> int | None:
    return urlsplit(address if "://" in address else f"//{address}").port
