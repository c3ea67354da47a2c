"""One OpenNebula, asked with the executor's own client, so that what works here works there.

Rules
  1. Only calls that change nothing; what changes something is dry_run.py's, and only when it is asked for.
  2. Every error has a name (`services.executor.core.call_errors.Failure`); its advice is the one that the executor gives.
  3. No answer is printed as a whole: it could hold passwords of other people's templates.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import urlsplit

from lxml import etree

from phoenix.doctor.findings import Finding, fail
from services.executor.core.call_errors import RULES, Failure
from services.executor.opennebula.client import LeanServer
from services.executor.opennebula.errors import ERRORS, failure_of
from services.runtime.log import message_of

IPC: Final = "ipc://"
TIMEOUT_S: Final = 10.0
GREETING_S: Final = 2.0
_SECRET: Final = re.compile(r"[0-9a-fA-F]{32,}")
_PARSER: Final[dict[str, Any]] = {"resolve_entities": False, "no_network": True, "huge_tree": True}


class Trouble(Exception):
    """A call that failed: its name, and what OpenNebula or the connection said."""

    def __init__(self, failure: Failure, why: str) -> None:
        super().__init__(why)
        self.failure, self.why = failure, why


class Endpoint:
    """`session`: user:password.  One thread at a time, but for `parallel`."""

    def __init__(self, url: str, session: str, auth_file: str = "", timeout_s: float = TIMEOUT_S) -> None:
        self.url = url
        self.user, _, self.secret = session.partition(":")
        self._session, self._auth_file, self._timeout_s = session, auth_file or "(--auth)", timeout_s
        self.one = LeanServer(url, session, timeout_s)

    def ask(self, call: Callable[[LeanServer], Any]) -> Any:
        """Raises `Trouble`."""
        return self._ask(self.one, call)

    def tree(self, call: Callable[[LeanServer], Any]) -> Any:
        """An answer that is XML.  Raises `Trouble`."""
        text = str(self.ask(call))
        try:
            return etree.fromstring(text.encode(), etree.XMLParser(**_PARSER))
        except etree.XMLSyntaxError as error:
            raise Trouble(Failure.MALFORMED, str(error)) from error

    def trouble(self, check: str, trouble: Trouble) -> Finding:
        """The finding that a failed call is."""
        rule = RULES[trouble.failure]
        told = {"url": self.url, "user": self.user, "auth_file": self._auth_file, "why": trouble.why}
        return fail(check, f"{trouble.failure.value}: {trouble.why}", rule.advice.format(**told))

    def parallel(self, calls: int) -> list[float]:
        """Seconds that each of several calls at once took, on a connection of its own.  Raises `Trouble`."""

        def one(_number: int) -> float:
            server = LeanServer(self.url, self._session, self._timeout_s)
            began = time.monotonic()
            try:
                self._ask(server, lambda one: one.system.version())
                return time.monotonic() - began
            finally:
                server.lean.close()

        with ThreadPoolExecutor(calls) as pool:
            return sorted(pool.map(one, range(calls)))

    def close(self) -> None:
        self.one.lean.close()

    @staticmethod
    def _ask(server: LeanServer, call: Callable[[LeanServer], Any]) -> Any:
        try:
            return call(server)
        except ERRORS as error:
            why = _SECRET.sub("…", " ".join(str(error).split()))[:300]
            raise Trouble(failure_of(error), why) from error


def speaks_zeromq(host: str, port: int = 0) -> str:
    """Empty if a ZeroMQ socket greets there; else why not.  (ZMTP 3: ten bytes, the first 0xFF and the last 0x7F.)  `host`: a
    name, an address, or ipc:///PATH."""
    try:
        with _connected(host, port) as line:
            line.settimeout(GREETING_S)
            greeting = b""
            while len(greeting) < 10:
                part = line.recv(10 - len(greeting))
                if not part:
                    return "the connection was closed"
                greeting += part
    except OSError as error:
        return message_of(error)
    return "" if greeting[0] == 0xFF and greeting[9] == 0x7F else "something else than ZeroMQ answers"


def _connected(host: str, port: int) -> socket.socket:
    """Raises OSError."""
    if not host.startswith(IPC):
        return socket.create_connection((host, port), GREETING_S)
    line = socket.socket(socket.AF_UNIX)
    try:
        line.settimeout(GREETING_S)
        line.connect(host.removeprefix(IPC))
    except OSError:
        line.close()
        raise
    return line


def is_loopback(url_or_host: str) -> bool:
    """Of an address that only this machine reaches."""
    name = urlsplit(url_or_host).hostname if "//" in url_or_host else url_or_host.rpartition(":")[0] or url_or_host
    return (name or "").strip("[]") in ("localhost", "::1") or (name or "").startswith("127.")
