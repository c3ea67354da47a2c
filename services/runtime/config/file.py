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
from typing import Any, Final

import msgspec

from schemas.config import BatchPolicy, CloudConfig, Department, Hosts, Lending, Limits, Policy, Power, User, WebPolicy
from services.runtime.config.checks import check_cloud, check_deployment
from services.runtime.config.form import Form, Lines, Path_, Problem
from services.runtime.config.machines import elsewhere, hypervisor_of, with_hypervisor, with_save_s
from services.runtime.config.pace import SITE, is_site, paced, patient
from services.runtime.config.tables import (
    Billing,
    Config,
    Data,
    Http,
    JournalKept,
    Metrics,
    Monitor,
    Nats,
    OpenNebula,
    Runtime,
    Secrets,
    Table,
    agents,
)

_LINE: Final = re.compile(r"at line (\d+)")
_TOLD_CHARS: Final = 60  # of a line that is no TOML: enough to find it
FILE_MAX_BYTES: Final = 4 << 20  # a configuration of 1,000 departments is about 0.5 MB


class ConfigError(Exception):
    """The file cannot be used; `str()` lists every problem, one a line."""

    def __init__(self, problems: list[Problem], file: str, lines: Lines | None = None) -> None:
        placed = [(lines.of(p.path) if lines else None, p) for p in problems]
        placed.sort(key=lambda x: (x[0] is None, x[0] or 0))  # as in the file; stable: within a line as found
        self.problems = [p for _, p in placed]
        super().__init__("\n".join(p.line(file, number) for number, p in placed))


class _CloudTable(Table, frozen=True, kw_only=True):
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
    departments = tuple(_with_settings(d) for d in lists["department"])
    if is_site(hypervisor):
        said = document.get("department")
        departments = tuple(map(patient, departments, said if isinstance(said, list) else [said]))
        for key in SITE:
            tables[key] = paced(key, tables[key], document.get(key), departments)
    cloud = CloudConfig(
        name=tables["cloud"].name if "cloud" in tables else "",
        departments=departments,
        users=lists["user"],
        lending=lists["lending"],
        policy=with_save_s(tables["policy"], policy, hypervisor),
        limits=tables["limits"],
        hosts=tables["hosts"],
        power=tables["power"],
    )
    cloud = with_hypervisor(cloud, hypervisor, tables["opennebula"].end_again_s)
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
