"""For Prometheus: which processes there are to scrape, and the metrics of each of them passed on.

    GET /metrics/targets             the list, in the form of Prometheus' http_sd: each by the monitor, at the asked address
    GET /metrics/targets?direct=1    the same, each by its own listener: for a Prometheus on the same machine
    GET /metrics/<process>           that process's metrics, passed on

Rules
  1. A process is listed if the configuration in force has it and the configuration's file names a port for it; so is the agent
     beside HAProxy of a web department (`agent.<department>`): `phoenix up` writes its port into the file.  The file is
     read again when it is another one: `phoenix config apply` writes it, and a new department's scheduler is then listed
     without a restart of anything.  A file that cannot be read changes nothing.
  2. Without `direct` the address is the one at which the monitor was asked: a client that can read the list can scrape it.
  3. Labels are `cloud`, `process` and `service` (of `scheduler.hpc`: scheduler).  There is no `department` here: series have
     that label of their own; those of agents have not, so agents have it.
  4. No token: metrics hold numbers and names (docs/explanation/security.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from services.domain.custody.custody import Custody
from services.monitor.http.access import Fault, json_answer
from services.monitor.http.parameters import is_set
from services.runtime.config import file as configuration
from services.runtime.config.file import ConfigError
from services.runtime.config.tables import Config, agents, processes
from services.runtime.log import message_of

SCRAPE_S: Final = 2.0
_HOST: Final = re.compile(r"[A-Za-z0-9.:\[\]_-]{1,255}\Z")
_ANY: Final = ("0.0.0.0", "::", "[::]")  # noqa: S104  # addresses to listen on, none to connect to


class Ports:
    """Where processes tell their metrics: `config`'s, and what `file` says once it is another one (rule 1)."""

    def __init__(self, config: Config, file: Path | None = None) -> None:
        self._metrics, self._file = config.metrics, file
        self._stamp = self._look()

    def known(self) -> Mapping[str, int]:
        self._read_again()
        return self._metrics.ports

    @property
    def host(self) -> str:
        """Where a process of this machine reaches the listeners."""
        listen = self._metrics.listen
        return "127.0.0.1" if listen in _ANY else listen

    def _read_again(self) -> None:
        stamp = self._look()
        if self._file is None or stamp is None or stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._metrics = configuration.load(self._file).metrics
        except ConfigError:
            return

    def _look(self) -> tuple[int, int, int] | None:
        try:
            status = self._file.stat() if self._file is not None else None
        except OSError:
            return None
        return (status.st_mtime_ns, status.st_size, status.st_ino) if status is not None else None


class Scrape:
    def __init__(self, custody: Custody, ports: Ports) -> None:
        self.custody, self.ports = custody, ports

    def routes(self) -> list[web.RouteDef]:
        """The list first: `targets` is the name of no process."""
        return [web.get("/metrics/targets", self.targets), web.get("/metrics/{process}", self.passed_on)]

    def processes(self) -> dict[str, int]:
        """Ports by process, in the order in which processes are started."""
        known, config = self.ports.known(), self.custody.state.config
        there = (*processes(config), *agents(config)) if config is not None else known
        return {process: known[process] for process in there if process in known}

    async def targets(self, request: web.Request) -> web.Response:
        direct = is_set(request, "direct")
        if not direct and _HOST.match(request.host) is None:
            raise Fault(400, "invalid", "the Host header should be the monitor's HOST:PORT", "Host")
        return json_answer([self._group(*one, None if direct else request.host) for one in self.processes().items()])

    def _group(self, process: str, port: int, asked_at: str | None) -> dict[str, Any]:
        config = self.custody.state.config
        path = "/metrics" if asked_at is None else f"/metrics/{process}"
        service, _, department = process.partition(".")
        return {
            "targets": [asked_at or f"{self.ports.host}:{port}"],
            "labels": {
                "__metrics_path__": path,
                "cloud": config.name if config is not None else "",
                "process": process,
                "service": service,
                **({"department": department} if service == "agent" else {}),
            },
        }

    async def passed_on(self, request: web.Request) -> web.Response:
        process, known = request.match_info["process"], self.processes()
        if process not in known:
            raise Fault(404, "unknown", f"there is no process {process!r}; known: {', '.join(sorted(known))}")
        url = f"http://{self.ports.host}:{known[process]}/metrics"
        try:
            async with ClientSession(timeout=ClientTimeout(total=SCRAPE_S)) as session, session.get(url) as answer:
                return web.Response(body=await answer.read(), content_type="text/plain", charset="utf-8")
        except (ClientError, TimeoutError) as error:
            message = message_of(error)
            raise Fault(503, "unavailable", f"{process} does not answer: {message}") from error
