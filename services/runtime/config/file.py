"""The one configuration file: TOML in, `Config` out, validated as a whole.

What it decides: whether the file can be run, and with which values.  It must never report one problem at a time, never guess
around a mistyped key, and never hold a secret: keys and tokens are files of their own (`services.runtime.callers.identity`).

    [cloud]        name                          -> Config.cloud, with the tables policy, limits, department, user:
    [policy]  [limits]  [hosts]                     the part that cores read; it enters the journal as `config.adopted` (S7)
    [[department]] + [department.batch|web]
    [[lending]]
    [[user]]
    [nats] [http] [monitor] [opennebula]         -> Config.nats, …: what processes need to run; never in the journal
    [metrics] [runtime] [data] [secrets] [journal] [billing]

Rules
  1. Every problem is reported at once, each with file, line, key, the value found, and what would be right.
  2. `loads(dump_toml(config)) == config` for every valid config.
  3. A web department has web settings and a batch department has batch settings, if only the defaults.
  4. A path in the file is relative to the file's directory, a path that the file does not name is in `data.directory`;
     paths in `Config` are absolute.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec

from schemas.config import BatchPolicy, CloudConfig, Department, Hosts, Lending, Limits, Policy, Power, User, WebPolicy
from schemas.ranges import between, positive
from services.domain.capabilities import Hypervisor
from services.runtime.config.checks import check_cloud, check_deployment
from services.runtime.config.form import Form, Lines, Path_, Problem
from services.runtime.config.machines import elsewhere, hypervisor_of, with_hypervisor, with_save_s
from services.runtime.config.text import diff, dump_toml, tables_diff
from services.runtime.log import Form as LogForm
from services.runtime.log import Level as LogLevel

__all__ = [
    "Config",
    "ConfigError",
    "Problem",
    "check_cloud",
    "diff",
    "dump_toml",
    "load",
    "loads",
    "processes",
    "tables_diff",
]

SERVICES: Final = ("admission", "provisioner", "executor", "monitor")  # besides one scheduler a department
METRICS_PORT_FIRST: Final = 7490  # next to the default listeners 7480 and 7481
_LINE: Final = re.compile(r"at line (\d+)")
_TOLD_CHARS: Final = 60  # of a line that is no TOML: enough to find it
FILE_MAX_BYTES: Final = 4 << 20  # a configuration of 1,000 departments is about 0.5 MB


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Nats(_Table, frozen=True, kw_only=True):
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
    sync_always: bool = (
        False  # fsync on each append: survives a power failure on one node, about half the appends a second
    )

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or "127.0.0.1"

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 4222


class Http(_Table, frozen=True, kw_only=True):
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


class Monitor(_Table, frozen=True, kw_only=True):
    listen: str = "127.0.0.1:7481"
    url: str = ""
    history_path: Path = Path("history.sqlite")
    # The default: a year, and the month in which one looks back at it.
    history_days: Annotated[int, between(1, 36_500, "how long details of jobs and hosts are kept")] = 400
    history_max_mb: Annotated[int, between(0, 1 << 24, "of the file, roughly; 0: any size")] = 4096


EVENTS_OFF: Final = "off"


class OpenNebula(_Table, frozen=True, kw_only=True):
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

    @property
    def listens(self) -> bool:
        """Whether there is an event stream to listen to."""
        return self.events not in ("", EVENTS_OFF)


class Metrics(_Table, frozen=True, kw_only=True):
    """Prometheus listeners: `ports` by process; processes without one count up from `port_first`.  An agent beside HAProxy on
    this machine may have one here, so that the monitor lists it."""

    listen: str = "127.0.0.1"
    port_first: Annotated[int, between(1, 65_000, "port of the first process")] = METRICS_PORT_FIRST
    ports: dict[str, int] = {}


class Runtime(_Table, frozen=True, kw_only=True):
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


class JournalKept(_Table, frozen=True, kw_only=True):
    """How much of the journal the broker holds.  What is older goes into `archive`, a directory, before it is purged
    (PROTOCOL S5); a fold from the beginning reads it there."""

    keep_messages: int = 1_000_000  # about 300 MB, some days of a busy cloud; 0: everything
    archive: Path = Path("archive")


class Data(_Table, frozen=True, kw_only=True):
    directory: Path = Path("data")
    guest_key_file: Path = Path("credentials/guest.key")


class Secrets(_Table, frozen=True, kw_only=True):
    """Where the values of web departments' secrets are (`services.runtime.config.secret_files`)."""

    directory: Path = Path("credentials/secrets")


class Billing(_Table, frozen=True, kw_only=True):
    """`prices`: the file of the price table (`config.prices`), read on request; None: there is none."""

    prices: Path | None = None


class Config(_Table, frozen=True, kw_only=True):
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


class ConfigError(Exception):
    """The file cannot be used; `str()` lists every problem, one a line."""

    def __init__(self, problems: list[Problem], file: str, lines: Lines | None = None) -> None:
        placed = [(lines.of(p.path) if lines else None, p) for p in problems]
        placed.sort(key=lambda x: (x[0] is None, x[0] or 0))  # as in the file; stable: within a line as found
        self.problems = [p for _, p in placed]
        super().__init__("\n".join(p.line(file, number) for number, p in placed))


class _CloudTable(_Table, frozen=True, kw_only=True):
    name: str


_TABLES: Final[dict[str, type[msgspec.Struct]]] = {
    "cloud": _CloudTable,
    "policy": Policy,
    "limits": Limits,
    "hosts": Hosts,
    "power": Power,
    "nats": Nats,
    "http": Http,
    "monitor": Monitor,
    "opennebula": OpenNebula,
    "metrics": Metrics,
    "runtime": Runtime,
    "data": Data,
    "secrets": Secrets,
    "journal": JournalKept,
    "billing": Billing,
}
_LISTS: Final[dict[str, type[msgspec.Struct]]] = {"department": Department, "lending": Lending, "user": User}
_DEPLOYMENT: Final = (
    *("nats", "http", "monitor", "opennebula", "metrics", "runtime", "data", "secrets", "journal"),
    "billing",
)


def processes(cloud: CloudConfig) -> tuple[str, ...]:
    """The service processes of a cloud, in the order in which they are started."""
    return (*SERVICES, *(f"scheduler.{d.name}" for d in cloud.departments))


def agents(cloud: CloudConfig) -> tuple[str, ...]:
    """The agents beside HAProxy that a cloud may have, one for each web department (`phoenix.haproxy`)."""
    return tuple(f"agent.{d.name}" for d in cloud.departments if d.kind == "web")


def load(path: Path, opennebula: OpenNebula | None = None) -> Config:
    """Read and validate a configuration file.  `opennebula`: as of `loads`.  Raises `ConfigError`."""
    return loads(text_of(path), path.name, path.absolute().parent, opennebula)


def text_of(path: Path) -> str:
    """Raises `ConfigError`."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_MAX_BYTES + 1)
        if len(data) > FILE_MAX_BYTES:
            raise _unreadable(path.name, f"should be at most {FILE_MAX_BYTES} bytes")
        return data.decode("utf-8")
    except OSError as error:
        raise _unreadable(str(path), f"cannot be read ({error.strerror}); name a readable file") from error
    except UnicodeDecodeError as error:
        raise _unreadable(str(path), f"should be UTF-8 text (byte {error.start} is not)") from error


def document_of(text: str, name: str) -> dict[str, Any]:
    """Raises `ConfigError`."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _unreadable(name, f"should be TOML: {error}{_line_of(error, text)}") from error


def loads(
    text: str, name: str = "configuration", base: Path | None = None, opennebula: OpenNebula | None = None
) -> Config:
    """Validate a configuration text.  `name` stands in messages; `base`: what relative paths start from (default: the working
    directory); `opennebula`: the one that is in force, whose hypervisor counts, whatever the text says.  Raises
    `ConfigError`."""
    config, problems = read(document_of(text, name), base, opennebula)
    if problems:
        raise ConfigError(problems, name, Lines(text))
    return config


def read(
    document: dict[str, Any], base: Path | None = None, opennebula: OpenNebula | None = None
) -> tuple[Config, list[Problem]]:
    """What a document says, and what is wrong with it; a value that is wrong has its default.  As of `loads`."""
    form = Form((base or Path.cwd()).absolute())
    config = _read(form, document, opennebula)
    broken = {p.path for p in form.problems}
    meant = check_cloud(config.cloud) + check_deployment(config, config.processes(), agents(config.cloud))
    return config, form.problems + [p for p in meant if not _covers(broken, p.path)]


def _line_of(error: tomllib.TOMLDecodeError, text: str) -> str:
    """The line that it speaks of, which the parser's message only numbers: of a key that is there twice it names no key."""
    found, lines = _LINE.search(str(error)), text.splitlines()
    if found is None or not 0 < int(found[1]) <= len(lines):
        return ""
    line = lines[int(found[1]) - 1].strip()
    key = line.partition("=")[0].strip() if "=" in line else line.partition(" ")[0]  # a value may be a secret
    return f": see {key[:_TOLD_CHARS]}" + (", which is there twice" if "overwrite" in str(error) else "")


def _read(form: Form, document: dict[str, Any], in_force: OpenNebula | None) -> Config:
    form.unknown_keys(document, [*_TABLES, *_LISTS], ())
    if "cloud" not in document:
        form.report(("cloud", "name"), 'should be the name of this cloud, for example [cloud] name = "site-a"')
    tables: dict[str, Any] = {}
    for key, cls in _TABLES.items():
        if key in document or key != "cloud":
            tables[key] = form.table(cls, document.get(key, {}), (key,))
    lists: dict[str, Any] = {key: form.tables(cls, document.get(key, []), (key,)) for key, cls in _LISTS.items()}
    opennebula, policy = document.get("opennebula"), document.get("policy")
    named = tables["opennebula"].hypervisor
    if wrong := elsewhere(opennebula, named):
        form.report(("opennebula", "hypervisor"), wrong, named)
    hypervisor = hypervisor_of(opennebula, named) if in_force is None else in_force.hypervisor
    tables["opennebula"] = msgspec.structs.replace(tables["opennebula"], hypervisor=hypervisor)
    cloud = CloudConfig(
        name=tables["cloud"].name if "cloud" in tables else "",
        departments=tuple(_with_settings(d) for d in lists["department"]),
        users=lists["user"],
        lending=lists["lending"],
        policy=with_save_s(tables["policy"], policy, hypervisor),
        limits=tables["limits"],
        hosts=tables["hosts"],
        power=tables["power"],
    )
    cloud = with_hypervisor(cloud, hypervisor)
    tables["data"] = _in(tables["data"], form.base, "directory")
    data_dir = tables["data"].directory
    return _with_derived(Config(cloud=cloud, **{key: _in(tables[key], data_dir) for key in _DEPLOYMENT}))


def _covers(broken: set[Path_], path: Path_) -> bool:
    """True if the form of `path` or of something around it is already reported: its meaning is then a guess."""
    return any(path[:n] in broken for n in range(1, len(path) + 1))


def _with_settings(department: Department) -> Department:
    if department.kind == "web" and department.web is None:
        return msgspec.structs.replace(department, web=WebPolicy())
    if department.kind == "batch" and department.batch is None:
        return msgspec.structs.replace(department, batch=BatchPolicy())
    return department


def _in(table: msgspec.Struct, base: Path, *names: str) -> Any:
    """The table with its relative paths (those that the file did not name), or only `names`, moved below `base`."""
    values = {k: v for k, v in msgspec.structs.asdict(table).items() if isinstance(v, Path) and not v.is_absolute()}
    return msgspec.structs.replace(table, **{k: base / v for k, v in values.items() if not names or k in names})


def _with_derived(config: Config) -> Config:
    metrics = config.metrics
    ports = dict(metrics.ports)
    for offset, process in enumerate(config.processes()):
        ports.setdefault(process, metrics.port_first + offset)
    return msgspec.structs.replace(
        config,
        metrics=msgspec.structs.replace(metrics, ports=ports),
        http=msgspec.structs.replace(config.http, url=config.http.url or f"http://{config.http.listen}"),
        monitor=msgspec.structs.replace(config.monitor, url=config.monitor.url or f"http://{config.monitor.listen}"),
    )


def _unreadable(file: str, right: str) -> ConfigError:
    return ConfigError([Problem(path=(), found="unusable", right=right)], file)
