"""The tables of the configuration file that processes read, as structs: what each setting means, its range and its default.

`Config` holds them all.  What cores read is `Config.cloud` (`schemas.config`) and enters the journal; the rest does not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec

from schemas.config import CloudConfig
from schemas.ranges import between, positive
from services.domain.capabilities import Hypervisor
from services.runtime.log import Form as LogForm
from services.runtime.log import Level as LogLevel

SERVICES: Final = ("admission", "provisioner", "executor", "monitor")  # besides one scheduler a department
METRICS_PORT_FIRST: Final = 7490  # next to the default listeners 7480 and 7481


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Of the file."""


class Nats(Table, frozen=True, kw_only=True):
    """`url`: where clients connect and, for a server of ours, where it listens.  `credentials_dir`: keys and tokens (0700).
    The limits are those of JetStream, and of connections, in the server's configuration (docs/reference/service-limits.md)."""

    url: str = "nats://127.0.0.1:7422"
    credentials_dir: Path = Path("credentials")
    store_dir: Path = Path("nats")
    memory_max_mb: Annotated[int, between(1, 1 << 20, "JetStream in memory")] = 256
    file_max_mb: Annotated[int, between(1, 1 << 30, "JetStream in files")] = 16_384
    # An envelope needs most of 1 MiB (schemas.envelope.BYTES_MAX); the server takes up to 64.
    payload_max_bytes: Annotated[int, between(1 << 20, 64 << 20, "size of a message")] = 1 << 20
    connections_max: Annotated[int, between(256, 1 << 20, "connections to the server")] = 16_384
    department_connections_max: Annotated[int, between(8, 1 << 20, "of a department, and of all operators")] = 256
    subscriptions_max: Annotated[int, between(16, 1 << 20, "of a connection that is no service's")] = 128
    # fsync on each append: survives a power failure on one node, about half the appends a second
    sync_always: bool = False

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or "127.0.0.1"

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 4222


class Http(Table, frozen=True, kw_only=True):
    """The public door (admission).  `url`: as guests and people reach it; default: where it listens.  `proxies`: addresses and
    networks of reverse proxies before this door and the monitor, whose word on the caller's address counts.  The limits are
    the door's, and as many again the monitor's (docs/reference/service-limits.md)."""

    listen: str = "127.0.0.1:7480"
    url: str = ""
    proxies: tuple[str, ...] = ()
    # Below 16 two pages and their streams could close the door.
    connections_max: Annotated[int, between(16, 1 << 20, "connections")] = 4096
    connections_per_address_max: Annotated[int, between(8, 1 << 20, "a proxy's address has no such limit")] = 1024
    # A line that loses packets needs a second; five minutes protect from nothing.
    header_timeout_s: Annotated[float, between(1, 300, "until the head of a request is complete")] = 10.0


class Monitor(Table, frozen=True, kw_only=True):
    listen: str = "127.0.0.1:7481"
    url: str = ""
    history_path: Path = Path("history.sqlite")
    # The default: a year, and the month in which one looks back at it.
    history_days: Annotated[int, between(1, 36_500, "how long details of jobs and hosts are kept")] = 400
    history_max_mb: Annotated[int, between(0, 1 << 24, "of the file, roughly; 0: any size")] = 4096


EVENTS_OFF: Final = "off"


class OpenNebula(Table, frozen=True, kw_only=True):
    """`auth_file` holds ``user:password``; `template`: attributes added to every VM's template.

    `events`: the hook manager's publisher, ``tcp://HOST:PORT`` or ``ipc:///PATH``.  Empty: none, but an embedded OpenNebula's
    own; ``off``: none.

    `gpu_devices`: of the embedded OpenNebula, the device nodes of this machine's GPUs.
    """

    endpoint: str = "http://127.0.0.1:2633/RPC2"
    events: str = ""
    auth_file: Path = Path("one_auth")
    # oned serialises most calls, so that more only lengthen its queue.
    concurrency: Annotated[int, between(1, 256, "calls in flight")] = 8
    poll_s: Annotated[float, positive(3600, "between two polls of VMs")] = 1.0
    timeout_s: Annotated[float, positive(3600, "of a call")] = 10.0
    template: dict[str, Any] = {}
    hypervisor: Hypervisor | None = None  # of its hosts: what can be done with running VMs (`config.machines`)
    gpu_devices: tuple[str, ...] = ()
    end_again_s: Annotated[
        float | None,
        positive(86_400, "before a hard end that is under way is ordered again; null: as the hypervisor needs it"),
    ] = None

    @property
    def listens(self) -> bool:
        """Whether there is an event stream to listen to."""
        return self.events not in ("", EVENTS_OFF)


class Metrics(Table, frozen=True, kw_only=True):
    """Prometheus listeners: `ports` by process; processes without one count up from `port_first`.  An agent beside HAProxy on
    this machine may have one here, so that the monitor lists it."""

    listen: str = "127.0.0.1"
    port_first: Annotated[int, between(1, 65_000, "port of the first process")] = METRICS_PORT_FIRST
    ports: dict[str, int] = {}


class Runtime(Table, frozen=True, kw_only=True):
    lease_ttl_s: Annotated[float, between(0.5, 3600, "a leader that is silent for this long is replaced")] = 2.0
    heartbeat_s: Annotated[float, positive(60, "between two renewals of the lease")] = 0.5
    snapshot_every: Annotated[int, between(1, 10_000_000, "envelopes between two snapshots")] = 5000
    log_level: LogLevel = "info"
    log_levels: dict[str, str] = {}  # by process; `scheduler`: of all of them
    log_format: LogForm = "text"  # or "json"

    def level_of(self, process: str) -> str:
        """How much a process logs: as it is named, as its kind is, as all are."""
        kind = process.partition(".")[0]
        return self.log_levels.get(process) or self.log_levels.get(kind) or self.log_level

    def log_words(self, process: str) -> tuple[str, ...]:
        """The arguments of a process that does not read this file."""
        return "--log-level", self.level_of(process), "--log-format", self.log_format


class JournalKept(Table, frozen=True, kw_only=True):
    """How much of the journal the broker holds.  What is older goes into `archive`, a directory, before it is purged
    (PROTOCOL S5); a fold from the beginning reads it there."""

    keep_messages: int = 1_000_000  # about 300 MB, some days of a busy cloud; 0: everything
    archive: Path = Path("archive")


class Data(Table, frozen=True, kw_only=True):
    directory: Path = Path("data")
    guest_key_file: Path = Path("credentials/guest.key")


class Secrets(Table, frozen=True, kw_only=True):
    """Where the values of web departments' secrets are (`services.runtime.config.secret_files`)."""

    directory: Path = Path("credentials/secrets")


class Billing(Table, frozen=True, kw_only=True):
    """`prices`: the file of the price table (`config.prices`), read on request; None: there is none."""

    prices: Path | None = None


class Config(Table, frozen=True, kw_only=True):
    """Everything a process needs to run.  `cloud` is the part that cores read, by way of `config.adopted`."""

    cloud: CloudConfig
    nats: Nats = Nats()
    http: Http = Http()
    monitor: Monitor = Monitor()
    opennebula: OpenNebula = OpenNebula()
    metrics: Metrics = Metrics()
    runtime: Runtime = Runtime()
    data: Data = Data()
    secrets: Secrets = Secrets()
    journal: JournalKept = JournalKept()
    billing: Billing = Billing()

    @property
    def data_dir(self) -> Path:
        return self.data.directory

    @property
    def guest_key_file(self) -> Path:
        return self.data.guest_key_file

    def processes(self) -> tuple[str, ...]:
        """Every service process by name: ``admission``, …, ``scheduler.<department>``."""
        return processes(self.cloud)


def processes(cloud: CloudConfig) -> tuple[str, ...]:
    """The service processes of a cloud, in the order in which they are started."""
    return (*SERVICES, *(f"scheduler.{d.name}" for d in cloud.departments))


def agents(cloud: CloudConfig) -> tuple[str, ...]:
    """The agents beside HAProxy that a cloud may have, one for each web department (`phoenix.haproxy`)."""
    return tuple(f"agent.{d.name}" for d in cloud.departments if d.kind == "web")
