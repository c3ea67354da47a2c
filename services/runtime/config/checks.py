"""Meaning of the configuration: names, and how the parts fit together.  The range of a value stands beside its field.

What it decides: whether values that have the right form can be run.  `check_cloud` takes the message itself, so a
configuration that arrives by `config.apply` is judged by the same rules as one from the file.

Rules
  1. A check looks at every part, whatever is wrong elsewhere; it returns all problems, in the order of the file.
  2. Names that are tokens of NATS subjects or names of credential files can never collide with ours: a department called
     "service" would own the services' inboxes, a user called "service-admission" admission's key.
  3. A setting that this version cannot honour is refused with a sentence, not accepted and ignored.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, get_args
from urllib.parse import urlsplit

from schemas import ids, subjects
from schemas.config import (
    HOSTS_MAX,
    BatchPolicy,
    Capability,
    CloudConfig,
    Department,
    Policy,
    User,
    WebPolicy,
)
from schemas.dimensions import DIMENSIONS
from schemas.releases import HEALTH_PATH_WORDS, health_path_fits, image_fits
from services.domain.constraints import problem as constraint_problem
from services.runtime.config import lending as config_lending
from services.runtime.config import limits as config_limits
from services.runtime.config import machines as config_machines
from services.runtime.config import policies as config_policies
from services.runtime.config import scaling as config_scaling
from services.runtime.config import web as config_web
from services.runtime.config.form import NAME_RIGHT, Path_, Problem, ranges, shown, suggestion
from services.runtime.config.tables import Config
from services.runtime.log import Level as LogLevel

CLUSTERS_MAX: Final = 1000
DEPARTMENTS_MAX: Final = 200  # one scheduler process each
USERS_MAX: Final = 10_000  # one block each in the server's configuration
SOCKET_PATH_MAX: Final = 107  # bytes: what a socket's address holds
PEER: Final = re.compile(r"[A-Za-z0-9:][A-Za-z0-9._:-]*")  # a name or address that one can connect to
SERVICE_PREFIX: Final = "service-"  # credential files of services
RESERVED: Final[dict[str, str]] = {
    subjects.OPERATORS: "the department of operators, which exists by itself",
    subjects.SITE: "the place of events that concern no department",
    "service": "the place of the services' own inboxes",
    subjects.ASKING: "the place of what services ask one another",
}


_TABLES: Final = (
    "policy",
    "limits",
    "hosts",
    "power",
)  # with ranges, of what cores read; departments and contracts have them too
_DEPLOYED: Final = ("nats", "http", "opennebula", "metrics", "monitor", "runtime")


def check_cloud(cloud: CloudConfig, hosts: int | None = None) -> list[Problem]:
    """Every problem of the part that cores read.  `hosts`: how many the cloud has, if that is known."""
    return [
        *_name(cloud.name, ("cloud", "name")),
        *(p for key in _TABLES for p in ranges(getattr(cloud, key), (key,))),
        *_policy(cloud.policy),
        *_hosts(cloud),
        *_departments(cloud, hosts),
        *config_lending.check(cloud, hosts),
        *_users(cloud),
        *config_limits.check_people(cloud),
        *config_limits.check_shares(cloud),
        *config_web.check_people(cloud),
    ]


def check_deployment(config: Config, processes: Sequence[str], agents: Sequence[str]) -> list[Problem]:
    """Every problem of the part that processes need to run.  `agents`: beside HAProxy, of which a file may name ports."""
    problems: list[Problem] = []
    for key in _DEPLOYED:
        problems += ranges(getattr(config, key), (key,))
    problems += _url(config.nats.url, ("nats", "url"), ("nats", "tls"))
    problems += _url(config.http.url, ("http", "url"), ("http", "https"))
    problems += _proxies(config.http.proxies)
    problems += _url(config.monitor.url, ("monitor", "url"), ("http", "https"))
    problems += _url(config.opennebula.endpoint, ("opennebula", "endpoint"), ("http", "https"))
    if config.opennebula.listens:
        problems += _publisher(config.opennebula.events, ("opennebula", "events"))
    problems += _gpus(config.opennebula.gpu_devices)
    problems += config_web.check_ports(config.cloud, config.opennebula.hypervisor)
    problems += _listeners(config, processes, agents)
    problems += _log_levels(config.runtime.log_levels, processes)
    if config.runtime.lease_ttl_s < 2 * config.runtime.heartbeat_s:
        right = f"should be at least twice heartbeat_s ({config.runtime.heartbeat_s:g}), or one late renewal loses the lease"
        problems.append(_problem(("runtime", "lease_ttl_s"), config.runtime.lease_ttl_s, right))
    return problems


_BESIDE: Final = ("agent", "balancer", "opennebula")  # of `phoenix up`; balancers and agents also by department


def _log_levels(levels: Mapping[str, str], processes: Sequence[str]) -> Iterator[Problem]:
    known = {*processes, *(process.partition(".")[0] for process in processes), *_BESIDE}
    for name, level in levels.items():
        if level not in get_args(LogLevel):
            right = f"should be one of {', '.join(get_args(LogLevel))}"
            yield _problem(("runtime", "log_levels", name), level, right)
        if name not in known and name.partition(".")[0] not in _BESIDE[:2]:
            right = f"should be a process: {', '.join(sorted(known))}"
            yield _problem(("runtime", "log_levels", name), levels[name], right)


def _proxies(proxies: Sequence[str]) -> Iterator[Problem]:
    """Which peers may report the caller's address: if all may, no report is worth anything."""
    for place, text in enumerate(proxies):
        try:
            is_wide = ipaddress.ip_network(text, strict=False).prefixlen == 0
        except ValueError:
            is_wide = True
        if is_wide:
            right = "should be the address or network of a reverse proxy, for example 10.0.0.5 or 10.0.0.0/24"
            yield _problem(("http", "proxies", place), text, right)


def _problem(path: Path_, value: object, right: str, label: str = "") -> Problem:
    return Problem(path=path, found=shown(value) if value is not None else "", right=right, label=label)


def _name(name: str, path: Path_, label: str = "") -> Iterator[Problem]:
    if not ids.is_department(name):
        yield _problem(path, name, NAME_RIGHT, label)


def _policy(policy: Policy) -> Iterator[Problem]:
    if policy.kill_s < policy.grace_s:
        right = f"should be at least grace_s ({policy.grace_s:g}): a guest stops within grace_s of being asked"
        yield _problem(("policy", "kill_s"), policy.kill_s, right)


def _twice(names: Iterable[str]) -> set[int]:
    """Indexes of names that stood before."""
    seen: dict[str, None] = {}
    again = set()
    for index, name in enumerate(names):
        if name in seen:
            again.add(index)
        seen[name] = None
    return again


def _departments(cloud: CloudConfig, hosts: int | None) -> Iterator[Problem]:
    if not cloud.departments:
        yield _problem(("department",), None, "should be at least one [[department]]")
    if len(cloud.departments) > DEPARTMENTS_MAX:
        yield _problem(("department",), len(cloud.departments), f"should be at most {DEPARTMENTS_MAX} departments")
    again = _twice(d.name for d in cloud.departments)
    for index, department in enumerate(cloud.departments):
        path: Path_ = ("department", index)
        if index in again:
            yield _problem(
                (*path, "name"), department.name, "should be unique; an earlier department uses it", department.name
            )
        yield from _department(department, path, cloud.capabilities)
    total = sum(d.guarantee for d in cloud.departments)
    ceiling = HOSTS_MAX if hosts is None else hosts
    if total > ceiling and all(d.guarantee <= ceiling for d in cloud.departments):
        known = "a plausible cluster" if hosts is None else "this cloud"
        right = f"guarantees should add up to at most {ceiling} hosts, what {known} has; they add up to {total}"
        worst = max(range(len(cloud.departments)), key=lambda i: (cloud.departments[i].guarantee, -i))
        department = cloud.departments[worst]
        yield _problem(("department", worst, "guarantee"), department.guarantee, right, department.name)


def _department(department: Department, path: Path_, able: Sequence[Capability]) -> Iterator[Problem]:
    label = department.name
    yield from _name(department.name, (*path, "name"), label)
    if department.name in RESERVED:
        right = f"should be another name: this one is {RESERVED[department.name]}"
        yield _problem((*path, "name"), department.name, right, label)
    yield from ranges(department, path, label)
    if department.maximum is not None and department.guarantee > department.maximum:
        right = f"should be at most maximum ({department.maximum} hosts)"
        yield _problem((*path, "guarantee"), department.guarantee, right, label)
    other = "batch" if department.kind == "web" else "web"
    if getattr(department, other) is not None:
        right = f'should not be here: the department is of kind "{department.kind}"; remove it or change kind'
        yield _problem((*path, other), "a table", right, label)
    if department.kind == "batch" and department.batch is not None:
        yield from _batch(department.batch, (*path, "batch"), label, able)
        yield from config_limits.check(department.batch, (*path, "batch"), label)
    yield from config_limits.check_department(department, path)
    if department.kind == "web" and department.web is not None:
        yield from _web(department, department.web, (*path, "web"))
        yield from config_scaling.check(department, department.web, (*path, "web"))
    yield from config_policies.check(department, (*path, department.kind))


def _batch(batch: BatchPolicy, path: Path_, label: str, able: Sequence[Capability]) -> Iterator[Problem]:
    if batch.walltime_default_s > batch.walltime_max_s:
        right = f"should be at most walltime_max_s ({batch.walltime_max_s:g})"
        yield _problem((*path, "walltime_default_s"), batch.walltime_default_s, right, label)
    yield from config_machines.check(batch, path, label, able)
    yield from _services(batch, path, label)
    yield from _balance(batch, path, label, able)


def _web(department: Department, web: WebPolicy, path: Path_) -> Iterator[Problem]:
    label = department.name
    if not web.instances_min:
        right = (
            "should be at least 1: load is measured at instances, so a department without one would not come back by it "
            "(phoenix scale DEPT --exact 0 stops it until a person scales it again)"
        )
        yield _problem((*path, "instances_min"), web.instances_min, right, label)
    if web.instances_min > web.instances_max:
        right = f"should be at most instances_max ({web.instances_max})"
        yield _problem((*path, "instances_min"), web.instances_min, right, label)
    hosts_min = math.ceil(web.instances_min / max(1, web.instances_per_host))
    if department.maximum is not None and hosts_min > department.maximum:
        right = f"should fit the department's maximum of {department.maximum} hosts; this needs {hosts_min}"
        yield _problem((*path, "instances_min"), web.instances_min, right, label)
    if not health_path_fits(web.health_path):
        yield _problem((*path, "health_path"), web.health_path, f"should be {HEALTH_PATH_WORDS}", label)
    if not web.max_unavailable and not web.max_surge:
        right = "should be at least 1, or max_unavailable: with both 0 no release could take another one's place"
        yield _problem((*path, "max_surge"), web.max_surge, right, label)
    if not image_fits(web.image):
        right = "should hold neither control characters nor quotes nor backslashes nor $, at most 256 characters"
        yield _problem((*path, "image"), web.image, right, label)
    for key in web.environment:
        if not key or "=" in key or "\0" in key:
            yield _problem((*path, "environment"), key, 'should be names of variables without "="', label)
    yield from config_web.check(department, web, path)


def _users(cloud: CloudConfig) -> Iterator[Problem]:
    if len(cloud.users) > USERS_MAX:
        yield _problem(("user",), len(cloud.users), f"should be at most {USERS_MAX} users")
    again = _twice(u.name for u in cloud.users)
    names = [d.name for d in cloud.departments] + [subjects.OPERATORS]
    for index, user in enumerate(cloud.users):
        path: Path_ = ("user", index)
        if index in again:
            yield _problem(
                (*path, "name"), user.name, "should be unique in the cloud; an earlier user uses it", user.name
            )
        yield from _user(user, path, names)


def _user(user: User, path: Path_, departments: Sequence[str]) -> Iterator[Problem]:
    label = user.name
    yield from _name(user.name, (*path, "name"), label)
    if user.name.startswith(SERVICE_PREFIX):
        yield _problem(
            (*path, "name"), user.name, f'should not begin with "{SERVICE_PREFIX}": services have those', label
        )
    if user.department not in departments:
        hint = suggestion(user.department, departments) or f"; there are: {', '.join(departments)}"
        yield _problem((*path, "department"), user.department, f"should be a department of this file{hint}", label)
    if user.role == "operator" and user.department != subjects.OPERATORS:
        right = f'should be "{subjects.OPERATORS}": an operator belongs to no department'
        yield _problem((*path, "department"), user.department, right, label)
    if user.role != "operator" and user.department == subjects.OPERATORS:
        right = f'should be "operator" in department "{subjects.OPERATORS}", or the user in another department'
        yield _problem((*path, "role"), user.role, right, label)


def _url(url: str, path: Path_, schemes: tuple[str, ...]) -> Iterator[Problem]:
    try:
        parts = urlsplit(url)
        good = parts.scheme in schemes and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        secret = parts.password is not None
    except ValueError:
        good = secret = False
    if secret:
        yield _problem(path, "a URL with a password", "should hold no password: credentials are files")
    elif not good:
        yield _problem(path, url, f"should be {' or '.join(s + '://HOST:PORT' for s in schemes)}")


def _gpus(nodes: Sequence[str]) -> Iterator[Problem]:
    """One card is one node: a node that is there twice would be given to two jobs."""
    for place, node in enumerate(nodes):
        path = ("opennebula", "gpu_devices", place)
        if not node.startswith("/"):
            yield _problem(path, node, 'should be the path of a device node, such as "/dev/nvidia0"')
        elif node in nodes[:place]:
            yield _problem(path, node, "should be there once")


def _publisher(url: str, path: Path_) -> Iterator[Problem]:
    """A ZeroMQ publisher: a socket file, or a port, of which there is no default."""
    if url.startswith("ipc:///"):
        if len(url.encode()) > SOCKET_PATH_MAX + len("ipc://"):
            yield _problem(
                path, url, f"should have a path of at most {SOCKET_PATH_MAX} bytes: longer ones cannot be opened"
            )
        return
    found = list(_url(url, path, ("tcp",)))
    if not found and not PEER.fullmatch(urlsplit(url).hostname or ""):
        found = [_problem(path, url, "should name the host to connect to, not an address to listen on")]
    if not found and (urlsplit(url).port is None or urlsplit(url).path):
        right = (
            "should be tcp://HOST:PORT, or ipc:///PATH; the hook manager's port is 2101 unless oned.conf names another"
        )
        found = [_problem(path, url, right)]
    yield from found


def _listeners(config: Config, processes: Sequence[str], agents: Sequence[str]) -> Iterator[Problem]:
    """Each listener has an address and a port of its own."""
    taken: dict[Any, str] = {}
    places: list[tuple[Path_, str]] = [
        (("http", "listen"), config.http.listen),
        (("monitor", "listen"), config.monitor.listen),
    ]
    for process, port in config.metrics.ports.items():
        if process not in (*processes, *agents):
            hint = suggestion(process, (*processes, *agents)) or f"; there are: {', '.join(processes)}"
            yield _problem(("metrics", "ports", process), port, f"should be the port of a process{hint}")
        places.append((("metrics", "ports", process), f"{config.metrics.listen}:{port}"))
    for path, address in places:
        host, _, port_text = address.rpartition(":")
        if not host or not port_text.isdecimal() or not 0 < int(port_text) < 65_536:
            yield _problem(
                path, address, 'should be HOST:PORT with a port from 1 to 65535, for example "127.0.0.1:7480"'
            )
        elif address in taken:
            yield _problem(path, address, f"should be free: {taken[address]} listens there")
        else:
            taken[address] = ".".join(str(p) for p in path)


def _hosts(cloud: CloudConfig) -> Iterator[Problem]:
    hosts = cloud.hosts
    if hosts.quarantine_max_s < hosts.quarantine_s:
        yield _host_problem(
            "quarantine_max_s", hosts.quarantine_max_s, f"should be at least quarantine_s ({hosts.quarantine_s:g})"
        )
    if hosts.monitor_lost_s and hosts.monitor_lost_s <= hosts.monitor_late_s:
        right = f"should be 0 (never), or more than monitor_late_s ({hosts.monitor_late_s:g}): a late host is set apart first"
        yield _host_problem("monitor_lost_s", hosts.monitor_lost_s, right)
    if hosts.overcommit_margin > hosts.overcommit_below:
        right = f"should be at most overcommit_below ({hosts.overcommit_below:g}), or it never begins again"
        yield _host_problem("overcommit_margin", hosts.overcommit_margin, right)
    for key in ("use", "overcommit_use"):
        wrong = constraint_problem(getattr(hosts, key))
        if wrong:
            yield _host_problem(key, getattr(hosts, key), wrong)
    if len(hosts.clusters) > CLUSTERS_MAX or not all(hosts.clusters):
        yield _host_problem(
            "clusters", list(hosts.clusters), f"should be names of at most {CLUSTERS_MAX} clusters, none empty"
        )


def _host_problem(key: str, value: object, right: str) -> Problem:
    return Problem(path=("hosts", key), found=shown(value), right=right)


def _services(batch: BatchPolicy, path: Path_, label: str) -> Iterator[Problem]:
    def problem(key: str, value: object, right: str) -> Problem:
        return Problem(path=(*path, key), found=shown(value), right=right, label=label)

    if batch.order == "svmsched" and not batch.services:
        example = "should name the services and their weights, for example services = { jivaro = 65, bof = 19 }"
        yield problem("services", "none", example)
    if batch.order != "svmsched" and batch.services:
        yield problem("services", ", ".join(batch.services), 'should be with order = "svmsched": no other shares hosts')
    for name in batch.services:
        if not ids.is_department(name):
            yield problem("services", name, NAME_RIGHT)
    (first, weight), *rest = ((each.weight, getattr(batch, each.weight)) for each in DIMENSIONS)
    if not math.isclose(weight + sum(value for _, value in rest), 1.0, abs_tol=1e-9):
        others = ", ".join(f"{name} ({value:g})" for name, value in rest)
        yield problem(first, weight, f"should be 1 together with {others}")


def _balance(batch: BatchPolicy, path: Path_, label: str, able: Sequence[str]) -> Iterator[Problem]:
    """The band needs a width, or a move could be undone by the next.  Moving needs a hypervisor that can do it while the VM
    runs, or each move would stop the job for as long as its memory takes to disk and back."""
    balance = batch.balance

    def problem(key: str, right: str) -> Problem:
        return Problem(path=(*path, "balance", key), found=shown(getattr(balance, key)), right=right, label=label)

    if balance.low >= balance.high:
        yield problem("low", f"should be less than high ({balance.high:g})")
    if balance.enabled and "live_migration" not in able:
        yield problem("enabled", "should be false: the hypervisor of this cloud cannot move a VM while it runs")
